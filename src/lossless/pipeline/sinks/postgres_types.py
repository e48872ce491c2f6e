"""From Spark's types to PostgreSQL's: what a new column becomes, and which old ones will do.

A column of a table that exists will do if every value of the Spark type can be stored in it
unchanged. Two limits are looked at value by value instead, because tables have them everywhere:
`varchar(n)` and NOT NULL. A row that breaks one becomes a dead letter (see postgres_staging).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

from pyspark.sql import functions as F
from pyspark.sql import types as T

from lossless.pipeline.outcomes import CONTENT_HASH, PROVENANCE, PROVENANCE_TYPE
from lossless.pipeline.sinks.interface import SchemaDifference
from lossless.pipeline.sinks.postgres_connection import IDENTIFIER_BYTES_MAX

if TYPE_CHECKING:
    from pyspark.sql import Column

# The provenance of a row, flattened: what SQL people expect to filter and index by.
PROVENANCE_COLUMNS: Mapping[str, str] = {
    f"{PROVENANCE}_topic_id": "text",
    f"{PROVENANCE}_partition": "integer",
    f"{PROVENANCE}_offset": "bigint",
    f"{PROVENANCE}_timestamp": "timestamp with time zone",
}
# Of these, the ones that name the record.
PLACE_COLUMNS = tuple(PROVENANCE_COLUMNS)[:3]
SYSTEM_COLUMNS = frozenset({"tableoid", "xmin", "cmin", "xmax", "cmax", "ctid"})

_JSON = (T.ArrayType, T.MapType, T.StructType, T.VariantType)
_JSON_OPTIONS = {
    "ignoreNullFields": "false",
    # Spark's own formats stop at milliseconds.
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
    # Offsets of local times before 1900 have seconds, which the format cannot show.
    "timeZone": "UTC",
}
# Per Spark type: what a new column becomes, then what else holds every value of it.
_TYPES: Mapping[type[T.DataType], Sequence[str]] = {
    T.BooleanType: ("boolean",),
    T.ByteType: ("smallint", "integer", "bigint", "numeric"),
    T.ShortType: ("smallint", "integer", "bigint", "numeric"),
    T.IntegerType: ("integer", "bigint", "numeric"),
    T.LongType: ("bigint", "numeric"),
    T.FloatType: ("real", "double precision"),
    T.DoubleType: ("double precision",),
    T.StringType: ("text", "character varying", "citext"),
    T.BinaryType: ("bytea",),
    T.DateType: ("date",),
    T.TimestampType: ("timestamp with time zone", "timestamp(6) with time zone"),
    T.TimestampNTZType: ("timestamp without time zone", "timestamp(6) without time zone"),
}


class Kind(Enum):
    """What can make a value of a column impossible to store."""

    TEXT = "text"  # the character NUL, and bytes that are not UTF-8
    JSON = "JSON"  # the same, as JSON spells it
    TIME = "time"  # years that the text form of PostgreSQL's dates does not reach
    OTHER = "other"


@dataclass(frozen=True, slots=True, kw_only=True)
class TableColumn:
    """A column of the table as it is now."""

    name: str
    type: str  # as format_type() spells it
    not_null: bool
    filled_by_server: bool  # a default, an identity or a generated column
    read_only: bool  # GENERATED ALWAYS: an INSERT may not name it


@dataclass(frozen=True, slots=True, kw_only=True)
class StagedColumn:
    """A column of the rows, and what its values must keep to."""

    name: str
    kind: Kind
    staged_as: str  # the type of its column in staging
    stored_as: str  # the type of the table's column
    converted: str | None = None  # the type to convert it to before it is inserted
    characters_max: int | None = None
    not_null: bool = False


def postgres_type(spark_type: T.DataType) -> str | None:
    """The type of a new column, None when there is none."""
    if isinstance(spark_type, T.DecimalType):
        return f"numeric({spark_type.precision},{spark_type.scale})"
    if isinstance(spark_type, _JSON):
        return "jsonb"
    for known, types in _TYPES.items():
        if isinstance(spark_type, known):
            return types[0]
    return None


def holds(column: str, spark_type: T.DataType) -> bool:
    """Whether a column of this PostgreSQL type takes every value of the Spark type unchanged."""
    if isinstance(spark_type, T.DecimalType):
        if column == "numeric":
            return True
        match = re.fullmatch(r"numeric\((\d+),(-?\d+)\)", column)
        if not match:
            return False
        precision, scale = int(match[1]), int(match[2])
        return (
            scale >= spark_type.scale
            and precision - scale >= spark_type.precision - spark_type.scale
        )
    if isinstance(spark_type, _JSON):
        return column in ("jsonb", "json")
    for known, types in _TYPES.items():
        if isinstance(spark_type, known):
            unlimited = re.sub(r"^(character varying)\(\d+\)$", r"\1", column)
            return unlimited.rpartition(".")[2] in types
    return False


def copied(field: T.StructField) -> Column:
    """The column in a form that Arrow has and a staging table takes."""
    column = F.col(f"`{field.name.replace('`', '``')}`")
    if isinstance(field.dataType, _JSON):
        return F.to_json(column, _JSON_OPTIONS)
    return column


def own_fields(rows: T.StructType) -> list[T.StructField]:
    """The rows' own columns: all but the provenance, which is flattened."""
    return [field for field in rows.fields if field.name != PROVENANCE]


def staged_columns(rows: T.StructType, table: Sequence[TableColumn]) -> list[StagedColumn]:
    present = {column.name: column for column in table}
    staged = []
    for field in own_fields(rows):
        column = present[field.name]
        limit = re.fullmatch(r"character varying\((\d+)\)", column.type)
        staged.append(
            StagedColumn(
                name=field.name,
                kind=_kind(field.dataType),
                staged_as=_staged_as(field.dataType, column.type),
                stored_as=column.type,
                converted="numeric" if isinstance(field.dataType, T.DecimalType) else None,
                characters_max=int(limit[1]) if limit else None,
                not_null=column.not_null,
            )
        )
    return staged


def _staged_as(spark_type: T.DataType, column: str) -> str:
    """A type whose binary form is the value itself; an INSERT makes the column's own type of it."""
    if isinstance(spark_type, T.DecimalType):
        return "text"  # the digits of a numeric would have to be put together one by one
    if isinstance(spark_type, _JSON):
        return column  # jsonb does not keep a text as it is, and json does
    own = postgres_type(spark_type)
    assert own is not None  # such rows do not get this far
    return own


def _kind(spark_type: T.DataType) -> Kind:
    if isinstance(spark_type, T.StringType):
        return Kind.TEXT
    if isinstance(spark_type, _JSON):
        return Kind.JSON
    if isinstance(spark_type, (T.DateType, T.TimestampType, T.TimestampNTZType)):
        return Kind.TIME
    return Kind.OTHER


def new_columns(rows: T.StructType) -> dict[str, str]:
    """Every column that the rows need, with the type it gets when it is new."""
    own = {field.name: postgres_type(field.dataType) for field in own_fields(rows)}
    return {
        **{name: kind for name, kind in own.items() if kind},
        **PROVENANCE_COLUMNS,
        CONTENT_HASH: "bigint",
    }


def difference(rows: T.StructType, table: Sequence[TableColumn]) -> SchemaDifference:
    """`table` is empty when it does not exist."""
    present = {column.name: column for column in table}
    incompatible = list(_impossible(rows))
    needed = new_columns(rows)
    for field in [*own_fields(rows), *_provenance_fields()]:
        column = present.get(field.name)
        if column is None or field.name not in needed:
            continue
        if column.read_only:
            incompatible.append(f"column {field.name} of the table is generated by the server")
        elif not holds(column.type, field.dataType):
            incompatible.append(
                f"column {field.name}: rows have {field.dataType.simpleString()}, which "
                f"{column.type} does not hold; {needed[field.name]} would"
            )
    incompatible += [
        f"column {column.name} of the table is NOT NULL without a default, and rows do not have it"
        for column in table
        if column.name not in needed and column.not_null and not column.filled_by_server
    ]
    # A table that an earlier release has made does without hashes until `prepare` adds the column.
    added = [
        f"{name} {kind}"
        for name, kind in needed.items()
        if table and name not in present and name != CONTENT_HASH
    ]
    return SchemaDifference(exists=bool(table), added=added, incompatible=incompatible)


def _impossible(rows: T.StructType) -> list[str]:
    """What no table could take."""
    sentences = []
    for field in own_fields(rows):
        name = field.name
        if postgres_type(field.dataType) is None:
            sentences.append(
                f"column {name}: {field.dataType.simpleString()} has no type in PostgreSQL; "
                "cast it in the transform"
            )
        if len(name.encode()) > IDENTIFIER_BYTES_MAX or not name:
            sentences.append(f"column {name!r}: a name has 1 to {IDENTIFIER_BYTES_MAX} bytes")
        if name in SYSTEM_COLUMNS or name in PROVENANCE_COLUMNS or name == CONTENT_HASH:
            sentences.append(f"column {name}: the name is taken; rename it in the transform")
    return sentences


def _provenance_fields() -> list[T.StructField]:
    return [
        T.StructField(f"{PROVENANCE}_{field.name}", field.dataType)
        for field in PROVENANCE_TYPE.fields
    ]
