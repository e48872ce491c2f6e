"""Data and offsets in a SQLite file: one host, any number of processes.

Write-ahead log and synchronous=FULL: what is committed survives a power cut. Every transaction
begins IMMEDIATE, so it has the one write lock from the start and never has to give up half way; the
others wait for it, at most `busy_timeout_s`. While a unit is open nobody else writes, a claim
included: keep units short.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path

from lossless.client.errors import StoreUnavailable
from lossless.client.stores.dialect import Connection
from lossless.client.stores.sql import SqlStore
from lossless.errors import BadInput, LosslessError

BUSY_TIMEOUT_S = 30.0

TABLES = (
    """CREATE TABLE IF NOT EXISTS lossless_offsets (
        consumer_group TEXT NOT NULL, topic TEXT NOT NULL, partition INTEGER NOT NULL,
        next_offset INTEGER, owner TEXT, previous_owner TEXT, unit TEXT, topic_id TEXT,
        PRIMARY KEY (consumer_group, topic, partition)) WITHOUT ROWID""",
    """CREATE TABLE IF NOT EXISTS lossless_state (
        consumer_group TEXT NOT NULL, topic TEXT NOT NULL, partition INTEGER NOT NULL,
        key TEXT NOT NULL, value TEXT NOT NULL,
        PRIMARY KEY (consumer_group, topic, partition, key)) WITHOUT ROWID""",
    """CREATE TABLE IF NOT EXISTS lossless_seen (
        scope TEXT NOT NULL, id TEXT NOT NULL, seen_us INTEGER NOT NULL,
        PRIMARY KEY (scope, id)) WITHOUT ROWID""",
    "CREATE INDEX IF NOT EXISTS lossless_seen_order ON lossless_seen (scope, seen_us)",
)

# The primary codes that speak of the machine, or of others at work, and not of the statement.
_OUTAGES = {
    sqlite3.SQLITE_BUSY: "another process is writing to it for longer than the busy timeout",
    sqlite3.SQLITE_LOCKED: "another connection is writing to it",
    sqlite3.SQLITE_PROTOCOL: "another process is writing to it",
    sqlite3.SQLITE_IOERR: "look at the disk, and at the system's log",
    sqlite3.SQLITE_FULL: "make room on the disk",
    sqlite3.SQLITE_CANTOPEN: "look at its folder: is it there, and may this user write to it?",
    sqlite3.SQLITE_READONLY: "look at the file and its folder: may this user write to them?",
    sqlite3.SQLITE_NOMEM: "give the process more memory",
    sqlite3.SQLITE_INTERRUPT: "somebody interrupted it",
}
_UNREADABLE = (sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CORRUPT)


def _identity(path: str) -> tuple[int, int] | None:
    try:
        found = os.stat(path)
    except FileNotFoundError:
        return None
    return found.st_dev, found.st_ino


class SqliteDialect:
    for_update = skip_locked = ""  # BEGIN IMMEDIATE has the lock of the whole file
    errors: tuple[type[Exception], ...] = (sqlite3.Error,)

    def __init__(self, path: str | Path, *, busy_timeout_s: float = BUSY_TIMEOUT_S) -> None:
        self._path = os.fspath(path)
        if self._path == ":memory:":
            raise BadInput(
                "a store in memory is gone with the process, and its offsets too",
                hint="give it a file",
            )
        if not busy_timeout_s >= 0:
            raise BadInput(
                f"busy_timeout_s = {busy_timeout_s}: not a time to wait",
                hint="give seconds, 0 or more",
            )
        self._busy_timeout_s = busy_timeout_s
        self._file: tuple[int, int] | None = None  # device and inode when it was first opened
        self.describe = f"SQLite file {self._path}"

    def sql(self, statement: str) -> str:
        return statement

    def connect(self) -> Connection:
        self._check_file()
        connection = None
        try:
            # A unit is one thread's, but not always the same one's.
            connection = sqlite3.connect(
                self._path,
                timeout=self._busy_timeout_s,
                isolation_level=None,
                check_same_thread=False,
            )
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("PRAGMA synchronous = FULL")
            connection.execute("PRAGMA foreign_keys = ON")
            self._file = self._file or _identity(self._path)
        except sqlite3.Error as error:
            if connection is not None:
                connection.close()
            failure = self.failure(error, "opening it", broken=True)
            raise (failure or error) from error
        return connection

    def create_tables(self, connection: Connection) -> None:
        connection.execute("BEGIN IMMEDIATE")
        try:
            for table in TABLES:
                connection.execute(table)
            columns = connection.execute("PRAGMA table_info(lossless_offsets)").fetchall()
            if not any(name == "topic_id" for _, name, *_ in columns):  # of an earlier version
                connection.execute("ALTER TABLE lossless_offsets ADD COLUMN topic_id TEXT")
            connection.commit()
        except BaseException:
            with suppress(sqlite3.Error):
                connection.rollback()
            raise

    def begin(self, connection: Connection, instance: str) -> None:  # noqa: ARG002
        self._check_file()
        connection.execute("BEGIN IMMEDIATE")

    def _check_file(self) -> None:
        if self._file is not None and _identity(self._path) != self._file:
            raise BadInput(
                f"{self.describe} was deleted or replaced while it was open: what is stored in it "
                "from now on would be lost",
                hint="put the file back, or restore it from a copy, and start again",
            )

    def run_all(self, connection: Connection, statements: Sequence[str]) -> None:
        for statement in statements:
            connection.execute(statement)

    def in_transaction(self, connection: Connection) -> bool:
        return bool(connection.in_transaction)

    def is_broken(self, connection: Connection) -> bool:  # noqa: ARG002
        return False

    def is_undecided(self, connection: Connection) -> bool:  # noqa: ARG002
        # A sync that failed may have reached the disk all the same.
        return True

    def end_transactions_of(self, connection: Connection, instances: Iterable[str]) -> None:
        """Nothing can: a stopped process keeps its lock until it goes on or is killed."""

    def failure(self, error: Exception, doing: str, *, broken: bool) -> LosslessError | None:  # noqa: ARG002
        code = getattr(error, "sqlite_errorcode", None)
        primary = code & 0xFF if isinstance(code, int) else None
        if primary in _OUTAGES:
            hint = _OUTAGES[primary]
            return StoreUnavailable(f"{self.describe}, {doing}: {error}", hint=hint)
        if primary in _UNREADABLE:
            return BadInput(
                f"{self.describe}, {doing}: {error}",
                hint="is it a SQLite file? if it was one, restore it from a copy",
            )
        return None


class SqliteStore(SqlStore):
    """Rows, state, seen ids and offsets in one file."""

    def __init__(self, path: str | Path, *, busy_timeout_s: float = BUSY_TIMEOUT_S) -> None:
        super().__init__(SqliteDialect(path, busy_timeout_s=busy_timeout_s))
