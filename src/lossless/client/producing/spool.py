"""Records on disk that could not be sent: ordered, bounded, owned by one producer.

A record is parked when its row is committed: the write-ahead log is flushed to the disk by then, so
it survives a kill at any moment. It is removed only when Kafka has acknowledged it. Between the two
it may have been sent: after a crash in that moment it is sent again, with the same operation id.

The order is that of sending: a row's place is the record's number, counted on from the last row of
the producer before. Rows that Kafka refused for good are kept aside, with the reason: nothing that
was parked is ever thrown away.

Used by one thread. The folder belongs to one process at a time, by a lock that its death releases:
a forked child closes its copy of the lock at once, or it would keep it when its parent is dead.
"""

from __future__ import annotations

import fcntl
import os
import sqlite3
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from lossless.client.producing.packing import pack_headers, unpack_headers
from lossless.client.record import Record
from lossless.errors import BadInput, LosslessError, Unavailable

FILE_NAME = "spool.sqlite"
LOCK_NAME = "lock"
VERSION = 1
_locks: set[int] = set()  # of this process, as descriptors
ROW_BYTES = 64  # of a row besides what the record holds: what SQLite keeps for it, roughly

_TABLES = """
CREATE TABLE IF NOT EXISTS parked (
    place INTEGER PRIMARY KEY,
    topic TEXT NOT NULL,
    partition INTEGER,
    key BLOB,
    value BLOB,
    headers BLOB NOT NULL,
    timestamp_ms INTEGER,
    bytes INTEGER NOT NULL
);
CREATE TABLE IF NOT EXISTS refused (
    place INTEGER PRIMARY KEY,
    topic TEXT NOT NULL,
    partition INTEGER,
    key BLOB,
    value BLOB,
    headers BLOB NOT NULL,
    timestamp_ms INTEGER,
    bytes INTEGER NOT NULL,
    reason TEXT NOT NULL
);
"""
# SQLite's primary codes for contents that it does not understand. The others are of the machine.
_DAMAGED = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_ERROR)
_COLUMNS = "place, topic, partition, key, value, headers, timestamp_ms, bytes"

Lane = tuple[str, int | None, bytes | None]  # records of one topic, partition asked for and key


def lane_of(record: Record) -> Lane:
    return record.topic, record.partition, record.key


@dataclass(frozen=True, slots=True)
class Parked:
    place: int
    record: Record
    bytes: int
    damage: str | None = None  # of the headers, which are left out then


def bytes_of(record: Record) -> int:
    held = len(record.topic) + len(record.key or b"") + len(record.value or b"")
    return ROW_BYTES + held + sum(len(name) + len(value or b"") for name, value in record.headers)


class Spool:
    def __init__(self, folder: Path | str, *, bytes_max: int) -> None:
        self.folder = Path(folder)
        self.bytes_max = bytes_max
        self._lock = _own(self.folder)
        _locks.add(self._lock)
        try:
            self._database = _open(self.folder / FILE_NAME)
        except BaseException:
            _release(self._lock)
            raise
        try:
            self._count()
        except BaseException as error:
            self.close()
            if isinstance(error, sqlite3.Error):
                raise _unusable(self.folder / FILE_NAME, error) from error
            raise

    def _count(self) -> None:
        one = self._database.execute
        self.count, self.bytes = one(
            "SELECT count(*), ifnull(sum(bytes), 0) FROM parked"
        ).fetchone()
        self.refused = one("SELECT count(*) FROM refused").fetchone()[0]
        self.last_place: int = one(
            "SELECT max((SELECT ifnull(max(place), 0) FROM parked),"
            " (SELECT ifnull(max(place), 0) FROM refused))"
        ).fetchone()[0]
        found = one(
            "SELECT topic, partition, key, count(*) FROM parked GROUP BY topic, partition, key"
        )
        # How many rows each lane had at the beginning.
        self.lanes: dict[Lane, int] = {
            (topic, partition, key): count for topic, partition, key, count in found
        }

    def add(self, parked: Sequence[Parked]) -> None:
        """All of them or none. Committed when it returns."""
        with self._database:
            self._database.executemany(
                f"INSERT INTO parked ({_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
                [
                    (
                        row.place,
                        row.record.topic,
                        row.record.partition,
                        row.record.key,
                        row.record.value,
                        pack_headers(row.record.headers),
                        row.record.timestamp_ms,
                        row.bytes,
                    )
                    for row in parked
                ],
            )
        self.count += len(parked)
        self.bytes += sum(row.bytes for row in parked)

    def shrink(self) -> bool:
        """Empties the write-ahead log into the database; whether that freed room on the disk."""
        log = self.folder / f"{FILE_NAME}-wal"
        try:
            before = log.stat().st_size
            self._database.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
            return log.stat().st_size < before
        except (OSError, sqlite3.Error):
            return False

    def after(self, place: int, limit: int) -> list[Parked]:
        """The next rows, in order. Raises sqlite3.Error if the file cannot be read."""
        rows = self._database.execute(
            f"SELECT {_COLUMNS} FROM parked WHERE place > ? ORDER BY place LIMIT ?", (place, limit)
        )
        return [_parked(*row) for row in rows]

    def remove(self, acknowledged: Iterable[Parked]) -> None:
        """They are acknowledged: the only way out, but for `refuse`."""
        rows = list(acknowledged)
        with self._database:
            self._database.executemany(
                "DELETE FROM parked WHERE place = ?", [(row.place,) for row in rows]
            )
        self._forget(rows)

    def refuse(self, row: Parked, reason: str) -> None:
        """Kafka will never take it: kept aside, for people."""
        with self._database:
            self._database.execute(
                f"INSERT INTO refused ({_COLUMNS}, reason)"
                f" SELECT {_COLUMNS}, ? FROM parked WHERE place = ?",
                (reason, row.place),
            )
            self._database.execute("DELETE FROM parked WHERE place = ?", (row.place,))
        self._forget([row])
        self.refused += 1

    def close(self) -> None:
        self._database.close()
        _release(self._lock)

    def _forget(self, rows: Sequence[Parked]) -> None:
        self.count -= len(rows)
        self.bytes -= sum(row.bytes for row in rows)


def _parked(
    place: int,
    topic: str,
    partition: int | None,
    key: bytes | None,
    value: bytes | None,
    packed: bytes,
    timestamp_ms: int | None,
    held: int,
) -> Parked:
    damage = None
    try:
        headers = unpack_headers(packed)
    except (TypeError, ValueError) as error:
        headers, damage = [], str(error)
    record = Record(
        topic=topic,
        partition=partition,
        key=key,
        value=value,
        headers=headers,
        timestamp_ms=timestamp_ms,
    )
    return Parked(place, record, held, damage)


def _own(folder: Path) -> int:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(folder / LOCK_NAME, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    except OSError as error:
        raise BadInput(f"records cannot be parked in {folder}: {error.strerror}") from error
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        raise Unavailable(
            f"another producer parks its records in {folder}",
            hint="give every producer a folder of its own; one process after the other may use it",
        ) from None
    return descriptor


def _release(lock: int) -> None:
    _locks.discard(lock)
    os.close(lock)


def _release_copies() -> None:
    """In a forked child: this ends no lock of the parent."""
    for lock in list(_locks):
        _release(lock)


os.register_at_fork(after_in_child=_release_copies)


def _open(file: Path) -> sqlite3.Connection:
    # One thread uses it, but another one opens and closes it.
    if file.is_dir():
        raise BadInput(
            f"{file} is a folder, where the file of the spool should be",
            hint="move it elsewhere, or park in another folder; look first where the file is now: "
            "records may be parked in it",
        )
    try:
        database = sqlite3.connect(file, check_same_thread=False)
    except sqlite3.Error as error:
        raise _unusable(file, error) from error
    # Damaged text is a reason to refuse its own row only.
    database.text_factory = lambda data: data.decode(errors="surrogateescape")
    try:
        database.execute("PRAGMA journal_mode = WAL")
        database.execute("PRAGMA synchronous = FULL")  # a commit is on the disk when it returns
        version = database.execute("PRAGMA user_version").fetchone()[0]
        if version not in (0, VERSION):
            raise BadInput(
                f"{file} was written by another release: version {version}, not {VERSION}",
                hint="let the release that wrote it send what is parked, or choose another folder",
            )
        with database:
            database.executescript(_TABLES)
            database.execute(f"PRAGMA user_version = {VERSION}")
        _flush_folder(file.parent)
    except sqlite3.Error as error:
        database.close()
        raise _unusable(file, error) from error
    except BaseException:
        database.close()
        raise
    return database


def _unusable(file: Path, error: sqlite3.Error) -> LosslessError:
    code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_CORRUPT) & 0xFF
    if code not in _DAMAGED:
        return Unavailable(
            f"{file} cannot be opened for writing: {error}",
            hint="look whether the disk is full or read-only; what is parked there stays there",
        )
    return BadInput(
        f"{file} is not a spool, or is damaged: {error}",
        hint="if records were parked in it, keep it, with its -wal file, and copy what is readable "
        f"by `sqlite3 {file} .recover`; meanwhile park in another folder",
    )


def _flush_folder(folder: Path) -> None:
    """A new file is there after a loss of power only if its folder was flushed."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
