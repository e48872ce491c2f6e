"""Topics with records in them, for tests: made, filled, and everything acknowledged."""

from __future__ import annotations

from collections.abc import Iterable

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic

from lossless.engines.waiting import wait_until


def create_topic(
    bootstrap_servers: str, topic: str, *, partitions: int = 2, replicas: int = 3, **config: str
) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap_servers})
    settings = {name.replace("_", "."): value for name, value in config.items()}
    new = NewTopic(topic, partitions, replication_factor=replicas, config=settings)
    for future in admin.create_topics([new]).values():
        future.result()


def grow_topic(bootstrap_servers: str, topic: str, partitions: int) -> None:
    """Returns when every broker knows of them: a producer that asks one that does not fails at
    once (librdkafka's "unknown partition"), and a controller answers before the brokers know."""
    admin = AdminClient({"bootstrap.servers": bootstrap_servers})
    for future in admin.create_partitions([NewPartitions(topic, partitions)]).values():
        future.result()
    for address in bootstrap_servers.split(","):

        def is_known(address: str = address) -> bool:
            told = AdminClient({"bootstrap.servers": address}).list_topics(topic, timeout=10)
            return len(told.topics[topic].partitions) == partitions

        assert wait_until(is_known, timeout_s=30)


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
