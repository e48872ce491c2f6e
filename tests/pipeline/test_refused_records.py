"""Records that the sink refuses while it commits: dead letters, and the pipeline keeps running."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg
from confluent_kafka import Producer

from lossless.contract import load_contract
from lossless.pipeline.audit import Verdict, audit
from lossless.pipeline.events import Committed, Event
from lossless.pipeline.pipeline import Pipeline, find_pipeline
from lossless.pipeline.sinks.postgres import PostgresSink
from shop import MakeShop

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from postgres_server import PostgresServer


def test_records_refused_at_the_commit_become_dead_letters_with_bytes_key_and_headers(
    shop: MakeShop,
    spark: SparkSession,
    postgres_server: PostgresServer,
    lossless_cluster: Any,
    tmp_path: Path,
) -> None:
    orders = shop(partitions=2)
    dsn = postgres_server.dsn(postgres_server.create_database())
    with psycopg.connect(dsn) as connection:
        connection.execute(
            "CREATE TABLE orders (number bigint UNIQUE CHECK (number <> 3), text text)"
        )
    producer = Producer({"bootstrap.servers": orders.bootstrap_servers})
    texts = ["a", "b", "nul \0", "d", "e", "f"]
    numbers = [0, 1, 2, 3, 1, 5]
    values = [
        json.dumps({"number": n, "text": text}, indent=1).encode()
        for n, text in zip(numbers, texts, strict=True)
    ]
    for value in values:
        producer.produce(
            orders.topic, value, key=b"\xffkey", headers=[("trace", b"\x00\x01")], partition=1
        )
    producer.flush()
    path = tmp_path / "lossless.toml"
    path.write_text(
        f"""
[cluster]
client.bootstrap.servers = "{orders.bootstrap_servers}"
[pipelines.orders]
topics = ["{orders.topic}"]
format = "json"
schema = "number BIGINT NOT NULL, text STRING"
add_columns = true
[pipelines.orders.sink]
type = "postgres"
dsn = "{dsn}"
table = "orders"
"""
    )
    events: list[Event] = []
    Pipeline("orders", contract=path, spark=spark).run(once=True, observe=events.append)

    (committed,) = [event for event in events if isinstance(event, Committed)]
    assert (committed.records, committed.rows, committed.dead_letters) == (6, 3, 3)
    with psycopg.connect(dsn) as connection:
        stored = connection.execute("SELECT number, text FROM orders ORDER BY 1").fetchall()
    assert stored == [(0, "a"), (1, "b"), (5, "f")]
    sink = PostgresSink(spark, "orders", dsn, "orders")
    letters = sink.dead_letters().orderBy("_lossless.offset").collect()
    assert [letter["value"] for letter in letters] == values[2:5]
    for letter, words in zip(
        letters,
        ("column text holds a NUL character", "check constraint", "(number)=(1)"),
        strict=True,
    ):
        assert letter["key"] == b"\xffkey"
        assert [tuple(header) for header in letter["record_headers"]] == [("trace", b"\x00\x01")]
        assert words in letter["headers"]["kafka_dlt-exception-message"]
    report = audit(
        spark,
        pipeline=find_pipeline(load_contract(path), "orders"),
        sink=sink,
        client_settings=lossless_cluster.client_settings,
        contents=True,
    )
    assert report.verdict is Verdict.BALANCED
    assert (report.total.stored, report.total.dead) == (3, 3)
    sink.close()
