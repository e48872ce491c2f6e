"""`lossless demo`: demonstrates delivery on real components that are killed with SIGKILL."""

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
    from lossless.demo.progress import Counts, InjectedFault
    from lossless.demo.result import DemoResult
    from lossless.pipeline.audit import AuditReport

ORDERS_MIN = 1_000  # fewer do not fill the batches between which the faults are injected
SHOWN_MAX = 10
SILENCE_MAX_S = 5.0  # a demo that prints nothing for longer seems to hang
AUDIT_WIDTH = 120  # needed by the audit's table; a file or a pipe has no width of its own


@click.command()
@click.option(
    "--careless",
    is_flag=True,
    help="Use common but unsafe settings, and show the records lost and duplicated.",
)
@click.option(
    "--records",
    type=click.IntRange(min=ORDERS_MIN),
    default=200_000,
    show_default=True,
    help="Number of orders to produce.",
)
@click.option(
    "--keep",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="DIR",
    help="Keep the contract, table, logs and events in DIR, a new or empty folder. By default "
    "everything is deleted.",
)
@options.engine
@options.output_format
def command(
    careless: bool, records: int, keep: Path | None, engine: str, output_format: str
) -> None:
    """Deliver orders through a broker crash and a driver crash, then audit them.

    Starts three brokers, produces orders with idempotent producers, and runs a pipeline into a
    Delta table. While orders are in flight, the demo kills a partition leader with SIGKILL, then
    the Spark driver, between the commit to the table and the checkpoint. Both are restarted. At the
    end, the audit compares the acknowledged orders, the log and the table. The demo takes about a
    minute once the jars are fetched. Ctrl-C stops everything.

    With --careless the same faults hit common but unsafe settings: acks=1, no idempotence, and a
    plain append in foreachBatch. The exit code is then 1, because the promise is broken.

    \b
    The last line counts
      acknowledged   orders that Kafka acknowledged
      stored         distinct orders in the table
      lost           acknowledged orders that are not in the table
      duplicated     rows beyond the first of each order

    \b
    Examples
      lossless demo
      lossless demo --careless
      lossless demo --kafka apache
      lossless demo --keep ./demo && ls ./demo
    """
    require_extra("spark")  # now, because the drivers, separate processes, start much later
    from lossless.demo.careful import run_careful
    from lossless.demo.careless import run_careless

    run = run_careless if careless else run_careful
    with _interruptible(), _show_progress() as progress:
        result = run(engine=engine, orders=records, keep=keep, progress=progress)
    if output_format == "json":
        print(json.dumps(_as_json(result)))
    else:
        _print(result, keep)
    if not result.kept:
        sys.exit(PromiseBroken.exit_code)


@contextmanager
def _interruptible() -> Iterator[None]:
    """Turns the first signal into KeyboardInterrupt and ignores later ones during the cleanup."""

    def interrupt(_number: int, _frame: FrameType | None) -> None:
        for number in signals:
            signal.signal(number, signal.SIG_IGN)
        raise KeyboardInterrupt

    signals = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = {number: signal.signal(number, interrupt) for number in signals}
    try:
        yield
    except KeyboardInterrupt:
        stderr.print("stopped; no process is left running")
        raise
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class _LineProgress:
    """Prints a line for every event, and the counts after a while without events."""

    def __init__(self, *, silence_max_s: float = SILENCE_MAX_S) -> None:
        self._silence_max_s = silence_max_s
        self._began = self._line_at = time.monotonic()
        self._counts: Counts | None = None
        self._step = ""

    @contextmanager
    def heartbeat(self) -> Iterator[None]:
        """While the context is active, prints a line whenever none was printed for too long."""
        ended = threading.Event()
        thread = threading.Thread(target=self._print_heartbeats, args=(ended,), daemon=True)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()

    def _print_heartbeats(self, ended: threading.Event) -> None:
        while not ended.wait(self._silence_max_s / 10):
            # 0.8 plus the tenth between two checks stays below the maximum.
            if time.monotonic() - self._line_at >= self._silence_max_s * 0.8:
                counts = _format_counts(self._counts) if self._counts else self._step or "starting"
                self._line(f"  [dim]…[/] {escape(counts)}")

    def step(self, what: str) -> None:
        self._step = what
        self._line(escape(what))

    def fault(self, fault: InjectedFault) -> None:
        self._line(f"[bold red]{escape(fault.what)}[/]")
        self._line(f"  [dim]{escape(fault.evidence)}[/]")

    def counts(self, counts: Counts) -> None:
        self._counts = counts

    def _line(self, markup: str) -> None:
        self._line_at = time.monotonic()
        stderr.print(f"[dim]{time.monotonic() - self._began:6.1f} s[/]  {markup}")


class _LiveProgress(_LineProgress):
    """Shows the counts in the last line of a terminal and updates them in place."""

    def __init__(self, status: Status) -> None:
        super().__init__()
        self._status = status

    def step(self, what: str) -> None:
        super().step(what)
        # Not before the first step: until then the progress bar of the jars may be shown.
        self._status.start()
        self._status.update(escape(what))

    def counts(self, counts: Counts) -> None:
        self._status.update(f"{escape(self._step)}\n  {_format_counts(counts)}")


@contextmanager
def _show_progress() -> Iterator[_LineProgress]:
    if not stderr.is_terminal:
        lines = _LineProgress()
        with lines.heartbeat():
            yield lines
        return
    status = stderr.status("")
    try:
        yield _LiveProgress(status)
    finally:
        status.stop()


def _format_counts(counts: Counts) -> str:
    return (
        f"{counts.acknowledged:,} of {counts.orders:,} orders acknowledged, "
        f"{counts.stored:,} records in the table"
    )


def _print(result: DemoResult, keep: Path | None) -> None:
    if result.audit is not None:
        _print_audit(result.audit)
    if result.comparison is not None:
        _print_orders("lost: acknowledged, but not in the table", result.comparison.lost)
        _print_orders("duplicated: in the table more than once", result.comparison.duplicated)
    if keep is not None:
        stdout.print(f"kept all files in {keep}", markup=False)
    if result.variant == "careless":
        stdout.print(
            "The promise is broken, as expected with these settings: acknowledged orders are "
            "missing, others are stored twice, and nothing reported it."
        )
    elif not result.kept:
        stdout.print("The promise is broken.")
    print(result.last_line)


def _print_audit(report: AuditReport) -> None:
    from lossless.pipeline.audit.terminal import render

    # Without its conclusion: the demo prints its own as the last line.
    *parts, _conclusion = render(report)
    wide = Console(width=max(stdout.width, AUDIT_WIDTH), highlight=False, soft_wrap=True)
    for part in parts:
        wide.print(part)


def _print_orders(title: str, judged: Sequence[JudgedOrder]) -> None:
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1), title=title, title_justify="left")
    for name in ("order", "partition", "offset", "copies"):
        table.add_column(name, justify="right")
    for order in judged[:SHOWN_MAX]:
        table.add_row(str(order.order), str(order.partition), str(order.offset), str(order.copies))
    stdout.print(table)
    if len(judged) > SHOWN_MAX:
        stdout.print(f"  and {len(judged) - SHOWN_MAX} more; --keep DIR saves the complete list")


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
