"""Kafka to Kafka: records and the offsets they came from, in one transaction or not at all."""

from __future__ import annotations

import random
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, cast

import confluent_kafka
import pytest
from confluent_kafka import KafkaError, Message, TopicPartition
from consumed import PATIENCE_S, Kafka, Running, eventually, number

from lossless.client.consuming import Consumer
from lossless.client.consuming.committing import Committer
from lossless.client.errors import PartitionLost, TransactionAborted, TransactionUndecided
from lossless.client.metrics import ConsumerMetrics
from lossless.client.producing import Producer
from lossless.errors import BadInput
from topics import read_all


@contextmanager
def copying(kafka: Kafka, name: str = "copy") -> Iterator[Producer]:
    settings = {"bootstrap.servers": kafka.servers, "transactional.id": f"{kafka.group}-{name}"}
    with Producer(settings, audit=False) as producer:
        yield producer


def copies_of(kafka: Kafka) -> list[int]:
    """What read_committed readers see of the output."""
    return sorted(int(message.value() or b"") for message in read_all(kafka.servers, output(kafka)))


def output(kafka: Kafka) -> str:
    return f"{kafka.topic}-copied"


def filled(kafka: Kafka, count: int, *, partitions: int = 1) -> None:
    kafka.make_topic(partitions=partitions)
    kafka.make_topic(topic=output(kafka))
    kafka.fill(count, partitions=partitions)


def test_offsets_of_what_is_in_hand_go_with_a_transaction(kafka: Kafka) -> None:
    kafka.make_topic()
    kafka.make_topic(topic=f"{kafka.topic}-copied")
    kafka.fill(20)
    with (
        Producer(
            {"bootstrap.servers": kafka.servers, "transactional.id": kafka.group}, audit=False
        ) as producer,
        kafka.consumer(commit_every_s=0.05) as consumer,
    ):
        for message in consumer:
            with producer.transaction(consumer) as transaction:
                transaction.send(f"{kafka.topic}-copied", message.value())
            assert kafka.committed() == [number(message) + 1]
            if number(message) == 7:
                break
    # Committed by the transaction, though the loop never asked for the next one.
    assert kafka.committed() == [8]


def test_a_committed_record_is_finished_when_the_loop_is_left(kafka: Kafka) -> None:
    filled(kafka, 3)
    with copying(kafka) as producer, kafka.consumer() as consumer:
        for message in consumer:
            with producer.transaction(consumer) as transaction:
                transaction.send(output(kafka), message.value())
            break
        assert number(next(iter(consumer))) == 1


def test_an_aborted_transaction_hands_out_the_whole_batch_again(kafka: Kafka) -> None:
    filled(kafka, 10)
    batches: list[list[int]] = []
    with copying(kafka) as producer, kafka.consumer() as consumer:
        for batch in consumer.batches(10):
            batches.append([number(message) for message in batch])
            try:
                with producer.transaction(consumer) as transaction:
                    for message in batch:
                        transaction.send(output(kafka), message.value())
                    if len(batches) == 1:
                        raise ZeroDivisionError
            except ZeroDivisionError:
                continue
            if batches[-1][-1] == 9:
                break
    assert batches[1] == batches[0]
    assert copies_of(kafka) == list(range(10))
    assert kafka.committed() == [10]


def test_records_of_an_undecided_transaction_are_not_handed_out_again(kafka: Kafka) -> None:
    """They may be stored. A new consumer resumes after what is stored."""
    filled(kafka, 3)
    with kafka.consumer() as consumer:
        records = iter(consumer)
        assert number(next(records)) == 0
        consumer.transaction_begun()
        consumer.transaction_undecided(TransactionUndecided("no answer"))
        with pytest.raises(TransactionUndecided, match="no answer"):
            next(records)
    with kafka.consumer() as consumer:
        assert number(next(iter(consumer))) == 0  # this one was not


def test_a_loop_hands_out_no_record_while_a_transaction_is_open(kafka: Kafka) -> None:
    """What it handed out then could not be handed out again after an abort."""
    filled(kafka, 10)
    with copying(kafka) as producer, kafka.consumer() as consumer:
        loop = iter(consumer)
        first = next(loop)
        with (  # noqa: PT012
            pytest.raises(BadInput, match=r"consumer\.batches\(\)"),
            producer.transaction(consumer) as transaction,
        ):
            transaction.send(output(kafka), first.value())
            next(loop)
        seen = []
        for message in consumer:
            seen.append(number(message))
            with producer.transaction(consumer) as transaction:
                transaction.send(output(kafka), message.value())
            if number(message) == 9:
                break
    assert seen == list(range(10))
    assert copies_of(kafka) == list(range(10))


def test_a_transaction_begins_with_a_record_in_hand(kafka: Kafka) -> None:
    filled(kafka, 1)
    with copying(kafka) as producer, kafka.consumer() as consumer:
        with pytest.raises(BadInput, match="in hand"):
            producer.transaction(consumer).__enter__()
        for _ in consumer:
            consumer.stop()
        with pytest.raises(BadInput, match="in hand"):
            producer.transaction(consumer).__enter__()
    with kafka.consumer(workers=2) as consumer, pytest.raises(BadInput, match="in hand"):
        consumer.transaction_begun()


def test_a_transaction_whose_loop_was_left_is_not_committed(kafka: Kafka) -> None:
    filled(kafka, 2)
    with copying(kafka) as producer, kafka.consumer() as consumer:
        transaction = producer.transaction(consumer)
        for message in consumer:
            transaction.__enter__()
            transaction.send(output(kafka), message.value())
            break
        with pytest.raises(BadInput, match="the loop was left"):
            transaction.__exit__(None, None, None)
        assert number(next(iter(consumer))) == 0
    assert copies_of(kafka) == []


class Copying:
    """A handler that copies each record in a transaction, and may keep the first one in hand."""

    def __init__(
        self, kafka: Kafka, producer: Producer, *, consumer: Consumer, hold: bool = False
    ) -> None:
        self._kafka = kafka
        self._producer = producer
        self._consumer = consumer
        self._hold = hold
        self.holds = threading.Event()
        self.held: int | None = None
        self.let_go = threading.Event()
        self.done: list[int] = []
        self.aborted: list[tuple[int, str]] = []

    def __call__(self, message: Message) -> None:
        value = number(message)
        try:
            with self._producer.transaction(self._consumer) as transaction:
                transaction.send(output(self._kafka), message.value())
                if self._hold and self.held is None:
                    self.held = value
                    self.holds.set()
                    assert self.let_go.wait(PATIENCE_S)
        except (PartitionLost, TransactionAborted) as error:
            self.aborted.append((value, type(error).__name__))
        else:
            self.done.append(value)


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_transaction_whose_partition_was_revoked_stores_nothing(
    kafka: Kafka, protocol: str
) -> None:
    """The record takes longer than a rebalance waits for it. It is the first one, so that the other
    member has records to copy, whichever partition it gets."""
    filled(kafka, 20, partitions=2)
    settings: dict[str, Any] = {"group.protocol": protocol}
    if protocol == "consumer":
        settings["session.timeout.ms"] = None
    revoked = threading.Event()
    with copying(kafka, "a") as first, copying(kafka, "b") as second:
        slow = kafka.consumer(
            settings=settings, drain_timeout_s=0.2, on_revoked=lambda _: revoked.set()
        )
        copying_slowly = Copying(kafka, first, consumer=slow, hold=True)
        run = Running(slow, copying_slowly)
        assert copying_slowly.holds.wait(PATIENCE_S)
        # Of two members each gets one partition; which one, the group decides.
        other = kafka.consumer(settings=settings)
        others = Copying(kafka, second, consumer=other)
        beside = Running(other, others)
        assert revoked.wait(PATIENCE_S)
        eventually(lambda: bool(others.done))
        if protocol == "classic":  # everything is revoked then, also what comes back
            copying_slowly.let_go.set()
            eventually(lambda: bool(copying_slowly.aborted))
            assert copying_slowly.aborted[0] == (copying_slowly.held, "PartitionLost")
        copying_slowly.let_go.set()
        eventually(lambda: len(copies_of(kafka)) >= 20)
        run.close()
        beside.close()
    assert (run.failure, beside.failure) == (None, None)
    assert copies_of(kafka) == list(range(20))
    assert sum(kafka.committed(2)) == 20


def test_the_first_transaction_waits_for_a_commit_in_flight() -> None:
    """The broker might apply the older offset after those of the transaction."""

    class Broker:
        def commit(self, offsets: list[TopicPartition], asynchronous: bool) -> None:
            assert asynchronous
            self.asked = offsets

    broker = Broker()
    committer = Committer(
        cast("confluent_kafka.Consumer", broker),
        ConsumerMetrics(group="g"),
        every_s=5,
        every_records=None,
        refused=lambda _: None,
    )
    committer.add({("orders", 0): TopicPartition("orders", 0, 5)})
    committer.commit(5, 0.0)
    assert not committer.leave_to_transactions(0)
    committer.on_commit(KafkaError(KafkaError.REQUEST_TIMED_OUT), broker.asked)
    assert committer.leave_to_transactions(0)
    assert committer.uncommitted().keys() == {("orders", 0)}
    committer.committed_by_transaction({("orders", 0): TopicPartition("orders", 0, 5)})
    assert committer.uncommitted() == {}


def test_a_transaction_over_uncommitted_records_is_refused(kafka: Kafka) -> None:
    filled(kafka, 1)
    settings = {"isolation.level": "read_uncommitted"}
    with copying(kafka) as producer, kafka.consumer(settings=settings) as consumer:
        for _ in consumer:
            with (
                pytest.raises(BadInput, match="read_uncommitted"),
                producer.transaction(consumer),
            ):
                raise AssertionError("it began")
            consumer.stop()


class Interrupted(Exception):
    """What a signal handler raises."""


@contextmanager
def interrupting() -> Iterator[Callable[[float], None]]:
    """Gives a function that makes a signal handler raise Interrupted, after so many seconds."""

    def on_alarm(_signal: int, _frame: object) -> None:
        raise Interrupted

    def interrupt_after(seconds: float) -> None:
        signal.setitimer(signal.ITIMER_REAL, seconds)

    before = signal.signal(signal.SIGALRM, on_alarm)
    try:
        yield interrupt_after
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def test_exceptions_of_signal_handlers_in_a_commit_leave_every_record_stored_once(
    kafka: Kafka,
) -> None:
    """At any moment of it. The exception is the handler's, and the loop continues after it."""
    filled(kafka, 60)
    chance = random.Random(7)
    interruptions = 0
    with copying(kafka) as producer, kafka.consumer() as consumer, interrupting() as interrupt:
        is_done = False
        while not is_done:
            try:
                for message in consumer:
                    with producer.transaction(consumer) as transaction:
                        transaction.send(output(kafka), message.value()).result(PATIENCE_S)
                        interrupt(chance.uniform(0.0005, 0.02))
                    interrupt(0)
                    if number(message) == 59:
                        break
            except Interrupted:
                interruptions += 1
            is_done = kafka.committed() == [60]
    assert interruptions > 0
    assert copies_of(kafka) == list(range(60))


class InterruptedClient:
    """A librdkafka whose commit succeeds, and a signal arrives before anything could note that."""

    def __init__(self, client: Any) -> None:
        self._client = client

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)

    def commit_transaction(self, timeout_s: float) -> None:
        self._client.commit_transaction(timeout_s)
        main = threading.main_thread().ident
        assert main is not None
        signal.pthread_kill(main, signal.SIGALRM)


def test_an_interrupted_commit_is_finished_and_says_so(kafka: Kafka) -> None:
    filled(kafka, 2)
    with copying(kafka) as producer, kafka.consumer() as consumer, interrupting():
        transactions: Any = producer._transactions
        client, transactions._client = transactions._client, InterruptedClient(transactions._client)
        with pytest.raises(Interrupted) as raised:  # noqa: PT012
            for message in consumer:
                with producer.transaction(consumer) as transaction:
                    transaction.send(output(kafka), message.value())
        assert raised.value.__notes__ == [
            "the transaction was committed before this exception was raised"
        ]
        transactions._client = client
        for message in consumer:
            assert number(message) == 1
            with producer.transaction(consumer) as transaction:
                transaction.send(output(kafka), message.value())
            break
    assert copies_of(kafka) == [0, 1]
