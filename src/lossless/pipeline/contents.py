"""Hashes of what rows hold, so that an audit finds a row that was changed after it was written.

Every row carries CONTENT_HASH: a hash of its provenance and of its columns, which the task that
writes the row computes. `lossless audit --contents` computes it again from what is stored.

What must not change the hash
- Columns that others add, rename the order of, or fill: the ledger lists the columns that hashes
  cover, and the hash takes them in the order of their names.
- A column that the pipeline gets later, or no longer has: the ledger lists the offsets whose hashes
  do not cover it. Null counts as absent.
- A wider type (ALTER COLUMN … TYPE): numbers are hashed as the widest type of their family, also
  within structs, arrays and maps.
- Another session: no text form that depends on settings (time zone, ANSI mode) is hashed.

PostgreSQL computes the same kind of hash itself (sinks/postgres_contents.py).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from pyspark.sql import functions as F
from pyspark.sql import types as T

from lossless.pipeline.decode.sql import Sql, literal, member, quoted_name
from lossless.pipeline.ledger import Position, SourcePartition, Uncovered
from lossless.pipeline.outcomes import (
    CONTENT_HASH,
    DEAD_LETTER,
    IS_DEAD,
    PROVENANCE,
    PROVENANCE_TYPE,
)
from lossless.tally import name_hash

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

Uncoverings = Mapping[str, Sequence[tuple[SourcePartition, Uncovered]]]

IS_ALTERED = "is_altered"
_OURS = frozenset({PROVENANCE, CONTENT_HASH, DEAD_LETTER, IS_DEAD})
# Every decimal of so many digits has a double of its own.
_DIGITS_OF_A_DOUBLE = 15
_JSON_OPTIONS = {
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
    "timeZone": "UTC",
    "ignoreNullFields": "true",
}


def hashed_columns(schema: T.StructType) -> tuple[str, ...]:
    """The columns of rows that their hashes cover: all but this package's own."""
    return tuple(sorted(field.name for field in schema.fields if field.name not in _OURS))


def with_hash_column(rows: T.StructType) -> T.StructType:
    """The schema of rows as they are stored."""
    return T.StructType([*rows.fields, T.StructField(CONTENT_HASH, T.LongType())])


def hashed(outcomes: DataFrame) -> DataFrame:
    """Outcomes whose rows carry the hash of their contents; dead letters carry none."""
    columns = [f for f in outcomes.schema.fields if f.name not in _OURS]
    digest = f"CASE WHEN NOT {IS_DEAD} THEN {content_hash(columns)} END"
    rows: list[str] = []
    rest: list[str] = []
    for name in outcomes.columns:
        (rest if name in (DEAD_LETTER, IS_DEAD) else rows).append(quoted_name(name))
    return outcomes.selectExpr(*rows, f"{digest} AS {CONTENT_HASH}", *rest)


def doubtful_rows(
    rows: DataFrame, covered: Collection[str], uncovered: Uncoverings | None = None
) -> DataFrame:
    """Provenance of the rows that do not match their hash (IS_ALTERED) or have none (not so).

    `covered` are the columns that hashes cover. One that is no longer there counts as null, and so
    does one of `uncovered` in its ranges.
    """
    provenance = [F.col(f"{PROVENANCE}.{name}").alias(name) for name in PROVENANCE_TYPE.names]
    if CONTENT_HASH not in rows.columns:
        return rows.select(*provenance, F.lit(False).alias(IS_ALTERED))
    names = {column.lower() for column in covered}
    present = [field for field in rows.schema.fields if field.name.lower() in names]
    return rows.where(f"NOT {CONTENT_HASH} <=> {content_hash(present, uncovered)}").select(
        *provenance, F.col(CONTENT_HASH).isNotNull().alias(IS_ALTERED)
    )


def content_hashes(rows: DataFrame) -> DataFrame:
    """Provenance and stored hash of the rows that have one."""
    provenance = [F.col(f"{PROVENANCE}.{name}").alias(name) for name in PROVENANCE_TYPE.names]
    if CONTENT_HASH not in rows.columns:
        return rows.select(*provenance, F.lit(None).cast("long").alias(CONTENT_HASH)).where("false")
    return rows.where(f"{CONTENT_HASH} IS NOT NULL").select(*provenance, CONTENT_HASH)


def uncoverings(positions: Mapping[SourcePartition, Position]) -> Uncoverings:
    """The ranges of rows whose hashes do not cover a column, by the column's name in lower case."""
    found: dict[str, list[tuple[SourcePartition, Uncovered]]] = {}
    for source, position in positions.items():
        for one in position.uncovered:
            found.setdefault(one.column.lower(), []).append((source, one))
    return found


def _in_ranges(ranges: Iterable[tuple[SourcePartition, Uncovered]]) -> Sql:
    topic_id, partition, offset = (
        member(PROVENANCE, name) for name in ("topic_id", "partition", "offset")
    )
    return " OR ".join(
        f"({topic_id} = {literal(source.topic_id)} AND {partition} = {source.partition} "
        f"AND {offset} >= {one.first} AND {offset} < {one.end})"
        for source, one in ranges
    )


def content_hash(columns: Iterable[T.StructField], uncovered: Uncoverings | None = None) -> Sql:
    """The hash of a row with provenance. Spark's xxhash64 passes over what is null."""
    parts = [member(PROVENANCE, name) for name in PROVENANCE_TYPE.names]
    for field in sorted(columns, key=lambda field: field.name.lower()):
        column = quoted_name(field.name)
        if uncovered and (ranges := uncovered.get(field.name.lower())):
            column = f"IF({_in_ranges(ranges)}, NULL, {column})"
        # With its name, or a value could move from one column to another unseen.
        parts.append(f"IF({column} IS NULL, NULL, {literal(name_hash(field.name.lower()))})")
        parts += _canonical(column, field.dataType)
    return f"xxhash64({', '.join(parts)})"


def _canonical(column: Sql, kind: T.DataType) -> list[Sql]:
    """What to hash of a value: the same for a wider type of its family, and cheap."""
    match kind:
        case T.ByteType() | T.ShortType() | T.IntegerType():
            return [f"CAST({column} AS BIGINT)"]
        case T.FloatType():
            return [f"CAST({column} AS DOUBLE)"]
        case T.DecimalType() if kind.precision <= _DIGITS_OF_A_DOUBLE:
            return [f"CAST({column} AS DOUBLE)"]
        case T.DecimalType():
            # What the double leaves over is nothing for numbers that a narrower type holds too.
            nearest = f"TRY_CAST(CAST({column} AS DOUBLE) AS {kind.simpleString()})"
            left_over = f"CAST(NULLIF({column} - {nearest}, 0) AS DOUBLE)"
            return [f"CAST({column} AS DOUBLE)", left_over]
        case T.StructType() | T.ArrayType() | T.MapType() | T.VariantType():
            options = (literal(text) for option in _JSON_OPTIONS.items() for text in option)
            value = _nested(column, kind, 0) if _has_fractions(kind) else column
            return [f"to_json({value}, map({', '.join(options)}))"]
        case T.DayTimeIntervalType() | T.YearMonthIntervalType():
            return [f"CAST({column} AS STRING)"]
        case _:
            return [column]


def _has_fractions(kind: T.DataType) -> bool:
    """Whether a wider type of a nested number would be rendered differently."""
    match kind:
        case T.DecimalType() | T.FloatType():
            return True
        case T.ArrayType():
            return _has_fractions(kind.elementType)
        case T.MapType():
            return _has_fractions(kind.keyType) or _has_fractions(kind.valueType)
        case T.StructType():
            return any(_has_fractions(field.dataType) for field in kind.fields)
        case _:
            return False


def _nested(value: Sql, kind: T.DataType, depth: int) -> Sql:
    """A nested value with every number in its canonical form."""
    if not _has_fractions(kind):
        return value
    element = f"x{depth}"

    def each(values: Sql, of: T.DataType) -> Sql:
        return f"transform({values}, {element} -> {_nested(element, of, depth + 1)})"

    match kind:
        case T.ArrayType():
            return each(value, kind.elementType)
        case T.MapType():
            keys = each(f"map_keys({value})", kind.keyType)
            values = each(f"map_values({value})", kind.valueType)
            parts = {"keys": keys, "values": values}
        case T.StructType():
            parts = {
                field.name: _nested(f"{value}.{quoted_name(field.name)}", field.dataType, depth)
                for field in kind.fields
            }
        case T.DecimalType():
            parts = {f"part{n}": part for n, part in enumerate(_canonical(value, kind))}
        case _:
            (only,) = _canonical(value, kind)
            return only
    named = ", ".join(f"{literal(name)}, {part}" for name, part in parts.items())
    return f"IF({value} IS NULL, NULL, named_struct({named}))"
