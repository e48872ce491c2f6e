"""What a running pipeline tells whoever watches it: the live table, the JSON log, a test."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from lossless.pipeline.ledger import Ledger, SourcePartition


@dataclass(frozen=True, slots=True, kw_only=True)
class Started:
    pipeline: str
    sink: str
    ledger: Ledger
    offsets: Mapping[SourcePartition, int]


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
    ledger: Ledger
    why: str


Event = Started | Committed | Lag | Retrying | Warned | Stopped

Observer = Callable[[Event], None]


def unobserved(event: Event) -> None:
    """For a pipeline that nobody watches."""
