"""`lossless audit`: compares topics with tables, by counts and hashes, down to single records."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from lossless.cli import options
from lossless.cli.console import print_failure, stderr, stdout
from lossless.contract import load_contract
from lossless.errors import (
    EXIT_KEPT,
    BadInput,
    PromiseBroken,
    Undecided,
    decisive_exit_code,
    exit_code_of,
)

if TYPE_CHECKING:
    from lossless.contract import PipelineContract
    from lossless.pipeline.audit import AuditReport

_WIDTH = re.compile(r"(\d+)([smhd])")
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}


@click.command()
@click.argument("pipelines", nargs=-1, metavar="[PIPELINE]...")
@click.option(
    "--bucket",
    metavar="WIDTH",
    help="Width of a time bucket, such as 10s, 2m, 1h or 1d [default: chosen automatically].",
)
@click.option(
    "--acknowledged",
    "acknowledged_file",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Acknowledged records, as the events of Kafka's VerifiableProducer (JSON lines).",
)
@click.option(
    "--contents",
    is_flag=True,
    help="Also compare each row's contents with the hash stored when it was written.",
)
@click.option(
    "--findings",
    "findings_shown",
    type=click.Choice(["some", "all"]),
    default="some",
    show_default=True,
    help="Findings to show in text output; JSON and Parquet always contain all.",
)
@options.output_format
@click.option(
    "--html",
    "html_file",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Also write a report with plots as one self-contained HTML file.",
)
@click.option(
    "--parquet",
    "parquet_folder",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="DIR",
    help="Also write buckets.parquet and findings.parquet into DIR.",
)
@options.master
@options.kafka
@options.contract
def command(
    pipelines: tuple[str, ...],
    bucket: str | None,
    acknowledged_file: Path | None,
    contents: bool,
    findings_shown: str,
    output_format: str,
    html_file: Path | None,
    parquet_folder: Path | None,
    master: str,
    kafka: str | None,
    contract_path: Path | None,
) -> None:
    """Check that every record arrived exactly once.

    Compares the log of a pipeline's topics with its table, per time bucket and per partition:

    \b
      acknowledged = logged + lost
      logged = stored + filtered + dead-lettered + in flight + explained

    The comparison uses counts and hashes of each record's origin (partition, offset, timestamp), so
    a lost record and a duplicated one do not cancel out. It does not read the contents of rows:
    add --contents to find rows that were changed after they were stored. Each discrepancy is listed
    with topic, partition, offset and key. The pipeline may keep running during an audit.

    \b
    Exit codes: 0 balanced, 1 not balanced, 3 undecided, 4 Kafka or the sink is unreachable.
    Every pipeline is reported; if one of them is not balanced, the exit code is 1.

    \b
    Examples
      lossless audit orders
      lossless audit orders --contents
      lossless audit orders --bucket 1m --html audit.html
      lossless audit --format json | jq .verdict
    """
    from lossless.engines.choose import connect
    from lossless.pipeline.audit import audit
    from lossless.pipeline.audit.acknowledged_file import read_acknowledged_file
    from lossless.pipeline.before_spark import check_folders, check_master, check_sink
    from lossless.pipeline.pipeline import find_pipeline, spark_log
    from lossless.pipeline.session import build_session
    from lossless.pipeline.sinks import open_sink

    bucket_s = _seconds(bucket) if bucket is not None else None
    contract = load_contract(contract_path)
    names = pipelines or tuple(contract.pipelines)
    if not names:
        raise BadInput(f"{contract.path} has no pipelines", hint="add a [pipelines.NAME] section")
    chosen = [find_pipeline(contract, name) for name in names]
    check_master(master)
    check_folders(contract, chosen)
    if acknowledged_file is not None:
        read_acknowledged_file(acknowledged_file)  # a mistake in it is found before Spark starts
    if html_file is not None:
        _require_place(html_file)
    if len(chosen) == 1:  # with several, one that cannot be audited must not hide the others
        check_sink(chosen[0], None)
    client_settings = connect(kafka, contract).client_settings
    with stderr.status("starting Spark") as status:
        spark = build_session(
            "audit",
            master=master,
            settings={key: value for each in chosen for key, value in each.spark.items()},
            log=spark_log(contract),
        )

        def progress(pipeline: str) -> Callable[[str], None]:
            def say(what: str) -> None:
                status.update(f"{pipeline}: {what}")
                if not stderr.is_terminal:
                    stderr.print(f"{pipeline}: {what}", markup=False)

            return say

        def audited(pipeline: PipelineContract) -> AuditReport:
            return audit(
                spark,
                pipeline=pipeline,
                sink=open_sink(spark, pipeline),
                client_settings={**client_settings, **pipeline.config},
                bucket_s=bucket_s,
                acknowledged_file=acknowledged_file,
                contents=contents,
                progress=progress(pipeline.name),
            )

        reports, failures = _audit_each(chosen, audited)
    _write(reports, html_file, parquet_folder)
    _show(reports, failures, output_format, all_findings=findings_shown == "all")
    sys.exit(_exit_code(reports, failures))


def _audit_each(
    pipelines: Sequence[PipelineContract], audited: Callable[[PipelineContract], AuditReport]
) -> tuple[list[AuditReport], dict[str, Exception]]:
    """Audits every pipeline. Returns the reports, and the errors by pipeline name."""
    reports, failures = [], {}
    for pipeline in pipelines:
        try:
            reports.append(audited(pipeline))
        except Exception as error:
            if len(pipelines) == 1:
                raise
            failures[pipeline.name] = error
    return reports, failures


def _seconds(text: str) -> int:
    match = _WIDTH.fullmatch(text)
    if match is None or int(match[1]) == 0:
        raise BadInput(f"--bucket {text} is not a width", hint="write 10s, 2m, 1h or 1d")
    return int(match[1]) * _SECONDS[match[2]]


def _require_place(file: Path) -> None:
    """Raises BadInput when a file cannot be written there."""
    if not file.parent.is_dir():
        raise BadInput(f"{file} cannot be written: there is no folder {file.parent}")
    if not os.access(file if file.exists() else file.parent, os.W_OK):
        raise BadInput(f"{file} cannot be written: permission denied")


def _write(reports: list[AuditReport], html_file: Path | None, parquet_folder: Path | None) -> None:
    from lossless.pipeline.audit.export import write_parquet
    from lossless.pipeline.audit.html import to_html

    if html_file is not None and reports:
        try:
            html_file.write_text(to_html(reports), encoding="utf-8")
        except OSError as error:
            raise BadInput(f"{html_file} cannot be written: {error.strerror}") from error
        stderr.print(f"wrote {html_file}", markup=False)
    if parquet_folder is not None and reports:
        write_parquet(reports, parquet_folder)
        stderr.print(f"wrote {parquet_folder}", markup=False)


def _show(
    reports: Sequence[AuditReport],
    failures: Mapping[str, Exception],
    output_format: str,
    *,
    all_findings: bool = False,
) -> None:
    from lossless.pipeline.audit.export import to_json
    from lossless.pipeline.audit.terminal import FINDINGS_MAX, render

    if output_format == "json":
        print(to_json(reports, failures))
    else:
        for number, report in enumerate(reports):
            if number:
                stdout.print()
            for part in render(report, findings_max=None if all_findings else FINDINGS_MAX):
                stdout.print(part)
    for name, error in failures.items():
        print_failure(name, error)


def _exit_code(reports: Sequence[AuditReport], failures: Mapping[str, Exception]) -> int:
    from lossless.pipeline.audit import Verdict

    code_of = {
        Verdict.BALANCED: EXIT_KEPT,
        Verdict.NOT_BALANCED: PromiseBroken.exit_code,
        Verdict.UNDECIDED: Undecided.exit_code,
    }
    codes = {code_of[report.verdict] for report in reports}
    return decisive_exit_code(codes | {exit_code_of(error) for error in failures.values()})
