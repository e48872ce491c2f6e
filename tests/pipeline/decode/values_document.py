"""docs/values.md: what every type makes of every kind of JSON value, as the decoder itself says.

scripts/document-values rewrites the page.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from kafka_records import records
from pyspark.sql import functions as F

from lossless.pipeline.decode import decoder
from lossless.pipeline.outcomes import IS_DEAD, PROVENANCE

if TYPE_CHECKING:
    from pyspark.sql import Column, SparkSession

PAGE = Path(__file__).parents[3] / "docs" / "values.md"
TYPES = (
    *("STRING", "BOOLEAN", "TINYINT", "BIGINT", "DOUBLE", "FLOAT", "DECIMAL(10,2)", "DATE"),
    *("TIMESTAMP", "TIMESTAMP_NTZ", "BINARY", "ARRAY<BIGINT>", "MAP<STRING, BIGINT>"),
    "STRUCT<a: BIGINT>",
)
VALUES = (
    *("null", "true", "0", "-0", "42", "128", "1.50", "10.005", "1e2", "0.30000000000000004"),
    *("0.1234567890123456789", "9007199254740993", "9223372036854775808", "1e400", "1e-400"),
    *('"text"', '""', '"42"', '"1.50"', '"1,50"', '"true"', '"AQI="', '"\\ud800"'),
    *('"2026-01-02"', '"2026-01-02T03:04:05"', '"2026-01-02T03:04:05Z"'),
    *('"2026-01-02T03:04:05.123456789Z"', "[]", "[1, 2]", "[1.0]", "{}", '{"a": 1}'),
    *('{"A": 1}', '{"a": 1, "a": 2}'),
)
DEAD = "✗"
HEAD = """# What becomes of a value

A value arrives exactly as it was sent, or its record becomes a dead letter that says why. The table
shows what is stored for each kind of JSON value, by the type of its column in DDL; ✗ is a dead
letter. The types of JSON Schema are the same, with two differences: `"type": "string"` takes
strings only, and `"format": "date-time"` needs an offset.

STRING keeps what is not a string as the text that was sent. Timestamps without an offset are in the
session's time zone, here UTC. BINARY is base64, shown in hexadecimal.

PostgreSQL holds arrays, maps and structs as jsonb, whose numbers have no negative zero: a -0.0
within them is stored as 0.0.

"""


def render(spark: SparkSession) -> str:
    ddl = ", ".join(f"`{number}` {kind}" for number, kind in enumerate(TYPES))
    documents = [f'{{"{number}": {value}}}' for value in VALUES for number, _ in enumerate(TYPES)]
    outcomes = decoder("json", ddl).decode(records(spark, documents))
    shown = [_shown(kind, F.col(str(number))) for number, kind in enumerate(TYPES)]
    cells = outcomes.select(
        F.when(F.col(IS_DEAD), DEAD).otherwise(F.coalesce(*shown, F.lit("null"))).alias("cell")
    ).orderBy(f"{PROVENANCE}.offset")
    texts = [_cell(row["cell"]) for row in cells.collect()]
    lines = [["value", *(f"`{kind}`" for kind in TYPES)], ["---"] * (len(TYPES) + 1)]
    for number, value in enumerate(VALUES):
        lines.append([_cell(value), *texts[number * len(TYPES) :][: len(TYPES)]])
    return HEAD + "".join(f"| {' | '.join(line)} |\n" for line in lines)


def _shown(kind: str, column: Column) -> Column:
    if kind == "BINARY":
        return F.hex(column)
    if kind.startswith(("ARRAY", "MAP", "STRUCT")):
        return F.when(column.isNotNull(), F.to_json(column))
    return column.cast("string")


def _cell(text: str) -> str:
    if text == DEAD:
        return text
    return f"`{text}`" if text else "(empty)"


if __name__ == "__main__":
    from lossless.pipeline.session import build_session

    session = build_session("values", master="local[2]")
    print(render(session), end="")
    session.stop()
