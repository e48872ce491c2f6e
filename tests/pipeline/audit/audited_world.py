"""A small pipeline on paper: a log, what became of every record, and the ledger that says so.

Tests damage it (delete a row, shift the ledger) and ask what the audit says.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace

from lossless.pipeline.audit.balance import Examination, OffsetRange, add, examine, expands
from lossless.pipeline.audit.model import (
    Difference,
    Finding,
    Group,
    LogBounds,
    PartitionEvidence,
    Region,
)
from lossless.pipeline.audit.naming import name_records
from lossless.pipeline.ledger import LedgerEntry, Position, Receipt, SourcePartition
from lossless.tally import Tally, record_hash

SOURCE = SourcePartition("orders", "topic-id-of-orders", 0)
BUCKET_MS = 10_000
STORED, DEAD, FILTERED = "stored", "dead", "filtered"


def tally(offsets: list[int]) -> Tally:
    return add(Tally(1, record_hash(SOURCE.topic_id, SOURCE.partition, o)) for o in offsets)


def timestamp_ms(offset: int) -> int:
    return 1_700_000_000_000 + offset * 1_000


def bucket_of(offset: int) -> int:
    return timestamp_ms(offset) - timestamp_ms(offset) % BUCKET_MS


@dataclass
class World:
    """`fate` says what became of each settled record; offsets it lacks are transaction markers."""

    fate: dict[int, str]
    commits: list[int]  # the next offset after each commit
    ahead: list[int] = field(default_factory=list)
    rows: list[int] = field(default_factory=list)
    letters: list[int] = field(default_factory=list)
    moved: dict[int, int] = field(default_factory=dict)  # rows with another timestamp
    log_start: int = 0
    compacted: bool = False
    gone_from_log: set[int] = field(default_factory=set)
    start_offset: int = 0
    acknowledged: list[int] | None = None

    def __post_init__(self) -> None:
        self.rows = [o for o, f in sorted(self.fate.items()) if f == STORED]
        self.letters = [o for o, f in sorted(self.fate.items()) if f == DEAD]
        self.history = self._history()
        self.position = self.history[-1].after[SOURCE]

    def _history(self) -> list[LedgerEntry]:
        position = Position(start_offset=self.start_offset, next_offset=self.start_offset)
        history = []
        for sequence, next_offset in enumerate(self.commits, start=1):
            inside = [o for o in self.fate if position.next_offset <= o < next_offset]
            by_fate = {fate: [o for o in inside if self.fate[o] == fate] for fate in (STORED, DEAD)}
            after = position.advanced(
                next_offset,
                Receipt(
                    read=tally(inside),
                    stored=tally(by_fate[STORED]),
                    dead=tally(by_fate[DEAD]),
                    rows=len(by_fate[STORED]),
                ),
            )
            history.append(
                LedgerEntry(
                    sequence=sequence,
                    committed_at_ms=0,
                    before={SOURCE: position} if sequence > 1 else {},
                    after={SOURCE: after},
                )
            )
            position = after
        return history

    @property
    def log(self) -> list[int]:
        return [
            o
            for o in sorted([*self.fate, *self.ahead])
            if o >= self.log_start and o not in self.gone_from_log
        ]

    def region(self, offset: int) -> Region:
        if offset >= self.position.next_offset:
            return Region.AHEAD
        if offset < self.position.start_offset:
            return Region.BEFORE
        return Region.PURGED if offset < self.log_start else Region.SETTLED

    def groups(self, offsets: list[int], *, table: bool = False) -> dict[tuple[int, Region], Group]:
        found: dict[tuple[int, Region], list[int]] = {}
        for o in offsets:
            moment = self.moved.get(o, bucket_of(o)) if table else bucket_of(o)
            found.setdefault((moment, self.region(o)), []).append(o)
        distinct = table and expands(self.position)
        return {
            key: Group(
                tally=tally(sorted(set(inside)) if distinct else inside),
                rows=len(inside),
                first_offset=min(inside),
                last_offset=max(inside),
            )
            for key, inside in found.items()
        }

    def evidence(self) -> PartitionEvidence:
        by_bucket: dict[int, Tally] | None = None
        offsets: dict[int, tuple[int, int]] = {}
        if self.acknowledged is not None:
            by_bucket = {}
            for o in self.acknowledged:
                b = bucket_of(o)
                by_bucket[b] = by_bucket.get(b, Tally()) + tally([o])
                first, last = offsets.get(b, (o, o))
                offsets[b] = min(first, o), max(last, o)
        return PartitionEvidence(
            source=SOURCE,
            position=self.position,
            position_after=self.position,
            log=LogBounds(start=self.log_start, end=max([*self.fate, *self.ahead], default=-1) + 1),
            compacted=self.compacted,
            logged=self.groups([o for o in self.log if o >= self.position.start_offset]),
            stored=self.groups(self.rows, table=True),
            letters=self.groups(self.letters),
            acknowledged=by_bucket,
            acknowledged_offsets=offsets,
            history=self.history,
        )

    def examine(self) -> Examination:
        return examine(self.evidence())

    def findings(self) -> list[Finding]:
        examination = self.examine()
        return name_records(examination, self.differences(examination))

    def differences(self, examination: Examination) -> list[Difference]:
        """What `differences.py` asks Spark for."""
        ranges = [examination.compare] if examination.compare else []
        if examination.beyond:
            ranges.append(OffsetRange(first=self.position.next_offset, end=None))
        logged, rows, letters = Counter(self.log), Counter(self.rows), Counter(self.letters)
        found = []
        for o in sorted({*logged, *rows, *letters}):
            if not any(r.first <= o and (r.end is None or o < r.end) for r in ranges):
                continue
            difference = Difference(
                offset=o,
                logged=logged[o],
                rows=rows[o],
                letters=letters[o],
                key=f"key-{o}".encode() if logged[o] else None,
                logged_at_ms=timestamp_ms(o) if logged[o] else None,
                stored_at_ms=self.moved.get(o, timestamp_ms(o)) if rows[o] + letters[o] else None,
            )
            normal = rows[o] + letters[o] == 1 and (
                o < self.log_start
                or (self.compacted and not logged[o])
                or (logged[o] == 1 and o not in self.moved)
            )
            if o >= self.position.next_offset:
                normal = rows[o] + letters[o] == 0
            if not normal:
                found.append(difference)
        return found

    def shift(self, by: int) -> None:
        self.position = replace(self.position, next_offset=self.position.next_offset + by)
