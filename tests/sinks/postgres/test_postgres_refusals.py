"""Records whose rows the table cannot take: dead letters, and the rest of the batch is stored."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from postgres_orders import NOON, TOPIC_ID, after, query, tally
from psycopg import sql
from pyspark.sql import functions as F

from lossless.errors import BadInput
from lossless.pipeline.batch import Batcher
from lossless.pipeline.decode import decoder
from lossless.pipeline.ledger import Ledger, Receipt
from lossless.pipeline.outcomes import PROVENANCE
from lossless.pipeline.sinks.interface import RecordsRefused, SinkUnavailable
from lossless.pipeline.sinks.postgres import PostgresSink
from lossless.pipeline.sinks.postgres_refusals import refused_records
from lossless.pipeline.transform import OffsetRange, Transform

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

# PySpark leaves the sockets that collect() reads from to the garbage collector.
pytestmark = pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")

RECORD = (
    "key binary, value binary, topic string, partition int, offset long, timestamp timestamp, "
    "headers array<struct<key:string,value:binary>>"
)
SCHEMA = "n BIGINT, text STRING"
PARTITIONS = """
CREATE TABLE orders (n bigint, text text) PARTITION BY RANGE (n);
CREATE TABLE low PARTITION OF orders FOR VALUES FROM (0) TO (10)
"""


@dataclass(frozen=True)
class Outcome:
    stored: list[Any]
    letters: dict[int, str]  # the messages, by offset
    receipt: Receipt


def encoded(document: object) -> bytes:
    return json.dumps(document).encode()


def write_records(
    spark: SparkSession,
    dsn: str,
    values: Sequence[bytes],
    *,
    schema: str = SCHEMA,
    transform: Transform | None = None,
) -> Outcome:
    """One batch of records, written as the runner does it; every dead letter is the record."""
    made = decoder("json", schema, group="g")
    sink = PostgresSink(spark, "orders", dsn, "orders")
    batcher = Batcher(decoder=made, transform=transform, sink=sink, group="g")
    rows: list[Any] = [
        (b"key %d" % n, value, "shop.orders", 0, n, NOON, [("trace", b"\xff%d" % n)])
        for n, value in enumerate(values)
    ]
    records = spark.createDataFrame(rows, RECORD)
    decoded = made.decode(records.withColumn("topic_id", F.lit(TOPIC_ID)))
    result = transform(decoded) if transform else decoded
    shown = result.drop("_lossless_dead_letter", "_lossless_dead").schema
    sink.prepare(shown, add_columns=True)
    ranges = [OffsetRange("shop.orders", 0, 0, len(values))]
    expected, refused = sink.ledger(), {}
    while True:
        staged = batcher.stage(records, {"shop.orders": TOPIC_ID}, ranges, refused)
        try:
            sink.commit(expected, after(expected, len(values), staged), staged)
            break
        except RecordsRefused as refusal:
            refused = refusal.beyond(refused)
    letters = {row[PROVENANCE]["offset"]: row for row in sink.dead_letters().collect()}
    for offset, letter in letters.items():
        assert (letter["key"], letter["value"]) == (b"key %d" % offset, values[offset])
        assert [tuple(one) for one in letter["record_headers"]] == [("trace", b"\xff%d" % offset)]
        headers = letter["headers"]
        assert headers["kafka_dlt-original-topic"] == "shop.orders"
        assert headers["kafka_dlt-original-offset"] == str(offset)
        assert headers["kafka_dlt-exception-fqcn"] == "lossless.Unstorable"
    (receipt,) = staged.receipts.values()
    assert receipt.read == receipt.stored + receipt.dead == tally(*range(len(values)))
    assert receipt.dead == tally(*letters)
    offsets = [
        offset
        for (offset,) in query(
            dsn,
            "SELECT DISTINCT _lossless_offset FROM orders WHERE _lossless_offset >= 0 ORDER BY 1",
        )
    ]
    assert receipt.stored == tally(*offsets)
    return Outcome(
        stored=offsets,
        letters={
            offset: letter["headers"]["kafka_dlt-exception-message"]
            for offset, letter in letters.items()
        },
        receipt=receipt,
    )


def test_records_that_break_rules_of_the_table_become_dead_letters(
    spark: SparkSession, dsn: str
) -> None:
    query_each(
        dsn,
        "CREATE TABLE shops (n bigint PRIMARY KEY); INSERT INTO shops VALUES (1); "
        "CREATE TABLE orders (n bigint UNIQUE CONSTRAINT small CHECK (n < 10), "
        "text text NOT NULL, shop bigint REFERENCES shops, "
        "share bigint GENERATED ALWAYS AS (100 / n) STORED); "
        "CREATE INDEX ON orders (text); INSERT INTO orders VALUES (7, 'x', 1)",
    )
    long = "".join(f"{n * n * 7919 % 1000003:x}" for n in range(6000))
    rows = [
        (1, "x", 1),
        (2, "x", 1),
        (30, "x", 1),  # CHECK
        (1, "x", 1),  # UNIQUE within the batch
        (7, "x", 1),  # UNIQUE against a row that is there
        (3, "x", 2),  # REFERENCES
        (0, "x", 1),  # a data exception: division by zero
        (4, long, 1),  # a value too long for the index
        (4, None, 1),  # NOT NULL
        (4, "x", None),
    ]
    values = [encoded(dict(zip(("n", "text", "shop"), row, strict=True))) for row in rows]
    written = write_records(spark, dsn, values, schema=f"{SCHEMA}, shop BIGINT")
    assert written.stored == [0, 1, 9]
    for offset, words in {
        2: 'violates check constraint "small" (SQLSTATE 23514)',
        3: "(Key (n)=(1) already exists.) (SQLSTATE 23505)",
        4: "(Key (n)=(7) already exists.) (SQLSTATE 23505)",
        5: 'is not present in table "shops".) (SQLSTATE 23503)',
        6: "division by zero (SQLSTATE 22012)",
        7: "(SQLSTATE 54000)",
        8: "column text is null, and the table's column is NOT NULL",
    }.items():
        assert words in written.letters.pop(offset)
    assert written.letters == {}


@pytest.mark.parametrize(
    ("table", "numbers", "dead", "words"),
    [
        pytest.param(
            "CREATE TABLE orders (n bigint UNIQUE DEFERRABLE INITIALLY DEFERRED, text text); "
            "INSERT INTO orders VALUES (7)",
            [1, 2, 1, 7, 3],
            [2, 3],
            "already exists.) (SQLSTATE 23505)",
            id="deferred",
        ),
        pytest.param(PARTITIONS, [1, 10, 3], [1], "no partition of relation", id="partition"),
    ],
)
def test_what_fails_at_the_end_or_has_no_place_becomes_a_dead_letter(
    spark: SparkSession, dsn: str, table: str, numbers: list[int], dead: list[int], words: str
) -> None:
    query_each(dsn, table)
    written = write_records(spark, dsn, [encoded({"n": n, "text": "x"}) for n in numbers])
    assert sorted(written.letters) == dead
    assert written.stored == [n for n in range(len(numbers)) if n not in dead]
    for message in written.letters.values():
        assert words in message


def test_a_row_refers_to_one_of_a_later_offset_and_is_stored(spark: SparkSession, dsn: str) -> None:
    query(
        dsn,
        "CREATE TABLE orders (n bigint PRIMARY KEY, text text, parent bigint REFERENCES orders)",
    )
    pairs = [(1, 2), (2, 3), (3, None), (4, 40), (5, 4), (3, None)]
    values = [encoded({"n": n, "text": "x", "parent": parent}) for n, parent in pairs]
    written = write_records(spark, dsn, values, schema=f"{SCHEMA}, parent BIGINT")
    assert written.stored == [0, 1, 2]
    assert sorted(written.letters) == [3, 4, 5]


def test_values_that_postgres_cannot_hold_become_dead_letters_that_say_why(
    spark: SparkSession, dsn: str
) -> None:
    query(dsn, "CREATE TABLE orders (n bigint NOT NULL, code varchar(3))")
    rows: list[dict[str, Any]] = [
        {"n": 1, "text": "fine", "tags": ["\\u0000"], "code": "äöü"},
        {"n": 2, "text": "nul \0 in text", "tags": ["x"]},
        {"n": 3, "text": "x", "tags": ["nul \0 in json"]},
        {"n": 4, "text": "x", "code": "long"},
        {"text": "x"},
        {"n": 6, "text": "x", "old": "day"},
        {"n": 7, "text": "not utf-8"},
    ]

    def transform(frame: DataFrame) -> DataFrame:
        early = F.expr("CASE WHEN n = 6 THEN date_add(DATE'0001-01-01', -2000000) END")
        broken = F.expr("CASE WHEN n = 7 THEN CAST(X'61FF62' AS STRING) ELSE text END")
        return frame.withColumn("old", early).withColumn("text", broken)

    schema = "n BIGINT, text STRING, tags ARRAY<STRING>, code STRING, old STRING"
    written = write_records(
        spark, dsn, list(map(encoded, rows)), schema=schema, transform=transform
    )
    assert query(dsn, "SELECT n, text, tags FROM orders") == [(1, "fine", ["\\u0000"])]
    for offset, words in (
        (1, "column text holds a NUL character"),
        (2, "column tags holds a NUL character"),
        (3, "column code has more than the 3 characters"),
        (4, "column n is null"),
        (5, "column old is before 4714 BC"),
        (6, "column text is not valid UTF-8"),
    ):
        assert words in written.letters[offset]


@pytest.mark.parametrize("sqlstate", ["P0001", "P0004", "2F003", "45000", "U0001"])
def test_a_record_that_a_trigger_refuses_becomes_a_dead_letter(
    spark: SparkSession, dsn: str, sqlstate: str
) -> None:
    query(
        dsn,
        "CREATE TABLE orders (n bigint, text text);"
        "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN "
        f"RAISE EXCEPTION 'no third order' USING ERRCODE = '{sqlstate}'; END $$;"
        "CREATE TRIGGER refuse BEFORE INSERT ON orders FOR EACH ROW WHEN (NEW.n = 3) "
        "EXECUTE FUNCTION refuse()",
    )
    values = [encoded({"n": n, "text": "x"}) for n in range(6)]
    written = write_records(spark, dsn, values)
    assert written.stored == [0, 1, 2, 4, 5]
    assert list(written.letters) == [3]
    assert f"no third order (SQLSTATE {sqlstate})" in written.letters[3]


def test_a_trigger_that_lacks_a_table_is_an_error_and_no_dead_letter(
    spark: SparkSession, dsn: str
) -> None:
    query(
        dsn,
        "CREATE TABLE orders (n bigint, text text);"
        "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN "
        "PERFORM * FROM no_such_table; RETURN NEW; END $$;"
        "CREATE TRIGGER refuse BEFORE INSERT ON orders FOR EACH ROW EXECUTE FUNCTION refuse()",
    )
    with pytest.raises(BadInput, match="no_such_table"):
        write_records(spark, dsn, [encoded({"n": 1, "text": "x"})])
    assert query(dsn, "SELECT count(*) FROM orders") == [(0,)]


@pytest.mark.parametrize("note", ["\0", "forbidden"])
def test_a_record_of_which_one_row_cannot_be_stored_is_dead_as_a_whole(
    spark: SparkSession, dsn: str, note: str
) -> None:
    query(dsn, "CREATE TABLE orders (n bigint, text text CHECK (text <> 'forbidden'))")

    def explode(frame: DataFrame) -> DataFrame:
        several = F.array(F.lit("ok"), F.lit(note), F.lit(f"{note} again"))
        notes = F.when(F.col("n") == 2, several).otherwise(F.array("text", "text"))
        return frame.withColumn("text", F.explode(notes)).repartition(3)

    values = [encoded({"n": n, "text": "x"}) for n in (1, 2, 3)]
    written = write_records(spark, dsn, values, transform=explode)
    assert list(written.letters) == [1]
    assert (written.receipt.stored, written.receipt.rows) == (tally(0, 2), 4)
    assert query(dsn, "SELECT n, text FROM orders ORDER BY 1") == [
        *[(1, "x"), (1, "x")],
        *[(3, "x"), (3, "x")],
    ]


def test_many_records_that_break_rules_are_found_with_a_bounded_number_of_statements(
    spark: SparkSession, dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    query(dsn, "CREATE TABLE orders (n bigint UNIQUE, text text CHECK (text <> 'forbidden'))")
    numbers = [*range(1000), *range(200), *range(1000, 2000)]
    values = [encoded({"n": n, "text": "forbidden" if n == 1500 else "x"}) for n in numbers]
    statements = 0
    execute = psycopg.Connection.execute

    def counted(self: psycopg.Connection[Any], *arguments: Any, **options: Any) -> Any:
        nonlocal statements
        statements += 1
        return execute(self, *arguments, **options)

    monkeypatch.setattr(psycopg.Connection, "execute", counted)
    written = write_records(spark, dsn, values)
    assert sorted(written.letters) == [*range(1000, 1200), 1700]
    assert statements < 600


def test_more_records_than_the_search_may_name_stop_the_pipeline(
    spark: SparkSession, dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lossless.pipeline.sinks.postgres_refusals.SEARCHED_MAX", 3)
    query(dsn, "CREATE TABLE orders (n bigint UNIQUE, text text)")
    with pytest.raises(BadInput, match="refuses more than 3 records of one batch"):
        write_records(spark, dsn, [encoded({"n": 1, "text": "x"})] * 10)
    assert query(dsn, "SELECT count(*) FROM orders") == [(0,)]


def test_a_table_that_refuses_everything_stops_the_pipeline_unless_it_holds_it_already(
    spark: SparkSession, dsn: str
) -> None:
    values = [encoded({"n": n, "text": "x"}) for n in range(101)]
    query_each(dsn, PARTITIONS.replace("FROM (0) TO (10)", "FROM (1000) TO (2000)"))
    with pytest.raises(BadInput, match="refuses every record of the batch: no partition"):
        write_records(spark, dsn, values)
    assert PostgresSink(spark, "orders", dsn, "orders").ledger() == Ledger()

    query(dsn, "DROP TABLE orders")
    query(dsn, "CREATE TABLE orders AS SELECT n::bigint, 'x' AS text FROM generate_series(0,100) n")
    query(dsn, "CREATE UNIQUE INDEX ON orders (n)")
    assert len(write_records(spark, dsn, values).letters) == 101


def test_a_table_that_changes_between_insert_and_search_blames_no_record(
    spark: SparkSession, dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    query(dsn, "CREATE TABLE orders (n bigint UNIQUE, text text)")
    query(dsn, "INSERT INTO orders VALUES (1)")

    def search(*arguments: Any) -> dict[Any, str]:
        query(dsn, "DELETE FROM orders")
        return refused_records(*arguments)

    monkeypatch.setattr("lossless.pipeline.sinks.postgres.refused_records", search)
    with pytest.raises(SinkUnavailable, match="already exists"):
        write_records(spark, dsn, [encoded({"n": 1, "text": "x"})])
    assert write_records(spark, dsn, [encoded({"n": 1, "text": "x"})]).letters == {}


def test_a_table_that_is_gone_blames_no_record(
    spark: SparkSession, dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit = PostgresSink.commit

    def without_the_table(self: PostgresSink, *arguments: Any) -> None:
        query(dsn, "DROP TABLE orders")
        commit(self, *arguments)

    monkeypatch.setattr(PostgresSink, "commit", without_the_table)
    with pytest.raises(BadInput, match=r'relation "public\.orders" does not') as refused:
        write_records(spark, dsn, [encoded({"n": 1, "text": "x"})])
    assert not isinstance(refused.value, RecordsRefused)


def query_each(dsn: str, statements: str) -> None:
    with psycopg.connect(dsn, autocommit=True) as connection:
        for statement in statements.split(";"):
            connection.execute(sql.SQL(statement))
