"""What is in a topic, and in the audit topic, read by a plain consumer."""

from __future__ import annotations

import itertools
import uuid

from confluent_kafka import Consumer, Message, TopicPartition

from lossless.acknowledged import AUDIT_TOPIC, AcknowledgedCount, latest_revisions
from lossless.client import headers as names
from lossless.client.record import header
from topics import create_topic

_numbers = itertools.count()


def new_topic(bootstrap_servers: str, *, partitions: int = 3, **config: str) -> str:
    name = f"orders-{uuid.uuid4().hex[:8]}-{next(_numbers)}"
    create_topic(bootstrap_servers, name, partitions=partitions, **config)
    return name


def stored(
    bootstrap_servers: str, topic: str, *, isolation: str = "read_committed"
) -> list[Message]:
    """Every record, partition by partition in the order of the log."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap_servers,
            "group.id": "reading-back",
            "enable.auto.commit": "false",
            "isolation.level": isolation,
            "enable.partition.eof": "true",
            "log_level": "0",
        }
    )
    try:
        partitions = consumer.list_topics(topic, timeout=30).topics[topic].partitions
        consumer.assign([TopicPartition(topic, partition, 0) for partition in partitions])
        found: dict[int, list[Message]] = {partition: [] for partition in partitions}
        unread = set(partitions)
        while unread:
            for message in consumer.consume(1_000, timeout=0.1):
                partition = message.partition()
                assert partition is not None
                if message.error() is None:
                    found[partition].append(message)
                else:
                    unread.discard(partition)
        return [message for partition in sorted(found) for message in found[partition]]
    finally:
        consumer.close()


def once(messages: list[Message]) -> list[Message]:
    """Each operation once, where it was first."""
    seen: set[bytes | None] = set()
    found = []
    for message in messages:
        operation = header(message.headers(), names.OPERATION_ID)
        if operation not in seen:
            seen.add(operation)
            found.append(message)
    return found


def values(messages: list[Message]) -> list[bytes | None]:
    return [message.value() for message in messages]


def values_by_key(messages: list[Message]) -> dict[bytes | None, list[bytes | None]]:
    """In order, each repetition of a record in a row once."""
    found: dict[bytes | None, list[bytes | None]] = {}
    for message in messages:
        found.setdefault(message.key(), []).append(message.value())
    return found


def reports(bootstrap_servers: str, topic: str) -> list[AcknowledgedCount]:
    """The last word of every series of this topic."""
    found = [
        AcknowledgedCount.from_bytes(message.value() or b"")
        for message in stored(bootstrap_servers, AUDIT_TOPIC)
    ]
    return [report for report in latest_revisions(found) if report.topic == topic]
