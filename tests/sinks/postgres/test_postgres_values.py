"""Values as they come back, and tables that people have."""

from __future__ import annotations

import datetime
import math
from decimal import Decimal
from typing import TYPE_CHECKING

import psycopg
import pytest
from postgres_orders import (
    NOON,
    TOPIC_ID,
    letter,
    orders_schema,
    outcomes,
    query,
    stored,
    write,
)
from psycopg import sql
from pyspark.sql import functions as F
from pyspark.sql import types as T

from lossless.errors import BadInput
from lossless.pipeline.ledger import Ledger
from lossless.pipeline.outcomes import PROVENANCE, row_schema
from lossless.pipeline.sinks.interface import RecordsRefused
from lossless.pipeline.sinks.postgres import PostgresSink

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# PySpark leaves the sockets that collect() reads from to the garbage collector.
pytestmark = pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")


# Values


def test_every_type_comes_back_as_it_was(spark: SparkSession, dsn: str) -> None:
    columns = (
        "n long, bool boolean, tiny byte, small short, whole int, big long, single float, "
        "real double, price decimal(38,10), text string, bytes binary, day date, at timestamp, "
        "local timestamp_ntz, tags array<string>, counts map<string,int>, "
        "place struct<lat:double,at:timestamp,raw:binary>"
    )
    local = datetime.datetime(2026, 1, 2, 3, 4, 5, 678901)
    price = Decimal("-1234567890123456789012345678.0123456789")
    full = (
        *(1, True, -128, 32767, -(2**31), 2**63 - 1, 0.1, 1e-300, price),
        *('quote " comma , tab\t\nline\\.\n\\.\n\r\\N ünï 🦜', b"\x00\xff\\x", local.date()),
        *(NOON, local, ["a", None, ""], {"k": 1}, (1.5, NOON, b"\x01")),
    )
    none = (2, *[None] * 16)
    empty = (3, False, 0, 0, 0, 0, math.nan, math.nan, Decimal(0), "", b"")
    empty += (datetime.date(1, 1, 1), NOON, local, [], {}, (None, None, None))
    infinite = (4, None, None, None, None, None, -math.inf, math.inf, None, r"\N", b"", None)
    infinite += (None, None, None, None, None)
    sink = PostgresSink(spark, "types", dsn, "types")
    sink.prepare(orders_schema(columns), add_columns=False)
    # A second time, now against the table that the first made: its own types fit.
    sink.prepare(orders_schema(columns), add_columns=False)
    write(sink, outcomes(spark, [full, none, empty, infinite], columns=columns), 4)

    read = query(dsn, "SELECT * FROM types ORDER BY n")
    found = dict(zip((f.name for f in T.StructType.fromDDL(columns)), read[0], strict=False))
    place = {"lat": 1.5, "at": "2026-03-01T12:00:00.123456Z", "raw": "AQ=="}
    assert found == {**dict(zip(found, full, strict=True)), "place": place, "single": 0.1}
    assert read[1][:17] == none
    assert read[2][:6] == empty[:6]
    assert [math.isnan(value) for value in read[2][6:8]] == [True, True]
    nulls = {"lat": None, "at": None, "raw": None}
    assert read[2][8:17] == (*empty[8:16], nulls)
    assert read[3][6:8] == (-math.inf, math.inf)
    assert read[3][9:11] == (r"\N", b"")
    assert read[0][17:21] == (TOPIC_ID, 0, 0, NOON)


SINGLE = 0.10000000149011612  # what 0.1 is in 32 bits


def test_a_table_with_wider_types_takes_every_value_unchanged(
    spark: SparkSession, dsn: str
) -> None:
    query(dsn, "CREATE EXTENSION citext")
    query(
        dsn,
        "CREATE TABLE wider (n numeric, tiny bigint, single double precision, price numeric, "
        "exact numeric(20,6), name varchar(5), word citext, place json)",
    )
    columns = (
        "n long, tiny byte, single float, price decimal(38,10), exact decimal(10,4), name string, "
        "word string, place struct<b:int,a:int>"
    )
    prices = Decimal("-0.0000000001"), Decimal("1234.5678")
    rows = [(2**63 - 1, -128, SINGLE, *prices, "äöü  ", "Word", (1, 2)), (2, *[None] * 7)]
    sink = PostgresSink(spark, "wider", dsn, "wider")
    sink.prepare(orders_schema(columns), add_columns=True)
    write(sink, outcomes(spark, rows, columns=columns), 2)

    names = "n, tiny, single, price, exact, name, word::text, place::text"
    first, second = query(dsn, f"SELECT {names} FROM wider ORDER BY n DESC")
    # The members of `place` in their order: json keeps the text as it is.
    assert first == (*rows[0][:7], '{"b":1,"a":2}')
    assert second == rows[1]


def test_text_is_stored_as_it_is_whatever_encoding_the_dsn_asks_for(
    spark: SparkSession, dsn: str
) -> None:
    sink = PostgresSink(spark, "orders", f"{dsn} client_encoding=LATIN1", "orders")
    sink.prepare(orders_schema(), add_columns=False)
    write(sink, outcomes(spark, [(1, "ünï")], dead=[1]), 2)
    assert stored(dsn) == [(1, "ünï")]


def test_a_timestamp_before_the_calendar_is_refused_and_does_not_wrap_around(
    spark: SparkSession, sink: PostgresSink, dsn: str
) -> None:
    first = F.timestamp_micros(F.lit(-(2**63)))  # 2^63 below 2000 would be the year 294246
    frame = outcomes(spark, [(1, "a")])
    frame = frame.withColumn(PROVENANCE, F.col(PROVENANCE).withField("timestamp", first))
    with pytest.raises(RecordsRefused, match="before 4714 BC"):
        write(sink, frame, 1)
    assert stored(dsn) == []
    assert sink.ledger() == Ledger()


def test_a_dead_letter_comes_back_with_its_bytes_and_headers(
    spark: SparkSession, sink: PostgresSink
) -> None:
    write(sink, outcomes(spark, [], dead=[5]), 6)
    (found,) = sink.dead_letters().collect()
    topic_id, partition, offset, timestamp = found[PROVENANCE]
    assert (topic_id, partition, offset) == (TOPIC_ID, 0, 5)
    assert timestamp.astimezone(datetime.UTC) == NOON
    key, value, record_headers, _ = letter(5)
    assert (found["key"], found["value"]) == (key, value)
    assert [tuple(header) for header in found["record_headers"]] == record_headers
    # jsonb has no NUL: what is for people to read gets the replacement character.
    assert found["headers"] == {"kafka_dlt-exception-message": "bad\ufffdrecord 5"}


def test_a_kafka_timestamp_far_in_the_future_is_stored(
    spark: SparkSession, sink: PostgresSink
) -> None:
    frame = outcomes(spark, [(1, "a")], dead=[1])
    far = F.timestamp_micros(F.lit(1_772_366_400_000_000_000))  # milliseconds given in microseconds
    frame = frame.withColumn(PROVENANCE, F.col(PROVENANCE).withField("timestamp", far))
    write(sink, frame, 2)
    micros = F.unix_micros(f"{PROVENANCE}.timestamp")
    for found in (sink.rows(), sink.dead_letters()):
        assert [row[0] for row in found.select(micros).collect()] == [1_772_366_400_000_000_000]


# Tables people have


@pytest.mark.parametrize(
    ("table", "schema", "name"),
    [
        ("Order", "public", "Order"),
        ('"a.b"', "public", "a.b"),
        ("select.table", "select", "table"),
        ('"My ""Schema"""."%s {} ü"', 'My "Schema"', "%s {} ü"),
    ],
)
def test_odd_names_are_taken_as_they_are(
    spark: SparkSession, dsn: str, table: str, schema: str, name: str
) -> None:
    with psycopg.connect(dsn) as connection:
        create = sql.SQL("CREATE SCHEMA IF NOT EXISTS {}").format(sql.Identifier(schema))
        connection.execute(create)
    columns = '`Select` long, `a "b" %s {}` string'
    sink = PostgresSink(spark, 'o\'dd "pipeline" %s', dsn, table)
    sink.prepare(orders_schema(columns), add_columns=False)
    write(sink, outcomes(spark, [(1, "a")], columns=columns, dead=[1]), 2)
    with psycopg.connect(dsn) as connection:
        read = sql.SQL("SELECT * FROM {}").format(sql.Identifier(schema, name))
        ((*found, _),) = connection.execute(read).fetchall()
        assert found == [1, "a", TOPIC_ID, 0, 0, NOON]
    assert sink.rows().count() == 1
    assert sink.dead_letters().count() == 1
    assert PostgresSink(spark, 'o\'dd "pipeline" %s', dsn, table).ledger().sequence == 1


@pytest.mark.parametrize("table", ["", "a.b.c", 'a"b', "t" * 60])
def test_what_is_no_table_name_is_bad_input(spark: SparkSession, dsn: str, table: str) -> None:
    with pytest.raises(BadInput, match="table"):
        PostgresSink(spark, "p", dsn, table)


def test_two_pipelines_share_a_table_and_keep_their_own_ledgers(
    spark: SparkSession, sink: PostgresSink, dsn: str
) -> None:
    other = PostgresSink(spark, "refunds", dsn, "orders")
    other.prepare(orders_schema(), add_columns=False)
    write(sink, outcomes(spark, [(1, "a")], dead=[1]), 2)
    write(sink, outcomes(spark, [(2, "b")], start=2), 3)
    write(other, outcomes(spark, [(3, "c")]), 1)
    assert (sink.ledger().sequence, other.ledger().sequence) == (2, 1)
    assert stored(dsn) == [(1, "a"), (2, "b"), (3, "c")]
    assert (sink.dead_letters().count(), other.dead_letters().count()) == (1, 0)


def test_rows_reads_partitions_and_shows_rows_without_provenance(
    spark: SparkSession, dsn: str
) -> None:
    query(dsn, "CREATE TABLE orders (order_id bigint, note text) PARTITION BY RANGE (order_id)")
    query(dsn, "CREATE TABLE low PARTITION OF orders FOR VALUES FROM (0) TO (10)")
    query(dsn, "CREATE TABLE high PARTITION OF orders FOR VALUES FROM (10) TO (100)")
    query(dsn, "INSERT INTO orders VALUES (5, 'old')")
    sink = PostgresSink(spark, "orders", dsn, "orders")
    sink.prepare(orders_schema(), add_columns=True)
    ((unexplained,),) = sink.rows().collect()
    assert unexplained == (None, None, None, None)
    write(sink, outcomes(spark, [(1, "a"), (11, "b")]), 2)
    (_, first, second) = sink.rows().orderBy(f"{PROVENANCE}.offset").collect()
    assert (first[PROVENANCE]["offset"], second[PROVENANCE]["offset"]) == (0, 1)
    assert first[PROVENANCE]["timestamp"].astimezone(datetime.UTC) == NOON


def test_rows_reads_every_page_once_in_one_snapshot(
    spark: SparkSession, sink: PostgresSink, dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lossless.pipeline.sinks.postgres_scan.PROVENANCE_PAGES", 2)
    write(sink, outcomes(spark, [(n, "x" * 100) for n in range(1000)]), 1000)
    frame = sink.rows()
    # Every row moves to another page after the snapshot was taken, before it is read.
    query(dsn, "UPDATE orders SET note = 'y'")
    query(dsn, "DELETE FROM orders WHERE order_id < 10")
    assert sorted(row[0] for row in frame.select(f"{PROVENANCE}.offset").collect()) == list(
        range(1000)
    )
    assert sink.rows().count() == 990
    sink.close()


def test_before_the_first_run_there_is_nothing_to_read(spark: SparkSession, dsn: str) -> None:
    sink = PostgresSink(spark, "orders", dsn, "orders")
    assert sink.ledger() == Ledger()
    assert sink.history() == ()
    sink.sweep()
    assert not sink.schema_difference(orders_schema()).exists
    assert sink.rows().count() == 0
    assert sink.dead_letters().count() == 0


def test_the_rows_schema_of_outcomes_is_what_prepare_takes(
    spark: SparkSession, sink: PostgresSink
) -> None:
    assert sink.schema_difference(row_schema(outcomes(spark, []).schema)).added == []
