"""Ids that were seen: the same operation a second time is known, within a bounded window.

    if not deduplicator.first_time(operation_id, unit):
        return                      # a duplicate; the unit only moves past it

An id is an operation id of a record's header, or a natural key: ("station 7", "2026-11-16").

With a unit, an id is noted in the unit's transaction: stored with the rows it stands for, or not at
all. Two units that note the same new id at once follow one another; the second sees it as seen.
Without a unit it is stored at once. Then `seen` before the work and `first_time` after it may do it
twice after a crash between them; `first_time` before the work may leave it undone. Only a unit
does neither.

The window: an id is forgotten when it is older than `age_max_s`, and may be when `count_max` others
were noted since. At most `count_max` and a tenth are kept, for each process. Ids age by a clock
that only runs while a process uses the window: neither a jump of the computer's clock nor the time
between two processes makes one forgotten.
"""

from __future__ import annotations

import datetime
import hashlib
import json
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

from lossless.client.stores.dialect import Connection
from lossless.client.stores.interface import SqlUnit
from lossless.client.stores.sql import SqlStore
from lossless.client.stores.sql_unit import DatabaseUnit
from lossless.client.stores.sqlite import SqliteStore
from lossless.errors import BadInput

COUNT_MAX = 1_000_000
AGE_MAX_S = 7 * 24 * 3600.0  # longer than most topics are kept, and most producers keep retrying
ID_LENGTH_MAX = 500  # longer ones are hashed: indexes do not take any length

_NOTE = """
    INSERT INTO lossless_seen (scope, id, seen_us) VALUES (?, ?, ?)
    ON CONFLICT (scope, id) DO UPDATE SET seen_us = excluded.seen_us
    WHERE lossless_seen.seen_us <= ?"""
_SEEN = "SELECT 1 FROM lossless_seen WHERE scope = ? AND id = ? AND seen_us > ?"
_NEWEST = "SELECT max(seen_us) FROM lossless_seen WHERE scope = ?"
_FORGET = """
    DELETE FROM lossless_seen WHERE scope = ? AND id IN (
        SELECT id FROM lossless_seen WHERE scope = ? AND (seen_us <= ? OR seen_us < coalesce((
            SELECT seen_us FROM lossless_seen WHERE scope = ?
            ORDER BY seen_us DESC LIMIT 1 OFFSET ?), -1))"""

# What can be an id: text, bytes that are text, numbers, dates, and tuples of them.
Id = Any
Execute = Callable[[str, tuple[Any, ...]], Any]


class Deduplicator:
    """`where`: the store whose units it is used with, or the path of a SQLite file of its own."""

    def __init__(
        self,
        where: SqlStore | str | Path,
        *,
        name: str = "",  # several in one group are told apart by it
        count_max: int = COUNT_MAX,
        age_max_s: float = AGE_MAX_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        if count_max < 1 or not age_max_s > 0:
            raise BadInput("a window that holds nothing finds no duplicates", hint="make it larger")
        self._own = not isinstance(where, SqlStore)
        self._store = where if isinstance(where, SqlStore) else SqliteStore(where)
        self._name = name
        self._count_max = count_max
        self._age_max_us = int(age_max_s * 1_000_000)
        self._clock = clock
        self._lock = threading.Lock()
        self._began: tuple[int, float] | None = None  # the window's time, and the clock's then
        self._newest_us = 0
        self._forget_every = max(1, min(count_max // 10, 10_000))
        self._noted = self._forget_every  # whatever is left of earlier runs is looked at first

    def first_time(self, operation: Id, unit: SqlUnit | None = None) -> bool:
        """Notes it; whether it was not seen before."""
        text = id_text(operation)
        if unit is not None:
            return self._note(text, self._execute_in(unit))
        with self._store.transaction("noting an id") as connection:
            return self._note(text, self._execute_on(connection))

    def seen(self, operation: Id, unit: SqlUnit | None = None) -> bool:
        """Whether it was; notes nothing."""
        text = id_text(operation)
        if unit is not None:
            return self._seen(text, self._execute_in(unit))
        with self._store.transaction("looking for an id") as connection:
            return self._seen(text, self._execute_on(connection))

    def close(self) -> None:
        """Closes the file of its own; a store that was given stays open."""
        if self._own:
            self._store.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _note(self, text: str, execute: Execute) -> bool:
        scope = self._scope()
        now_us = self._now_us(scope, execute)
        noted = execute(_NOTE, (scope, text, now_us, now_us - self._age_max_us)).rowcount
        new = bool(noted == 1)
        if new:
            self._noted += 1
            if self._noted >= self._forget_every:
                self._noted = 0
                old = (scope, scope, now_us - self._age_max_us, scope, self._count_max - 1)
                execute(_FORGET + self._store.dialect.skip_locked + ")", old)
        return new

    def _seen(self, text: str, execute: Execute) -> bool:
        scope = self._scope()
        oldest_us = self._now_us(scope, execute) - self._age_max_us
        return execute(_SEEN, (scope, text, oldest_us)).fetchone() is not None

    def _now_us(self, scope: str, execute: Execute) -> int:
        """Never the same twice, and never back: it is the order of the window as well.

        It begins at the newest id that is stored, or, for the first one, at the time of day.
        """
        newest_us = None
        if self._began is None:
            newest_us = execute(_NEWEST, (scope,)).fetchone()[0] or int(time.time() * 1_000_000)
        with self._lock:
            if self._began is None:
                self._began = newest_us or 0, self._clock()
            began_us, began_s = self._began
            passed_us = int((self._clock() - began_s) * 1_000_000)
            self._newest_us = max(began_us + passed_us, self._newest_us + 1)
            return self._newest_us

    def _scope(self) -> str:
        if not self._own and self._store.group is None:
            raise BadInput(
                "the store serves no group yet, and ids are kept by group",
                hint="use it in the handler, when partitions are claimed",
            )
        return json.dumps([self._store.group, self._name])

    def _execute_in(self, unit: SqlUnit) -> Execute:
        if not isinstance(unit, DatabaseUnit) or unit.store is not self._store:
            raise BadInput(
                "the unit is not of the store that this Deduplicator was made with",
                hint="make it with the consumer's store: Deduplicator(store)",
            )
        return unit.ours

    def _execute_on(self, connection: Connection) -> Execute:
        return lambda statement, parameters: connection.execute(
            self._store.dialect.sql(statement), parameters
        )


def id_text(operation: Id) -> str:
    """One text for each id: a header's bytes and the text they encode are the same id."""
    text = json.dumps(_plain(operation), separators=(",", ":"))
    if len(text) > ID_LENGTH_MAX:
        text = json.dumps({"sha256": hashlib.sha256(text.encode()).hexdigest()})
    return text


def _plain(operation: Id) -> Any:
    match operation:
        case str() | bool() | int():
            return operation
        case bytes():
            try:
                return operation.decode()
            except UnicodeDecodeError:
                return {"hex": operation.hex()}
        case datetime.datetime() | datetime.date():
            return operation.isoformat()
        case tuple() | list() if operation:
            return [None if part is None else _plain(part) for part in operation]
    raise BadInput(
        f"{operation!r} cannot be the id of an operation",
        hint="give text, bytes, whole numbers, dates, or a tuple of them",
    )
