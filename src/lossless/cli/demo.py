"""`lossless demo`: the promise on real components, under kill -9, in about a minute."""

from __future__ import annotations

import json
import signal
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

import click
from rich import box
from rich.console import Console
from rich.markup import escape
from rich.status import Status
from rich.table import Table

from lossless.cli import options
from lossless.cli.console import stderr, stdout
from lossless.errors import PromiseBroken
from lossless.extras import require_extra

if TYPE_CHECKING:
    from lossless.demo.comparison import JudgedOrder
    from lossless.demo.result import DemoResult
    from lossless.demo.telling import Counts, FaultTold
    from lossless.pipeline.audit import AuditReport

ORDERS_LEAST = 1_000  # fewer do not fill the batches between which the faults fall
SHOWN_MAX = 10
SILENCE_MAX_S = 5.0  # a demo that says nothing for longer seems to hang
AUDIT_WIDTH = 120  # what the audit's table takes; a file or a pipe has no width of its own


@click.command()
@click.option(
    "--careless",
    is_flag=True,
    help="The settings people usually have: see what is lost and what is duplicated.",
)
@click.option(
    "--records",
    type=click.IntRange(min=ORDERS_LEAST),
    default=200_000,
    show_default=True,
    help="How many orders to produce.",
)
@click.option(
    "--keep",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="DIR",
    help="Keep everything in DIR (new or empty): contract, table, logs, events. Otherwise "
    "nothing is left.",
)
@options.engine
@options.output_format
def command(
    careless: bool, records: int, keep: Path | None, engine: str, output_format: str
) -> None:
    """See nothing get lost while brokers and drivers die.

    Starts three brokers in processes of their own, produces orders with idempotent producers that
    report what was acknowledged, and runs a pipeline into a Delta table. In the middle of it the
    leader of a partition is killed with -9, then the Spark driver between the table's commit and
    its own checkpoint; both come back. The audit at the end compares what was acknowledged, the
    log and the table. About a minute, once the jars are there; Ctrl-C stops everything.

    With --careless the same happens to what people usually have: acks=1, no idempotence, a plain
    append in foreachBatch. The exit code is then 1, because the promise is broken.

    \b
    The last line counts
      acknowledged   orders that Kafka told a producer it had
      stored         distinct orders in the table
      lost           acknowledged, and not in the table
      duplicated     rows beyond the first of their order

    \b
    Examples
      lossless demo
      lossless demo --careless
      lossless demo --kafka apache
      lossless demo --keep ./demo && ls ./demo
    """
    require_extra("spark")  # the drivers are processes of their own, started a minute later
    from lossless.demo.careful import run_careful
    from lossless.demo.careless import run_careless

    run = run_careless if careless else run_careful
    with _interruptible(), _telling() as teller:
        result = run(engine=engine, orders=records, keep=keep, teller=teller)
    if output_format == "json":
        print(json.dumps(_as_json(result)))
    else:
        _print(result, keep)
    if not result.kept:
        sys.exit(PromiseBroken.exit_code)


@contextmanager
def _interruptible() -> Iterator[None]:
    """The first signal unwinds everything; while that goes on, a second one must not disturb."""

    def interrupt(_number: int, _frame: FrameType | None) -> None:
        for number in signals:
            signal.signal(number, signal.SIG_IGN)
        raise KeyboardInterrupt

    signals = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = {number: signal.signal(number, interrupt) for number in signals}
    try:
        yield
    except KeyboardInterrupt:
        stderr.print("stopped; nothing is left running")
        raise
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class _Lines:
    """A line for everything that happens, and one with the counts when nothing does."""

    def __init__(self, *, silence_max_s: float = SILENCE_MAX_S) -> None:
        self._silence_max_s = silence_max_s
        self._began = self._line_at = time.monotonic()
        self._counts: Counts | None = None
        self._step = ""

    @contextmanager
    def never_silent(self) -> Iterator[None]:
        """Meanwhile a line is printed whenever none was for too long, whatever the demo waits for:
        brokers, a session, the audit."""
        ended = threading.Event()
        thread = threading.Thread(target=self._break_silence, args=(ended,), daemon=True)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()

    def _break_silence(self, ended: threading.Event) -> None:
        while not ended.wait(self._silence_max_s / 10):
            # A tenth earlier than too late.
            if time.monotonic() - self._line_at >= self._silence_max_s * 0.8:
                counts = _counted(self._counts) if self._counts else self._step or "starting"
                self._line(f"  [dim]…[/] {escape(counts)}")

    def step(self, what: str) -> None:
        self._step = what
        self._line(escape(what))

    def fault(self, fault: FaultTold) -> None:
        self._line(f"[bold red]{escape(fault.what)}[/]")
        self._line(f"  [dim]{escape(fault.evidence)}[/]")

    def counts(self, counts: Counts) -> None:
        self._counts = counts

    def _line(self, markup: str) -> None:
        self._line_at = time.monotonic()
        stderr.print(f"[dim]{time.monotonic() - self._began:6.1f} s[/]  {markup}")


class _Live(_Lines):
    """On a terminal the counts stand in the last line, and change there."""

    def __init__(self, status: Status) -> None:
        super().__init__()
        self._status = status

    def step(self, what: str) -> None:
        super().step(what)
        # Not before the first step: until then a bar may show how the jars are fetched.
        self._status.start()
        self._status.update(escape(what))

    def counts(self, counts: Counts) -> None:
        self._status.update(f"{escape(self._step)}\n  {_counted(counts)}")


@contextmanager
def _telling() -> Iterator[_Lines]:
    if not stderr.is_terminal:
        lines = _Lines()
        with lines.never_silent():
            yield lines
        return
    status = stderr.status("")
    try:
        yield _Live(status)
    finally:
        status.stop()


def _counted(counts: Counts) -> str:
    return (
        f"{counts.acknowledged:,} of {counts.orders:,} orders acknowledged, "
        f"{counts.stored:,} records in the table"
    )


def _print(result: DemoResult, keep: Path | None) -> None:
    if result.audit is not None:
        _print_audit(result.audit)
    if result.comparison is not None:
        _print_judged("lost: acknowledged, and not in the table", result.comparison.lost)
        _print_judged("duplicated: in the table more than once", result.comparison.duplicated)
    if keep is not None:
        stdout.print(f"everything is in {keep}", markup=False)
    if result.variant == "careless":
        stdout.print(
            "The promise is broken, as it was meant to be: acknowledged orders are gone, others "
            "are there twice, and no setting or tool of this set-up told anybody."
        )
    elif not result.kept:
        stdout.print("The promise is broken.")
    print(result.last_line)


def _print_audit(report: AuditReport) -> None:
    from lossless.pipeline.audit.terminal import render

    # Its conclusion is our last line, which other lines may come before.
    *parts, _conclusion = render(report)
    wide = Console(width=max(stdout.width, AUDIT_WIDTH), highlight=False, soft_wrap=True)
    for part in parts:
        wide.print(part)


def _print_judged(title: str, judged: Sequence[JudgedOrder]) -> None:
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1), title=title, title_justify="left")
    for name in ("order", "partition", "offset", "copies"):
        table.add_column(name, justify="right")
    for order in judged[:SHOWN_MAX]:
        table.add_row(str(order.order), str(order.partition), str(order.offset), str(order.copies))
    stdout.print(table)
    if len(judged) > SHOWN_MAX:
        stdout.print(f"  and {len(judged) - SHOWN_MAX} more; --keep DIR writes all of them down")


def _as_json(result: DemoResult) -> dict[str, Any]:
    document: dict[str, Any] = {
        "variant": result.variant,
        "kept": result.kept,
        "orders": result.orders,
        "acknowledged": result.acknowledged,
        "stored": result.stored,
        "lost": result.lost,
        "duplicated": result.duplicated,
        "seconds": result.seconds,
        "faults": [asdict(fault) for fault in result.faults],
    }
    if result.audit is not None:
        from lossless.pipeline.audit.export import to_json

        document["audit"] = json.loads(to_json([result.audit]))
    if result.comparison is not None:
        document["lost_orders"] = [asdict(order) for order in result.comparison.lost]
        document["duplicated_orders"] = [asdict(order) for order in result.comparison.duplicated]
    return document
