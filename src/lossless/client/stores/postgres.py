"""Data and offsets in PostgreSQL: any number of hosts.

A member that was stopped in the middle of a unit keeps the locks of the rows it has changed, and
the next owner's rows would wait for it. So every transaction holds an advisory lock that names its
store object, and whoever claims a partition that was not released ends the sessions that hold the
lock of its owner. It is the server that knows who holds it, so this is right behind a pooler too.

READ COMMITTED: the compare-and-set waits for whoever is changing the row, then looks again.
The DSN is a secret: it is never part of a message.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from lossless.client.errors import StoreUnavailable
from lossless.client.stores.dialect import CREATING_TABLES, Connection
from lossless.client.stores.sql import SqlStore
from lossless.errors import BadInput, LosslessError, Unavailable
from lossless.postgresql import CONNECTION_DEFAULTS, is_refusal

if TYPE_CHECKING:
    import psycopg as psycopg_module

CONNECTING = "connecting"
LOCK_TIMEOUT_MS = 30_000  # a unit that waits longer for a row is repeated rather than stuck
logger = logging.getLogger(__name__)

TABLES = (
    """CREATE TABLE IF NOT EXISTS lossless_offsets (
        consumer_group text NOT NULL, topic text NOT NULL, partition integer NOT NULL,
        next_offset bigint, owner text, previous_owner text, unit text, topic_id text,
        PRIMARY KEY (consumer_group, topic, partition))""",
    # For tables of an earlier version.
    "ALTER TABLE lossless_offsets ADD COLUMN IF NOT EXISTS topic_id text",
    """CREATE TABLE IF NOT EXISTS lossless_state (
        consumer_group text NOT NULL, topic text NOT NULL, partition integer NOT NULL,
        key text NOT NULL, value text NOT NULL,
        PRIMARY KEY (consumer_group, topic, partition, key))""",
    """CREATE TABLE IF NOT EXISTS lossless_seen (
        scope text NOT NULL, id text NOT NULL, seen_us bigint NOT NULL,
        PRIMARY KEY (scope, id))""",
    "CREATE INDEX IF NOT EXISTS lossless_seen_order ON lossless_seen (scope, seen_us)",
)
_TABLES_EXIST = """
    SELECT EXISTS (SELECT FROM pg_attribute WHERE attname = 'topic_id' AND NOT attisdropped
        AND attrelid = to_regclass('lossless_offsets'))"""
_CREATING_TABLES = 0x6C6F73736C657373  # "lossless": two who create them at once would collide

_HOLDERS = """
    SELECT pg_terminate_backend(pid) FROM pg_locks
    WHERE locktype = 'advisory' AND objsubid = 1 AND granted AND pid <> pg_backend_pid()
      AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
      AND classid::bigint << 32 | objid::bigint = %s"""


def _driver() -> Any:
    try:
        import psycopg
    except ImportError as error:
        raise Unavailable(
            "the driver for PostgreSQL (psycopg) is not installed",
            hint="pip install 'lossless[postgres]'",
        ) from error
    return psycopg


class PostgresDialect:
    for_update = " FOR UPDATE"
    skip_locked = " FOR UPDATE SKIP LOCKED"

    def __init__(self, dsn: str) -> None:
        self._psycopg: Any = _driver()
        self.errors: tuple[type[Exception], ...] = (self._psycopg.Error,)
        self._dsn, self.describe = _checked(dsn)

    def sql(self, statement: str) -> str:
        return statement.replace("?", "%s")

    def connect(self) -> Connection:
        psycopg = self._psycopg
        try:
            # Prepared statements do not survive the poolers that many servers stand behind.
            connection = psycopg.connect(self._dsn, prepare_threshold=None)
        except psycopg.Error as error:
            raise (self.failure(error, CONNECTING, broken=True) or error) from error
        connection.isolation_level = psycopg.IsolationLevel.READ_COMMITTED
        return connection

    def create_tables(self, connection: Connection) -> None:
        try:
            # Asked first: CREATE … IF NOT EXISTS wants the right to create even when it is there.
            (exist,) = connection.execute(_TABLES_EXIST).fetchone()
            if not exist:
                connection.execute("SELECT pg_advisory_xact_lock(%s)", (_CREATING_TABLES,))
                for table in TABLES:
                    connection.execute(table)
            connection.commit()
        except BaseException:
            with suppress(self._psycopg.Error):
                connection.rollback()
            raise

    def begin(self, connection: Connection, instance: str) -> None:
        connection.execute(
            "SELECT pg_advisory_xact_lock_shared(%s), set_config('lock_timeout', %s, true)",
            (_signed(instance), f"{LOCK_TIMEOUT_MS}ms"),
        )

    def run_all(self, connection: Connection, statements: Sequence[str]) -> None:
        connection.execute("; ".join(statements))

    def in_transaction(self, connection: Connection) -> bool:
        status = self._psycopg.pq.TransactionStatus
        return bool(connection.info.transaction_status == status.INTRANS)

    def is_broken(self, connection: Connection) -> bool:
        return bool(connection.closed)

    def is_undecided(self, connection: Connection) -> bool:
        return self.is_broken(connection)

    def end_transactions_of(self, connection: Connection, instances: Iterable[str]) -> None:
        for instance in instances:
            try:
                ended = connection.execute(_HOLDERS, (_signed(instance),)).fetchall()
                connection.commit()
            except self._psycopg.errors.InsufficientPrivilege as error:
                connection.rollback()
                logger.warning(
                    "the previous owner's transaction on %s could not be ended: %s. What it has "
                    "locked stays locked until its session ends",
                    self.describe,
                    _words(error),
                )
            else:
                if ended:
                    logger.warning(
                        "ended %d open transactions of a previous owner on %s",
                        len(ended),
                        self.describe,
                    )

    def failure(self, error: Exception, doing: str, *, broken: bool) -> LosslessError | None:
        assert isinstance(error, self._psycopg.Error)
        words = _words(error)
        what = f"{self.describe}, {doing}: {words}"
        state = error.sqlstate
        if (doing == CONNECTING and state is None and is_refusal(words)) or (
            state is not None and (state.startswith("28") or state == "3D000")
        ):
            return BadInput(what, hint="check user, password and database in the dsn")
        if state == "42501" and doing == CREATING_TABLES:
            return BadInput(
                what,
                hint="let the user create tables once (GRANT CREATE ON SCHEMA … TO …), or create "
                "lossless_offsets, lossless_state and lossless_seen for it",
            )
        if state == "25006":
            return StoreUnavailable(what, hint="the server is read-only: is it a standby?")
        if broken or isinstance(error, self._psycopg.OperationalError):
            return StoreUnavailable(what, hint="is the server running, and is its address right?")
        return None


class PostgresStore(SqlStore):
    """Rows, state, seen ids and offsets in one database. `dsn` as libpq takes it."""

    def __init__(self, dsn: str) -> None:
        super().__init__(PostgresDialect(dsn))


def _checked(dsn: str) -> tuple[str, str]:
    """The DSN with the defaults of this file, and which server it means, for people."""
    psycopg = _driver()
    from psycopg.conninfo import conninfo_to_dict, make_conninfo

    try:
        parts = conninfo_to_dict(dsn)
    except psycopg.ProgrammingError:
        parts = None
    # `from None` and no detail: libpq quotes what it could not read, and that is the secret.
    if parts is None:
        raise BadInput(
            "the dsn is neither a connection URI nor a list of key=value pairs",
            hint="postgresql://user:password@host:5432/database, with special characters "
            "percent-encoded, or host=… dbname=… user=… password=…",
        ) from None
    if "@" in str(parts.get("host") or ""):
        raise BadInput(
            "the host in the dsn contains an @: is it a piece of the password?",
            hint="percent-encode special characters in the password (@ is %40)",
        )
    host = parts.get("host") or parts.get("hostaddr") or "the local server"
    port = f":{parts['port']}" if parts.get("port") else ""
    database = parts.get("dbname") or parts.get("user")
    server = f"{host}{port}/{database}" if database else f"{host}{port}"
    return make_conninfo("", **{**CONNECTION_DEFAULTS, **parts}), f"PostgreSQL {server}"


def _words(error: psycopg_module.Error) -> str:
    return " ".join((error.diag.message_primary or str(error)).split())


def _signed(instance: str) -> int:
    """The 64 bits of an advisory lock, as PostgreSQL has them."""
    number = int(instance[:16], 16)
    return number - (1 << 64) if number >> 63 else number
