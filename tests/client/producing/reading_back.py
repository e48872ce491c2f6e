"""What is in a topic, and in the audit topic, read by a plain consumer."""

from __future__ import annotations

import itertools
import uuid

from confluent_kafka import Message

from lossless.acknowledged import AUDIT_TOPIC, AcknowledgedCount, latest_revisions
from lossless.client import headers as names
from lossless.client.record import header
from topics import create_topic, read_all

_numbers = itertools.count()


def new_topic(bootstrap_servers: str, *, partitions: int = 3, **config: str) -> str:
    name = f"orders-{uuid.uuid4().hex[:8]}-{next(_numbers)}"
    create_topic(bootstrap_servers, name, partitions=partitions, **config)
    return name


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
        for message in read_all(bootstrap_servers, AUDIT_TOPIC)
    ]
    return [report for report in latest_revisions(found) if report.topic == topic]
