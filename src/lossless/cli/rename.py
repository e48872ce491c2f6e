"""`lossless rename`: moves a pipeline's ledger to a new name."""

from __future__ import annotations

from pathlib import Path

import click
from rich.markup import escape

from lossless.cli import options
from lossless.cli.console import stderr, stdout
from lossless.contract import load_contract
from lossless.errors import BadInput


@click.command()
@click.argument("old")
@click.argument("new")
@options.master
@options.contract
def command(old: str, new: str, master: str, contract_path: Path | None) -> None:
    """Move a pipeline's ledger to a new pipeline name.

    The ledger is stored under the pipeline's name. A renamed pipeline would start from the
    beginning and store every row again, so `lossless run` refuses it. Rename the section in
    lossless.toml, then run this command: NEW continues where OLD stopped, with its counts and its
    dead letters. A driver that still runs OLD cannot commit any more.

    \b
    Example
      lossless rename orders shop-orders
    """
    from lossless.pipeline.before_spark import check_folders, check_master
    from lossless.pipeline.pipeline import find_pipeline, spark_log
    from lossless.pipeline.session import build_session
    from lossless.pipeline.sinks import open_sink

    contract = load_contract(contract_path)
    pipeline = find_pipeline(contract, new)
    if old == new:
        raise BadInput("OLD and NEW are the same name", hint="lossless rename OLD NEW")
    check_master(master)
    check_folders(contract, [pipeline])
    with stderr.status("starting Spark") as status:
        spark = build_session(
            "rename", master=master, settings=pipeline.spark, log=spark_log(contract)
        )
        try:
            status.update("opening the sink")
            sink = open_sink(spark, pipeline)
            place = sink.describe()
            status.update(f"moving the ledger of {escape(old)} in the {escape(place)}")
            ledger = sink.take_over(old)
        finally:
            spark.stop()
    stdout.print(
        f"{new} continues from the ledger of {old} in the {place}, at commit {ledger.sequence}",
        markup=False,
    )
