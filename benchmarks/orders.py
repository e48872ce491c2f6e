"""What everything is measured on: JSON orders of about 200 bytes, one in 1,000 broken."""

from __future__ import annotations

import json
from pathlib import Path

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from benchmarks.measure import console

PARTITIONS = 6
BROKEN_EVERY = 1000

DDL = (
    "order_id BIGINT, customer STRING, amount DOUBLE, currency STRING, created_at TIMESTAMP, "
    "quantity BIGINT, note STRING"
)

JSON_SCHEMA = {
    "type": "object",
    "properties": {
        "order_id": {"type": "integer", "minimum": 0},
        "customer": {"type": "string", "minLength": 1},
        "amount": {"type": "number", "minimum": 0},
        "currency": {"type": "string", "enum": ["EUR", "USD"]},
        "created_at": {"type": "string", "format": "date-time"},
        "quantity": {"type": "integer", "minimum": 1, "maximum": 1000},
        "note": {"type": "string"},
    },
    "required": ["order_id", "customer", "amount", "currency", "created_at", "quantity"],
}


def value(number: int) -> bytes:
    if number % BROKEN_EVERY == 1:
        return b'{"order_id": ' + b"x" * 187
    return json.dumps(
        {
            "order_id": number,
            "customer": f"customer-{number * 7919 % 100_000:05d}",
            "amount": number % 99_999 / 100,
            "currency": "EUR",
            "created_at": "2026-11-15T08:00:00Z",
            "quantity": number % 9 + 1,
            "note": "x" * 52,
        }
    ).encode()


def fill(bootstrap_servers: str, topic: str, records: int) -> None:
    """A topic with `records` orders, spread evenly over its partitions."""
    admin = AdminClient({"bootstrap.servers": bootstrap_servers})
    for future in admin.create_topics([NewTopic(topic, PARTITIONS, 1)]).values():
        future.result()
    producer = Producer(
        {
            "bootstrap.servers": bootstrap_servers,
            "linger.ms": 20,
            "batch.size": 262_144,
            "queue.buffering.max.messages": 1_000_000,
        }
    )
    for number in range(records):
        while True:
            try:
                producer.produce(topic, value(number), str(number), number % PARTITIONS)
                break
            except BufferError:
                producer.poll(0.1)
        if number % 10_000 == 0:
            producer.poll(0)
        if number % 500_000 == 0:
            console.print(f"  {topic}: {number:,} of {records:,} records produced")
    if producer.flush() != 0:
        raise RuntimeError(f"{topic}: not every record was delivered")


def write_contract(
    folder: Path, bootstrap_servers: str, topic: str, sink: str, *, batch: int | None = None
) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "orders.json").write_text(json.dumps(JSON_SCHEMA))
    contract = folder / "lossless.toml"
    contract.write_text(
        f"""
[cluster]
client.bootstrap.servers = "{bootstrap_servers}"
[pipelines.orders]
topics = ["{topic}"]
format = "json"
schema = "orders.json"
{f"records_per_batch_max = {batch}" if batch else ""}
[pipelines.orders.sink]
{sink}
"""
    )
    return contract
