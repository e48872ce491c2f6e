"""`lossless run`: delivers records from topics to tables, exactly once."""

from __future__ import annotations

import json
import signal
import sys
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

import click

from lossless.cli import options
from lossless.cli.console import counted, print_failure, stderr, stdout
from lossless.cli.run_display import JsonLog, LineLog, LiveTable
from lossless.contract import load_contract
from lossless.contract.rules.judging import enforce
from lossless.errors import (
    EXIT_INTERRUPTED,
    BadInput,
    Interrupted,
    decisive_exit_code,
    exit_code_of,
)

if TYPE_CHECKING:
    from lossless.pipeline.events import Event
    from lossless.pipeline.ledger import Ledger
    from lossless.pipeline.pipeline import DryRun, Pipeline


@click.command()
@click.argument("pipelines", nargs=-1, metavar="[PIPELINE]...")
@click.option("--once", is_flag=True, help="Stop when all records that exist now are stored.")
@click.option(
    "--dry-run", is_flag=True, help="Show settings, offsets and schema, and write nothing."
)
@options.master
@options.kafka
@options.contract
@click.option(
    "--accept-loss",
    is_flag=True,
    help="Continue although records were deleted (retention, a re-created topic), and record the "
    "loss in the ledger.",
)
@click.option(
    "--log-format",
    type=click.Choice(["text", "json"]),
    default="text",
    show_default=True,
    help="Format of progress on stderr; json is one object per line.",
)
@options.output_format
def command(
    pipelines: tuple[str, ...],
    once: bool,
    dry_run: bool,
    master: str,
    kafka: str | None,
    contract_path: Path | None,
    accept_loss: bool,
    log_format: str,
    output_format: str,
) -> None:
    """Deliver records from topics to tables, exactly once.

    Runs the given pipelines, or all pipelines of the contract. Each batch commits its rows, dead
    letters, counts and offsets together in the sink. After a crash, the next run resumes from the
    offsets in the sink and needs no checkpoint. Ctrl-C or SIGTERM finishes the current batch, then
    stops.

    \b
    Exit codes: 0 stopped by SIGTERM, or with --once everything is stored; 130 stopped by Ctrl-C,
    or with --once by either signal before everything was stored.

    \b
    Examples
      lossless run orders                 run until stopped
      lossless run --once                 store all records that exist now, then stop
      lossless run orders --dry-run       show what would be read and written
    """
    from lossless.engines.choose import connect
    from lossless.pipeline.before_spark import check_folders, check_master
    from lossless.pipeline.events import Committed, Stopped
    from lossless.pipeline.pipeline import Pipeline, check_pipeline, find_pipeline, spark_log
    from lossless.pipeline.session import build_session

    contract = load_contract(contract_path)
    names = pipelines or tuple(contract.pipelines)
    if not names:
        raise BadInput(f"{contract.path} has no pipelines", hint="add a [pipelines.NAME] section")
    chosen = [find_pipeline(contract, name) for name in names]
    enforce(contract, pipelines=names)
    for each in chosen:
        check_pipeline(each, contract.folder)
    check_master(master)
    check_folders(contract, chosen)
    if len(names) == 1:
        running = [Pipeline(names[0], contract=contract, kafka=kafka, master=master)]
    else:
        connect(kafka, contract)  # finds an unreachable cluster before Spark starts
        settings = {key: value for each in chosen for key, value in each.spark.items()}
        spark = build_session(
            "pipelines", master=master, settings=settings, log=spark_log(contract)
        )
        running = [Pipeline(name, contract=contract, kafka=kafka, spark=spark) for name in names]

    if dry_run:
        for pipeline in running:
            _print_dry_run(pipeline.dry_run(accept_loss=accept_loss), output_format)
        return

    show = JsonLog() if log_format == "json" else LiveTable() if stderr.is_terminal else LineLog()
    read_now = Counter[str]()
    complete = set[str]()

    def observe(event: Event) -> None:
        if isinstance(event, Committed):
            read_now[event.pipeline] += event.records
        if isinstance(event, Stopped) and event.complete:
            complete.add(event.pipeline)
        show(event)

    with show:
        results, failures, interrupted = _run_all(
            running,
            lambda p: p.run(once=once, accept_loss=accept_loss, observe=observe),
            stop_the_others=not once,
        )
    for index, ledger in sorted(results.items()):
        name = names[index]
        done = name in complete if once else None
        _print_result(name, ledger, read_now[name], output_format, complete=done)
    if len(running) == 1 and failures:
        raise failures[0]
    for index, error in sorted(failures.items()):
        print_failure(names[index], error)
    if failures:
        sys.exit(decisive_exit_code({exit_code_of(error) for error in failures.values()}))
    if interrupted or (once and len(complete) < len(names)):
        sys.exit(EXIT_INTERRUPTED)


def _run_all(
    pipelines: list[Pipeline], run: Callable[[Pipeline], Ledger], *, stop_the_others: bool
) -> tuple[dict[int, Ledger | None], dict[int, BaseException], bool]:
    """Runs every pipeline in its own thread. Returns ledgers and failures by index, and whether
    SIGINT interrupted the run. A pipeline that was stopped before it read its ledger has None.

    With `stop_the_others`, the failure of one pipeline drains the others, so that a supervisor can
    restart the process. Without, the others run to their end.
    """
    results: dict[int, Ledger | None] = {}
    failures: dict[int, BaseException] = {}
    interrupted = threading.Event()

    def drain(number: int, _frame: FrameType | None) -> None:
        if number == signal.SIGINT:
            if interrupted.is_set():
                raise KeyboardInterrupt
            interrupted.set()
        stderr.print("stopping; a batch under way is finished first …")
        for pipeline in pipelines:
            pipeline.stop()

    def work(index: int) -> None:
        try:
            results[index] = run(pipelines[index])
        except Interrupted:
            results[index] = None
        except BaseException as error:
            failures[index] = error
            if stop_the_others:
                for pipeline in pipelines:
                    pipeline.stop()

    threads = [threading.Thread(target=work, args=(i,)) for i in range(len(pipelines))]
    for thread in threads:
        thread.start()
    # PySpark installs its own SIGINT handler when a session starts, but only in the main thread.
    # These sessions start in other threads, so our handlers stay.
    signal.signal(signal.SIGINT, drain)
    signal.signal(signal.SIGTERM, drain)
    for thread in threads:
        while thread.is_alive():
            thread.join(0.2)
    return results, failures, interrupted.is_set()


def _print_result(
    name: str, ledger: Ledger | None, read_now: int, output_format: str, *, complete: bool | None
) -> None:
    """`complete`: whether a run with --once has stored everything; None without --once."""
    if output_format == "json":
        print(json.dumps({"pipeline": name, **_totals(ledger, read_now), "complete": complete}))
        return
    if ledger is None:
        line = "stopped before its ledger was read; nothing was written"
    else:
        line = f"{summary(ledger, read_now)} (ledger {ledger.sequence})"
        if complete is False:
            line += "; stopped before the end"
    stdout.print(f"{name}: {line}", markup=False)


def _totals(ledger: Ledger | None, read_now: int) -> dict[str, object]:
    """What the ledger counts; None for each count if it was not read."""
    positions = ledger.positions if ledger else {}
    held = positions.values()
    totals: dict[str, object] = {
        "sequence": ledger.sequence if ledger else None,
        "records_of_this_run": read_now,
        "records": sum(p.read.count for p in held),
        "rows": sum(p.rows for p in held),
        "dead_letters": sum(p.dead.count for p in held),
        "filtered": sum(p.filtered.count for p in held),
        "lost_accepted": sum(p.lost for p in held),
        "offsets": {str(source): p.next_offset for source, p in sorted(positions.items())},
    }
    return totals if ledger else {**dict.fromkeys(totals), "records_of_this_run": 0}


def summary(ledger: Ledger, read_now: int) -> str:
    """Returns one line: the records of this run, and the totals of the table."""
    positions = ledger.positions.values()
    records = sum(p.read.count for p in positions)
    rows, stored = sum(p.rows for p in positions), sum(p.stored.count for p in positions)
    dead = sum(p.dead.count for p in positions)
    filtered = sum(p.filtered.count for p in positions)
    became = counted(rows, "row")
    if rows != stored:
        became += f" of {counted(stored, 'record')}"  # a transform made several rows of one record
    parts = [became]
    if dead:
        parts.append(counted(dead, "dead letter"))
    if filtered:
        parts.append(f"{filtered:,} filtered")
    total = f"{counted(records, 'record')} = {' + '.join(parts)}"
    if not read_now:
        return f"nothing new; in total {total}"
    if read_now == records:
        return total
    return f"{counted(read_now, 'new record')}; in total {total}"


def _print_dry_run(plan: DryRun, output_format: str) -> None:
    difference = plan.schema_difference
    if output_format == "json":
        print(
            json.dumps(
                {
                    "pipeline": plan.pipeline,
                    "sink": plan.sink,
                    "settings": dict(plan.client_settings),
                    "sequence": plan.ledger.sequence,
                    "offsets": {
                        str(source): {"from": offset, "to": plan.latest[source]}
                        for source, offset in sorted(plan.offsets.items())
                    },
                    "schema": plan.row_schema.jsonValue(),
                    "schema_difference": {
                        "table_exists": difference.exists,
                        "added": list(difference.added),
                        "incompatible": list(difference.incompatible),
                    },
                }
            )
        )
        return
    stdout.print(f"[bold]{plan.pipeline}[/] → {plan.sink}, ledger at {plan.ledger.sequence}")
    stdout.print("settings")
    for name, value in sorted(plan.client_settings.items()):
        stdout.print(f"  {name} = {value}", markup=False)
    stdout.print("to read")
    for source, offset in sorted(plan.offsets.items()):
        behind = plan.latest[source] - offset
        stdout.print(f"  {source}: {offset} to {plan.latest[source]} ({counted(behind, 'offset')})")
    stdout.print("schema" + ("" if difference.exists else " (the table does not exist yet)"))
    for field in plan.row_schema.fields:
        stdout.print(f"  {field.name} {field.dataType.simpleString()}", markup=False)
    for column in difference.added:
        stdout.print(f"  + {column}: not in the table", markup=False)
    for sentence in difference.incompatible:
        stdout.print(f"  ✗ {sentence}", markup=False)
