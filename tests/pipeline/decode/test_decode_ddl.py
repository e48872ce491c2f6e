"""DDL schemas: which JSON records become rows, and what the dead letters of the others say."""

from __future__ import annotations

from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from kafka_records import TIMESTAMP, decoded, records, verdict, verdicts
from pyspark.sql import functions as F
from pyspark.sql import types as T

from lossless.errors import BadInput
from lossless.pipeline.decode import decoder
from lossless.pipeline.decode.ddl import parse_ddl
from lossless.pipeline.outcomes import (
    DEAD_LETTER,
    IS_DEAD,
    PROVENANCE,
    PROVENANCE_TYPE,
    opened,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

COLUMNS = """
    id BIGINT NOT NULL, small TINYINT, medium SMALLINT, count INT, ratio DOUBLE, short FLOAT,
    price DECIMAL(10,2), note STRING, paid BOOLEAN, day DATE, at TIMESTAMP, local TIMESTAMP_NTZ,
    bytes BINARY, tags ARRAY<BIGINT>, days ARRAY<DATE>, labels MAP<STRING, INT>,
    address STRUCT<city: STRING NOT NULL, number: INT, since: DATE>
"""
NOT_JSON = "MalformedJson: the value is not JSON"
TOO_LONG = (
    "MalformedJson: a number has more than 1,000 digits, or a text more than 20,000,000 characters"
)
FOLLOWS = (
    "MalformedJson: something follows the JSON value, or it is nested more than 50 levels deep"
)

# What a record says, and what becomes of it.
CASES = {
    '{"id":1}': {"id": 1},
    ' \n{"id":1}\t ': {"id": 1},
    '{"id":1,"unknown":[{}]}': {"id": 1},
    '{"id":1,"note":null}': {"id": 1},
    # Presence.
    "{}": "SchemaViolation: id: is missing or null",
    '{"id":null}': "SchemaViolation: id: is missing or null",
    '{"ID":1}': (
        "SchemaViolation: id: is missing or null; "
        "the value: ID differs from the name of a column only in case"
    ),
    '{"id":1,"address":{"number":2}}': "SchemaViolation: address.city: is missing or null",
    '{"count":"x"}': ('SchemaViolation: id: is missing or null; count: "x" is not of type int'),
    # Types.
    '{"id":"1"}': 'SchemaViolation: id: "1" is not of type bigint',
    '{"id":1.0}': "SchemaViolation: id: 1 is not of type bigint",
    '{"id":1,"paid":1}': "SchemaViolation: paid: 1 is not of type boolean",
    '{"id":1,"paid":"true"}': 'SchemaViolation: paid: "true" is not of type boolean',
    '{"id":1,"ratio":"0.5"}': 'SchemaViolation: ratio: "0.5" is not of type double',
    '{"id":1,"count":{"a":1}}': 'SchemaViolation: count: {"a":1} is not of type int',
    '{"id":1,"bytes":"AQI="}': {"id": 1, "bytes": b"\x01\x02"},
    '{"id":1,"bytes":"!"}': "SchemaViolation: bytes: ! is not base64",
    '{"id":1,"tags":[1,2]}': {"id": 1, "tags": [1, 2]},
    '{"id":1,"tags":[1,null]}': {"id": 1, "tags": [1, None]},
    '{"id":1,"tags":[1,"x"]}': 'SchemaViolation: tags[]: "x" is not of type bigint',
    '{"id":1,"tags":5}': "SchemaViolation: tags: 5 is not an array",
    '{"id":1,"labels":{"a":1}}': {"id": 1, "labels": {"a": 1}},
    '{"id":1,"labels":{"a":"x"}}': 'SchemaViolation: labels[]: "x" is not of type int',
    '{"id":1,"address":5}': "SchemaViolation: address: 5 is not an object",
    '{"id":1,"address":{"city":"Ulm","number":"x"}}': (
        'SchemaViolation: address.number: "x" is not of type int'
    ),
    # A string column takes any value as its text.
    '{"id":1,"note":5}': {"id": 1, "note": "5"},
    '{"id":1,"note":{"a":[1]}}': {"id": 1, "note": '{"a":[1]}'},
    # Numbers that do not fit.
    '{"id":9223372036854775807}': {"id": 9223372036854775807},
    '{"id":9223372036854775808}': (
        "SchemaViolation: id: 9223372036854775808 is not of type bigint"
    ),
    '{"id":1,"small":128}': "SchemaViolation: small: 128 is not of type tinyint",
    '{"id":1,"small":-128}': {"id": 1, "small": -128},
    '{"id":1,"medium":32768}': "SchemaViolation: medium: 32768 is not of type smallint",
    '{"id":1,"count":3000000000}': "SchemaViolation: count: 3000000000 is not of type int",
    '{"id":1,"price":123456789.1}': (
        "SchemaViolation: price: 123456789.1 is not of type decimal(10,2)"
    ),
    '{"id":1,"price":"1.20"}': {"id": 1, "price": Decimal("1.20")},
    '{"id":1,"price":1.25}': {"id": 1, "price": Decimal("1.25")},
    '{"id":1,"ratio":1e400}': "SchemaViolation: ratio: is out of the range of type double",
    '{"id":1,"short":-1e39}': "SchemaViolation: short: is out of the range of type float",
    '{"id":' + "9" * 2000 + "}": TOO_LONG,
    '{"id":1,"ratio":NaN}': NOT_JSON,
    '{"id":1,"ratio":"NaN"}': 'SchemaViolation: ratio: "NaN" is not of type double',
    '{"id":1,"ratio":Infinity}': NOT_JSON,
    # Dates and times.
    '{"id":1,"day":"2026-01-02"}': {"id": 1, "day": date(2026, 1, 2)},
    '{"id":1,"days":["2026-01-02"]}': {"id": 1, "days": [date(2026, 1, 2)]},
    '{"id":1,"address":{"city":"Ulm","since":"2026-01-02"}}': {
        "id": 1,
        "address": {"city": "Ulm", "number": None, "since": date(2026, 1, 2)},
    },
    '{"id":1,"day":"2026-02-30"}': "SchemaViolation: day: 2026-02-30 is not of type date",
    '{"id":1,"day":20000}': "SchemaViolation: day: 20000 is not of type date",
    '{"id":1,"days":["soon"]}': "SchemaViolation: days[]: an element is not of type date",
    '{"id":1,"local":"2026-01-02T03:04"}': {"id": 1, "local": datetime(2026, 1, 2, 3, 4)},
    '{"id":1,"at":"12:30"}': "SchemaViolation: at: 12:30 is not of type timestamp",
    '{"id":1,"at":"2026"}': "SchemaViolation: at: 2026 is not of type timestamp",
    '{"id":1,"at":1767323045678}': ("SchemaViolation: at: 1767323045678 is not of type timestamp"),
    # Not JSON, or not one object.
    "": "MalformedJson: the value is empty",
    "  ": "MalformedJson: the value is empty",
    "{": NOT_JSON,
    '{"id":1,': NOT_JSON,
    "{'id':1}": NOT_JSON,
    '\ufeff{"id":1}': NOT_JSON,
    '{"id":1} x': FOLLOWS,
    '{"id":1}{"id":2}': FOLLOWS,
    '{"id":1}}': FOLLOWS,
    '{"id":1}]': FOLLOWS,
    '{"id":1}]}': FOLLOWS,
    '{"id":1},{"id":2}': FOLLOWS,
    "[" * 1200 + "]" * 1200: f"{NOT_JSON}, or it is nested more than 1,000 levels deep",
    "[]": "SchemaViolation: the value: [] is not an object",
    '[{"id":1}]': 'SchemaViolation: the value: [{"id":1}] is not an object',
    "5": "SchemaViolation: the value: 5 is not an object",
    '"text"': 'SchemaViolation: the value: "text" is not an object',
    "null": "SchemaViolation: the value: null is not an object",
    '{"id":1,"id":2}': "MalformedJson: an object has the same key twice",
    # Bytes.
    b'{"id":1,"note":"\xff"}': "MalformedJson: the value is not UTF-8",
    '{"id":1,"note":"\ufffd"}': {"id": 1, "note": "\ufffd"},
    b'{"id":1,"not in the schema":"\xff"}': {"id": 1},
    '{"id":1} \r\n\t': {"id": 1},
    b"\x00": NOT_JSON,
    None: "NoValue: no value: the record is a tombstone",
}


def test_every_record_is_a_row_or_a_dead_letter_that_says_why(spark: SparkSession) -> None:
    found = verdicts(spark, decoder("json", COLUMNS), list(CASES))
    assert dict(zip(CASES, found, strict=True)) == CASES


def test_a_timestamp_with_an_offset_is_an_instant(spark: SparkSession) -> None:
    frame = decoder("json", "at TIMESTAMP").decode(
        records(spark, ['{"at":"2026-01-02T03:04:05.678901+02:00"}'])
    )
    micros = frame.select(F.unix_micros("at")).collect()[0][0]
    assert micros == 1767315845_678901


def test_a_dead_letter_carries_the_record_and_the_headers_that_people_know(
    spark: SparkSession,
) -> None:
    made = decoder("json", "id BIGINT", group="billing")
    frame = made.decode(records(spark, ['{"id":"x"}']))
    [found] = frame.select(opened(frame[DEAD_LETTER]).alias("letter")).collect()
    assert found["letter"].asDict(recursive=True) == {
        "key": b"key",
        "value": b'{"id":"x"}',
        "record_headers": [{"key": "trace", "value": b"\x01"}],
        "headers": {
            "kafka_dlt-original-topic": "shop.orders",
            "kafka_dlt-original-partition": "3",
            "kafka_dlt-original-offset": "0",
            "kafka_dlt-original-timestamp": str(int(TIMESTAMP.timestamp() * 1000)),
            "kafka_dlt-original-consumer-group": "billing",
            "kafka_dlt-exception-fqcn": "lossless.SchemaViolation",
            "kafka_dlt-exception-message": 'id: "x" is not of type bigint',
        },
    }


def test_the_types_are_the_ones_that_sinks_expect(spark: SparkSession) -> None:
    made = decoder("json", COLUMNS)
    frame = made.decode(records(spark, []).withColumn("topic_id", F.lit("never null")))
    assert frame.columns == [*made.schema.names, PROVENANCE, DEAD_LETTER, IS_DEAD]
    assert frame.schema[PROVENANCE].dataType == PROVENANCE_TYPE
    assert T.StructType(frame.schema.fields[:-3]) == made.schema
    assert frame.schema[DEAD_LETTER].dataType == T.StringType()


def test_columns_may_have_the_names_of_the_source_and_odd_ones(spark: SparkSession) -> None:
    ddl = "row INT, key INT, value INT, offset INT, headers INT, `a.b c` INT NOT NULL, `it's` INT"
    values = [
        '{"row":1,"key":2,"value":3,"offset":4,"headers":5,"a.b c":6,"it\'s":7}',
        '{"a.b c":1,"it\'s":"x"}',
        '{"key":"x"}',
    ]
    assert verdicts(spark, decoder("json", ddl), values) == [
        {"row": 1, "key": 2, "value": 3, "offset": 4, "headers": 5, "a.b c": 6, "it's": 7},
        'SchemaViolation: it\'s: "x" is not of type int',
        'SchemaViolation: key: "x" is not of type int; a.b c: is missing or null',
    ]


def test_a_wide_schema_compiles_and_its_message_is_bounded(spark: SparkSession) -> None:
    ddl = ", ".join(f"column_{i} BIGINT NOT NULL" for i in range(150))
    good = "{" + ",".join(f'"column_{i}":{i}' for i in range(150)) + "}"
    rows = verdicts(spark, decoder("json", ddl), [good, "{}"])
    assert rows[0] == {f"column_{i}": i for i in range(150)}
    assert isinstance(rows[1], str)
    assert rows[1].startswith("SchemaViolation: column_0: is missing or null; column_1:")
    assert len(rows[1]) < 1100


def test_raw_records_are_rows_as_they_are(spark: SparkSession) -> None:
    outcome_list = decoded(spark, decoder("raw", None), [b"\xff", None])
    row = {"key": b"key", "headers": [{"key": "trace", "value": b"\x01"}]}
    assert [verdict(outcome) for outcome in outcome_list] == [{**row, "value": b"\xff"}, row]
    frame = decoder("raw", None).decode(records(spark, []))
    assert T.StructType(frame.schema.fields[:-3]) == decoder("raw", None).schema
    assert frame.schema[PROVENANCE].dataType == PROVENANCE_TYPE
    assert frame.schema[DEAD_LETTER].dataType == T.StringType()


@pytest.mark.parametrize(
    "ddl",
    [
        COLUMNS,
        "a INT",
        "`a``b` DECIMAL(5), c DEC(12, 3) COMMENT 'the price, net', d NUMERIC NOT NULL",
        "a STRUCT<b STRUCT<c: ARRAY<MAP<STRING, LONG>>>>, d REAL, e SHORT, f BYTE, g INTEGER",
        '-- a comment\n a STRING,\n\tb timestamp_ltz NOT NULL COMMENT "it\'s"',
    ],
)
def test_ddl_gives_the_types_that_spark_gives(spark: SparkSession, ddl: str) -> None:
    assert spark is not None  # Spark's own parser needs its JVM; ours does not.
    assert (
        parse_ddl(ddl, where="here").type.simpleString() == T.StructType.fromDDL(ddl).simpleString()
    )


@pytest.mark.parametrize(
    ("ddl", "message"),
    [
        ("", "line 1, column 1: found the end where it needs a column name"),
        ("a", "line 1, column 2: found the end where it needs a type"),
        ("a INT,", "line 1, column 7: found the end where it needs a column name"),
        ("a INT b INT", "line 1, column 7: found 'b' where it needs a comma or the end"),
        ("a INT,\n  b TEXT", "line 2, column 5: found 'TEXT' where it needs a type"),
        ("a VARCHAR(5)", "column 3: found 'VARCHAR' where it needs a type"),
        ("a ARRAY<INT", "column 12: found the end where it needs '>'"),
        ("a ARRAY", "column 8: found the end where it needs '<'"),
        ("a MAP<INT, INT>", "column 7: found 'INT' where it needs STRING"),
        ("a INT NOT", "found the end where it needs NULL"),
        ("a INT COMMENT b", "column 15: found 'b' where it needs a comment in quotes"),
        ("a DECIMAL(40)", "where it needs a precision up to 38"),
        ("a DECIMAL(x)", "column 11: found 'x' where it needs a number"),
        ("a INT; b INT", "line 1, column 6: ';' has no place in DDL"),
        ("a INT, A STRING", "the columns 'a' and 'A' are the same"),
        ("a INT, a INT", "the columns 'a' and 'a' are the same"),
        ("_lossless INT", "the column '_lossless' is reserved"),
        ("_Lossless_x INT", "the column '_Lossless_x' is reserved"),
        ("`'\"` INT", "has both kinds of quotes"),
    ],
)
def test_bad_ddl_is_refused_with_its_place(tmp_path: Path, ddl: str, message: str) -> None:
    path = tmp_path / "orders.ddl"
    path.write_text(ddl)
    with pytest.raises(BadInput) as refused:
        decoder("json", path)
    assert f"{path}: " in refused.value.what
    assert message in refused.value.what
    with pytest.raises(BadInput, match=r"^schema: "):
        decoder("json", ddl)


def test_a_schema_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    odd = tmp_path / "schema.txt"
    odd.write_text("a INT")
    binary = tmp_path / "schema.ddl"
    binary.write_bytes(b"\xff")
    for schema, message in [
        (tmp_path / "missing.json", "missing.json: cannot read the schema: No such file"),
        (tmp_path, "cannot read the schema: Is a directory"),
        (odd, "cannot tell what kind of schema this is"),
        (binary, "not UTF-8 text: byte 0"),
        (None, 'format = "json" needs a schema'),
    ]:
        with pytest.raises(BadInput) as refused:
            decoder("json", schema)
        assert message in refused.value.what
    with pytest.raises(BadInput, match="fixed schema"):
        decoder("raw", "a INT")
