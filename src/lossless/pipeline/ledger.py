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
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from lossless.tally import Tally as Tally


@dataclass(frozen=True, slots=True, order=True)
class SourcePartition:
    """One partition of one topic. The name is for people; the id is what is compared."""

    topic: str
    topic_id: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Receipt:
    """What one batch did to one source partition, as evaluated once and written once."""

    read: Tally = Tally()  # records the connector handed over
    stored: Tally = Tally()  # distinct source offsets that have at least one row
    dead: Tally = Tally()  # source offsets that became dead letters
    rows: int = 0  # rows written; above stored.count when the transform expands


@dataclass(frozen=True, slots=True, kw_only=True)
class Position:
    """Where a pipeline stands in one source partition, with everything since its start."""

    start_offset: int  # the first offset this pipeline was responsible for
    next_offset: int  # the next offset to read
    read: Tally = Tally()
    stored: Tally = Tally()
    dead: Tally = Tally()
    rows: int = 0
    lost: int = 0  # offsets given up by `--accept-loss`
    closed: bool = False  # the topic is gone (re-created under its name), accepted by the user

    @property
    def filtered(self) -> Tally:
        """Read, but neither stored nor dead: the transform dropped them."""
        return self.read - self.stored - self.dead

    def advanced(self, next_offset: int, receipt: Receipt) -> Position:
        if next_offset < self.next_offset:
            raise ValueError(f"a ledger cannot go back from {self.next_offset} to {next_offset}")
        return Position(
            start_offset=self.start_offset,
            next_offset=next_offset,
            read=self.read + receipt.read,
            stored=self.stored + receipt.stored,
            dead=self.dead + receipt.dead,
            rows=self.rows + receipt.rows,
            lost=self.lost,
            closed=self.closed,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Ledger:
    """The whole ledger of one pipeline. Sequence 0 means that it has never committed."""

    sequence: int = 0
    positions: Mapping[SourcePartition, Position] = field(default_factory=dict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "positions", MappingProxyType(dict(self.positions)))

    def successor(self, changed: Mapping[SourcePartition, Position]) -> Ledger:
        """The ledger after one more commit, which replaces the positions given."""
        return Ledger(sequence=self.sequence + 1, positions={**self.positions, **changed})

    def to_json(self) -> str:
        return json.dumps(
            {
                "sequence": self.sequence,
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
        return cls(
            sequence=document["sequence"],
            positions=dict(_position_from_json(entry) for entry in document["partitions"]),
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
        return cls(
            sequence=document["sequence"],
            committed_at_ms=document["committed_at_ms"],
            before=dict(_position_from_json(entry) for entry in document["before"]),
            after=dict(_position_from_json(entry) for entry in document["after"]),
        )


def _position_to_json(source: SourcePartition, position: Position) -> dict[str, Any]:
    return {
        "topic": source.topic,
        "topic_id": source.topic_id,
        "partition": source.partition,
        "start_offset": position.start_offset,
        "next_offset": position.next_offset,
        "read": [position.read.count, position.read.hash],
        "stored": [position.stored.count, position.stored.hash],
        "dead": [position.dead.count, position.dead.hash],
        "rows": position.rows,
        "lost": position.lost,
        "closed": position.closed,
    }


def _position_from_json(entry: Mapping[str, Any]) -> tuple[SourcePartition, Position]:
    source = SourcePartition(entry["topic"], entry["topic_id"], entry["partition"])
    return source, Position(
        start_offset=entry["start_offset"],
        next_offset=entry["next_offset"],
        read=Tally(*entry["read"]),
        stored=Tally(*entry["stored"]),
        dead=Tally(*entry["dead"]),
        rows=entry["rows"],
        lost=entry["lost"],
        closed=entry["closed"],
    )
