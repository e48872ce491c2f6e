"""Closing and interrupting: nothing waits for longer than it was told to."""

from __future__ import annotations

import asyncio
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, cast

import pytest
from confluent_kafka import Consumer as RawConsumer
from confluent_kafka import KafkaError, KafkaException, Message, TopicPartition
from consumed import PATIENCE_S, Kafka, Running, Seen, eventually, number

from lossless.client.consuming.positions import Leaving
from lossless.client.consuming.waiting_keys import WaitingKeys
from lossless.client.errors import HandlerFailed
from lossless.client.retrying import RetryTopics

SOON_S = 15.0  # on a busy machine; less than one drain_timeout_s, which is 30 s


@contextmanager
def taking_less_than(seconds: float) -> Iterator[None]:
    began = time.monotonic()
    yield
    assert time.monotonic() - began < seconds


@contextmanager
def interrupted_when(condition: Callable[[], bool]) -> Iterator[None]:
    """SIGINT to the main thread, where these tests run."""

    def interrupt() -> None:
        eventually(condition)
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    thread.start()
    with pytest.raises(KeyboardInterrupt):
        yield
    thread.join()


def test_an_interrupt_ends_an_idle_coroutine_handler_at_once(kafka: Kafka) -> None:
    kafka.make_topic()
    kafka.fill(1)
    seen = Seen()

    async def handler(message: Message) -> None:
        seen(message)

    with (
        taking_less_than(SOON_S),
        kafka.consumer(workers=4) as consumer,
        interrupted_when(lambda: consumer.metrics.finished == 1),
    ):
        consumer.run(handler)
    assert kafka.committed() == [1]


@pytest.mark.parametrize("kind", ["thread", "asyncio"])
def test_records_in_hand_are_waited_for_once_and_not_again_by_close(
    kafka: Kafka, kind: str
) -> None:
    kafka.make_topic()
    kafka.fill(1)
    stuck, let_go = threading.Event(), threading.Event()

    def handler(_: Message) -> None:
        stuck.set()
        let_go.wait(PATIENCE_S)

    async def coroutine(_: Message) -> None:
        stuck.set()
        await asyncio.sleep(PATIENCE_S)

    try:
        with taking_less_than(SOON_S):
            consumer = kafka.consumer(workers=2, drain_timeout_s=1)
            with interrupted_when(stuck.is_set):
                consumer.run(handler if kind == "thread" else coroutine)
            with taking_less_than(5):
                consumer.close()
    finally:
        let_go.set()
    assert kafka.committed()[0] <= 0


@pytest.mark.parametrize("kind", ["thread", "asyncio"])
def test_a_run_whose_handler_failed_ends_beside_one_that_is_stuck(kafka: Kafka, kind: str) -> None:
    kafka.make_topic()
    kafka.fill(2)
    stuck, let_go = threading.Event(), threading.Event()

    def handler(message: Message) -> None:
        if number(message) == 0:
            stuck.set()
            let_go.wait(2 * PATIENCE_S)
        else:
            assert stuck.wait(PATIENCE_S)
            raise ValueError("not an order")

    async def coroutine(message: Message) -> None:
        if number(message) == 0:
            await asyncio.sleep(2 * PATIENCE_S)
        else:
            raise ValueError("not an order")

    try:
        with kafka.consumer(workers=2, order="none", drain_timeout_s=0.5) as consumer:
            run = Running(consumer, handler if kind == "thread" else coroutine)
            run.join()
    finally:
        let_go.set()
    assert isinstance(run.failure, HandlerFailed)


@pytest.mark.parametrize("kind", ["thread", "asyncio"])
def test_a_handler_that_exits_has_failed(kafka: Kafka, kind: str) -> None:
    kafka.make_topic()
    kafka.fill(3)

    def handler(message: Message) -> None:
        if number(message) == 1:
            raise SystemExit(3)

    async def coroutine(message: Message) -> None:
        handler(message)

    with (
        kafka.consumer(workers=2) as consumer,
        pytest.raises(HandlerFailed, match="SystemExit"),
    ):
        consumer.run(handler if kind == "thread" else coroutine)
    assert kafka.committed() == [1]


@pytest.mark.parametrize("workers", [1, 2])
def test_close_in_a_signal_handler_during_close_returns(kafka: Kafka, workers: int) -> None:
    kafka.make_topic()
    kafka.fill(1)
    in_hand, let_go = threading.Event(), threading.Event()

    def handler(_: Message) -> None:
        in_hand.set()
        assert let_go.wait(PATIENCE_S)

    consumer = kafka.consumer(workers=workers, drain_timeout_s=PATIENCE_S)
    run = Running(consumer, handler)
    assert in_hand.wait(PATIENCE_S)
    closed_again = threading.Event()

    def close_again(*_: Any) -> None:
        consumer.close()
        closed_again.set()

    before = signal.signal(signal.SIGALRM, close_again)
    releasing = threading.Thread(target=lambda: closed_again.wait(PATIENCE_S) and let_go.set())
    releasing.start()
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.3)
        with taking_less_than(PATIENCE_S / 2):
            consumer.close()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        let_go.set()
    releasing.join()
    run.join()
    assert closed_again.is_set()


def test_a_consumer_that_closes_does_not_wait_to_learn_which_keys_wait() -> None:
    class NobodyAnswers:
        def committed(self, _: list[TopicPartition], timeout: float) -> None:
            assert timeout <= 5
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT))

    keys = WaitingKeys(
        RetryTopics(keep_key_order=True),
        group="billing",
        topics=("orders",),
        settings={},
        timeout_s=600,
        send=lambda _message, _to: None,
    )
    closing = threading.Event()
    closing.set()
    with pytest.raises(Leaving):
        keys.begin(cast("RawConsumer", NobodyAnswers()), [("orders", 0)], closing)


def test_close_waits_for_the_last_commit_no_longer_than_drain_timeout_s(
    kafka: Kafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    kafka.make_topic()
    kafka.fill(1)
    committing, let_go = threading.Event(), threading.Event()

    class NobodyAnswers:
        def commit(self, **_: Any) -> None:
            committing.set()
            let_go.wait(2 * PATIENCE_S)
            raise KafkaException(KafkaError(KafkaError._WAIT_COORD))

    consumer = kafka.consumer(drain_timeout_s=0.5, commit_every_s=3600)
    for _ in consumer:
        consumer.stop()
    poller = consumer._poller
    assert poller is not None
    monkeypatch.setattr(poller.committer, "_consumer", NobodyAnswers())
    try:
        with taking_less_than(SOON_S):
            consumer.close()
        assert committing.is_set()
        assert poller._thread.is_alive()
    finally:
        let_go.set()
        poller._thread.join(PATIENCE_S)
    assert not poller._thread.is_alive()
