"""What a running pipeline tells whoever watches it: the live table, the JSON log, a test."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

from lossless.pipeline.ledger import Ledger, SourcePartition


@dataclass(frozen=True, slots=True, kw_only=True)
class Started:
    pipeline: str
    sink: str
    ledger: Ledger
    offsets: Mapping[SourcePartition, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Accepted:
    """What `--accept-loss` gave up: everything it ever will in this run."""

    pipeline: str
    losses: Mapping[SourcePartition, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Committed:
    """A batch is in the table, with everything up to `ledger`."""

    pipeline: str
    ledger: Ledger
    records: int
    rows: int
    dead_letters: int
    filtered: int
    staging_s: float
    commit_s: float
    batch_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Lag:
    """Records between the ledger and the end of the log, by partition."""

    pipeline: str
    by_partition: Mapping[SourcePartition, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Retrying:
    pipeline: str
    why: str
    wait_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Warned:
    pipeline: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Stopped:
    pipeline: str
    ledger: Ledger | None  # None: stopped before it was read
    complete: bool  # a run with `once` has stored everything that was there
    why: str


Event = Started | Accepted | Committed | Lag | Retrying | Warned | Stopped

Observer = Callable[[Event], None]


def unobserved(event: Event) -> None:
    """For a pipeline that nobody watches."""


def as_json(event: Event) -> dict[str, object]:
    """An event as a log collector takes it."""
    common: dict[str, object] = {
        "time": datetime.now(UTC).isoformat(timespec="milliseconds"),
        "event": type(event).__name__.lower(),
        "pipeline": event.pipeline,
    }
    match event:
        case Started():
            return {
                **common,
                "sink": event.sink,
                "sequence": event.ledger.sequence,
                "offsets": {str(source): offset for source, offset in event.offsets.items()},
            }
        case Accepted():
            return {
                **common,
                "losses": {str(source): what for source, what in event.losses.items()},
            }
        case Committed():
            return {
                **common,
                "sequence": event.ledger.sequence,
                "records": event.records,
                "rows": event.rows,
                "dead_letters": event.dead_letters,
                "filtered": event.filtered,
                "staging_s": round(event.staging_s, 3),
                "commit_s": round(event.commit_s, 3),
                "batch_s": round(event.batch_s, 3),
            }
        case Lag():
            return {**common, "lag": {str(s): behind for s, behind in event.by_partition.items()}}
        case Retrying():
            return {**common, "why": event.why, "wait_s": event.wait_s}
        case Warned():
            return {**common, "message": event.message}
        case Stopped():
            sequence = event.ledger.sequence if event.ledger else None
            return {**common, "sequence": sequence, "complete": event.complete, "why": event.why}
