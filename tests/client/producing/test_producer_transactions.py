"""Transactions: together or not at all, and never by a producer that was replaced."""

from __future__ import annotations

import signal
import threading
from contextlib import suppress
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition
from reading_back import new_topic, reports, values

from lossless.client.errors import (
    ClientError,
    ClientFailed,
    Fenced,
    Kind,
    Refused,
    TransactionAborted,
    TransactionUndecided,
)
from lossless.client.producing import undisturbed
from lossless.client.producing.producer import Producer
from lossless.client.producing.transacting import Transactions
from lossless.client.producing.transaction import Transaction
from lossless.engines.local.planned import PlannedCluster
from lossless.engines.waiting import wait_until
from lossless.errors import BadInput
from topics import read_all


def transactional(kafka: PlannedCluster, name: str, **more: object) -> Producer:
    settings = {"bootstrap.servers": kafka.bootstrap_servers, "transactional.id": name, **more}
    return Producer(settings)


class Finished:
    """A consumer that has finished what it read, as ours says it."""

    def __init__(self, consumer: Consumer, offsets: list[TopicPartition]) -> None:
        self._consumer = consumer
        self._offsets = offsets
        self.begun = self.committed = self.given_back = 0

    def transaction_begun(self) -> None:
        self.begun += 1

    def transaction_committed(self) -> None:
        self.committed += 1

    def transaction_aborted(self) -> None:
        self.given_back += 1

    def transaction_undecided(self, error: ClientError) -> None:
        raise error

    def transaction_offsets(self) -> tuple[list[TopicPartition], Any]:
        return self._offsets, self._consumer.consumer_group_metadata()


def test_a_transaction_is_stored_as_a_whole(kafka: PlannedCluster, topic: str) -> None:
    with transactional(kafka, topic) as producer:
        with producer.transaction() as transaction:
            sent = [transaction.send(topic, str(n), key=str(n)) for n in range(10)]
            producer.flush()
            assert all(delivery.done for delivery in sent)
            assert read_all(kafka.bootstrap_servers, topic) == []  # not before the end
        with producer.transaction() as transaction:
            transaction.send(topic, b"more")
    assert len(read_all(kafka.bootstrap_servers, topic)) == 11
    told = reports(kafka.bootstrap_servers, topic)
    assert sum(report.tally.count for report in told) == 11


def test_an_exception_aborts_and_goes_on(kafka: PlannedCluster, topic: str) -> None:
    with transactional(kafka, topic) as producer:
        with pytest.raises(ZeroDivisionError), producer.transaction() as transaction:  # noqa: PT012
            for _ in range(100):
                transaction.send(topic, b"never")
            transaction.send(topic, b"never").result(30)
            raise ZeroDivisionError
        with producer.transaction() as transaction:
            transaction.send(topic, b"then")
        with pytest.raises(BadInput, match="not open"):
            transaction.send(topic, b"late")
    assert values(read_all(kafka.bootstrap_servers, topic)) == [b"then"]
    raw = read_all(kafka.bootstrap_servers, topic, isolation="read_uncommitted")
    assert b"never" in values(raw)
    assert sum(r.tally.count for r in reports(kafka.bootstrap_servers, topic)) == 1


def test_a_record_that_fails_aborts_the_whole(kafka: PlannedCluster, topic: str) -> None:
    small = new_topic(kafka.bootstrap_servers, max_message_bytes="1000")
    with transactional(kafka, topic) as producer:
        with (  # noqa: PT012
            pytest.raises(TransactionAborted, match="too large") as raised,
            producer.transaction() as transaction,
        ):
            transaction.send(topic, b"with it")
            transaction.send(small, bytes(5_000))
        assert raised.value.kind is Kind.ABORTABLE
        with producer.transaction() as transaction:
            transaction.send(topic, b"again")
    assert values(read_all(kafka.bootstrap_servers, topic)) == [b"again"]


def test_whoever_is_replaced_is_fenced(kafka: PlannedCluster, topic: str) -> None:
    old, new = transactional(kafka, topic), transactional(kafka, topic)
    with old, new:
        with old.transaction() as transaction:
            transaction.send(topic, b"old")
        with pytest.raises(Fenced) as raised, old.transaction() as transaction:  # noqa: PT012
            transaction.send(topic, b"never").result(30)
            with new.transaction() as taken:
                taken.send(topic, b"new")
        assert raised.value.kind is Kind.FATAL
        with pytest.raises(Fenced), old.transaction():
            pass
    found = values(read_all(kafka.bootstrap_servers, topic))
    assert sorted(value or b"" for value in found) == [b"new", b"old"]


def test_offsets_are_a_part_of_the_transaction(kafka: PlannedCluster, topic: str) -> None:
    source = new_topic(kafka.bootstrap_servers, partitions=1)
    with Producer({"bootstrap.servers": kafka.bootstrap_servers}) as producer:
        for number in range(3):
            producer.send(source, str(number))
    consumer = Consumer(
        {
            "bootstrap.servers": kafka.bootstrap_servers,
            "group.id": source,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": "false",
        }
    )
    try:
        consumer.subscribe([source])
        read: list[Any] = []
        while len(read) < 3:
            read += consumer.consume(3 - len(read), timeout=0.1)
        finished = Finished(consumer, [TopicPartition(source, 0, 3)])
        with transactional(kafka, topic) as producer:
            with (  # noqa: PT012
                pytest.raises(ZeroDivisionError),
                producer.transaction(finished) as transaction,
            ):
                transaction.send(topic, b"never")
                raise ZeroDivisionError
            assert (finished.begun, finished.committed, finished.given_back) == (1, 0, 1)
            (before,) = consumer.committed([TopicPartition(source, 0)], timeout=30)
            with producer.transaction(finished) as transaction:
                for message in read:
                    transaction.send(topic, message.value())
            (after,) = consumer.committed([TopicPartition(source, 0)], timeout=30)
    finally:
        consumer.close()
    assert (before.offset < 0, after.offset) == (True, 3)
    assert sorted(values(read_all(kafka.bootstrap_servers, topic))) == [b"0", b"1", b"2"]


def test_a_commit_outlives_the_loss_of_a_broker(kafka: PlannedCluster, topic: str) -> None:
    with transactional(kafka, topic) as producer:
        with producer.transaction() as transaction:
            for number in range(50):
                transaction.send(topic, str(number), key=str(number))
            producer.flush()
            kafka.kill(kafka.leader_of("__transaction_state", 0))
        with producer.transaction() as transaction:
            transaction.send(topic, b"after")
    assert len(read_all(kafka.bootstrap_servers, topic)) == 51


class Stuck:
    """A librdkafka whose coordinators answer nothing."""

    def __init__(self) -> None:
        self.over = threading.Event()

    def init_transactions(self, timeout_s: float) -> None: ...

    def begin_transaction(self) -> None: ...

    def send_offsets_to_transaction(self, *_: object) -> None:
        self.over.wait()  # whatever its time-out

    def commit_transaction(self, _: float) -> None:
        raise KafkaException(KafkaError(KafkaError._TIMED_OUT, "no answer", retriable=True))


class Refusing:
    """A librdkafka whose commits are refused, perhaps after an earlier one was accepted."""

    def __init__(self, *, fatal: bool, abort: bool) -> None:
        self._fatal = fatal
        self._abort = abort

    def init_transactions(self, timeout_s: float) -> None: ...

    def begin_transaction(self) -> None: ...

    def send_offsets_to_transaction(self, *_: object) -> None: ...

    def commit_transaction(self, _: float) -> None:
        if self._fatal:
            raise KafkaException(KafkaError(KafkaError._FENCED, "fenced", fatal=True))
        error = KafkaError(KafkaError._TIMED_OUT, "failed locally", txn_requires_abort=True)
        raise KafkaException(error)

    def abort_transaction(self, _: float) -> None:
        if not self._abort:
            state = KafkaError(KafkaError.INVALID_TXN_STATE, "not ongoing", fatal=True)
            raise KafkaException(state)


class Sending:
    """The rest of a producer, which has nothing to send."""

    def __init__(self) -> None:
        self.fatal: ClientError | None = None

    def refusal(self) -> ClientError | None:
        return self.fatal

    def fail(self, error: ClientError) -> None:
        self.fatal = self.fatal or error

    def wait_until_idle(self, timeout_s: float) -> None: ...

    def patience_s(self) -> float:
        return 30.0


class Sent:
    """A consumer whose offsets are ready."""

    def __init__(self) -> None:
        self.ended: list[str] = []

    def transaction_begun(self) -> None: ...

    def transaction_offsets(self) -> tuple[list[TopicPartition], Any]:
        return [], None

    def transaction_committed(self) -> None:
        self.ended.append("committed")

    def transaction_aborted(self) -> None:
        self.ended.append("aborted")

    def transaction_undecided(self, _: ClientError) -> None:
        self.ended.append("undecided")


def committing(client: Any, consumer: Sent) -> None:
    deliveries: Any = SimpleNamespace(acknowledged=[])
    transactions = Transactions(client, deliveries, Sending(), timeout_s=0.2, hopeless=lambda: None)
    producer: Any = None  # nothing is sent
    with Transaction(producer, transactions, consumer):
        pass


def test_a_commit_whose_offsets_are_never_answered_fails_within_the_transaction_timeout() -> None:
    client, consumer = Stuck(), Sent()
    try:
        with pytest.raises(ClientFailed, match=r"were not sent within 0.2 s") as raised:
            committing(client, consumer)
        assert not isinstance(raised.value, TransactionUndecided)  # nothing was committed
        assert consumer.ended == ["aborted"]
    finally:
        client.over.set()


@pytest.mark.parametrize(
    ("fatal", "abort", "ended"),
    [(True, True, "undecided"), (False, False, "undecided"), (False, True, "aborted")],
    ids=["fatal", "and so is the abort", "an abort is accepted"],
)
def test_records_of_a_refused_commit_come_again_only_if_an_abort_is_accepted(
    fatal: bool, abort: bool, ended: str
) -> None:
    """The refusal may answer a repetition, and the answer to the first commit be lost."""
    consumer = Sent()
    with pytest.raises(ClientError):
        committing(Refusing(fatal=fatal, abort=abort), consumer)
    assert consumer.ended == [ended]


def test_a_commit_without_an_answer_is_undecided_after_the_transaction_timeout() -> None:
    """It may be stored: the records are not handed out again."""
    client, consumer = Stuck(), Sent()
    client.over.set()
    with pytest.raises(TransactionUndecided, match="not known whether the transaction is stored"):
        committing(client, consumer)
    assert consumer.ended == ["undecided"]


class Unending(Refusing):
    """A librdkafka whose commit does not return, and is interrupted."""

    def __init__(self) -> None:
        super().__init__(fatal=False, abort=True)
        self.over = threading.Event()

    def commit_transaction(self, _: float) -> None:
        main = threading.main_thread().ident
        assert main is not None
        signal.pthread_kill(main, signal.SIGINT)
        assert self.over.wait(60)


def test_an_interrupted_commit_that_does_not_end_is_undecided(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(undisturbed, "INTERRUPTED_S", 0.1)
    client, consumer = Unending(), Sent()
    try:
        with pytest.raises(KeyboardInterrupt) as raised:
            committing(client, consumer)
        assert consumer.ended == ["undecided"]
        assert "not known whether the transaction is stored" in raised.value.__notes__[0]
    finally:
        client.over.set()


def test_a_commit_of_offsets_outlives_the_loss_of_the_coordinators(
    kafka: PlannedCluster, topic: str
) -> None:
    """librdkafka alone would wait for the broker that has left the cluster, for ever."""
    with Producer({"bootstrap.servers": kafka.bootstrap_servers}) as producer:
        producer.send(topic, b"read").result(30)
    consumer = Consumer({"bootstrap.servers": kafka.bootstrap_servers, "group.id": topic})
    try:
        consumer.subscribe([topic])
        assert wait_until(lambda: not consumer.poll(0.1) and consumer.assignment(), timeout_s=30)
        copies = new_topic(kafka.bootstrap_servers)
        settings = {"transaction.timeout.ms": 10_000, "topic.metadata.refresh.interval.ms": 500}
        with transactional(kafka, topic, **settings) as producer:
            finished = Finished(consumer, [TopicPartition(topic, 0, 1)])
            with producer.transaction(finished) as transaction:
                transaction.send(copies, b"before")
            coordinator = kafka.leader_of("__consumer_offsets", 0)
            kafka.kill(coordinator)
            client = producer._client
            assert wait_until(lambda: coordinator not in client.list_topics().brokers, timeout_s=30)
            with producer.transaction() as transaction:  # opens the connections that it needs
                transaction.send(copies, b"between")
            while finished.committed < 2:  # a connection that is lost on the way aborts, at worst
                with suppress(TransactionAborted), producer.transaction(finished) as transaction:
                    transaction.send(copies, b"after")
    finally:
        consumer.close()
    assert len(read_all(kafka.bootstrap_servers, copies)) == 3


def test_closing_inside_a_transaction_aborts_it_and_its_end_says_so(
    kafka: PlannedCluster, topic: str
) -> None:
    producer = transactional(kafka, topic)
    with (  # noqa: PT012
        pytest.raises(ClientFailed, match="the producer is closed"),
        producer.transaction() as transaction,
    ):
        transaction.send(topic, b"never").result(30)
        producer.close()
    assert read_all(kafka.bootstrap_servers, topic) == []


def test_sending_beside_a_transaction_is_refused(kafka: PlannedCluster, topic: str) -> None:
    with transactional(kafka, topic) as producer:
        with pytest.raises(Refused, match="in transactions only"):
            producer.send(topic, b"v")
        with producer.transaction(), pytest.raises(BadInput, match="has a transaction open"):
            producer.transaction().__enter__()
    with (
        Producer({"bootstrap.servers": kafka.bootstrap_servers}) as plain,
        pytest.raises(BadInput, match=r"no transactional\.id"),
    ):
        plain.transaction()
