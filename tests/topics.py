"""Topics with records in them, for tests: made, filled, and everything acknowledged."""

from __future__ import annotations

from collections.abc import Iterable

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic


def create_topic(
    bootstrap_servers: str, topic: str, *, partitions: int = 2, replicas: int = 3, **config: str
) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap_servers})
    settings = {name.replace("_", "."): value for name, value in config.items()}
    new = NewTopic(topic, partitions, replication_factor=replicas, config=settings)
    for future in admin.create_topics([new]).values():
        future.result()


def produce(
    bootstrap_servers: str, topic: str, records: Iterable[tuple[int, bytes | None, bytes | None]]
) -> None:
    """Each record is (partition, key, value); returns when all of them are acknowledged."""
    producer = Producer({"bootstrap.servers": bootstrap_servers, "enable.idempotence": "true"})
    failed: list[str] = []
    for partition, key, value in records:
        producer.produce(
            topic,
            key=key,
            value=value,
            partition=partition,
            on_delivery=lambda error, _: failed.append(str(error)) if error else None,
        )
    producer.flush()
    assert not failed
