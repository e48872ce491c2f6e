"""What clients and logs saw: the events of a run in their order, and the logs at its end.

Rules for whoever writes a history down
- A value is sent once to a partition. An application that sends again sends another value.
- The order of the events is the order in which they happened; times are for people.
- A consumer that begins a partition, for the first time or after a rebalance, begins with a Reset.
  From there its reads go on one after the other, over markers, until the next Reset.
- A producer that dies is told nothing more: what it had under way Failed, and not for certain.
- The partitions are not compacted: a record that compaction removed would be called lost.

What several properties ask for is worked out once, on first use, and kept with the history. Most
histories are clean, and to find that out must be cheap: properties first look at what is out of
place (stray reads, stray acknowledgements, jumps, sets that are not within each other), which as a
rule is nothing.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Hashable, Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple, Protocol, TypeVar

Partition = Hashable  # whatever tells one from the others; printed by str()
Records = tuple[tuple[int, str], ...]  # offsets and values, in the order of offsets


class Sent(NamedTuple):
    """The application called send."""

    time_ms: int
    producer: str
    partition: Partition
    value: str
    transaction: str | None = None  # a name that no other transaction of the history has


class Acknowledged(NamedTuple):
    """The application was told that the record is stored."""

    time_ms: int
    producer: str
    partition: Partition
    value: str
    offset: int | None  # None: nobody said where (acks=0; librdkafka concluded it is there)


class Failed(NamedTuple):
    """The application was told that sending has failed."""

    time_ms: int
    producer: str
    partition: Partition
    value: str
    reason: str
    certain: bool  # False: it may have been written all the same


class Read(NamedTuple):
    """A consumer got the record."""

    time_ms: int
    consumer: str
    partition: Partition
    offset: int
    value: str


class Processed(NamedTuple):
    """The application has finished with the record."""

    time_ms: int
    consumer: str
    group: str
    partition: Partition
    offset: int
    value: str


class Committed(NamedTuple):
    """The group's next offset became this."""

    time_ms: int
    group: str
    partition: Partition
    offset: int


class Reset(NamedTuple):
    """A consumer's position moved otherwise than by reading."""

    time_ms: int
    consumer: str
    partition: Partition
    old_offset: int | None  # None: it had no position
    new_offset: int
    reason: str  # first start, assigned, out of range, truncation detected


class TransactionEnded(NamedTuple):
    """The producer was told how its transaction ended. One that nobody was told of is open."""

    time_ms: int
    producer: str
    transaction: str
    committed: bool


class Consumed(NamedTuple):
    """The transaction moves the group past this record, if it is committed."""

    time_ms: int
    producer: str
    group: str
    partition: Partition
    offset: int
    value: str
    transaction: str


Event = (
    Sent
    | Acknowledged
    | Failed
    | Read
    | Processed
    | Committed
    | Reset
    | TransactionEnded
    | Consumed
)


class FinalLog(NamedTuple):
    """A partition at the end of the run, as its leader has it, up to the high watermark.

    Records of open transactions are among the records; those of aborted ones may be or not.
    Markers are not. What is below `start_offset` was deleted by retention.
    """

    partition: Partition
    start_offset: int
    end_offset: int
    records: Records
    replicas: Mapping[Hashable, Records] = {}  # the committed part of each, by the same rules
    last_stable_offset: int | None = None  # None: not known
    high_watermark: int | None = None  # None: end_offset

    def between(self, start_offset: int, end_offset: int) -> Records:
        first = bisect_left(self.records, (start_offset, ""))
        return self.records[first : bisect_left(self.records, (end_offset, ""), first)]


class Group(NamedTuple):
    """Consumers that share partitions, or one that stands alone."""

    name: str
    members: tuple[str, ...]
    starts: Mapping[Partition, int]  # what it is to read, from its first offset on
    read_uncommitted: bool = False


class Jump(NamedTuple):
    """A read that did not simply go on."""

    time_ms: int
    consumer: str
    partition: Partition
    position: int  # where the consumer was to go on
    offset: int  # what it read instead
    value: str


class _OfAValue(Protocol):
    @property
    def partition(self) -> Partition: ...
    @property
    def value(self) -> str: ...


E = TypeVar(
    "E",
    Sent,
    Acknowledged,
    Failed,
    Read,
    Processed,
    Committed,
    Reset,
    TransactionEnded,
    Consumed,
)
Values = Mapping[Partition, AbstractSet[str]]
NO_VALUES: frozenset[str] = frozenset()


@dataclass(frozen=True)
class History:
    events: tuple[Event, ...]
    final: tuple[FinalLog, ...] = ()  # one for each partition that can be read at the end
    groups: tuple[Group, ...] = ()
    # True: faults have ended, and everybody was given the time to catch up. Otherwise what has not
    # arrived may be late, and nobody can tell.
    settled: bool = field(kw_only=True)

    @cached_property
    def _by_type(self) -> dict[type, list[Any]]:
        by_type: dict[type, list[Any]] = defaultdict(list)
        for event in self.events:
            by_type[type(event)].append(event)
        return by_type

    def of(self, kind: type[E]) -> list[E]:
        """The events of a kind, in their order."""
        return self._by_type.get(kind, [])

    @cached_property
    def polls(self) -> list[Read | Reset]:
        if not self.of(Reset):
            return list(self.of(Read))
        return [event for event in self.events if type(event) is Read or type(event) is Reset]

    # Values, by partition.

    @cached_property
    def attempted(self) -> Values:
        return _values(self.of(Sent))

    @cached_property
    def acknowledged(self) -> Values:
        return _values(self.of(Acknowledged))

    @cached_property
    def failed(self) -> Values:
        return _values(self.of(Failed))

    @cached_property
    def read_by(self) -> Mapping[str, Values]:
        """What each consumer has read."""
        read_by: dict[str, dict[Partition, set[str]]] = defaultdict(_no_values)
        for read in self.of(Read):
            read_by[read.consumer][read.partition].add(read.value)
        return read_by

    @cached_property
    def processed_by(self) -> Mapping[str, Values]:
        """What each group has finished with."""
        processed_by: dict[str, dict[Partition, set[str]]] = defaultdict(_no_values)
        for done in self.of(Processed):
            processed_by[done.group][done.partition].add(done.value)
        return processed_by

    # Single records.

    @cached_property
    def acknowledgements(self) -> Mapping[tuple[Partition, str], Acknowledged]:
        return {(told.partition, told.value): told for told in self.of(Acknowledged)}

    @cached_property
    def first_reads(self) -> Mapping[tuple[Partition, str], Read]:
        return {(read.partition, read.value): read for read in reversed(self.of(Read))}

    # The logs.

    @cached_property
    def logs(self) -> Mapping[Partition, FinalLog]:
        return {log.partition: log for log in self.final}

    @cached_property
    def at(self) -> Mapping[Partition, Mapping[int | None, str]]:
        """The value at each offset at the end."""
        return {log.partition: dict[int | None, str](log.records) for log in self.final}

    @cached_property
    def stored(self) -> Mapping[Partition, Mapping[str, int]]:
        """The first offset of each value at the end."""
        return {
            log.partition: {value: offset for offset, value in reversed(log.records)}
            for log in self.final
        }

    # What is out of place.

    @cached_property
    def stray_reads(self) -> list[Read]:
        """Reads of what does not stand there at the end."""
        at, nothing = self.at, dict[int | None, str]()
        return [
            read
            for read in self.of(Read)
            if at.get(read.partition, nothing).get(read.offset) != read.value
        ]

    @cached_property
    def stray_acknowledgements(self) -> list[Acknowledged]:
        """Acknowledgements of what does not stand there, or, if nobody said where, anywhere."""
        at, nothing = self.at, dict[int | None, str]()
        return [
            told
            for told in self.of(Acknowledged)
            if at.get(told.partition, nothing).get(told.offset) != told.value
            and (told.offset is not None or told.value not in self.stored.get(told.partition, ()))
        ]

    @cached_property
    def jumps(self) -> list[Jump]:
        """Reads that did not go on where the one before, or a Reset, had left the consumer."""
        jumps: list[Jump] = []
        positions: dict[tuple[str, Partition], int] = {}
        for event in self.polls:
            key = (event.consumer, event.partition)
            if isinstance(event, Reset):
                positions[key] = event.new_offset
                continue
            offset = event.offset
            # A reader whose beginning nobody wrote down is where it is.
            position = positions.get(key, offset)
            if offset != position:
                jumps.append(Jump(event.time_ms, *key, position, offset, event.value))
            positions[key] = offset + 1
        return jumps

    def passed_over(self, jump: Jump) -> Records:
        """The records of the log that a jump left out; markers are none."""
        log = self.logs.get(jump.partition)
        return () if log is None else log.between(jump.position, jump.offset)

    # Transactions.

    @cached_property
    def transactions(self) -> Mapping[str, list[Sent]]:
        """What was sent in each."""
        transactions: dict[str, list[Sent]] = defaultdict(list)
        for sent in self.of(Sent):
            if sent.transaction is not None:
                transactions[sent.transaction].append(sent)
        return transactions

    @cached_property
    def outcomes(self) -> Mapping[str, bool]:
        """Whether a transaction was committed. Of an open one nothing is known."""
        return {ended.transaction: ended.committed for ended in self.of(TransactionEnded)}

    @cached_property
    def aborted(self) -> AbstractSet[tuple[Partition, str]]:
        return {
            (sent.partition, sent.value)
            for transaction, records in self.transactions.items()
            if self.outcomes.get(transaction) is False
            for sent in records
        }

    @cached_property
    def not_committed(self) -> AbstractSet[tuple[Partition, str]]:
        """Of aborted and of open transactions: no reader has to see these."""
        return {
            (sent.partition, sent.value)
            for transaction, records in self.transactions.items()
            if not self.outcomes.get(transaction)
            for sent in records
        }

    @cached_property
    def uncommitted_readers(self) -> AbstractSet[str]:
        """Consumers that asked to see aborted and open transactions."""
        return {
            member for group in self.groups if group.read_uncommitted for member in group.members
        }


def _no_values() -> dict[Partition, set[str]]:
    return defaultdict(set)  # a function with a name, so that a history can be pickled


def _values(events: Iterable[_OfAValue]) -> Values:
    values = _no_values()
    for event in events:
        values[event.partition].add(event.value)
    return values
