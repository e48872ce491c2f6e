"""Data and offsets in one database: the store over any dialect, and its ledger.

    lossless_offsets   group, topic, partition -> topic id, next offset, owner, and the unit that
                       moved it
    lossless_state     group, topic, partition, key -> JSON
    lossless_seen      ids of the Deduplicator

    claim      sets the owner; waits for a commit of the previous one that is under way
    commit     state, then the compare-and-set of (owner, next offset) of partitions, then COMMIT
    release    clears the owner, so that the next one need not end transactions of this one

An owner is "<store object>-<number of the claim>": the same object that claims again fences what it
had under way before. When a COMMIT is not answered, the ledger is read with its rows locked: the
transaction had changed them, so whoever gets the lock sees how it ended. The unit's token there
means stored; ours without it means not; neither, that others have it and this unit does not matter.
"""

from __future__ import annotations

import logging
import secrets
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from types import TracebackType
from typing import Any, NoReturn, Self

from lossless.client.errors import PartitionLost, StoreUnavailable
from lossless.client.stores.dialect import CREATING_TABLES, Connection, Dialect
from lossless.client.stores.interface import Position, TopicPartition, check_topic_ids
from lossless.client.stores.sql_unit import DatabaseUnit, raise_failure, run
from lossless.client.stores.state import StateCache
from lossless.errors import BadInput

logger = logging.getLogger(__name__)

_CREATE_ROW = """
    INSERT INTO lossless_offsets (consumer_group, topic, partition) VALUES (?, ?, ?)
    ON CONFLICT DO NOTHING"""
_TAKE = """
    UPDATE lossless_offsets
    SET previous_owner = owner, owner = ?, topic_id = coalesce(?, topic_id)
    WHERE consumer_group = ? AND topic = ? AND partition = ?"""
_RELEASE = """
    UPDATE lossless_offsets SET owner = NULL
    WHERE consumer_group = ? AND topic = ? AND partition = ? AND owner = ?"""
_LEDGER = """
    SELECT topic, partition, next_offset, owner, unit, topic_id FROM lossless_offsets
    WHERE consumer_group = ?"""
_ROW = _LEDGER + " AND topic = ? AND partition = ?"
_MOVE = """
    UPDATE lossless_offsets SET next_offset = ?, unit = ?
    WHERE consumer_group = ? AND topic = ? AND partition = ?
      AND owner = ? AND coalesce(next_offset, -1) = ?"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """What this store believes of a partition it owns."""

    owner: str
    next_offset: int | None
    cache: StateCache = field(compare=False)


# For each partition of a unit: what is expected, and the next offset to be set.
Moves = Mapping[TopicPartition, tuple[Claim, int | None]]


class SqlStore:
    def __init__(self, dialect: Dialect) -> None:
        self.dialect = dialect
        self.group: str | None = None
        self._instance = secrets.token_hex(16)
        self._lock = threading.RLock()  # around everything below; never held while the database is
        self._claims: dict[TopicPartition, Claim] = {}
        self._claimed = 0
        self._idle: list[Connection] = []
        self._open: set[DatabaseUnit] = set()
        self._has_tables = False
        self._unsettled = False  # a COMMIT was not answered, and the ledger not read since
        self._closed = False

    @property
    def describe(self) -> str:
        return self.dialect.describe

    # --- partitions

    def claim(
        self,
        group: str,
        partitions: Iterable[tuple[str, int]],
        *,
        topic_ids: Mapping[str, str] | None = None,
    ) -> dict[TopicPartition, int | None]:
        ids = topic_ids or {}
        wanted = sorted({TopicPartition(*partition) for partition in partitions})
        with self._lock:
            if self.group not in (None, group):
                raise BadInput(
                    f"this store already serves the group {self.group!r}, and not {group!r}",
                    hint="make a store object for each group; they may share the database",
                )
            self.group = group
            self._claimed += 1
            owner = f"{self._instance}-{self._claimed}"
            self._lose([partition for partition in wanted if partition in self._claims])
        rows = [(group, *partition) for partition in wanted]
        taken = [(owner, ids.get(each.topic), group, *each) for each in wanted]
        self._check_topics(wanted, ids)
        self._end_transactions_of_owners(wanted)
        with self.transaction("claiming partitions") as connection:
            cursor = connection.cursor()
            cursor.executemany(self.dialect.sql(_CREATE_ROW), rows)
            cursor.executemany(self.dialect.sql(_TAKE), taken)
            ledger = self._read(connection)
        found = {partition: ledger[partition].next_offset for partition in wanted}
        with self._lock:
            for partition, next_offset in found.items():
                claim = Claim(owner=owner, next_offset=next_offset, cache=StateCache())
                self._claims[partition] = claim
        return found

    def _check_topics(self, wanted: list[TopicPartition], topic_ids: Mapping[str, str]) -> None:
        """Before anybody's transactions are ended."""
        with self.transaction("reading the ledger") as connection:
            ledger = self._read(connection)
        # A row without a position says nothing about records.
        stored = {
            each: ledger[each].topic_id
            for each in wanted
            if each in ledger and ledger[each].next_offset is not None
        }
        check_topic_ids(self.describe, stored, topic_ids)

    def positions(self) -> dict[TopicPartition, int | None]:
        with self._lock:
            claims = dict(self._claims)
            unsettled = self._unsettled
        if not claims:
            self._unsettled = False
            return {}
        if unsettled:
            self._end_transactions([self._instance])
        with self.transaction("reading the ledger") as connection:
            found = self.locked_rows(connection, sorted(claims))
        lost = [p for p, claim in claims.items() if found[p].owner != claim.owner]
        with self._lock:
            self._unsettled = False
            for partition, claim in claims.items():
                if self._claims.get(partition) == claim:
                    claim.cache.clear()
                    next_offset = found[partition].next_offset
                    self._claims[partition] = replace(claim, next_offset=next_offset)
            self._lose(lost)
        if lost:
            raise self.partition_lost(lost)
        return {partition: found[partition].next_offset for partition in claims}

    def release(self, partitions: Iterable[tuple[str, int]]) -> None:
        given = sorted({TopicPartition(*partition) for partition in partitions})
        with self._lock:
            claims = {p: self._claims[p] for p in given if p in self._claims}
            self._lose(given)
        if claims:
            rows = [(self.group, *p, claim.owner) for p, claim in claims.items()]
            try:
                with self.transaction("releasing partitions") as connection:
                    connection.cursor().executemany(self.dialect.sql(_RELEASE), rows)
            except StoreUnavailable as error:
                logger.warning("not released, to be taken by whoever is next: %s", error.what)

    def ledger(self, group: str) -> dict[TopicPartition, Position]:
        """What is stored for a group; claims nothing."""
        with self.transaction("reading the ledger") as connection:
            return self._read(connection, group)

    def _lose(self, partitions: Iterable[TopicPartition]) -> None:
        with self._lock:
            for partition in partitions:
                self._claims.pop(partition, None)
                for unit in self._open:
                    unit.lose(partition)

    def partition_lost(self, partitions: Iterable[TopicPartition]) -> PartitionLost:
        names = ", ".join(map(str, partitions))
        lost = PartitionLost(
            f"another member of the group {self.group} has taken {names}: {self.describe} refuses "
            "what was done for it here",
            hint="the new owner goes on from what the ledger says; nothing of this unit is stored",
        )
        lost.partitions = list(partitions)
        return lost

    # --- units

    def begin(self) -> DatabaseUnit:
        if self._unsettled:
            self.positions()
        connection = self._begun("beginning a unit")
        with self._lock:
            unit = DatabaseUnit(self, connection, dict(self._claims))
            self._open.add(unit)
        return unit

    def _owns(self, partition: TopicPartition, claim: Claim) -> bool:
        current = self._claims.get(partition)
        return current is not None and current.owner == claim.owner

    def claimed(self, partition: TopicPartition) -> Claim | None:
        with self._lock:
            return self._claims.get(partition)

    def move(
        self,
        connection: Connection,
        token: str,
        moves: Moves,
    ) -> None:
        """The compare-and-set; PartitionLost when a row is not as expected."""
        rows = []
        for partition, (claim, next_offset) in sorted(moves.items()):
            expected = -1 if claim.next_offset is None else claim.next_offset
            rows.append((next_offset, token, self.group, *partition, claim.owner, expected))
        if not rows:
            return
        cursor = connection.cursor()
        cursor.executemany(self.dialect.sql(_MOVE), rows)
        if cursor.rowcount == len(rows):
            return
        ledger = self._read(connection)
        lost = [
            partition
            for partition, (claim, next_offset) in moves.items()
            # Rows that this very transaction has moved are as it wants them.
            if (row := ledger.get(partition)) is None
            or (row.next_offset, row.owner, row.unit) != (next_offset, claim.owner, token)
        ]
        raise self.partition_lost(lost)

    def over(
        self,
        unit: DatabaseUnit,
        connection: Connection | None = None,
        *,
        stored: Moves | None = None,
        lost: Iterable[tuple[TopicPartition, Claim]] = (),
    ) -> None:
        """A unit has ended; its connection comes back when it is still good."""
        with self._lock:
            self._open.discard(unit)
            # A claim that was made since is another one.
            self._lose([p for p, claim in lost if self._owns(p, claim)])
            for partition, (claim, next_offset) in (stored or {}).items():
                if self._claims.get(partition) == claim:
                    self._claims[partition] = replace(claim, next_offset=next_offset)
        if connection is not None:
            self._give_back(connection)

    def unsettled(self) -> None:
        """Nothing more is begun before the ledger was read."""
        with self._lock:
            self._unsettled = True

    def was_stored(self, token: str, moves: Moves) -> bool | None:
        """How a COMMIT that was not answered has ended. None: these partitions are others' now."""
        self.unsettled()
        if not moves:
            raise StoreUnavailable(
                f"{self.describe} did not answer a COMMIT, and the unit had no position to tell by",
                hint="give a unit the position of what it stores",
            )
        # The server may take a while to notice that its end of the connection is dead, and has the
        # rows locked until then. Other units of this store are cut off as well, and repeated.
        self._end_transactions([self._instance])
        with self.transaction("looking whether a unit was stored") as connection:
            found = self.locked_rows(connection, sorted(moves))
        with self._lock:
            self._unsettled = False
        if any(row.unit == token for row in found.values()):
            return True
        ours = any(found[p].owner == claim.owner for p, (claim, _) in moves.items())
        return False if ours else None

    # --- the database

    def execute(self, statement: Any, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """One statement in a transaction of its own: to create tables, to look at what is stored.
        Gives its rows."""
        with self.transaction("a statement") as connection:
            cursor = run(connection, statement, parameters)
            return [tuple(row) for row in cursor.fetchall()] if cursor.description else []

    @contextmanager
    def transaction(self, doing: str) -> Iterator[Connection]:
        """A transaction of our own, beside the units; commits. Errors of the database are ours."""
        connection = self._begun(doing)
        try:
            yield connection
            connection.commit()
        except self.dialect.errors as error:
            self._give_up(connection, error, doing)
        except BaseException:
            _discard(connection)
            raise
        self._give_back(connection)

    def locked_rows(
        self, connection: Connection, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, Position]:
        """Rows of the ledger as they are when nobody is changing them."""
        found = {}
        statement = self.dialect.sql(_ROW + self.dialect.for_update)
        for partition in partitions:
            row = connection.execute(statement, (self.group, *partition)).fetchone()
            # A row that somebody has deleted is nobody's: whoever claimed it has lost it.
            found[partition] = (
                Position(next_offset=row[2], owner=row[3], unit=row[4], topic_id=row[5])
                if row is not None
                else Position(next_offset=None, owner=None, unit=None)
            )
        return found

    def _read(
        self, connection: Connection, group: str | None = None
    ) -> dict[TopicPartition, Position]:
        rows = connection.execute(self.dialect.sql(_LEDGER), (group or self.group,)).fetchall()
        return {
            TopicPartition(topic, partition): Position(
                next_offset=next_offset, owner=owner, unit=unit, topic_id=topic_id
            )
            for topic, partition, next_offset, owner, unit, topic_id in rows
        }

    def _end_transactions_of_owners(self, partitions: Iterable[TopicPartition]) -> None:
        with self.transaction("looking who owns partitions") as connection:
            ledger = self._read(connection)
        owners = {ledger[p].owner for p in partitions if p in ledger}
        instances = {owner.partition("-")[0] for owner in owners if owner}
        self._end_transactions(sorted(instances - {self._instance}))

    def _end_transactions(self, instances: list[str]) -> None:
        if not instances:
            return
        doing = "ending transactions of a previous owner"
        connection = self._connection()
        try:
            self.dialect.end_transactions_of(connection, instances)
        except self.dialect.errors as error:
            self._give_up(connection, error, doing)
        self._give_back(connection)

    def _begun(self, doing: str) -> Connection:
        """A connection with a transaction; one that went stale while idle is replaced."""
        while True:
            with self._lock:
                reused = bool(self._idle)
            connection = self._connection()
            try:
                self.dialect.begin(connection, self._instance)
            except self.dialect.errors as error:
                if not (reused and self.dialect.is_broken(connection)):
                    self._give_up(connection, error, doing)
                _discard(connection)
                with self._lock:  # the others are from before the break as well
                    stale, self._idle = self._idle, []
                for other in stale:
                    _discard(other)
            except BaseException:
                _discard(connection)
                raise
            else:
                return connection

    def _connection(self) -> Connection:
        with self._lock:
            if self._closed:
                raise BadInput(f"the store on {self.describe} is closed", hint="make a new one")
            if self._idle:
                return self._idle.pop()
        connection = self.dialect.connect()
        if not self._has_tables:
            try:
                self.dialect.create_tables(connection)
            except self.dialect.errors as error:
                self._give_up(connection, error, CREATING_TABLES)
            self._has_tables = True
        return connection

    def _give_up(self, connection: Connection, error: Exception, doing: str) -> NoReturn:
        broken = self.dialect.is_broken(connection)
        _discard(connection)
        raise_failure(self.dialect, error, doing, broken=broken)

    def _give_back(self, connection: Connection) -> None:
        with self._lock:
            if not self._closed:
                self._idle.append(connection)
                return
        _discard(connection)

    def close(self) -> None:
        with self._lock:
            self._closed = True
            idle, self._idle = self._idle, []
            units = list(self._open)
        for unit in units:
            unit.rollback()
        for connection in idle:
            _discard(connection)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def _discard(connection: Connection) -> None:
    """Whatever it had open is rolled back by its end."""
    with suppress(Exception):
        connection.close()
