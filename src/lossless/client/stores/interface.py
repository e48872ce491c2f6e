"""What a consumer asks of a store that keeps data and offsets together.

    store.claim(group, partitions, topic_ids=…)
                                     on assignment: fences whoever had them, gives the next offsets
    unit = store.begin()             one transaction: rows, state, seen ids and offsets
        unit.applied(message)        whether the ledger is past it: then it is not processed again
        unit.execute(…), unit.state(message)[…] = …
        unit.position(message, next_offset)
    unit.commit()                    all of it, or nothing
    store.release(partitions)        when they are revoked (after the commit) or lost

Rules:
- A partition has one owner, the one who claimed it last. A commit compares the owner and the
  expected next offset of every partition it moves, in the transaction; when one differs, the whole
  unit is rolled back and PartitionLost raised. It names the partitions in `partitions`; this store
  has forgotten them. Only the group can say whether they are this member's, to be claimed again.
- StoreUnavailable: nothing of the unit is half stored; usually nothing is stored. Roll it back, ask
  `store.positions()` where the ledger is (it may raise the same again: back off), seek there,
  go on. It never takes a partition back that another has claimed: that raises PartitionLost.
- A position belongs to one topic id. A claim of a topic with another id raises InvalidPosition and
  changes nothing: the topic was deleted and created again, and its offsets mean other records.
- Units that move the same partition follow one another. A unit knows the claims as they were when
  it began: a partition that is released or claimed anew meanwhile is lost to it.
- A unit is used by one thread at a time; a store by any number.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, MutableMapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from types import TracebackType
from typing import Any, NamedTuple, Protocol, Self, runtime_checkable

from lossless.client.errors import InvalidPosition

# None, bool, int, float, str, lists and dictionaries of them; mypy cannot say "of them" usefully.
JSON = Any


class TopicPartition(NamedTuple):
    """A plain pair will do wherever one is asked for."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


@runtime_checkable
class Message(Protocol):
    """What stores ask of confluent_kafka.Message, whose stubs say None where none is."""

    def topic(self) -> str | None: ...
    def partition(self) -> int | None: ...
    def offset(self) -> int | None: ...


# Where something belongs: a pair, or a message that comes from there.
Place = tuple[str, int] | Message


@dataclass(frozen=True, slots=True, kw_only=True)
class Position:
    """What the ledger says of one partition."""

    next_offset: int | None  # None: nothing of it was stored yet
    owner: str | None  # None: released
    unit: str | None  # the one that moved it here
    topic_id: str | None = None  # None: it was not known


class Unit(Protocol):
    """A transaction in the making. As a context manager: commits, or rolls back on an exception."""

    def next_offset(self, place: Place) -> int | None:
        """The first offset not stored yet, of this unit's positions too; None: there is none."""

    def applied(self, message: Message) -> bool:
        """Whether the message is below `next_offset`, so that it must not be processed again."""

    def position(self, place: Place, next_offset: int) -> None:
        """Everything below `next_offset` is in this unit or stored. InvalidPosition backwards."""

    def savepoint(self) -> AbstractContextManager[None]:
        """A part of the unit that an exception in it takes back, and nothing else (one record)."""

    def commit(self) -> None:
        """PartitionLost or StoreUnavailable when it is not stored; the unit is over in any case."""

    def rollback(self) -> None:
        """Nothing of it is stored. Allowed on a unit that is over."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...


class SqlUnit(Unit, Protocol):
    """A unit of a database."""

    def execute(self, statement: Any, parameters: Sequence[Any] = ()) -> Any:
        """One statement, as text with the driver's placeholders (SQLite ?, PostgreSQL %s) or as
        psycopg.sql composes it; gives its cursor. An error of the statement is the driver's own,
        one of the database StoreUnavailable."""

    def state(self, place: Place) -> MutableMapping[str, JSON]:
        """What was kept for the partition; changes, in place too, commit with the unit."""


class Store(Protocol):
    """Safe to be used from several threads. One store object serves one group."""

    def claim(
        self,
        group: str,
        partitions: Iterable[tuple[str, int]],
        *,
        topic_ids: Mapping[str, str] | None = None,
    ) -> dict[TopicPartition, int | None]:
        """Takes them, from whoever has them; gives where to read on. None: no position yet.

        `topic_ids`: those that are known. InvalidPosition if a position belongs to another one.
        """

    def positions(self) -> dict[TopicPartition, int | None]:
        """Where the ledger is, for everything that is claimed here; waits for what is under way."""

    def begin(self) -> Unit: ...

    def release(self, partitions: Iterable[tuple[str, int]]) -> None:
        """Nothing happens to those that another has claimed since. A courtesy to the next owner,
        who takes them anyway: a store that is unavailable is logged and not raised."""

    def close(self) -> None:
        """Closes connections and files; rolls back what is open. What is claimed stays claimed."""


def partition_of(place: Place) -> TopicPartition:
    if isinstance(place, tuple):
        return TopicPartition(*place)
    topic, partition = place.topic(), place.partition()
    if topic is None or partition is None:
        raise ValueError(f"{place!r} comes from no partition: is it an error, or not sent yet?")
    return TopicPartition(topic, partition)


def check_topic_ids(
    store: str, stored: Mapping[TopicPartition, str | None], topic_ids: Mapping[str, str]
) -> None:
    """InvalidPosition if a stored position belongs to another topic of the same name."""
    for partition, then in sorted(stored.items()):
        now = topic_ids.get(partition.topic)
        if then is not None and now is not None and then != now:
            raise InvalidPosition(
                f"{store} holds a position of {partition} for the topic id {then}, but the id of "
                f"{partition.topic} is {now}: the topic was deleted and created again, and the "
                "position says nothing about its records",
                hint="to read the new topic from its beginning, remove the positions of the old "
                "one from the store, or use another group",
            )


def offset_of(message: Message) -> int:
    offset = message.offset()
    if offset is None or offset < 0:
        raise ValueError(f"{message!r} has no offset: is it an error, or not sent yet?")
    return offset
