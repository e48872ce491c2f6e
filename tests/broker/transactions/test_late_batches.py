"""What comes after its transaction has ended opens none that nobody would end (KIP-890)."""

from __future__ import annotations

import pytest
from raw_requests import RawProducer
from transactional_clients import COMMITTED, UNCOMMITTED, Clients

from lossless.core.messages import Error

ABORTABLE = 11  # the version of Produce from which on clients know TRANSACTION_ABORTABLE
ADDS = 12  # from which on the leader adds partitions itself


@pytest.fixture
def producer(clients: Clients, request: pytest.FixtureRequest) -> RawProducer:
    name = request.node.name
    clients.producer(name)  # finds the coordinator, and so makes sure that there is one
    producer = RawProducer(clients.cluster, name, clients.coordinator_of(name))
    producer.init()
    return producer


@pytest.mark.parametrize(
    ("version", "error"),
    [(ABORTABLE - 1, Error.INVALID_TXN_STATE), (ABORTABLE, Error.TRANSACTION_ABORTABLE)],
)
def test_a_batch_of_the_same_epoch_that_comes_after_the_end_is_refused(
    clients: Clients, producer: RawProducer, version: int, error: Error
) -> None:
    topic = clients.topic(1)
    assert producer.add(topic) is Error.NONE
    assert producer.produce(topic, 0, version=version) is Error.NONE
    assert producer.end(committed=True, version=4) is Error.NONE
    assert clients.becomes_stable(topic, [0])
    assert producer.produce(topic, 1, version=version) is error
    assert clients.is_stable(topic, [0])
    assert clients.values(topic, UNCOMMITTED, [0]) == ["raw"]


def test_a_partition_that_nobody_has_added_takes_no_batch(
    clients: Clients, producer: RawProducer
) -> None:
    topic = clients.topic(1)
    assert producer.produce(topic, 0, version=ABORTABLE) is Error.TRANSACTION_ABORTABLE
    assert clients.end(topic, 0, UNCOMMITTED) == 0


def test_from_version_12_of_produce_on_the_leader_adds_the_partition(
    clients: Clients, producer: RawProducer
) -> None:
    topic = clients.topic(1)
    assert producer.produce(topic, 0, version=ADDS) is Error.NONE
    assert not clients.is_stable(topic, [0])
    assert producer.end(committed=True, version=5) is Error.NONE
    assert clients.becomes_stable(topic, [0])
    assert clients.values(topic, COMMITTED, [0]) == ["raw"]


@pytest.mark.parametrize("committed", [True, False])
def test_every_end_raises_the_epoch_and_what_comes_late_has_the_old_one(
    clients: Clients, producer: RawProducer, committed: bool
) -> None:
    topic = clients.topic(1)
    old = producer.epoch
    assert producer.produce(topic, 0, version=ADDS) is Error.NONE
    assert producer.end(committed=committed, version=5) is Error.NONE
    assert producer.epoch == old + 1
    assert clients.becomes_stable(topic, [0])
    late = producer.produce(topic, 1, version=ADDS, epoch=old)
    assert late is Error.INVALID_PRODUCER_EPOCH
    assert clients.is_stable(topic, [0])
    assert producer.produce(topic, 0, version=ADDS) is Error.NONE  # the next transaction
    assert producer.end(committed=True, version=5) is Error.NONE
    assert clients.becomes_stable(topic, [0])
    assert clients.values(topic, COMMITTED, [0]) == ["raw"] * (2 if committed else 1)


def test_who_ends_a_transaction_again_hears_the_same(
    clients: Clients, producer: RawProducer
) -> None:
    topic = clients.topic(1)
    assert producer.produce(topic, 0, version=ADDS) is Error.NONE
    old = producer.epoch
    assert producer.end(committed=True, version=5) is Error.NONE
    assert clients.becomes_stable(topic, [0])
    producer.epoch = old  # the answer was lost
    assert producer.end(committed=True, version=5) is Error.NONE
    assert producer.epoch == old + 1
    producer.epoch = old
    assert producer.end(committed=False, version=5) is Error.INVALID_TXN_STATE


def test_a_zombie_of_the_epoch_before_neither_writes_nor_ends(
    clients: Clients, producer: RawProducer
) -> None:
    topic = clients.topic(1)
    old = producer.epoch
    producer.init()
    assert producer.produce(topic, 0, version=ADDS) is Error.NONE
    current, producer.epoch = producer.epoch, old
    assert producer.produce(topic, 1, version=ADDS) is Error.INVALID_PRODUCER_EPOCH
    assert producer.add(topic) is Error.PRODUCER_FENCED
    assert producer.end(committed=False, version=5) is Error.PRODUCER_FENCED
    producer.epoch = current
    assert producer.end(committed=True, version=5) is Error.NONE
    assert clients.becomes_stable(topic, [0])
    assert clients.values(topic, COMMITTED, [0]) == ["raw"]
