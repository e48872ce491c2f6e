"""A producer whose records belong together: what its model asks whom, and when it gives up."""

from __future__ import annotations

from typing import Any

from lossless.core.messages import (
    TRANSACTIONS_TOPIC,
    Error,
    Metadata,
    MetadataAnswer,
    PartitionLeader,
    Produce,
    ProduceAnswer,
    Produced,
    TopicPartition,
)
from lossless.core.transactions.messages import (
    AddPartitionsToTxn,
    AddPartitionsToTxnAnswer,
    EndTxn,
    EndTxnAnswer,
    InitProducerId,
    InitProducerIdAnswer,
)
from lossless.log.batch import parse_all
from lossless.simulator.clients.leaders import Leaders
from lossless.simulator.clients.transactional import State, TransactionalProducer
from lossless.simulator.settings import DELIVERY_MS, REQUEST_TIMEOUT_MS, ProducerSettings
from lossless.simulator.world import OnConnection
from lossless.verifier.history import Acknowledged, Event, Failed, TransactionEnded

PARTITION = TopicPartition("orders", 0)
LEADERS = MetadataAnswer(
    (
        PartitionLeader(PARTITION, 1, 0),
        *(PartitionLeader(TopicPartition(TRANSACTIONS_TOPIC, n), 2, 0) for n in (0, 1)),
    )
)


class Hosted:
    """A producer that has its id, 7, in epoch 3, and two records to send."""

    def __init__(self, **settings: Any) -> None:
        self.now_ms = 0
        self.events: list[Event] = []
        self.sent: list[tuple[int, Any, int]] = []  # to whom, what, on which connection
        self.producer = TransactionalProducer(
            "p1",
            "p1",
            ProducerSettings(unit=2, records=2, abort_every=0, transactional=True, **settings),
            (PARTITION,),
            Leaders("orders", 3, 1),
            Leaders(TRANSACTIONS_TOPIC, 3, 1),
            producer_id=-1,
            tell=self.events.append,
        )
        self._do(self.producer.on_start(0))
        for topic in ("orders", TRANSACTIONS_TOPIC):
            self._do(self.producer.on_answer(1, Metadata((topic,)), LEADERS, 0))
        self.answer(InitProducerId, InitProducerIdAnswer(Error.NONE, 7, 3))

    def _do(self, effects: Any) -> None:
        for target, request in effects.send:
            number = 0
            if isinstance(request, OnConnection):
                request, number = request
            if not isinstance(request, Metadata):
                self.sent.append((target, request, number))

    def last(self, kind: type) -> Any:
        return [request for _, request, _ in self.sent if isinstance(request, kind)][-1]

    def answer(self, kind: type, answer: Any) -> None:
        self.answer_to(self.last(kind), answer)

    def answer_to(self, request: Any, answer: Any) -> None:
        self._do(self.producer.on_answer(1, request, answer, self.now_ms))

    def produced(self, error: Error = Error.NONE, offset: int = 0) -> None:
        self.answer(Produce, ProduceAnswer((Produced(PARTITION, error, offset),)))

    def more(self, count: int) -> None:
        self._do(self.producer.allow(count, self.now_ms))

    def pass_ms(self, duration_ms: int) -> None:
        self.now_ms += duration_ms
        self._do(self.producer.on_timer(self.now_ms))

    def batch(self) -> Any:
        ((_, data),) = self.last(Produce).batches
        return parse_all(data)[0]

    def told(self, kind: type) -> list[Event]:
        return [event for event in self.events if isinstance(event, kind)]


def test_when_all_is_stored_it_commits_and_goes_on_in_the_epoch_it_is_given() -> None:
    host = Hosted()
    batch = host.batch()
    assert (batch.producer_id, batch.producer_epoch, batch.base_sequence) == (7, 3, 0)
    assert batch.is_transactional
    assert (host.last(Produce).transactional_id, host.last(Produce).version) == ("p1", 12)
    host.produced()
    host.produced(offset=1)
    assert host.last(EndTxn) == EndTxn("p1", 7, 3, True, 5)
    host.answer(EndTxn, EndTxnAnswer(Error.NONE, 7, 4))
    assert host.events[-1] == TransactionEnded(0, "p1", "p1-t0", True)
    host.more(2)
    assert (host.batch().producer_epoch, host.batch().base_sequence) == (4, 0)


def test_with_version_1_it_adds_partitions_first_and_keeps_epoch_and_sequence() -> None:
    host = Hosted(transaction_version=1)
    assert not [request for _, request, _ in host.sent if isinstance(request, Produce)]
    asked = host.last(AddPartitionsToTxn)
    assert asked == AddPartitionsToTxn("p1", 7, 3, (PARTITION,), version=3)
    answer = AddPartitionsToTxnAnswer("p1", ((PARTITION, Error.NONE),))
    host.answer(AddPartitionsToTxn, answer)
    host.produced()
    host.produced(offset=1)
    assert host.last(EndTxn).version == 4
    host.answer(EndTxn, EndTxnAnswer(Error.NONE))
    host.more(2)
    host.answer(AddPartitionsToTxn, answer)
    assert (host.batch().producer_epoch, host.batch().base_sequence) == (3, 2)


def test_what_is_not_answered_in_time_is_sent_again_on_another_connection() -> None:
    host = Hosted()
    first = host.last(Produce)
    host.pass_ms(REQUEST_TIMEOUT_MS)
    host.pass_ms(100)
    assert host.sent[-1][0] == 1
    assert host.sent[-1][2] == 1
    host.answer_to(first, ProduceAnswer((Produced(PARTITION, Error.NONE, 0),)))
    assert not host.told(Acknowledged), "that connection is closed"
    host.produced()
    assert host.told(Acknowledged)


def test_a_record_that_took_too_long_fails_in_flight_and_the_transaction_is_aborted() -> None:
    host = Hosted()
    host.pass_ms(DELIVERY_MS)
    failed = host.told(Failed)
    assert [(event.value, event.certain) for event in failed if isinstance(event, Failed)] == [
        ("p1-0", False),
        ("p1-1", True),
    ]
    assert host.last(EndTxn).committed is False
    host.answer(EndTxn, EndTxnAnswer(Error.NONE, 7, 4))
    assert host.events[-1] == TransactionEnded(DELIVERY_MS, "p1", "p1-t0", False)


def test_with_version_1_a_failure_raises_the_epoch_by_asking_for_it() -> None:
    host = Hosted(transaction_version=1)
    host.answer(AddPartitionsToTxn, AddPartitionsToTxnAnswer("p1", ((PARTITION, Error.NONE),)))
    host.pass_ms(DELIVERY_MS)
    host.answer(EndTxn, EndTxnAnswer(Error.NONE))
    asked = host.last(InitProducerId)
    assert (asked.producer_id, asked.producer_epoch) == (7, 3)


def test_a_coordinator_that_is_elsewhere_is_asked_again_and_one_that_refuses_is_believed() -> None:
    host = Hosted()
    host.produced()
    host.produced(offset=1)
    host.answer(EndTxn, EndTxnAnswer(Error.NOT_COORDINATOR))
    assert host.producer.state is State.ENDING
    host.pass_ms(100)
    host.answer(EndTxn, EndTxnAnswer(Error.PRODUCER_FENCED))
    assert host.producer.state is State.FENCED
    assert host.producer.is_done
    assert not host.told(TransactionEnded), "nobody told it how the transaction ended"
