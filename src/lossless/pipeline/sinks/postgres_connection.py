"""How PostgreSQL is reached, what its tables are called, and what its errors mean.

The DSN is a secret: it is never part of a message. libpq's own messages name the host, the port,
the user and the database, but quote a DSN that they cannot read, so that one error is not repeated.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lossless.errors import BadInput, LosslessError, Unavailable
from lossless.pipeline.sinks.interface import SinkUnavailable
from lossless.postgresql import CONNECTION_DEFAULTS, is_refusal

try:
    # The one place that imports it, so that its absence is said in words wherever it is noticed.
    import psycopg as psycopg
    from psycopg import sql as sql
    from psycopg.conninfo import conninfo_to_dict, make_conninfo
except ImportError as error:
    raise Unavailable(
        "the driver for PostgreSQL (psycopg) is not installed",
        hint="pip install 'lossless[postgres]', on the executors' machines too",
    ) from error

if TYPE_CHECKING:
    from psycopg import Connection

IDENTIFIER_BYTES_MAX = 63  # PostgreSQL cuts longer names without an error
DEAD_LETTER_SUFFIX = "_dlt"

# What the server does for a transaction of ours, unless somebody chose otherwise for the user, the
# database or in the DSN. The idle timeout and the keepalives end a dead driver's session, and with
# it the lock on the ledger; the lock timeout is how long the next driver waits without a word.
SERVER_TIMEOUTS = {
    "lock_timeout": "10s",
    "idle_in_transaction_session_timeout": "60s",
    "tcp_keepalives_idle": "30s",
    "tcp_keepalives_interval": "10s",
    "tcp_keepalives_count": "3",
    "tcp_user_timeout": "60s",
}
_SET_TIMEOUTS = """
SELECT set_config(name, value, true)
FROM pg_settings JOIN unnest(%s::text[], %s::text[]) AS wanted (name, value) USING (name)
WHERE source = 'default' OR source = 'configuration file' AND setting = '0'
"""
_HOLDERS = """
SELECT pid, application_name, host(client_addr), state,
       floor(extract(epoch FROM clock_timestamp() - state_change))::bigint
FROM pg_stat_activity AS session
WHERE pid <> pg_backend_pid() AND EXISTS (
    SELECT FROM pg_locks AS held
    WHERE held.pid = session.pid AND held.granted
      AND (held.locktype = 'advisory' OR held.relation = ANY(%s::regclass[]))
)
ORDER BY xact_start NULLS LAST LIMIT 3
"""

# Classes of SQLSTATE that speak of the data or of the table, not of the server's health.
_DATA = ("22", "23", "44")
_TABLE = ("42", "0A", "2B", "3F")
# Classes of errors that no row can cause: the session, the server, rights, and names. A trigger or
# a function of the user's may raise an error of any other class, or of one that it has made up.
_NOT_OF_A_ROW = (
    *("00", "01", "02", "03", "08", "0A", "0B", "0L", "0P", "0Z", "20", "24", "25", "26", "28"),
    *("2B", "2D", "34", "3B", "3D", "3F", "40", "42", "53", "55", "57", "58", "72", "F0", "HV"),
    *("XX", "54001", "54011", "54023"),
)
_TASK_FAILED = re.compile(r"TaskFailed: \[(\w*)\] ([^\n]*)")
_DETAILED = ("23503", "23505")  # foreign and unique keys: the detail names the key


class TaskFailed(Exception):
    """A task's way to tell the driver what PostgreSQL said; see `failure_in`."""


@dataclass(frozen=True, slots=True)
class TableName:
    schema: str | None  # None: the first schema of the connection's search path
    name: str

    @classmethod
    def parse(cls, text: str) -> TableName:
        """`table`, `schema.table` or parts in double quotes; letters keep their case."""
        part = r'(?:"((?:[^"]|"")+)"|([^".]+))'
        match = re.fullmatch(rf"(?:{part}\.)?{part}", text)
        if not match:
            raise BadInput(
                f"{text!r} does not name a PostgreSQL table",
                hint='write table, schema.table or, for names with dots, "schema"."my.table"',
            )
        quoted_schema, schema, quoted_name, name = match.groups()
        parsed = cls(
            quoted_schema.replace('""', '"') if quoted_schema else schema,
            quoted_name.replace('""', '"') if quoted_name else name,
        )
        if len((parsed.name + DEAD_LETTER_SUFFIX).encode()) > IDENTIFIER_BYTES_MAX:
            raise BadInput(
                f"the table name {parsed.name!r} is too long: PostgreSQL allows "
                f"{IDENTIFIER_BYTES_MAX} bytes, and its dead letters go to "
                f"a table called <table>{DEAD_LETTER_SUFFIX}",
                hint="choose a shorter name",
            )
        return parsed

    def __str__(self) -> str:
        return f"{self.schema}.{self.name}" if self.schema else self.name

    def beside(self, name: str) -> sql.Identifier:
        """Another table of the same schema."""
        return sql.Identifier(self.schema, name) if self.schema else sql.Identifier(name)

    @property
    def identifier(self) -> sql.Identifier:
        return self.beside(self.name)

    @property
    def dead_letters(self) -> sql.Identifier:
        return self.beside(self.name + DEAD_LETTER_SUFFIX)


def checked_dsn(dsn: str) -> str:
    """The DSN with the defaults of this file, in libpq's key=value form."""
    try:
        parts = conninfo_to_dict(dsn)
    except psycopg.ProgrammingError:
        parts = None
    # `from None` and no detail: libpq quotes what it could not read, and that is the secret.
    if parts is None:
        raise BadInput(
            "the sink's dsn is neither a connection URI nor a list of key=value pairs",
            hint="postgresql://user:password@host:5432/database, with special characters "
            "percent-encoded, or host=… dbname=… user=… password=…",
        ) from None
    if "@" in str(parts.get("host") or ""):
        raise BadInput(
            "the host in the sink's dsn contains an @: is it a piece of the password?",
            hint="percent-encode special characters in the password (@ is %40)",
        )
    return make_conninfo("", **{**CONNECTION_DEFAULTS, **parts})


def server_of(dsn: str) -> str:
    """Which server and database the DSN means, for people."""
    parts = conninfo_to_dict(dsn)
    host = parts.get("host") or parts.get("hostaddr") or "the local server"
    port = f":{parts['port']}" if parts.get("port") else ""
    database = parts.get("dbname") or parts.get("user")
    return f"{host}{port}/{database}" if database else f"{host}{port}"


def connect(dsn: str, **options: Any) -> Connection[Any]:
    """A connection in READ COMMITTED, as the compare-and-set on the ledger needs it.

    What is sent on it are whole statements, composed by psycopg.sql: where a statement takes
    parameters, psycopg would also look for them in the names of the user's tables.
    Raises psycopg's own error: `explained` turns it into one of ours.
    """
    # Prepared statements do not survive the poolers that many servers stand behind.
    connection = psycopg.connect(dsn, prepare_threshold=None, **options)
    connection.isolation_level = psycopg.IsolationLevel.READ_COMMITTED
    return connection


def set_timeouts(connection: Connection[Any]) -> None:
    """SERVER_TIMEOUTS for the transaction that this begins.

    Not for the session, which a pooler may give to another program afterwards.
    """
    names, values = list(SERVER_TIMEOUTS), list(SERVER_TIMEOUTS.values())
    connection.execute(_SET_TIMEOUTS, [names, values])


def lock_holders(connection: Connection[Any], tables: Iterable[sql.Identifier]) -> list[str]:
    """The other sessions with locks on these tables, longest transaction first, for people."""
    names = [table.as_string() for table in tables]
    return [
        f"process {pid}"
        + (f" ({application}" if application else " (a program without a name")
        + (f" at {address})" if address else ")")
        + (f", {state} for {seconds} s" if state else "")
        for pid, application, address, state, seconds in connection.execute(_HOLDERS, [names])
    ]


def explained(error: psycopg.Error, doing: str) -> LosslessError:
    """What an error means for the person who runs the pipeline."""
    return explained_words(error.sqlstate, words_of(error), doing)


def speaks_of_a_row(error: psycopg.Error) -> bool:
    """Whether a row that was to be inserted can have caused the error."""
    return error.sqlstate is not None and not error.sqlstate.startswith(_NOT_OF_A_ROW)


def words_of(error: psycopg.Error) -> str:
    """What the server, or libpq, said, in one line."""
    said = error.diag.message_primary or str(error)
    # Other details quote the whole row, which has no place in a log.
    if error.diag.message_detail and error.sqlstate in _DETAILED:
        said += f" ({error.diag.message_detail})"
    return " ".join(said.split())


def explained_words(sqlstate: str | None, words: str, doing: str) -> LosslessError:
    """The same from the two parts that can travel from an executor to the driver."""
    what = f"{doing}: {words}"
    if sqlstate is None and is_refusal(words):
        return BadInput(what, hint="check user, password and database in the sink's dsn")
    if sqlstate is None:
        return SinkUnavailable(what, hint="is the server running, and is its address right?")
    if sqlstate == "42501":
        return BadInput(
            what,
            hint="the user needs USAGE and CREATE on the schema, and SELECT and INSERT on the "
            "table: GRANT USAGE, CREATE ON SCHEMA … TO …",
        )
    if sqlstate.startswith(_DATA):
        return BadInput(
            what,
            hint="a row breaks a rule of the table: change the transform, or the rule; nothing of "
            "the batch was stored",
        )
    if sqlstate.startswith(_TABLE):
        return BadInput(what, hint="was the table changed while the pipeline ran? start it again")
    if sqlstate.startswith("28") or sqlstate == "3D000":
        return BadInput(what, hint="check user, password and database in the sink's dsn")
    if sqlstate == "25006":
        return SinkUnavailable(what, hint="the server is read-only: is it a standby?")
    return SinkUnavailable(what, hint="the pipeline goes on where its ledger says once it works")


@contextmanager
def failing_as_task() -> Iterator[None]:
    """Around what a task does: Spark carries an exception to the driver as text only."""
    try:
        yield
    except psycopg.Error as error:
        raise TaskFailed(f"[{error.sqlstate or ''}] {words_of(error)}") from None


def failure_in(text: str) -> tuple[str | None, str] | None:
    """The SQLSTATE and the words of a TaskFailed in the text of a Spark error, if it has one."""
    match = _TASK_FAILED.search(text)
    return (match[1] or None, match[2]) if match else None
