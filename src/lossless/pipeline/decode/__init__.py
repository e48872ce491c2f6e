"""Decode and validate: Kafka records to rows or dead letters, in one evaluation.

    decoder("json", Path("orders.json"), group="orders").decode(records)

gives outcomes: the row's columns, PROVENANCE and DEAD_LETTER; see pipeline/outcomes.py. Schemas are
DDL or JSON Schema, compiled to SQL: no Python runs per record.

A value arrives exactly as it was sent, or its record becomes a dead letter that says why.
docs/values.md shows what each type makes of each kind of value.

What a JSON record may and may not do
- null and absent are the same: both are null in the row, both are refused by NOT NULL and, unless
  the type allows null, by `required`. A null for an optional property is accepted.
- `integer` is written without a fraction: 1.0 is refused. `number` and DOUBLE refuse a number whose
  digits a double does not keep. DECIMAL(p,s) takes a number, or the text of one, and refuses more
  than s digits after the point, unless the schema asks for rounding: `round = "half-even"`.
- STRING in DDL takes any JSON value as its text, byte by byte, so that a nested document can be
  kept as it is. `"type": "string"` in JSON Schema takes strings only; a text that could have been
  another value ("42", "true", "{}") costs a second parse of its record.
- Dates and timestamps are ISO 8601 text, with at most microseconds; a timestamp without an offset
  is in the session's time zone. TIMESTAMP_NTZ refuses an offset, `"format": "date-time"` needs it.
- `pattern` is a Java regular expression that may match anywhere in the text.
- A key that is repeated in an object, wherever that is, and half of a surrogate pair make a dead
  letter, and so does a property that differs from the name of a column only in case.
- A number with more than 15 digits, in a schema with DOUBLE, FLOAT or DECIMAL, and an object or an
  array that is kept as text cost a second parse of their record.
- Bytes that are not UTF-8 make a dead letter if they are in a text that would be stored.
- `"additionalProperties": false` costs a second parse of every record.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Literal, Protocol

from lossless.errors import BadInput
from lossless.pipeline.decode.ddl import parse_ddl
from lossless.pipeline.decode.json_records import JsonDecoder
from lossless.pipeline.decode.json_schema import compile_json_schema
from lossless.pipeline.decode.letters import (
    MALFORMED_JSON,
    NO_VALUE,
    SCHEMA_VIOLATION,
    TIMESTAMP_OUT_OF_RANGE,
    TRANSFORM_FAILED,
    UNREADABLE_HEADERS,
    UNSTORABLE,
    dead_letter,
)
from lossless.pipeline.decode.raw_records import RawDecoder

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

__all__ = [
    "MALFORMED_JSON",
    "NO_VALUE",
    "SCHEMA_VIOLATION",
    "TIMESTAMP_OUT_OF_RANGE",
    "TRANSFORM_FAILED",
    "UNREADABLE_HEADERS",
    "UNSTORABLE",
    "Decoder",
    "dead_letter",
    "decoder",
]

DDL_SUFFIXES = (".ddl", ".sql")


class Decoder(Protocol):
    @property
    def schema(self) -> StructType:
        """The row's columns, all nullable."""

    def decode(self, records: DataFrame) -> DataFrame:
        """The outcome of every record of Spark's Kafka source.

        `records` carries the source's columns, `headers` among them, and `topic_id`.
        """


def decoder(
    format: Literal["json", "raw"],  # noqa: A002 (the contract's own word)
    schema: str | Path | None,
    *,
    group: str = "",
) -> Decoder:
    """`schema` is a path to JSON Schema (.json) or DDL (.ddl, .sql), or DDL itself.

    `group` is what dead letters name as the consumer group. Needs no Spark session.
    """
    if format == "raw":
        if schema is not None:
            raise BadInput(
                'format = "raw" has a fixed schema (key, value, headers)',
                hint='leave `schema` out, or choose format = "json"',
            )
        return RawDecoder()
    if schema is None:
        raise BadInput(
            'format = "json" needs a schema',
            hint='schema = "id BIGINT NOT NULL, amount DECIMAL(9,2)", or a file: .json, .ddl, .sql',
        )
    if isinstance(schema, str):
        return JsonDecoder(tree=parse_ddl(schema, where="schema"), group=group)
    text = _read(schema)
    if schema.suffix in DDL_SUFFIXES:
        return JsonDecoder(tree=parse_ddl(text, where=str(schema)), group=group)
    if schema.suffix == ".json":
        tree, patterns = compile_json_schema(text, where=str(schema))
        return JsonDecoder(tree=tree, patterns=patterns, group=group)
    raise BadInput(
        f"{schema}: cannot tell what kind of schema this is",
        hint="name it .json for JSON Schema, .ddl or .sql for DDL",
    )


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise BadInput(f"{path}: cannot read the schema: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise BadInput(f"{path}: the schema is not UTF-8 text: byte {error.start}") from error
