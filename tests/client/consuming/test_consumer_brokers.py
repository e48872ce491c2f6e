"""Brokers that go away, and contracts."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Message, TopicPartition
from consumed import Kafka, Running, Seen, eventually, number, running

import lossless
from lossless.client.consuming import Consumer
from lossless.client.stores import SqliteStore
from lossless.engines.local.planned import PlannedCluster
from lossless.errors import BadInput


@pytest.fixture
def broker(consumed_cluster: PlannedCluster) -> Iterator[PlannedCluster]:
    """The one broker; it runs again afterwards, whatever the test did."""
    yield consumed_cluster
    if consumed_cluster.status()[0].state == "dead":
        consumed_cluster.restart(1)


def test_a_broker_that_restarts_costs_nothing(kafka: Kafka, broker: PlannedCluster) -> None:
    kafka.make_topic(partitions=2)
    kafka.fill(20, partitions=2)
    seen = Seen()
    consumer = kafka.consumer(commit_every_s=0.1)
    with running(consumer, seen):
        seen.wait_for(range(20))
        broker.kill(1)
        broker.restart(1)
        kafka.fill(20, first=20, partitions=2)
        seen.wait_for(range(40))
    assert sorted(set(seen.numbers)) == list(range(40))
    assert kafka.committed(2) == [20, 20]


def test_a_commit_that_finds_no_broker_is_tried_again(kafka: Kafka, broker: PlannedCluster) -> None:
    kafka.make_topic()
    kafka.fill(10)
    go_on = threading.Event()
    seen = Seen()

    def handler(message: Message) -> None:
        if number(message) == 5:
            assert go_on.wait(30)
        seen(message)

    with running(kafka.consumer(commit_every_records=1, commit_every_s=0.1), handler):
        eventually(lambda: kafka.committed() == [5])
        broker.kill(1)
        go_on.set()
        eventually(lambda: 5 in seen.numbers)
        broker.restart(1)
        seen.wait_for(range(10))
        eventually(lambda: kafka.committed() == [10])
    assert set(seen.numbers) == set(range(10))


def test_close_ends_without_brokers(kafka: Kafka, broker: PlannedCluster) -> None:
    kafka.make_topic()
    kafka.fill(10)
    consumer = kafka.consumer(drain_timeout_s=0.5, settings={"socket.timeout.ms": 1000})
    for message in consumer:
        if number(message) == 5:
            break
    broker.kill(1)
    closing = threading.Thread(target=consumer.close)
    closing.start()
    closing.join(25)
    assert not closing.is_alive()


def test_close_ends_when_partitions_are_begun_and_no_broker_says_where(
    kafka: Kafka, broker: PlannedCluster, tmp_path: Path
) -> None:
    kafka.make_topic()
    is_away = threading.Event()

    class Store(SqliteStore):
        """The last to be asked before the brokers are."""

        def claim(
            self, group: str, partitions: Iterable[tuple[str, int]], **more: Any
        ) -> dict[TopicPartition, int | None]:
            claimed = super().claim(group, partitions, **more)
            broker.kill(1)
            is_away.set()
            return claimed

    with Store(str(tmp_path / "store.db")) as store:
        settings = {"socket.timeout.ms": 1000}
        consumer = kafka.consumer(store=store, drain_timeout_s=0.5, settings=settings)
        run = Running(consumer, Seen())
        assert is_away.wait(30)
        closing = threading.Thread(target=consumer.close)
        closing.start()
        closing.join(25)
        assert not closing.is_alive()
        run.join()
        assert run.failure is None
        broker.restart(1)
        (position,) = store.ledger(kafka.group).values()
        assert position.owner is None  # what was claimed is given back


CONTRACT = """
[cluster]
client = {{ "bootstrap.servers" = "{servers}" }}

[consumers.billing]
commit = "after-processing"
config = {{ "group.id" = "{group}", "auto.offset.reset" = "none", "session.timeout.ms" = 6000 }}

[consumers.careless]
commit = "before-processing"
"""


def test_a_contract_says_what_the_consumer_is(kafka: Kafka, tmp_path: Path) -> None:
    file = tmp_path / "lossless.toml"
    file.write_text(CONTRACT.format(servers=kafka.servers, group=kafka.group))
    kafka.make_topic()
    kafka.fill(3)
    with (
        Consumer.from_contract("billing", kafka.topic, contract=file) as consumer,
        pytest.raises(lossless.errors.LosslessError, match="committed nothing there"),
    ):
        next(iter(consumer))
    with Consumer.from_contract(
        "billing", kafka.topic, contract=file, no_offset="earliest"
    ) as consumer:
        assert consumer.group == kafka.group
        assert number(next(iter(consumer))) == 0
    with pytest.raises(BadInput, match="before-processing"):
        Consumer.from_contract("careless", kafka.topic, contract=file)
    with pytest.raises(BadInput, match="it has: billing, careless"):
        Consumer.from_contract("nobody", kafka.topic, contract=file)
