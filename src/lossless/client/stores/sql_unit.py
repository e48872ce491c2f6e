"""One transaction of a database: rows, state and positions, stored together or not at all."""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from types import TracebackType
from typing import TYPE_CHECKING, Any, NoReturn, Self

from lossless.client.errors import InvalidPosition, PartitionLost
from lossless.client.stores.interface import (
    Message,
    Place,
    TopicPartition,
    offset_of,
    partition_of,
)
from lossless.client.stores.state import State
from lossless.errors import BadInput

if TYPE_CHECKING:
    from lossless.client.stores.dialect import Connection, Dialect
    from lossless.client.stores.sql import Claim, Moves, SqlStore

_ONE_STATE = """
    SELECT value FROM lossless_state
    WHERE consumer_group = ? AND topic = ? AND partition = ? AND key = ?"""
_ALL_STATE = """
    SELECT key, value FROM lossless_state
    WHERE consumer_group = ? AND topic = ? AND partition = ?"""
_SET_STATE = """
    INSERT INTO lossless_state (consumer_group, topic, partition, key, value)
    VALUES (?, ?, ?, ?, ?)
    ON CONFLICT (consumer_group, topic, partition, key) DO UPDATE SET value = excluded.value"""
_DELETE_STATE = """
    DELETE FROM lossless_state
    WHERE consumer_group = ? AND topic = ? AND partition = ? AND key = ?"""

_ENDS_TRANSACTIONS = {"BEGIN", "START", "COMMIT", "END", "ROLLBACK", "ABORT"}
_SAVEPOINT = "lossless_record"


class DatabaseUnit:
    """See `interface.SqlUnit`."""

    def __init__(
        self, store: SqlStore, connection: Connection, claims: dict[TopicPartition, Claim]
    ) -> None:
        self._store = store
        self._dialect = store.dialect
        self._connection: Connection | None = connection  # None: the unit is over
        self._claims = claims  # as they were when it began, and those that came since
        self._lost: set[TopicPartition] = set()
        self._positions: dict[TopicPartition, int] = {}
        self._states: dict[TopicPartition, State] = {}
        self._executed = False
        self._in_savepoint = False
        self._savepoint_sent = False
        self._spoiled = False
        self._savepoints: tuple[str, ...] = (f"SAVEPOINT {_SAVEPOINT}",)

    @property
    def store(self) -> SqlStore:
        return self._store

    # --- what handlers do

    def execute(self, statement: Any, parameters: Sequence[Any] = ()) -> Any:
        connection = self._running()
        first = statement.split(maxsplit=1)[:1] if isinstance(statement, str) else ()
        if first and first[0].rstrip(";").upper() in _ENDS_TRANSACTIONS:
            raise BadInput(
                f"{first[0]} in a unit: when it is stored is decided by its commit alone",
                hint="to take back a part of a unit, use unit.savepoint()",
            )
        self._executed = True
        with self._failing("a statement of a unit"):
            if self._in_savepoint and not self._savepoint_sent:
                self._dialect.run_all(connection, self._savepoints)
                self._savepoint_sent = True
                # The last one is let go of together with setting the next: an exchange less.
                self._savepoints = (f"RELEASE SAVEPOINT {_SAVEPOINT}", f"SAVEPOINT {_SAVEPOINT}")
            cursor = run(connection, statement, parameters)
        self._require_transaction()
        return cursor

    def ours(self, statement: str, parameters: Sequence[Any] = ()) -> Any:
        """A statement with question marks, whatever the database."""
        return self.execute(self._dialect.sql(statement), parameters)

    def state(self, place: Place) -> State:
        partition = partition_of(place)
        found = self._states.get(partition)
        if found is None:
            self._running()
            claim = self._claim(partition)
            found = State(str(partition), claim.cache, _Rows(self, partition))
            self._states[partition] = found
            if self._in_savepoint:
                found.watch()
        return found

    def next_offset(self, place: Place) -> int | None:
        partition = partition_of(place)
        moved = self._positions.get(partition)
        return self._claim(partition).next_offset if moved is None else moved

    def applied(self, message: Message) -> bool:
        reached = self.next_offset(message)
        return reached is not None and offset_of(message) < reached

    def position(self, place: Place, next_offset: int) -> None:
        self._running()
        partition = partition_of(place)
        reached = self.next_offset(partition)
        if reached is not None and next_offset < reached:
            raise InvalidPosition(
                f"{partition} is stored up to {reached} on {self._store.describe}, and cannot go "
                f"back to {next_offset}",
                hint="skip messages for which unit.applied(message) is true",
            )
        self._positions[partition] = next_offset

    @contextmanager
    def savepoint(self) -> Iterator[None]:
        self._running()
        if self._in_savepoint:
            raise BadInput("a savepoint within a savepoint", hint="one for each record is enough")
        self._in_savepoint, self._savepoint_sent = True, False
        positions = dict(self._positions)
        for state in self._states.values():
            state.watch()
        try:
            yield
        except BaseException:
            self._positions = positions
            for state in self._states.values():
                state.take_back()
            self._take_back()
            raise
        else:
            for state in self._states.values():
                state.keep()
        finally:
            self._in_savepoint = False

    def _take_back(self) -> None:
        if self._savepoint_sent and self._connection is not None:
            try:
                self._connection.execute(f"ROLLBACK TO SAVEPOINT {_SAVEPOINT}")
            except self._dialect.errors:
                # The connection, or the whole transaction, was lost in it. What went wrong in the
                # savepoint is on its way; nothing of this unit can be stored any more.
                self._spoiled = True

    # --- how it ends

    def commit(self) -> None:
        connection = self._running()
        token = secrets.token_hex(16)
        try:
            self._require_transaction()
            moves = self._moves()
            with self._failing("storing a unit"):
                written = self._write_state(connection)
                self._store.move(connection, token, moves)
        except PartitionLost as error:
            self.rollback()
            lost = [TopicPartition(*partition) for partition in error.partitions]
            self._store.over(self, lost=[(p, self._claims[p]) for p in lost])
            raise
        except BaseException:
            self.rollback()
            raise
        self._connection = None
        try:
            connection.commit()
        except self._dialect.errors as error:
            undecided = self._dialect.is_undecided(connection)
            broken = self._dialect.is_broken(connection)
            self._end(connection, good=False)
            stored = self._store.was_stored(token, moves) if undecided else False
            if stored is None:
                self._store.over(self, lost=[(p, claim) for p, (claim, _) in moves.items()])
                raise self._store.partition_lost(sorted(moves)) from error
            if not stored:
                raise_failure(self._dialect, error, "storing a unit", broken=broken)
            self._store.over(self, stored=moves)
        except BaseException:
            # Interrupted while waiting for the answer: it may be stored or not.
            self._store.unsettled()
            self._end(connection, good=False)
            raise
        else:
            self._store.over(self, connection, stored=moves)
            for partition, changes in written.items():
                self._claims[partition].cache.committed(changes)

    def rollback(self) -> None:
        if self._connection is None:
            return
        connection, self._connection = self._connection, None
        try:
            connection.rollback()
        except self._dialect.errors:
            self._end(connection, good=False)
        else:
            self._end(connection, good=True)

    def _moves(self) -> Moves:
        """What is compared, and set: also where the unit stands still, or a zombie could write."""
        touched = {*self._positions, *self._states}
        if not touched and self._executed:
            touched = set(self._claims)  # nobody said which of them the rows belong to
        if lost := sorted(self._lost & touched):
            raise self._store.partition_lost(lost)
        return {p: (self._claim(p), self.next_offset(p)) for p in sorted(touched)}

    def place(self, partition: TopicPartition) -> tuple[str | None, str, int]:
        return (self._store.group, *partition)

    def lose(self, partition: TopicPartition) -> None:
        """Released, or claimed anew: what was done for it here must not be stored."""
        self._lost.add(partition)

    def _end(self, connection: Connection, *, good: bool) -> None:
        for partition in self._states:
            self._claims[partition].cache.clear()
        if good:
            self._store.over(self, connection)
            return
        with suppress(Exception):
            connection.close()
        self._store.over(self)

    def _write_state(self, connection: Connection) -> dict[TopicPartition, dict[str, str | None]]:
        written = {}
        cursor = connection.cursor()
        for partition, state in sorted(self._states.items()):
            changes = state.changes()
            place = self.place(partition)
            gone = [(*place, key) for key, text in changes.items() if text is None]
            new = [(*place, key, text) for key, text in changes.items() if text is not None]
            if gone:
                cursor.executemany(self._dialect.sql(_DELETE_STATE), gone)
            if new:
                cursor.executemany(self._dialect.sql(_SET_STATE), new)
            written[partition] = changes
        return written

    def _claim(self, partition: TopicPartition) -> Claim:
        if partition not in self._claims and partition not in self._lost:
            claim = self._store.claimed(partition)  # it may have come after this unit began
            if claim is not None:
                self._claims[partition] = claim
        if partition in self._lost or partition not in self._claims:
            raise self._store.partition_lost([partition])
        return self._claims[partition]

    def _running(self) -> Connection:
        if self._connection is None:
            raise BadInput("this unit is over", hint="begin another one")
        return self._connection

    def _require_transaction(self) -> None:
        if self._spoiled or not self._dialect.in_transaction(self._running()):
            raise BadInput(
                "a statement of this unit has failed or ended its transaction, and nothing of it "
                "can be stored",
                hint="roll the unit back; to go on after a failed statement, wrap it in "
                "unit.savepoint()",
            )

    @contextmanager
    def _failing(self, doing: str) -> Iterator[None]:
        try:
            yield
        except self._dialect.errors as error:
            broken = self._dialect.is_broken(self._connection)
            raise_failure(self._dialect, error, doing, broken=broken)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is not None:
            self.rollback()
        elif self._connection is not None:
            self.commit()


class _Rows:
    """See `state.StoredState`."""

    def __init__(self, unit: DatabaseUnit, partition: TopicPartition) -> None:
        self._unit = unit
        self._partition = partition

    def load(self, key: str) -> str | None:
        row = self._unit.ours(_ONE_STATE, (*self._unit.place(self._partition), key)).fetchone()
        return None if row is None else str(row[0])

    def load_all(self) -> dict[str, str]:
        return dict(self._unit.ours(_ALL_STATE, self._unit.place(self._partition)).fetchall())


def run(connection: Connection, statement: Any, parameters: Sequence[Any]) -> Any:
    # With parameters, even none of them, psycopg takes a % of the statement for itself.
    if parameters:
        return connection.execute(statement, parameters)
    return connection.execute(statement)


def raise_failure(dialect: Dialect, error: Exception, doing: str, *, broken: bool) -> NoReturn:
    """Ours, or the error as it is when it speaks of the statement."""
    failure = dialect.failure(error, doing, broken=broken)
    if failure is None:
        raise error
    raise failure from error
