"""The tables of the PostgreSQL sink: how they are made, looked at and thrown away."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lossless.errors import BadInput
from lossless.pipeline.outcomes import CONTENT_HASH
from lossless.pipeline.sinks.postgres_connection import TableName, psycopg, sql
from lossless.pipeline.sinks.postgres_contents import content_hash
from lossless.pipeline.sinks.postgres_staging import ATTEMPT, HASH, LETTER_COLUMNS
from lossless.pipeline.sinks.postgres_types import PROVENANCE_COLUMNS, StagedColumn, TableColumn

if TYPE_CHECKING:
    from psycopg import Connection

LEDGER = "lossless_ledger"
HISTORY = "lossless_ledger_history"
STAGING_PREFIX = "lossless_staging"
# The columns of <table>_dlt, in the order in which tasks copy them.
LETTER_TABLE: Mapping[str, str] = {
    **PROVENANCE_COLUMNS,
    "pipeline": "text",
    **dict(zip(LETTER_COLUMNS, ("bytea", "bytea", "jsonb", "jsonb"), strict=True)),
}
EVERYTHING = sql.SQL("true")
# A straggling attempt holds its staging table a little longer: the next sweep will get it.
SWEEP_LOCK_TIMEOUT = "100ms"

_COLUMNS = """
SELECT c.relkind::text, a.attname, format_type(a.atttypid, a.atttypmod), a.attnotnull,
       a.atthasdef OR a.attidentity <> '' OR a.attgenerated <> '',
       a.attidentity = 'a' OR a.attgenerated <> ''
FROM pg_class c
JOIN pg_namespace n ON n.oid = c.relnamespace
JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
WHERE n.nspname = %s AND c.relname = %s
ORDER BY a.attnum
"""


def resolved(connection: Connection[Any], table: TableName) -> TableName:
    """The table with its schema: executors may have another search path than the driver."""
    if table.schema:
        return table
    row = connection.execute("SELECT current_schema()").fetchone()
    if not row or not row[0]:
        raise BadInput(
            f"the user's search path has no schema for the table {table.name}",
            hint="name it as schema.table",
        )
    return TableName(row[0], table.name)


def columns(connection: Connection[Any], table: TableName) -> list[TableColumn]:
    """The columns of the table; none when it does not exist."""
    found = connection.execute(_COLUMNS, [table.schema, table.name]).fetchall()
    if found and found[0][0] not in ("r", "p"):
        raise BadInput(f"{table} is not a table", hint="a view or a foreign table cannot be a sink")
    return [
        TableColumn(
            name=name, type=kind, not_null=not_null, filled_by_server=filled, read_only=read_only
        )
        for _, name, kind, not_null, filled, read_only in found
    ]


def is_there(connection: Connection[Any], table: sql.Identifier) -> bool:
    row = connection.execute("SELECT to_regclass(%s)", [table.as_string()]).fetchone()
    return row is not None and row[0] is not None


def lock_tables(connection: Connection[Any], table: TableName) -> None:
    """Until the end of the transaction: drivers that create the same tables take turns.

    IF NOT EXISTS alone does not do it: of two at once, one fails.
    """
    connection.execute(
        "SELECT pg_advisory_xact_lock(hashtext('lossless'), hashtext(%s))", [table.schema]
    )


def create_tables(connection: Connection[Any], table: TableName, needed: Mapping[str, str]) -> None:
    """Everything that is not there yet; `needed` are the columns of the table."""
    _create(connection, table.identifier, needed)
    _create(connection, table.dead_letters, LETTER_TABLE)
    connection.execute(
        sql.SQL(
            "CREATE TABLE IF NOT EXISTS {} (pipeline text PRIMARY KEY, target text NOT NULL, "
            "sequence bigint NOT NULL, ledger jsonb NOT NULL)"
        ).format(table.beside(LEDGER))
    )
    connection.execute(
        sql.SQL(
            "CREATE TABLE IF NOT EXISTS {} (pipeline text, sequence bigint, "
            "committed_at timestamptz NOT NULL, entry jsonb NOT NULL, "
            "PRIMARY KEY (pipeline, sequence))"
        ).format(table.beside(HISTORY))
    )


def _create(connection: Connection[Any], table: sql.Identifier, needed: Mapping[str, str]) -> None:
    connection.execute(
        sql.SQL("CREATE TABLE IF NOT EXISTS {} ({})").format(table, _definitions(needed))
    )


def forget(connection: Connection[Any], table: TableName, pipeline: str) -> str:
    """The SQL that removes everything that is recorded about a pipeline."""
    recorded = (table.beside(LEDGER), table.beside(HISTORY), table.dead_letters)
    statements = [
        sql.SQL("DELETE FROM {} WHERE pipeline = {};").format(one, pipeline).as_string(connection)
        for one in recorded
        if is_there(connection, one)
    ]
    return " ".join(["BEGIN;", *statements, "COMMIT"])


def rename_pipeline(connection: Connection[Any], table: TableName, old: str, new: str) -> None:
    """Ledger, history and dead letters get another name. A driver under the old one is fenced: it
    will not find the ledger that it counts on."""
    connection.execute(
        sql.SQL("DELETE FROM {} WHERE pipeline = {}").format(table.beside(LEDGER), new)
    )
    for one in (table.beside(LEDGER), table.beside(HISTORY), table.dead_letters):
        connection.execute(
            sql.SQL("UPDATE {} SET pipeline = {} WHERE pipeline = {}").format(one, new, old)
        )


def add_columns(connection: Connection[Any], table: TableName, new: Mapping[str, str]) -> None:
    for name, kind in new.items():
        connection.execute(
            sql.SQL("ALTER TABLE {} ADD COLUMN IF NOT EXISTS {}").format(
                table.identifier, _definition(name, kind)
            )
        )


def _definitions(needed: Mapping[str, str]) -> sql.Composed:
    return _list(_definition(name, kind) for name, kind in needed.items())


def _definition(name: str, kind: str) -> sql.Composed:
    # Types come from this package's own tables, never from a user.
    return sql.Identifier(name) + sql.SQL(f" {kind}")


def _value(name: str, converted: str | None) -> sql.Composable:
    column = sql.Identifier(name)
    return column if converted is None else column + sql.SQL(f"::{converted}")


def _list(parts: Iterable[sql.Composable]) -> sql.Composed:
    return sql.SQL(", ").join(parts)


@dataclass(frozen=True, slots=True, kw_only=True, weakref_slot=True, eq=False)
class StagingTables:
    """The pair of tables that one batch is staged in. Lives as long as somebody may commit it."""

    table: TableName
    prefix: str
    own_columns: Sequence[StagedColumn]
    with_hash: bool
    hashes_contents: bool  # the table has a column for them

    @classmethod
    def fresh(
        cls,
        table: TableName,
        pipeline: str,
        own: Sequence[StagedColumn],
        *,
        with_hash: bool,
        hashes_contents: bool,
    ) -> StagingTables:
        return cls(
            table=table,
            prefix=f"{staging_prefix(pipeline)}{secrets.token_hex(8)}",
            own_columns=own,
            with_hash=with_hash,
            hashes_contents=hashes_contents,
        )

    @property
    def names(self) -> tuple[str, str]:
        return f"{self.prefix}_rows", f"{self.prefix}_dead"

    @property
    def rows(self) -> sql.Identifier:
        return self.table.beside(self.names[0])

    @property
    def dead(self) -> sql.Identifier:
        return self.table.beside(self.names[1])

    def create(self, connection: Connection[Any], pipeline: str) -> None:
        """With none of the rules of the tables that they will be inserted into."""
        own = {column.name: column.staged_as for column in self.own_columns}
        needed = ((self.rows, {**own, **PROVENANCE_COLUMNS}), (self.dead, LETTER_TABLE))
        for staging, kinds in needed:
            kinds = {ATTEMPT: "bigint", **kinds, **({HASH: "bigint"} if self.with_hash else {})}
            connection.execute(
                sql.SQL("CREATE UNLOGGED TABLE {} ({}) WITH (autovacuum_enabled = false)").format(
                    staging, _definitions(kinds)
                )
            )
            remark = f"staging of the Lossless pipeline {pipeline}; can be dropped when it is idle"
            connection.execute(sql.SQL("COMMENT ON TABLE {} IS {}").format(staging, remark))

    def copies(self) -> tuple[str, str]:
        """The statements that tasks send, for rows and for dead letters."""
        rows, dead = (
            sql.SQL("COPY {} FROM STDIN (FORMAT binary)").format(staging).as_string()
            for staging in (self.rows, self.dead)
        )
        return rows, dead

    def insert_rows(
        self,
        connection: Connection[Any],
        attempts: Sequence[int],
        only: sql.Composable = EVERYTHING,
    ) -> int:
        """Copies the rows that these attempts staged to where readers look; gives their number."""
        own = {column.name: _value(column.name, column.converted) for column in self.own_columns}
        source = {name: sql.Identifier(name) for name in PROVENANCE_COLUMNS}
        rows_of: dict[str, sql.Composable] = {**own, **source}
        if self.hashes_contents:
            rows_of[CONTENT_HASH] = self.contents
        which = sql.SQL("{} AND {}").format(staged_by(attempts), only)
        return _insert(connection, self.table.identifier, rows_of, self.rows, which)

    @property
    def contents(self) -> sql.Composable:
        """The hash of the contents of a staged row."""
        if not self.hashes_contents:
            return sql.SQL("NULL::bigint")
        own = {column.name: _value(column.name, column.converted) for column in self.own_columns}
        return content_hash({column.name: column.stored_as for column in self.own_columns}, own)

    def insert_letters(self, connection: Connection[Any], attempts: Sequence[int]) -> int:
        """Copies the dead letters that these attempts staged; gives their number."""
        letters_of = {name: sql.Identifier(name) for name in LETTER_TABLE}
        target = self.table.dead_letters
        return _insert(connection, target, letters_of, self.dead, staged_by(attempts))

    def count(self, connection: Connection[Any], attempts: Sequence[int]) -> tuple[int, int]:
        """How much of what these attempts staged is there."""
        query = sql.SQL(
            "SELECT (SELECT count(*) FROM {rows} WHERE {which}), "
            "(SELECT count(*) FROM {dead} WHERE {which})"
        ).format(rows=self.rows, dead=self.dead, which=staged_by(attempts))
        row = connection.execute(query).fetchone()
        assert row is not None
        return row[0], row[1]


def _insert(
    connection: Connection[Any],
    target: sql.Identifier,
    values: Mapping[str, sql.Composable],
    staging: sql.Identifier,
    which: sql.Composable,
) -> int:
    return connection.execute(
        sql.SQL("INSERT INTO {} ({}) SELECT {} FROM {} WHERE {}").format(
            target, _list(map(sql.Identifier, values)), _list(values.values()), staging, which
        )
    ).rowcount


def staged_by(attempts: Sequence[int], alias: str | None = None) -> sql.Composed:
    """The condition for rows of these attempts."""
    column = sql.Identifier(alias, ATTEMPT) if alias else sql.Identifier(ATTEMPT)
    return sql.SQL("{} = ANY({}::bigint[])").format(column, list(attempts))


def staging_prefix(pipeline: str) -> str:
    # A pipeline's name can be longer than an identifier, and of other characters.
    return f"{STAGING_PREFIX}_{hashlib.sha256(pipeline.encode()).hexdigest()[:12]}_"


def drop_staging(
    connection: Connection[Any], table: TableName, pipeline: str, keep: Collection[StagingTables]
) -> None:
    """Drops the pipeline's staging tables but for those in `keep` and those in use right now."""
    kept = {name for tables in keep for name in tables.names}
    found = connection.execute(
        "SELECT c.relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace "
        "WHERE n.nspname = %s AND starts_with(c.relname, %s) AND c.relkind = 'r'",
        [table.schema, staging_prefix(pipeline)],
    ).fetchall()
    connection.commit()
    for (name,) in found:
        if name in kept:
            continue
        # In use by a straggler, or dropped by somebody else meanwhile: both are fine.
        with (
            suppress(psycopg.errors.LockNotAvailable, psycopg.errors.DeadlockDetected),
            connection.transaction(),
        ):
            connection.execute("SELECT set_config('lock_timeout', %s, true)", [SWEEP_LOCK_TIMEOUT])
            connection.execute(sql.SQL("DROP TABLE IF EXISTS {}").format(table.beside(name)))
