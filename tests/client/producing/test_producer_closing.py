"""Closing from signal handlers and other threads, and what callbacks may not wait for."""

from __future__ import annotations

import asyncio
import itertools
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest

from lossless.client.errors import BufferFull, ClientError, ClientFailed, NotDelivered
from lossless.client.producing.delivery import Delivery
from lossless.client.producing.giving_up import Callback, GivingUp, Park
from lossless.client.producing.producer import Producer
from lossless.client.record import Record
from lossless.engines.local.planned import PlannedCluster
from lossless.errors import BadInput

NOBODY = "127.0.0.1:1"  # where nothing listens


def unreachable(giving_up: GivingUp | None = None, **settings: object) -> Producer:
    return Producer({"bootstrap.servers": NOBODY, **settings}, audit=False, giving_up=giving_up)


def hopeless(**keywords: Any) -> Producer:
    """Its records are given up soon."""
    settings = {"bootstrap.servers": NOBODY, "delivery.timeout.ms": 200, "linger.ms": 0}
    return Producer(settings, audit=False, **keywords)


def test_a_signal_handler_may_close_the_producer_that_it_interrupted_in_closing() -> None:
    program = f"""
import os, signal, threading, time
from lossless.client.producing.producer import Producer
producer = Producer({{"bootstrap.servers": "{NOBODY}"}}, audit=False)
producer.send("orders", b"v", key="k0")

def on_signal(*_):
    producer.close(0.1)
    print("handled", flush=True)

signal.signal(signal.SIGTERM, on_signal)
threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGTERM)).start()
since = time.monotonic()
try:
    producer.close()  # which would take two minutes
except Exception as error:
    print(type(error).__name__, str(error).splitlines()[0])
print("in time" if time.monotonic() - since < 30 else "late")
"""
    ended = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True
    )
    handled, raised, in_time = ended.stdout.splitlines()
    assert (handled, in_time) == ("handled", "in time")
    assert raised.startswith("NotDelivered orders, key 'k0'")


def test_what_an_interrupt_of_closing_gave_up_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    producer = unreachable()
    producer.send("orders", b"v", key="k0")
    threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
    with pytest.raises(KeyboardInterrupt):
        producer.close()
    assert "closing was interrupted by KeyboardInterrupt: orders" in caplog.text


def test_the_earlier_of_two_deadlines_of_closing_holds() -> None:
    producer = unreachable()
    producer.send("orders", b"v")
    outcome: Future[None] = Future()

    def close() -> None:
        try:
            producer.close()
        except NotDelivered as error:
            outcome.set_exception(error)

    closing = threading.Thread(target=close)
    closing.start()
    producer.close(0.1)  # whichever of the two comes first
    closing.join(30)
    assert isinstance(outcome.exception(0), NotDelivered)


# What runs in the serving thread cannot wait for the serving thread


async def _awaited(delivery: Delivery) -> object:
    return await delivery


WAITING: dict[str, Callable[[Producer, Delivery], object]] = {
    "flush()": lambda producer, _: producer.flush(),
    "close()": lambda producer, _: producer.close(),
    "result()": lambda _, delivery: delivery.result(),
    "await": lambda _, delivery: asyncio.run(_awaited(delivery)),
}


@pytest.mark.parametrize("call", WAITING)
def test_waiting_in_a_callback_is_an_error_and_not_a_hang(call: str) -> None:
    raised: Future[BaseException] = Future()
    producer = hopeless()
    pending: list[Delivery] = []

    def on_delivery(_: Delivery) -> None:
        pending.append(producer.send("orders", b"v", on_delivery=lambda _: None))
        try:
            WAITING[call](producer, pending[0])
        except BaseException as error:
            raised.set_result(error)

    producer.send("orders", b"v", on_delivery=on_delivery)
    error = raised.result(30)
    assert isinstance(error, BadInput)
    assert f"{call} was called in a callback" in error.what
    producer.close(10)


def test_a_full_buffer_is_an_error_at_once_in_a_callback() -> None:
    raised: Future[BaseException] = Future()
    settings = {"queue.buffering.max.messages": 2, "delivery.timeout.ms": 500, "linger.ms": 0}
    producer = unreachable(**settings)

    def on_delivery(_: Delivery) -> None:
        try:
            for _ in range(3):
                producer.send("orders", b"v", on_delivery=lambda _: None)
        except BufferFull as error:
            raised.set_result(error)

    producer.send("orders", b"v", on_delivery=on_delivery)
    assert "no room in memory" in str(raised.result(30))
    producer.close(0)


@pytest.mark.parametrize("error", [SystemExit, KeyboardInterrupt, ZeroDivisionError])
def test_whatever_a_callback_raises_the_producer_serves_the_next_one(
    error: type[BaseException], caplog: pytest.LogCaptureFixture
) -> None:
    def raise_it(*_: object) -> None:
        raise error

    producer = hopeless()
    producer.send("orders", b"v", on_delivery=raise_it)
    producer.flush(30)
    producer.send("orders", b"v")
    with pytest.raises(NotDelivered):
        producer.close(30)
    assert ", failed> raised" in caplog.text

    with hopeless(giving_up=Callback(raise_it)) as producer:
        failed = producer.send("orders", b"v")
        with pytest.raises(NotDelivered):
            failed.result(30)
        with pytest.raises(NotDelivered):
            producer.send("orders", b"v").result(30)


def test_closing_leaves_a_callback_behind_that_never_returns(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    for module in ("serving", "settling"):
        monkeypatch.setattr(f"lossless.client.producing.{module}.LAST_WORDS_S", 0.2)
    returns, entered = threading.Event(), threading.Event()

    def stay(_: Delivery) -> None:
        entered.set()
        returns.wait(60)

    producer = hopeless()
    producer.send("orders", b"v", on_delivery=stay)
    assert entered.wait(30)
    since = time.monotonic()
    producer.close(0.1)
    assert time.monotonic() - since < 30
    assert "has not returned, and is left behind" in caplog.text
    returns.set()


def test_closing_waits_for_slow_callbacks_as_long_as_they_return(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for module in ("serving", "settling"):
        monkeypatch.setattr(f"lossless.client.producing.{module}.LAST_WORDS_S", 0.5)
    seen: list[bytes | None] = []

    def store(record: Record, _: ClientError) -> None:
        threading.Event().wait(0.03)  # as a disk or a database would
        seen.append(record.key)

    producer = unreachable(giving_up=Callback(store))
    for number in range(60):
        producer.send("orders", b"v", key=str(number))
    producer.close(0)
    assert seen == [b"%d" % number for number in range(60)]


def test_no_delivery_stays_undecided_behind_a_callback_that_never_returns(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    for module in ("serving", "settling"):
        monkeypatch.setattr(f"lossless.client.producing.{module}.LAST_WORDS_S", 0.2)
    returns = threading.Event()
    producer = unreachable(giving_up=Callback(lambda *_: returns.wait(60)))
    sent = [producer.send("orders", b"v") for _ in range(3)]
    with pytest.raises(NotDelivered, match="2 records"):
        producer.close(0)
    assert [delivery.done for delivery in sent] == [False, True, True]
    returns.set()
    producer._serving.join(30)
    assert sent[0].done
    assert "has failed" not in caplog.text


# Sending from a coroutine


def test_sending_from_a_coroutine_never_blocks_the_loop() -> None:
    settings = {"bootstrap.servers": NOBODY, "queue.buffering.max.messages": 2}
    producer = Producer(settings, audit=False, buffer_wait_s=0.5)
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    async def send() -> None:
        counting = asyncio.create_task(count())
        for _ in range(2):
            await producer.send_async("orders", b"v")
        before = turns
        with pytest.raises(BufferFull, match="2 records wait"):
            await producer.send_async("orders", b"v", b"k", headers={"a": "b"})
        assert turns - before > 10
        counting.cancel()

    asyncio.run(send())
    with pytest.raises(NotDelivered, match="2 records"):
        producer.close(0)


def test_a_coroutine_gets_room_when_other_records_are_decided() -> None:
    settings = {
        "bootstrap.servers": NOBODY,
        "queue.buffering.max.messages": 2,
        "delivery.timeout.ms": 200,
        "linger.ms": 0,
    }
    outcomes: list[type] = []

    async def send(producer: Producer) -> None:
        sent = [await producer.send_async("orders", b"v") for _ in range(5)]
        found = await asyncio.gather(*map(_awaited, sent), return_exceptions=True)
        outcomes.extend(map(type, found))

    with Producer(settings, audit=False) as producer:
        asyncio.run(send(producer))
    assert outcomes == [NotDelivered] * 5


def test_a_cancelled_coroutine_sends_nothing() -> None:
    producer = unreachable(**{"queue.buffering.max.messages": 1})

    async def send() -> None:
        await producer.send_async("orders", b"v", on_delivery=lambda _: None)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(producer.send_async("orders", b"v"), 0.1)

    asyncio.run(send())
    producer.close(0)  # raises nothing: the only record that was sent has its callback


# A signal handler may come in the middle of sending, at any step of it


@pytest.mark.parametrize("parks", [True, False])
def test_a_signal_handler_may_close_the_producer_that_it_interrupted_in_sending(
    tmp_path: Path, parks: bool
) -> None:
    giving_up = Park(tmp_path) if parks else None
    producer = Producer({"bootstrap.servers": NOBODY}, audit=False, giving_up=giving_up)
    producer.send("orders", b"v", on_delivery=lambda _: None)
    lock = producer._counting
    if parks:
        assert producer._parking is not None
        lock = producer._parking.gate
    with lock:  # as `send` does
        since = time.monotonic()
        producer.close(0.1)
        assert time.monotonic() - since < 5
    with pytest.raises(ClientFailed, match="closed"):
        producer.send("orders", b"v", headers={"a": "b"})
    assert producer._is_ended
    assert producer.metrics.parked == (1 if parks else 0)


def test_a_program_that_sends_all_the_time_can_be_closed_by_a_signal_handler() -> None:
    program = f"""
import os, signal, sys, threading
from lossless.client.producing.producer import Producer
settings = {{"bootstrap.servers": "{NOBODY}", "delivery.timeout.ms": 100, "linger.ms": 0}}

def on_signal(*_):
    producer.close(0.1)

signal.signal(signal.SIGTERM, on_signal)
for _ in range(20):
    producer = Producer(settings, audit=False)
    threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGTERM)).start()
    try:
        while True:
            producer.send("orders", b"v", b"k", on_delivery=lambda _: None)
            producer.send("orders", b"v", b"k")
    except Exception as error:
        print(type(error).__name__)
"""
    ended = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=100, check=True
    )
    assert set(ended.stdout.split()) <= {"ClientFailed", "NotDelivered"}
    assert len(ended.stdout.split()) == 20


def test_a_signal_handler_may_close_the_producer_that_it_interrupted_in_hearing_answers(
    kafka: PlannedCluster, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Closing at once would wait for answers that only the interrupted thread can read."""
    monkeypatch.setattr("lossless.client.producing.delivery.COUNTED_AT_ONCE", 1)
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers, "linger.ms": 0})
    sent: list[Delivery] = []
    handled = threading.Event()
    count = producer._deliveries.count

    def count_and_interrupt() -> None:
        if threading.current_thread() is threading.main_thread() and not handled.is_set():
            signal.raise_signal(signal.SIGTERM)
        count()

    def on_signal(*_: object) -> None:
        handled.set()
        producer.close(20)

    def send_until_closed() -> None:
        while True:
            sent.append(producer.send(topic, b"v", b"k"))

    producer._deliveries.count = count_and_interrupt
    before = signal.signal(signal.SIGTERM, on_signal)
    try:
        with pytest.raises(ClientFailed, match="closed"):
            send_until_closed()
    finally:
        signal.signal(signal.SIGTERM, before)
    assert handled.is_set()
    assert producer._is_ended
    assert {delivery.result(0).topic for delivery in sent} == {topic}


def test_waiting_with_nothing_left_to_send_does_not_spin() -> None:
    """librdkafka's flush returns at once then, for instance while the audit is waited for."""
    asked = itertools.count()
    with Producer({"bootstrap.servers": "127.0.0.1:1"}, audit=False) as producer:
        deadline = time.monotonic() + 1
        assert not producer._serving.wait_until(lambda: next(asked) < 0, deadline)
    assert next(asked) < 1_000
