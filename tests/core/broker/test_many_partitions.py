"""Thousands of partitions at once: a broker opens and destroys their logs some at a time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from brokers import SESSION_MS, a_cluster, create, produce
from instant_host import Host
from machines import records

from lossless.core.admin_messages import AlterReassignment
from lossless.core.broker import CHECKPOINT, NODE, Broker, BrokerConfig
from lossless.core.machine import Effects
from lossless.core.messages import (
    CONSUMER,
    AwaitMetadata,
    DeleteTopic,
    Error,
    Fetch,
    FetchPartition,
    Produce,
    TopicPartition,
)
from lossless.core.quorum import METADATA
from lossless.core.replica import ALL, Replica, Role
from lossless.log.memory import MemoryStore

MANY = 50
AT_ONCE = 4


class Counting(Host):
    """Counts the stores that a node uses, and those that it destroys, in each step."""

    def __init__(self, **settings: Any) -> None:
        self.used = self.most = 0
        super().__init__(**settings)

    def store(self, node: int, name: str) -> MemoryStore:
        if node not in self.voters and name not in (NODE, METADATA):
            self.count()
        return self.stores.setdefault((node, name), _Counted(self))

    def count(self) -> None:
        self.used += 1
        self.most = max(self.most, self.used)

    def _do(self, node: int, effects: Effects) -> None:
        self.used = 0
        super()._do(node, effects)

    def replicas(self, node: int) -> int:
        return sum(1 for partition in self.broker(node).replicas if partition.topic == "many")

    def stored(self, node: int) -> list[str]:
        """What there is of the topic on a disk."""
        return [
            name
            for (owner, name), store in self.stores.items()
            if owner == node and name.startswith("many") and store.names()
        ]


class _Counted(MemoryStore):
    def __init__(self, host: Counting) -> None:
        super().__init__()
        self._host = host

    def destroy(self) -> None:
        self._host.count()
        super().destroy()


@pytest.fixture
def host() -> Counting:
    host = Counting(brokers=(1, 2), broker_config=BrokerConfig(logs_at_once_max=AT_ONCE))
    host.wait(500)
    host.most = 0
    return host


def create_many(host: Host) -> None:
    create(host, *((1, 2),) * MANY, topic="many")


def fill(host: Host) -> None:
    for number in range(MANY):
        produce(host, b"v", partition=TopicPartition("many", number))


def test_logs_of_a_new_topic_are_opened_some_at_a_time(host: Counting) -> None:
    create_many(host)
    assert 0 < host.replicas(1) < MANY
    host.wait(1000)
    assert host.replicas(1) == host.replicas(2) == MANY
    assert host.most == AT_ONCE
    assert all(
        host.replica(2, TopicPartition("many", number)).role is Role.FOLLOWER
        for number in range(MANY)
    )
    fill(host)
    host.wait(1000)
    assert all(
        host.replica(2, TopicPartition("many", number)).high_watermark == 1
        for number in range(MANY)
    )


def test_metadata_is_answered_as_applied_when_every_log_is_open(host: Counting) -> None:
    create_many(host)
    token = host.ask(1, AwaitMetadata(host.broker(1).image.end_offset))
    opened = None
    while token not in host.answers:
        opened = host.replicas(1)
        host.wait(1)
    assert opened is not None
    assert host.replicas(1) == MANY


def test_logs_are_destroyed_some_at_a_time(host: Counting) -> None:
    create_many(host)
    host.wait(1000)
    fill(host)
    host.wait(1000)
    host.most = 0
    assert host.ask(100, DeleteTopic("many")).error is Error.NONE
    assert host.replicas(1) == 0
    host.wait(1000)
    assert host.stored(1) == host.stored(2) == []
    assert host.most == AT_ONCE


def test_a_broker_that_restarts_opens_logs_some_at_a_time_and_is_active_afterwards(
    host: Counting,
) -> None:
    create_many(host)
    host.wait(1000)
    fill(host)
    host.wait(1000)
    host.kill(1)
    host.wait(10_000)
    host.most = 0
    host.start(1)
    while not host.controller().image.brokers[1].is_active:
        host.wait(1)
    assert host.replicas(1) == MANY
    assert host.most == AT_ONCE


def test_what_was_deleted_while_a_broker_was_away_is_destroyed_some_at_a_time(
    host: Counting,
) -> None:
    create_many(host)
    host.wait(1000)
    fill(host)
    host.wait(1000)
    host.kill(2)
    assert host.ask(100, DeleteTopic("many")).error is Error.NONE
    assert len(host.stored(2)) == MANY
    host.most = 0
    host.start(2)
    host.wait(2 * SESSION_MS)
    assert host.stored(2) == []
    assert host.most == 2 * AT_ONCE  # each is opened and destroyed


def _until(host: Counting, is_there: Callable[[], bool]) -> None:
    while not is_there():
        host.wait(1)


def test_a_topic_that_is_deleted_before_its_logs_are_open_leaves_nothing(host: Counting) -> None:
    create_many(host)
    host.wait(1000)
    fill(host)
    host.wait(1000)
    host.kill(2)
    host.wait(10_000)
    host.start(2)
    _until(host, lambda: 0 < host.replicas(2) < MANY)
    assert host.ask(100, DeleteTopic("many")).error is Error.NONE
    host.wait(1000)
    assert host.replicas(2) == 0
    assert host.stored(2) == []


def test_a_replica_that_goes_elsewhere_before_its_log_is_open_leaves_nothing(
    host: Counting,
) -> None:
    create_many(host)
    host.wait(1000)
    fill(host)
    host.wait(1000)
    host.kill(2)
    host.wait(10_000)
    host.start(2)
    _until(host, lambda: 0 < host.replicas(2) < MANY)
    last = TopicPartition("many", MANY - 1)
    assert last not in host.broker(2).replicas
    assert host.ask(100, AlterReassignment(last, (1,))).error is Error.NONE
    host.wait(1000)
    assert last not in host.broker(2).replicas
    assert len(host.stored(2)) == MANY - 1


def test_a_high_watermark_is_kept_while_its_log_is_still_to_be_opened(host: Counting) -> None:
    create_many(host)
    host.wait(1000)
    fill(host)
    host.wait(6_000)  # until it is written
    host.kill(2)
    host.wait(10_000)
    host.start(2)
    _until(host, lambda: 0 < host.replicas(2) < MANY)
    host.do(2, Broker.close)
    lines = host.store(2, NODE).read(CHECKPOINT, 0, 1 << 20).decode().splitlines()
    assert sorted(lines) == sorted(f"many {number} 1" for number in range(MANY))


def test_a_replica_that_comes_back_before_it_was_destroyed_begins_anew(host: Counting) -> None:
    create_many(host)
    host.wait(1000)
    fill(host)
    host.wait(1000)
    last = TopicPartition("many", MANY - 1)
    assert host.ask(100, AlterReassignment(last, (1,))).error is Error.NONE
    broker = host.broker(2)
    broker.config = BrokerConfig(logs_at_once_max=0)  # nothing is opened or destroyed for now
    _until(host, lambda: last not in broker.replicas)
    assert host.ask(100, AlterReassignment(last, (1, 2))).error is Error.NONE
    host.wait(10)
    broker.config = BrokerConfig()
    host.wait(1000)
    assert host.replica(2, last).high_watermark == 1
    assert sorted(host.controller().image.partitions[last].isr) == [1, 2]
    assert len(host.stored(2)) == MANY


def test_a_waiting_fetch_is_looked_at_only_where_something_has_moved(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Thousands of partitions that move at once, and a fetch that waits for all of them."""
    host = a_cluster(1)
    create(host, *((1,),) * MANY, topic="many")
    host.wait(100)
    partitions = [TopicPartition("many", number) for number in range(MANY)]
    looked: list[TopicPartition] = []
    real = Replica.readable_bytes

    def counted(replica: Replica, asked: FetchPartition, *others: Any) -> int | None:
        looked.append(asked.partition)
        return real(replica, asked, *others)

    monkeypatch.setattr(Replica, "readable_bytes", counted)
    asked = tuple(FetchPartition(partition, 0) for partition in partitions)
    batch = records(b"v")
    least = MANY * len(batch)
    token = host.ask(1, Fetch(CONSUMER, -1, 60_000, least, asked))
    host.ask(1, Produce(ALL, 1000, tuple((partition, batch) for partition in partitions[1:])))
    assert len(looked) == MANY + len(partitions[2:])  # all of them once, then each that moved
    assert token not in host.answers
    host.ask(1, Produce(ALL, 1000, ((partitions[0], batch),)))
    (answer,) = [host.answers[token]]
    assert [len(fetched.data) for fetched in answer.partitions] == [len(batch)] * MANY
