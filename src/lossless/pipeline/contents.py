"""Hashes of what rows hold, so that an audit finds a row that was changed after it was written.

Every row carries CONTENT_HASH: a hash of its provenance and of its columns, which the task that
writes the row computes. `lossless audit --contents` computes it again from what is stored.

What must not change the hash
- Columns that others add, rename the order of, or fill: the ledger lists the columns that hashes
  cover, and the hash takes them in the order of their names.
- A column that the pipeline gets later: null counts as absent, so the older rows keep their hashes.
- A wider type (ALTER COLUMN … TYPE): numbers are hashed as the widest type of their family.
- Another session: no text form that depends on settings (time zone, ANSI mode) is hashed.

PostgreSQL computes the same kind of hash itself (sinks/postgres_contents.py).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING

from pyspark.sql import functions as F
from pyspark.sql import types as T

from lossless.pipeline.decode.sql import Sql, literal, member, quoted_name
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


def doubtful_rows(rows: DataFrame, covered: Collection[str]) -> DataFrame:
    """Provenance of the rows that do not match their hash (IS_ALTERED) or have none (not so).

    `covered` are the columns that hashes cover. One that is no longer there counts as null.
    """
    provenance = [F.col(f"{PROVENANCE}.{name}").alias(name) for name in PROVENANCE_TYPE.names]
    if CONTENT_HASH not in rows.columns:
        return rows.select(*provenance, F.lit(False).alias(IS_ALTERED))
    names = {column.lower() for column in covered}
    present = [field for field in rows.schema.fields if field.name.lower() in names]
    return rows.where(f"NOT {CONTENT_HASH} <=> {content_hash(present)}").select(
        *provenance, F.col(CONTENT_HASH).isNotNull().alias(IS_ALTERED)
    )


def content_hashes(rows: DataFrame) -> DataFrame:
    """Provenance and stored hash of the rows that have one."""
    provenance = [F.col(f"{PROVENANCE}.{name}").alias(name) for name in PROVENANCE_TYPE.names]
    if CONTENT_HASH not in rows.columns:
        return rows.select(*provenance, F.lit(None).cast("long").alias(CONTENT_HASH)).where("false")
    return rows.where(f"{CONTENT_HASH} IS NOT NULL").select(*provenance, CONTENT_HASH)


def content_hash(columns: Iterable[T.StructField]) -> Sql:
    """The hash of a row with provenance. Spark's xxhash64 passes over what is null."""
    parts = [member(PROVENANCE, name) for name in PROVENANCE_TYPE.names]
    for field in sorted(columns, key=lambda field: field.name.lower()):
        column = quoted_name(field.name)
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
            return [f"to_json({column}, map({', '.join(options)}))"]
        case T.DayTimeIntervalType() | T.YearMonthIntervalType():
            return [f"CAST({column} AS STRING)"]
        case _:
            return [column]
