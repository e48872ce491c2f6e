"""The ledger: what a pipeline has done, kept in the sink and committed with the data.

Per pipeline a sequence number; per source partition the next offset and cumulative counts. Pure
values: the sinks store them, the runner advances them, the audit checks them against the log and
the table.

Invariants
- `sequence` grows by exactly one with every commit, and a commit succeeds only if the stored
  ledger is the one it was computed from (compare-and-set): a replayed batch changes nothing, a
  zombie driver loses.
- The topic's id, not its name, identifies it: a re-created topic is another topic.
- read = stored + dead + filtered, as counts and as hashes. Offsets are never used as counts:
  transaction markers and compaction leave holes.
- An offset alone does not identify a record: after an unclean leader election a log is cut back and
  grows again with other records. So a position carries the leader epoch in which the log held
  everything below it, and Kafka can tell whether that is still so (KIP-320).

Format 1 had neither leader epochs nor the offsets of accepted losses, only their number. Format 2
did not say which rows carry a hash of their contents, and of which columns. Both are read as they
are; the next commit writes format 3.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

from lossless.errors import BadInput
from lossless.tally import HASH_MODULUS
from lossless.tally import Tally as Tally

FORMAT = 3


@dataclass(frozen=True, slots=True, order=True)
class SourcePartition:
    """One partition of one topic. The name is for people; the id is what is compared."""

    topic: str
    topic_id: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


@dataclass(frozen=True, slots=True, order=True)
class AcceptedLoss:
    """Offsets that the user gave up with `--accept-loss`: from `first` to just below `end`."""

    first: int
    end: int

    @property
    def count(self) -> int:
        return self.end - self.first


@dataclass(frozen=True, slots=True)
class ContentSum:
    """The hashes of the contents of all rows from `first` to just below `end`, added up."""

    first: int
    end: int
    hash: int

    def plus(self, end: int, added: int) -> ContentSum:
        return ContentSum(self.first, end, (self.hash + added) % HASH_MODULUS)


@dataclass(frozen=True, slots=True, order=True)
class Uncovered:
    """From `first` to just below `end` the rows' hashes do not cover a column of the ledger."""

    column: str
    first: int
    end: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Receipt:
    """What one batch did to one source partition, as evaluated once and written once."""

    read: Tally = Tally()  # records the connector handed over
    stored: Tally = Tally()  # distinct source offsets that have at least one row
    dead: Tally = Tally()  # source offsets that became dead letters
    rows: int = 0  # rows written; above stored.count when the transform expands
    row_hash: int | None = None  # the hashes of all rows added up; None: as `stored`
    # The hashes of the rows' contents added up; None: not counted.
    content_sum: int | None = field(default=None, compare=False)
    # Of rows and dead letters, to check them by; None: not recorded.
    first_offset: int | None = field(default=None, compare=False)
    last_offset: int | None = field(default=None, compare=False)

    @property
    def row_tally(self) -> Tally | None:
        return _row_tally(self.stored, self.rows, self.row_hash)


@dataclass(frozen=True, slots=True, kw_only=True)
class Position:
    """Where a pipeline stands in one source partition, with everything since its start."""

    start_offset: int  # the first offset this pipeline was responsible for
    next_offset: int  # the next offset to read
    read: Tally = Tally()
    stored: Tally = Tally()
    dead: Tally = Tally()
    rows: int = 0
    row_hash: int | None = None  # None: one row for every stored offset, or not known
    accepted_losses: tuple[AcceptedLoss, ...] = ()  # in order, none touching another
    unplaced_losses: int = 0  # accepted under format 1, which did not keep the offsets
    closed: bool = False  # the topic is gone or deselected, and the user accepted that
    # The epoch of a leader whose log held everything below next_offset; None: not known.
    leader_epoch: int | None = None
    hashed_from: int | None = None  # rows from this offset on carry a hash of their contents
    # Of offsets whose rows a transform made: it may make several of one record.
    content_sum: ContentSum | None = None
    uncovered: tuple[Uncovered, ...] = ()  # in order, ranges of one column do not touch

    @property
    def filtered(self) -> Tally:
        """Read, but neither stored nor dead: the transform dropped them."""
        return self.read - self.stored - self.dead

    @property
    def lost(self) -> int:
        """How many offsets were given up."""
        return self.unplaced_losses + sum(loss.count for loss in self.accepted_losses)

    @property
    def row_tally(self) -> Tally | None:
        """Every row counted, also where one record became several; None when not known."""
        return _row_tally(self.stored, self.rows, self.row_hash)

    def advanced(
        self,
        next_offset: int,
        receipt: Receipt,
        *,
        leader_epoch: int | None = None,
        hashed: bool = False,
    ) -> Position:
        """The position after one more batch. `hashed`: its rows carry a hash of their contents."""
        if next_offset < self.next_offset:
            raise ValueError(f"a ledger cannot go back from {self.next_offset} to {next_offset}")
        stored, rows = self.stored + receipt.stored, self.rows + receipt.rows
        row_hash = None
        before, added = self.row_tally, receipt.row_tally
        if rows > stored.count and before is not None and added is not None:
            row_hash = (before + added).hash
        return replace(
            self,
            next_offset=next_offset,
            read=self.read + receipt.read,
            stored=stored,
            dead=self.dead + receipt.dead,
            rows=rows,
            row_hash=row_hash,
            leader_epoch=self.leader_epoch if leader_epoch is None else leader_epoch,
            hashed_from=self._hashed_from(hashed),
            content_sum=self._content_sum(next_offset, receipt),
        )

    def _content_sum(self, next_offset: int, receipt: Receipt) -> ContentSum | None:
        known = self.content_sum
        added = receipt.content_sum if receipt.rows else 0
        if added is None or (known is None and not receipt.rows):
            return known
        if known is None or known.end != self.next_offset:
            return ContentSum(self.next_offset, next_offset, added) if receipt.rows else known
        return known.plus(next_offset, added)

    def _hashed_from(self, hashed: bool) -> int | None:
        if not hashed:
            return None
        return self.next_offset if self.hashed_from is None else self.hashed_from

    def without_column(self, column: str, first: int, end: int) -> Position:
        """The hashes of the rows from `first` to just below `end` do not cover the column."""
        kept = []
        for known in self.uncovered:
            if known.column == column and known.end == first:
                first = known.first
            else:
                kept.append(known)
        return replace(self, uncovered=tuple(sorted([*kept, Uncovered(column, first, end)])))

    def given_up_to(self, next_offset: int) -> Position:
        """Everything up to `next_offset` is recorded as an accepted loss."""
        loss = AcceptedLoss(self.next_offset, next_offset)
        losses = self.accepted_losses
        if losses and losses[-1].end == loss.first:
            losses, loss = losses[:-1], AcceptedLoss(losses[-1].first, loss.end)
        known = self.content_sum
        if known is not None and known.end == self.next_offset:
            known = known.plus(next_offset, 0)
        return replace(
            self,
            next_offset=next_offset,
            accepted_losses=(*losses, loss),
            content_sum=known,
        )


def _row_tally(stored: Tally, rows: int, row_hash: int | None) -> Tally | None:
    if row_hash is not None:
        return Tally(rows, row_hash)
    return stored if rows == stored.count else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Ledger:
    """The whole ledger of one pipeline. Sequence 0 means that it has never committed."""

    sequence: int = 0
    positions: Mapping[SourcePartition, Position] = field(default_factory=dict)
    columns: tuple[str, ...] = ()  # every column that the hashes of rows' contents cover, in order

    def __post_init__(self) -> None:
        object.__setattr__(self, "positions", MappingProxyType(dict(self.positions)))

    def successor(
        self, changed: Mapping[SourcePartition, Position], *, columns: Iterable[str] = ()
    ) -> Ledger:
        """The ledger after one more commit, which replaces the positions given.

        `columns` are those that the hashes of the commit's rows cover.
        """
        columns = tuple(columns)
        return Ledger(
            sequence=self.sequence + 1,
            positions=self._with_uncovered({**self.positions, **changed}, columns),
            columns=tuple(sorted({*self.columns, *columns})),
        )

    def _with_uncovered(
        self, positions: dict[SourcePartition, Position], columns: Collection[str]
    ) -> dict[SourcePartition, Position]:
        """The positions with the columns that the pipeline has just got or dropped.

        Other programs may fill a column where the pipeline does not write it: with a default, or
        afterwards.
        """
        if not columns or not self.columns:
            return positions
        known, now = ({name.lower() for name in names} for names in (self.columns, columns))
        for source, before in self.positions.items():
            after = positions[source]
            for column in columns:
                hashed_from = before.hashed_from
                if column.lower() in known or hashed_from in (None, before.next_offset):
                    continue
                after = after.without_column(column, hashed_from or 0, before.next_offset)
            positions[source] = after
        for source, after in positions.items():
            earlier = self.positions.get(source)
            first = earlier.next_offset if earlier else after.start_offset
            for column in self.columns:
                if column.lower() not in now and first < after.next_offset:
                    after = after.without_column(column, first, after.next_offset)
            positions[source] = after
        return positions

    def to_json(self) -> str:
        return json.dumps(
            {
                "format": FORMAT,
                "sequence": self.sequence,
                "columns": self.columns,
                "partitions": [
                    _position_to_json(source, position)
                    for source, position in sorted(self.positions.items(), key=lambda item: item[0])
                ],
            },
            separators=(",", ":"),
        )

    @classmethod
    def from_json(cls, text: str) -> Ledger:
        document = json.loads(text)
        check_format(document.get("format", 1))
        return cls(
            sequence=document["sequence"],
            positions=dict(_position_from_json(entry) for entry in document["partitions"]),
            columns=tuple(document.get("columns", ())),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerEntry:
    """One commit in the history of a ledger: the difference it made."""

    sequence: int
    committed_at_ms: int
    before: Mapping[SourcePartition, Position]  # absent: a partition seen for the first time
    after: Mapping[SourcePartition, Position]  # the changed positions only

    @classmethod
    def between(cls, expected: Ledger, successor: Ledger, *, committed_at_ms: int) -> LedgerEntry:
        changed = {
            source: position
            for source, position in successor.positions.items()
            if expected.positions.get(source) != position
        }
        return cls(
            sequence=successor.sequence,
            committed_at_ms=committed_at_ms,
            before={s: expected.positions[s] for s in changed if s in expected.positions},
            after=changed,
        )

    def to_json(self) -> str:
        return json.dumps(
            {
                "format": FORMAT,
                "sequence": self.sequence,
                "committed_at_ms": self.committed_at_ms,
                "before": [_position_to_json(s, p) for s, p in sorted(self.before.items())],
                "after": [_position_to_json(s, p) for s, p in sorted(self.after.items())],
            },
            separators=(",", ":"),
        )

    @classmethod
    def from_json(cls, text: str) -> LedgerEntry:
        document = json.loads(text)
        check_format(document.get("format", 1))
        return cls(
            sequence=document["sequence"],
            committed_at_ms=document["committed_at_ms"],
            before=dict(_position_from_json(entry) for entry in document["before"]),
            after=dict(_position_from_json(entry) for entry in document["after"]),
        )


def check_format(found: int) -> None:
    """Raises BadInput when a newer release has written the ledger."""
    if found > FORMAT:
        raise BadInput(
            f"the ledger has format {found}, and this release reads up to {FORMAT}",
            hint="a newer Lossless has written it: upgrade this one",
        )


def place_losses(
    position: Position, source: SourcePartition, history: Iterable[LedgerEntry]
) -> Position:
    """The position with the losses of format 1 placed, as far as its history shows their offsets.

    A commit that accepts a loss does nothing else: it moves the position by as many offsets.
    """
    placed = list(position.accepted_losses)
    unplaced = position.unplaced_losses
    for entry in history:
        before, after = entry.before.get(source), entry.after.get(source)
        if before is None or after is None:
            continue
        count = after.unplaced_losses - before.unplaced_losses
        if 0 < count <= unplaced and after.next_offset - before.next_offset == count:
            placed.append(AcceptedLoss(before.next_offset, after.next_offset))
            unplaced -= count
    return replace(position, accepted_losses=tuple(sorted(placed)), unplaced_losses=unplaced)


def _position_to_json(source: SourcePartition, position: Position) -> dict[str, Any]:
    document: dict[str, Any] = {
        "topic": source.topic,
        "topic_id": source.topic_id,
        "partition": source.partition,
        "start_offset": position.start_offset,
        "next_offset": position.next_offset,
        "leader_epoch": position.leader_epoch,
        "read": [position.read.count, position.read.hash],
        "stored": [position.stored.count, position.stored.hash],
        "dead": [position.dead.count, position.dead.hash],
        "rows": position.rows,
        "closed": position.closed,
    }
    if position.row_hash is not None:
        document["row_hash"] = position.row_hash
    if position.hashed_from is not None:
        document["hashed_from"] = position.hashed_from
    if (summed := position.content_sum) is not None:
        document["content_sum"] = [summed.first, summed.end, summed.hash]
    if position.uncovered:
        document["uncovered"] = [[u.column, u.first, u.end] for u in position.uncovered]
    if position.accepted_losses:
        document["accepted_losses"] = [[loss.first, loss.end] for loss in position.accepted_losses]
    if position.unplaced_losses:
        document["unplaced_losses"] = position.unplaced_losses
    return document


def _position_from_json(entry: Mapping[str, Any]) -> tuple[SourcePartition, Position]:
    source = SourcePartition(entry["topic"], entry["topic_id"], entry["partition"])
    return source, Position(
        start_offset=entry["start_offset"],
        next_offset=entry["next_offset"],
        read=Tally(*entry["read"]),
        stored=Tally(*entry["stored"]),
        dead=Tally(*entry["dead"]),
        rows=entry["rows"],
        row_hash=entry.get("row_hash"),
        accepted_losses=tuple(AcceptedLoss(*loss) for loss in entry.get("accepted_losses", ())),
        # Format 1 called it `lost` and kept nothing else.
        unplaced_losses=entry.get("unplaced_losses", entry.get("lost", 0)),
        closed=entry["closed"],
        leader_epoch=entry.get("leader_epoch"),
        hashed_from=entry.get("hashed_from"),
        content_sum=ContentSum(*entry["content_sum"]) if "content_sum" in entry else None,
        uncovered=tuple(Uncovered(*one) for one in entry.get("uncovered", ())),
    )
