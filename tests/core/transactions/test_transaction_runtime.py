"""The coordinator on a real replica, in the runtime that all coordinators share."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from machines import led_by
from transaction_host import ORDERS

from lossless.core.coordinator import Coordinators
from lossless.core.messages import (
    TRANSACTIONS_TOPIC,
    Error,
    TopicPartition,
    WriteTxnMarkerAnswer,
)
from lossless.core.replica import Replica
from lossless.core.transactions.config import TransactionConfig
from lossless.core.transactions.messages import (
    AddPartitionsToTxn,
    DescribeTransaction,
    EndTxn,
    InitProducerId,
    InitProducerIdAnswer,
    refusal,
)
from lossless.core.transactions.shard import TransactionShard
from lossless.log.log import Log
from lossless.log.memory import MemoryStore

PARTITION = TopicPartition(TRANSACTIONS_TOPIC, 0)


def _replica() -> Replica:
    return Replica(PARTITION, 1, Log(MemoryStore()), is_eligible=lambda *_: True)


@dataclass
class Broker:
    replica: Replica = field(default_factory=_replica)
    now_ms: int = 0

    def __post_init__(self) -> None:
        self.replicas = {PARTITION: self.replica}
        self.written: set[TopicPartition] = set()
        self.coordinators = Coordinators(
            TRANSACTIONS_TOPIC, self.replicas, self.make, refusal, self.written.add
        )

    def make(self, number: int) -> TransactionShard:
        replica = self.replicas[TopicPartition(TRANSACTIONS_TOPIC, number)]
        return TransactionShard(
            TransactionConfig(),
            coordinator_epoch=replica.leader_epoch,
            next_producer_id=lambda: 1000,
            leader_of=lambda _: 2,
            exists=lambda _: True,
            offsets_partition_count=lambda: 0,
        )

    def lead(self, epoch: int, *isr: int) -> None:
        state = led_by(1, epoch, isr=isr or (1,), replicas=(1, 2))
        self.replica.on_partition_state(state, 1, self.now_ms)
        self.coordinators.on_leadership(self.now_ms)
        self.coordinators.complete()

    def ask(self, request: object) -> object:
        self.coordinators.on_request(0, "token", request, self.now_ms)
        self.coordinators.complete()
        replies = [reply.answer for reply in self.coordinators.replies]
        self.coordinators.replies.clear()
        return replies[0] if replies else None


@pytest.fixture
def broker() -> Broker:
    broker = Broker()
    broker.lead(3)
    return broker


def test_markers_carry_the_leader_epoch_of_the_coordinators_partition(broker: Broker) -> None:
    assert broker.ask(InitProducerId("shop", 1000)) == InitProducerIdAnswer(Error.NONE, 1000, 0)
    broker.ask(AddPartitionsToTxn("shop", 1000, 0, (ORDERS,)))
    broker.ask(EndTxn("shop", 1000, 0, True))
    (send,) = broker.coordinators.sends
    assert (send.to, send.request.coordinator_epoch) == (2, 3)
    answer = WriteTxnMarkerAnswer(ORDERS, Error.NONE)
    broker.coordinators.on_answer(2, send.request, answer, broker.now_ms)
    described = broker.ask(DescribeTransaction("shop"))
    assert described.transaction_state == "CompleteCommit"  # type: ignore[attr-defined]


def test_the_next_reign_finds_what_was_decided_and_asks_with_its_own_epoch(broker: Broker) -> None:
    broker.ask(InitProducerId("shop", 1000))
    broker.ask(AddPartitionsToTxn("shop", 1000, 0, (ORDERS,)))
    broker.ask(EndTxn("shop", 1000, 0, True))
    broker.coordinators.sends.clear()
    broker.lead(4)
    assert [send.request.coordinator_epoch for send in broker.coordinators.sends] == [4]


def test_nobody_is_told_before_the_replicas_have_it(broker: Broker) -> None:
    broker.lead(4, 1, 2)
    assert broker.ask(InitProducerId("shop", 1000)) is None


def test_a_broker_that_no_longer_coordinates_says_so(broker: Broker) -> None:
    broker.lead(4, 1, 2)
    broker.ask(InitProducerId("shop", 1000))
    broker.replica.on_partition_state(led_by(2, 5, isr=(2,), replicas=(1, 2)), 1, 0)
    broker.coordinators.on_leadership(0)
    replies = [reply.answer for reply in broker.coordinators.replies]
    assert replies == [InitProducerIdAnswer(Error.NOT_COORDINATOR)]
