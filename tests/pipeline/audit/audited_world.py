"""A small pipeline on paper: a log, what became of every record, and the ledger that says so.

Tests damage it (delete a row, shift the ledger) and ask what the audit says.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from lossless.pipeline.audit.balance import (
    Examination,
    OffsetRange,
    add,
    balance_acknowledged,
    examine,
    expands,
)
from lossless.pipeline.audit.model import (
    Difference,
    Finding,
    Group,
    LogBounds,
    PartitionEvidence,
    Region,
)
from lossless.pipeline.audit.naming import name_lost, name_records
from lossless.pipeline.ledger import LedgerEntry, Position, Receipt, SourcePartition
from lossless.tally import HASH_MODULUS, Tally, record_hash

SOURCE = SourcePartition("orders", "topic-id-of-orders", 0)
BUCKET_MS = 10_000
STORED, DEAD, FILTERED = "stored", "dead", "filtered"


def tally(offsets: Iterable[int]) -> Tally:
    return add(Tally(1, record_hash(SOURCE.topic_id, SOURCE.partition, o)) for o in offsets)


def timestamp_ms(offset: int) -> int:
    return 1_700_000_000_000 + offset * 1_000


def bucket_of(offset: int) -> int:
    return timestamp_ms(offset) - timestamp_ms(offset) % BUCKET_MS


def _hash_of_moments(offsets: Iterable[int], moments: dict[int, int]) -> int:
    return sum(hash((o, moments.get(o, timestamp_ms(o)))) for o in offsets) % HASH_MODULUS


@dataclass
class World:
    """`fate` says what became of each settled record; offsets it lacks are transaction markers."""

    fate: dict[int, str]
    commits: list[int]  # the next offset after each commit
    ahead: list[int] = field(default_factory=list)
    rows: list[int] = field(default_factory=list)
    letters: list[int] = field(default_factory=list)
    moved: dict[int, int] = field(default_factory=dict)  # outcomes with another timestamp
    relogged: dict[int, int] = field(default_factory=dict)  # other records stand there since
    log_start: int = 0
    log_end: int | None = None  # None: just behind the last record
    compacted: bool = False
    gone_from_log: set[int] = field(default_factory=set)
    start_offset: int = 0
    acknowledged: list[int] | None = None
    rows_each: int = 1  # what a transform made of each record that it kept
    cut_back_to: int | None = None  # other records stand there since an unclean election
    moved_on_to: int | None = None  # a live pipeline's next offset after the scan
    gone: bool = False  # the topic was deleted

    def __post_init__(self) -> None:
        stored = [o for o, f in sorted(self.fate.items()) if f == STORED]
        self.rows = [o for o in stored for _ in range(self.rows_each)]
        self.letters = [o for o, f in sorted(self.fate.items()) if f == DEAD]
        self.history = self._history()
        self.position = self.history[-1].after[SOURCE]

    def _history(self) -> list[LedgerEntry]:
        position = Position(start_offset=self.start_offset, next_offset=self.start_offset)
        history = []
        for sequence, next_offset in enumerate(self.commits, start=1):
            inside = [o for o in self.fate if position.next_offset <= o < next_offset]
            by_fate = {fate: [o for o in inside if self.fate[o] == fate] for fate in (STORED, DEAD)}
            rows = by_fate[STORED] * self.rows_each
            after = position.advanced(
                next_offset,
                Receipt(
                    read=tally(inside),
                    stored=tally(by_fate[STORED]),
                    dead=tally(by_fate[DEAD]),
                    rows=len(rows),
                    row_hash=tally(rows).hash if self.rows_each > 1 else None,
                ),
                leader_epoch=3,
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

    def groups(
        self, offsets: list[int], moments: dict[int, int], *, rows: bool = False
    ) -> dict[tuple[int, Region], Group]:
        found: dict[tuple[int, Region], list[int]] = {}
        for o in offsets:
            moment = moments.get(o, timestamp_ms(o))
            found.setdefault((moment - moment % BUCKET_MS, self.region(o)), []).append(o)
        distinct = rows and expands(self.position)
        return {
            key: Group(
                tally=tally(sorted(set(inside)) if distinct else inside),
                rows=len(inside),
                first_offset=min(inside),
                last_offset=max(inside),
                row_hash=tally(inside).hash,
                moment_hash=_hash_of_moments(sorted(set(inside)) if distinct else inside, moments),
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
        after = self.position
        if self.moved_on_to is not None:
            after = replace(after, next_offset=self.moved_on_to)
        end = self.log_end
        if end is None:
            end = max([*self.fate, *self.ahead], default=-1) + 1
        return PartitionEvidence(
            source=SOURCE,
            position=self.position,
            position_after=after,
            log=None if self.gone else LogBounds(start=self.log_start, end=end),
            cut_back_to=self.cut_back_to,
            compacted=self.compacted,
            logged={}
            if self.gone
            else self.groups(
                [o for o in self.log if o >= self.position.start_offset], self.relogged
            ),
            stored=self.groups(self.rows, self.moved, rows=True),
            letters=self.groups(self.letters, self.moved),
            acknowledged=by_bucket,
            acknowledged_offsets=offsets,
            history=self.history,
        )

    def examine(self) -> Examination:
        return examine(self.evidence())

    def findings(self) -> list[Finding]:
        """What the audit names, comparing offsets only where it would."""
        examination = self.examine()
        if not examination.needs_comparison:
            return []
        return name_records(examination, self.differences(examination))

    def findings_about_acknowledged(self) -> list[Finding]:
        if self.acknowledged is None:
            return []
        examination = self.examine()
        return name_lost(examination, balance_acknowledged(examination))

    def undecided(self) -> list[str]:
        examination = self.examine()
        undecided = list(examination.undecided)
        if self.acknowledged is not None:
            undecided += balance_acknowledged(examination).undecided
        return undecided

    def differences(self, examination: Examination) -> list[Difference]:
        """What `differences.py` asks Spark for."""
        ranges = [examination.compare] if examination.compare else []
        if examination.beyond:
            ranges.append(OffsetRange(first=examination.next_offset_after, end=None))
        if examination.before:
            ranges.append(OffsetRange(first=0, end=self.position.start_offset))
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
                logged_at_ms=self.relogged.get(o, timestamp_ms(o)) if logged[o] else None,
                stored_at_ms=self.moved.get(o, timestamp_ms(o)) if rows[o] + letters[o] else None,
            )
            once = min(rows[o], 1) if expands(self.position) else rows[o]
            normal = once + letters[o] == 1 and (
                o < self.log_start
                or (self.compacted and not logged[o])
                or (logged[o] == 1 and o not in self.moved and o not in self.relogged)
            )
            if o >= self.position.next_offset or o < self.position.start_offset:
                normal = rows[o] + letters[o] == 0
            if not normal:
                found.append(difference)
        return found

    def shift(self, by: int) -> None:
        self.position = replace(self.position, next_offset=self.position.next_offset + by)
