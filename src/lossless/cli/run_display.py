"""Progress of a run: a live table on a terminal, lines in a file, JSON for a log collector."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from types import TracebackType
from typing import Self

from rich.live import Live
from rich.table import Table

from lossless.cli.console import counted, stderr
from lossless.pipeline.events import (
    Accepted,
    Committed,
    Event,
    Lag,
    Retrying,
    Started,
    Stopped,
    Warned,
    as_json,
)
from lossless.pipeline.ledger import SourcePartition


class LineLog:
    """Prints a line for every event except lag."""

    def __call__(self, event: Event) -> None:
        line = self.line(event)
        if line is not None:
            stderr.print(f"{datetime.now(UTC):%H:%M:%S} {event.pipeline}: {line}", markup=False)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        pass

    def line(self, event: Event) -> str | None:
        match event:
            case Started():
                return f"writing to {event.sink}, ledger at {event.ledger.sequence}"
            case Accepted():
                losses = "; ".join(f"{source}: {what}" for source, what in event.losses.items())
                return f"accepted as lost: {losses}"
            case Committed():
                return (
                    f"batch {event.ledger.sequence}: {counted(event.records, 'record')}, "
                    f"{counted(event.rows, 'row')}, {counted(event.dead_letters, 'dead letter')} "
                    f"in {event.batch_s:.2f} s"
                )
            case Retrying():
                return f"retrying in {event.wait_s:.1f} s: {event.why}"
            case Warned():
                return f"warning: {event.message}"
            case Stopped():
                return f"stopped: {event.why}"
            case Lag():
                return None


class JsonLog(LineLog):
    """Prints one JSON object per line, for a log collector."""

    def __call__(self, event: Event) -> None:
        print(json.dumps(as_json(event)), file=sys.stderr, flush=True)


@dataclass(slots=True)
class _Row:
    """The table's values for one pipeline."""

    batch: int = 0
    records: int = 0
    rows_per_s: float = 0.0
    dead_letters: int = 0
    committed_at: float | None = None
    lag: Mapping[SourcePartition, int] = field(default_factory=dict)
    note: str = "starting"


class LiveTable(LineLog):
    """A live table: batch, rows per second, lag by partition, dead letters and last commit."""

    def __init__(self) -> None:
        self._rows: dict[str, _Row] = {}
        self._live = Live(console=stderr, get_renderable=self._table, refresh_per_second=2)

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._live.stop()

    def __call__(self, event: Event) -> None:
        row = self._rows.setdefault(event.pipeline, _Row())
        match event:
            case Accepted():
                self._live.console.print(f"{event.pipeline}: {self.line(event)}", markup=False)
            case Committed():
                positions = event.ledger.positions.values()
                row.batch = event.ledger.sequence
                row.records = sum(p.read.count for p in positions)
                row.dead_letters = sum(p.dead.count for p in positions)
                row.rows_per_s = event.rows / event.batch_s if event.batch_s else 0.0
                row.committed_at = time.monotonic()
                row.note = "running"
            case Lag():
                row.lag = event.by_partition
            case Started():
                row.batch = event.ledger.sequence
                row.note = "running"
            case _:
                row.note = self.line(event) or ""

    def _table(self) -> Table:
        table = Table("pipeline", "batch", "records", "rows/s", "dead letters", "last commit")
        table.add_column("lag by partition")
        table.add_column("state")
        for name, row in self._rows.items():
            ago = "-" if row.committed_at is None else _ago(time.monotonic() - row.committed_at)
            table.add_row(
                name,
                str(row.batch),
                f"{row.records:,}",
                f"{row.rows_per_s:,.0f}",
                f"{row.dead_letters:,}",
                ago,
                _lag(row.lag),
                row.note,
            )
        return table


def _ago(seconds: float) -> str:
    return f"{seconds:.0f} s ago" if seconds < 120 else f"{seconds / 60:.0f} min ago"


def _lag(lag: Mapping[SourcePartition, int]) -> str:
    if not lag:
        return "-"
    if len(lag) > 12:
        worst = max(lag.items(), key=lambda item: item[1])
        return f"{sum(lag.values()):,} in total, maximum {worst[1]:,} in {worst[0]}"
    return " ".join(f"{source.partition}:{behind:,}" for source, behind in sorted(lag.items()))
