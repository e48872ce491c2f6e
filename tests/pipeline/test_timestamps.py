"""Records whose Kafka timestamp is not in milliseconds, and the records around them."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from pyspark.errors import PySparkException
from pyspark.sql import functions as F

from lossless.contract import PipelineContract, load_contract
from lossless.core.error_codes import Error
from lossless.log.batch import Record, build
from lossless.pipeline.audit import AuditReport, Verdict, audit
from lossless.pipeline.direct_source import (
    HEADERS_UNREADABLE,
    HELD_MS_MAX,
    OUT_OF_RANGE_MS,
    direct_records,
)
from lossless.pipeline.ledger import Ledger
from lossless.pipeline.outcomes import PROVENANCE
from lossless.pipeline.pipeline import Pipeline
from lossless.pipeline.sinks import open_sink
from lossless.pipeline.sinks.interface import Sink
from lossless.pipeline.transform import OffsetRange
from lossless.wire.versions import PRODUCE
from one_request import ask, error_of
from postgres_server import PostgresServer
from shop import MakeShop, Shop, order

IN_MILLISECONDS = 1_767_225_600_000
IN_NANOSECONDS = 1_767_225_600_000_000_000
IN_MICROSECONDS = 1_767_225_600_000_000
YEAR_1 = -62_135_596_800_000
BEFORE_4714_BC = -220_000_000_000_000
NOW = 0  # librdkafka's way to say so
ANY_TIMESTAMP = {"message_timestamp_after_max_ms": str(2**63 - 1)}
HEADERS = [("trace", b"\x00\xff"), ("trace", b""), ("nothing", None)]


def produce_at(orders: Shop, timestamps: Sequence[int], *, first: int = 0) -> None:
    """Orders into partition 0, numbered from `first`, with these Kafka timestamps."""
    producer = Producer({"bootstrap.servers": orders.bootstrap_servers})
    _send(producer, orders, timestamps, first)


def _send(producer: Producer, orders: Shop, timestamps: Sequence[int], first: int) -> None:
    for number, timestamp in enumerate(timestamps, first):
        producer.produce(
            orders.topic,
            key=b"\xfe%d" % number if number % 2 else None,
            value=order(number),
            partition=0,
            timestamp=timestamp,
            headers=HEADERS if number % 2 else None,
        )
    assert producer.flush() == 0


def numbers(orders: Shop) -> list[int]:
    """Without the timestamps: Python has none after the year 9999."""
    table = sink_of(orders).rows()
    return [row["number"] for row in table.select("number").orderBy("number").collect()]


def dead_letters(orders: Shop) -> list[dict[str, Any]]:
    letters = sink_of(orders).dead_letters()
    return [row.asDict(recursive=True) for row in letters.orderBy(f"{PROVENANCE}.offset").collect()]


def contract_of(orders: Shop) -> PipelineContract:
    return load_contract(orders.folder / "lossless.toml").pipelines["orders"]


def sink_of(orders: Shop) -> Sink:
    return open_sink(orders.spark, contract_of(orders))


def audited(orders: Shop) -> AuditReport:
    return audit(
        orders.spark,
        pipeline=contract_of(orders),
        sink=sink_of(orders),
        client_settings={"bootstrap.servers": orders.bootstrap_servers},
        contents=True,
    )


def counts(ledger: Ledger) -> tuple[int, int, int, int]:
    positions = ledger.positions.values()
    return (
        sum(p.read.count for p in positions),
        sum(p.stored.count for p in positions),
        sum(p.dead.count for p in positions),
        sum(p.filtered.count for p in positions),
    )


@pytest.mark.parametrize("sink", ["parquet", pytest.param("delta", marks=pytest.mark.full)])
def test_a_timestamp_that_spark_cannot_hold_makes_a_dead_letter_and_the_others_are_stored(
    shop: MakeShop, sink: str
) -> None:
    orders = shop(partitions=2, **ANY_TIMESTAMP)
    produce_at(orders, [YEAR_1, NOW])
    into = f'type = "{sink}"'
    orders.pipeline(sink=into).run(once=True)
    produce_at(orders, [NOW, IN_NANOSECONDS, -IN_NANOSECONDS, IN_MICROSECONDS, YEAR_1], first=2)
    orders.produce(range(10, 13), partition=1)
    assert counts(orders.pipeline("retry_max_s = 0", sink=into).run(once=True)) == (10, 8, 2, 0)
    orders.produce(range(13, 15))
    assert counts(orders.pipeline(sink=into).run(once=True)) == (12, 10, 2, 0)
    assert numbers(orders) == [0, 1, 2, 5, 6, *range(10, 15)]

    late, early = dead_letters(orders)
    assert (late["key"], late["value"]) == (b"\xfe3", order(3))
    assert [(h["key"], h["value"]) for h in late["record_headers"]] == HEADERS
    assert late["headers"]["kafka_dlt-original-offset"] == "3"
    assert late["headers"]["kafka_dlt-original-timestamp"] == str(IN_NANOSECONDS)
    assert late["headers"]["kafka_dlt-exception-fqcn"] == "lossless.TimestampOutOfRange"
    assert str(IN_NANOSECONDS) in late["headers"]["kafka_dlt-exception-message"]
    assert (early["key"], early["record_headers"]) == (None, None)
    assert early["headers"]["kafka_dlt-original-timestamp"] == str(-IN_NANOSECONDS)

    assert audited(orders).verdict is Verdict.BALANCED


def test_a_timestamp_before_the_calendar_of_postgres_makes_a_dead_letter(
    shop: MakeShop, postgres_server: PostgresServer
) -> None:
    orders = shop(**ANY_TIMESTAMP)
    produce_at(orders, [NOW, BEFORE_4714_BC, YEAR_1, NOW])
    into = f'type = "postgres"\ndsn = "{postgres_server.dsn(postgres_server.create_database())}"'
    contract = orders.contract("retry_max_s = 0", sink=into)
    contract.write_text(contract.read_text().replace('path = "./table"', 'table = "orders"'))
    pipeline = Pipeline("orders", contract=contract, spark=orders.spark)
    assert counts(pipeline.run(once=True)) == (4, 3, 1, 0)
    sink = sink_of(orders)  # the letters can be read for as long as it is there
    (letter,) = sink.dead_letters().collect()
    assert letter[PROVENANCE]["timestamp"].year == 1582
    assert letter["headers"]["kafka_dlt-original-offset"] == "1"
    assert "Kafka timestamp is before 4714 BC" in letter["headers"]["kafka_dlt-exception-message"]
    assert audited(orders).verdict is Verdict.BALANCED


def test_a_header_name_that_is_not_utf_8_makes_a_dead_letter_beside_such_a_timestamp(
    shop: MakeShop,
) -> None:
    orders = shop(**ANY_TIMESTAMP)
    headers = (("h\udcff\udcfe", b"x"),)  # the bytes 68 ff fe
    batch = build(
        [
            Record(0, IN_NANOSECONDS, b"0", order(0), (("trace", b"y"),)),
            Record(1, IN_MILLISECONDS, b"1", order(1), headers),
            Record(2, IN_NANOSECONDS, b"2", order(2), headers),
            Record(3, IN_MILLISECONDS, b"3", order(3)),
        ]
    )
    partition = {"index": 0, "records": bytes(batch.data)}
    fields = {"topic_data": [{"name": orders.topic, "partition_data": [partition]}]}
    # Only the partition's leader takes them.
    answers = (
        ask(address, PRODUCE, 9, acks=-1, timeout=20_000, **fields)
        for address in orders.bootstrap_servers.split(",")
    )
    assert any(
        error_of(answer.responses[0].partition_responses[0]) is Error.NONE for answer in answers
    )
    assert counts(orders.pipeline("retry_max_s = 0").run(once=True)) == (4, 1, 3, 0)
    assert numbers(orders) == [3]

    of_timestamp, of_headers, of_both = dead_letters(orders)
    assert [h["key"] for h in of_timestamp["record_headers"]] == ["trace"]
    assert (of_headers["key"], of_headers["value"]) == (b"1", order(1))
    assert of_headers["record_headers"] is None
    assert of_headers["headers"]["kafka_dlt-exception-fqcn"] == "lossless.UnreadableHeaders"
    assert of_headers["headers"]["kafka_dlt-original-timestamp"] == str(IN_MILLISECONDS)
    assert "header is not UTF-8" in of_headers["headers"]["kafka_dlt-exception-message"]
    assert of_both["headers"]["kafka_dlt-exception-fqcn"] == "lossless.TimestampOutOfRange"
    assert "header is not UTF-8" in of_both["headers"]["kafka_dlt-exception-message"]

    assert audited(orders).verdict is Verdict.BALANCED


def test_a_transform_gets_the_records_with_other_timestamps(shop: MakeShop) -> None:
    orders = shop(**ANY_TIMESTAMP)
    (orders.folder / "even_orders.py").write_text(
        "def even(rows):\n    return rows.where('number % 2 = 0')\n"
    )
    produce_at(orders, [NOW, NOW, IN_NANOSECONDS, NOW, NOW])
    pipeline = orders.pipeline('transform = "even_orders:even"\nretry_max_s = 0')
    assert counts(pipeline.run(once=True)) == (5, 2, 1, 2)
    assert numbers(orders) == [0, 4]


def test_what_is_read_directly_is_what_sparks_source_reads(shop: MakeShop) -> None:
    orders = shop(**ANY_TIMESTAMP)
    some = random.Random(1)
    stamps = [some.randrange(-HELD_MS_MAX // 10, HELD_MS_MAX // 10) for _ in range(50)]
    stamps += [some.randrange(YEAR_1 * 2, 0) for _ in range(1000)]
    produce_at(orders, [*stamps, YEAR_1, -1, IN_MICROSECONDS, HELD_MS_MAX])
    producer = Producer(
        {"bootstrap.servers": orders.bootstrap_servers, "transactional.id": orders.topic}
    )
    producer.init_transactions()
    for end in (producer.abort_transaction, producer.commit_transaction):
        producer.begin_transaction()
        _send(producer, orders, [NOW] * 3, 0)
        end()
    log = TopicPartition(orders.topic, 0)
    end_offset = len(stamps) + 4 + 8  # a marker ends each transaction, and the log

    by_spark = (
        orders.spark.read.format("kafka")
        .option("kafka.bootstrap.servers", orders.bootstrap_servers)
        .option("kafka.isolation.level", "read_committed")
        .option("includeHeaders", "true")
        .option("subscribe", log.topic)
        .load()
        .drop("timestampType")
        .withColumn(OUT_OF_RANGE_MS, F.lit(None).cast("long"))
        .withColumn(HEADERS_UNREADABLE, F.lit(False))
    )
    directly = direct_records(
        orders.spark,
        {"bootstrap.servers": orders.bootstrap_servers},
        [OffsetRange(log.topic, 0, 3, end_offset)],
        isolation="read_committed",
    )
    in_micros = F.unix_micros("timestamp").alias("timestamp")
    columns = [in_micros if c == "timestamp" else F.col(c) for c in directly.columns]
    expected, found = (
        sorted(
            frame.where("offset >= 3").select(*columns).collect(), key=lambda row: int(row.offset)
        )
        for frame in (by_spark, directly)
    )
    assert len(found) == len(stamps) + 4 + 3 - 3
    assert found == expected


def test_a_log_that_lost_records_fails_the_direct_reading_and_no_record_is_skipped(
    shop: MakeShop,
) -> None:
    orders = shop(**ANY_TIMESTAMP)
    produce_at(orders, [IN_NANOSECONDS] * 4)
    admin = AdminClient({"bootstrap.servers": orders.bootstrap_servers})
    for deleted in admin.delete_records([TopicPartition(orders.topic, 0, 2)]).values():
        deleted.result()
    directly = direct_records(
        orders.spark,
        {"bootstrap.servers": orders.bootstrap_servers},
        [OffsetRange(orders.topic, 0, 0, 4)],
        isolation="read_committed",
    )
    with pytest.raises(PySparkException, match="KafkaException"):
        directly.collect()
