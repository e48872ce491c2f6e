"""Hashes of rows' contents as PostgreSQL computes them: when a row is inserted, and for the audit.

The server's own hash functions take a value as it is stored, so nothing depends on how a driver or
a session renders it, and an audit moves no row. They are the ones that tables partitioned by hash
rely on, and so they stay as they are from one release of PostgreSQL to the next; a dump and a
restore, VACUUM FULL and new columns leave the hashes as they were. See pipeline/contents.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from lossless.pipeline.outcomes import CONTENT_HASH
from lossless.pipeline.sinks.postgres_connection import sql
from lossless.pipeline.sinks.postgres_types import PROVENANCE_COLUMNS, TableColumn
from lossless.tally import name_hash

if TYPE_CHECKING:
    from psycopg import Connection

HASHING_VERSION_MIN = 140000  # hash_record_extended() came with PostgreSQL 14

_NUMBERS = frozenset({"smallint", "integer", "bigint", "numeric"})
_FLOATS = frozenset({"real", "double precision"})
_EXACT = frozenset({"boolean", "bytea", "date", "jsonb"})


def can_hash(connection: Connection[Any], table: Iterable[TableColumn]) -> bool:
    """Whether the server has the functions and the table the column."""
    has_column = any(column.name == CONTENT_HASH for column in table)
    return has_column and connection.info.server_version >= HASHING_VERSION_MIN


def content_hash(columns: Mapping[str, str], values: Mapping[str, sql.Composable]) -> sql.Composed:
    """The hash of a row. `columns` gives the type of each of the table's columns, `values` what to
    take in place of a column. Null counts as absent."""
    hashes = [_hash(sql.SQL(", ").join(map(sql.Identifier, PROVENANCE_COLUMNS)), "")]
    for name, kind in sorted(columns.items()):
        value = values.get(name, sql.Identifier(name))
        digest = _hash(_canonical(value, kind), name)
        hashes.append(sql.SQL("CASE WHEN {} IS NULL THEN 0 ELSE {} END").format(value, digest))
    return sql.SQL(" # ").join(hashes)


def _hash(values: sql.Composable, name: str) -> sql.Composed:
    # The name as the seed, or a value could move from one column to another unseen.
    return sql.SQL("hash_record_extended(ROW({}), {})").format(values, name_hash(name))


def _canonical(value: sql.Composable, kind: str) -> sql.Composed:
    """The value in a form that a wider type of the same family has too."""
    base = kind.partition("(")[0].rpartition(".")[2]
    if base in _NUMBERS:
        return sql.SQL("{}::numeric").format(value)
    if base in _FLOATS:
        return sql.SQL("{}::double precision").format(value)
    if base in _EXACT or base.startswith("timestamp"):
        return sql.SQL("{}").format(value)
    # The bytes themselves, whatever the column's collation takes for equal.
    return sql.SQL('{}::text COLLATE "C"').format(value)
