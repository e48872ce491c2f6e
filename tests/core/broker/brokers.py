"""Brokers on a host that delivers at once: what takes time is what a broker itself waits for."""

from __future__ import annotations

from typing import Any

from instant_host import Host
from machines import PARTITION, records

from lossless.core.broker import Broker
from lossless.core.messages import (
    CONSUMER,
    CreateTopic,
    Error,
    Fetch,
    FetchAnswer,
    FetchPartition,
    Produce,
    ProduceAnswer,
    TopicPartition,
)
from lossless.core.metadata import PartitionState
from lossless.core.replica import ALL
from lossless.log.batch import parse_all

SESSION_MS = 9_000
NOWHERE = TopicPartition("nowhere", 0)


def a_cluster(*brokers: int, **settings: Any) -> Host:
    """A controller, brokers, and a topic of one partition that the first of them leads."""
    host = Host(brokers=brokers, **settings)
    host.wait(500)
    create(host, brokers)
    return host


def create(host: Host, *assignment: tuple[int, ...], topic: str = "orders") -> None:
    request = CreateTopic(topic, len(assignment), 1, assignment=assignment)
    assert host.ask(100, request).error is Error.NONE


def produce(
    host: Host,
    *data: bytes,
    to: int = 1,
    acks: int = ALL,
    timeout_ms: int = 60_000,
    partition: TopicPartition = PARTITION,
) -> Any:
    """The answer, or a token for it."""
    return host.ask(to, Produce(acks, timeout_ms, ((partition, records(*data)),)))


def error_of(answer: Any) -> Error:
    assert isinstance(answer, ProduceAnswer | FetchAnswer)
    (only,) = answer.partitions
    return only.error


def consume(
    host: Host,
    offset: int,
    *,
    broker: int = 1,
    partition: TopicPartition = PARTITION,
    wait_ms_max: int = 500,
    bytes_min: int = 1,
    read_committed: bool = False,
) -> Any:
    asked = FetchPartition(partition, offset)
    fetch = Fetch(CONSUMER, -1, wait_ms_max, bytes_min, (asked,), read_committed)
    return host.ask(broker, fetch)


def read(answer: Any) -> list[bytes]:
    assert error_of(answer) is Error.NONE
    return [
        record.value or b""
        for fetched in answer.partitions
        for batch in parse_all(fetched.data)
        for record in batch.records()
    ]


def state(host: Host, partition: TopicPartition = PARTITION) -> PartitionState:
    return host.controller().image.partitions[partition]


def stop(broker: Broker, now_ms: int) -> Any:
    return broker.stop(now_ms)
