"""Exceptions of signal handlers in a loop: no record is passed without having been handed out."""

from __future__ import annotations

import linecache
import random
import signal
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

import pytest
from confluent_kafka import Message, TopicPartition
from consumed import PATIENCE_S, Kafka, eventually, number

from lossless.client.consuming import chunks as chunks_module
from lossless.client.consuming.chunks import Chunks
from lossless.client.consuming.interfaces import offset_of
from lossless.client.errors import ClientFailed
from lossless.client.metrics import ConsumerMetrics
from lossless.errors import BadInput

PLACE = ("orders", 0)
RECORDS = 10


class Interrupted(Exception):
    """What a signal handler raises."""


class Interruption:
    """Raises Interrupted at one line of chunks.py: the n-th that is executed while it is armed."""

    def __init__(self, at: int) -> None:
        self.left = at
        self.is_armed = False

    def __call__(self, frame: FrameType, event: str, _: object) -> Any:
        if frame.f_code.co_filename != chunks_module.__file__:
            return None
        # Python runs signal handlers after calls, and none between the body and the end of `with`.
        is_with = (
            linecache.getline(frame.f_code.co_filename, frame.f_lineno).lstrip()[:5] == "with "
        )
        if event == "line" and self.is_armed and not is_with:
            self.left -= 1
            if self.left == 0:
                raise Interrupted
        return self

    @contextmanager
    def armed(self) -> Iterator[None]:
        before = sys.gettrace()
        self.is_armed = True
        sys.settrace(self)
        try:
            yield
        finally:
            sys.settrace(before)
            self.is_armed = False


def records_of(chunks: Chunks) -> Iterable[list[Message]]:
    return ([message] for message in chunks.messages())


def one_by_one(chunks: Chunks) -> Iterable[list[Message]]:
    return chunks.batches(1)


def four_by_four(chunks: Chunks) -> Iterable[list[Message]]:
    return chunks.batches(4)


def filled() -> Chunks:
    chunks = Chunks(ConsumerMetrics(group="billing"), buffered_max=100)
    chunks.begin(PLACE, 0, ())
    for first, end in ((0, 6), (6, RECORDS)):
        messages = [Message(topic="orders", partition=0, offset=n) for n in range(first, end)]
        chunks.take_in(messages, {PLACE: TopicPartition(*PLACE, end)})
    return chunks


def committed(chunks: Chunks) -> int:
    """As the poll thread asks, which waits for ever if a lock is held for ever."""
    found: list[int] = []

    def collect() -> None:
        position = chunks.collect().get(PLACE)
        found.append(0 if position is None else position.offset)

    asking = threading.Thread(target=collect, daemon=True)
    asking.start()
    asking.join(PATIENCE_S)
    return found[0]


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("loop", [records_of, one_by_one, four_by_four])
def test_an_interruption_at_any_line_passes_no_record(
    loop: Callable[[Chunks], Iterable[list[Message]]],
) -> None:
    """What was not handed out comes in the next loop, or the loop ends with an error."""
    at, whole, ended = 0, 0, 0
    while True:
        at += 1
        interruption = Interruption(at)
        chunks = filled()
        seen: set[int] = set()

        def take(batches: Iterable[list[Message]], seen: set[int] = seen) -> None:
            for batch in batches:
                seen.update(map(offset_of, batch))
                if RECORDS - 1 in seen:
                    break

        reached = 0
        try:
            try:
                with interruption.armed():
                    take(loop(chunks))
            except Interrupted:
                reached = committed(chunks)
            if RECORDS - 1 not in seen:
                take(loop(chunks))
            whole += 1
            assert seen == set(range(RECORDS))
        except ClientFailed as error:
            assert "signal handler" in error.what  # noqa: PT017  any other error is a failure
            ended += 1
        reached = max(reached, committed(chunks))
        assert set(range(reached)) <= seen
        if interruption.left > 0:
            break
    assert whole > 50
    assert ended > 0


@pytest.mark.parametrize("protocol", ["records", "batches"])
def test_a_second_thread_that_asks_for_records_is_refused(kafka: Kafka, protocol: str) -> None:
    kafka.make_topic()
    kafka.fill(10)
    refusals: list[BaseException] = []
    with kafka.consumer() as consumer:
        loop: Iterator[Any] = iter(consumer if protocol == "records" else consumer.batches(10))
        for taken in loop:  # to the end of a chunk
            if number(taken if protocol == "records" else taken[-1]) == 9:
                break

        def ask(records: Callable[[], Any]) -> None:
            def call() -> None:
                try:
                    records()
                except BaseException as error:
                    refusals.append(error)

            asking = threading.Thread(target=call, daemon=True)
            asking.start()
            asking.join(PATIENCE_S)

        ask(lambda: next(loop))
        ask(lambda: next(iter(consumer)))
        assert [type(error) for error in refusals] == [BadInput, BadInput]
        assert "second thread" in str(refusals[0])
        kafka.fill(1, first=10)
        after = next(loop)  # the loop of the first thread is as it was
        assert number(after if protocol == "records" else after[0]) == 10


def test_interruptions_of_a_running_consumer_lose_no_record(kafka: Kafka) -> None:
    """And it can be closed after them."""
    records = 20_000
    kafka.make_topic()
    kafka.fill(records)
    chance = random.Random(7)
    seen: set[int] = set()
    interruptions = 0

    def on_alarm(_signal: int, _frame: object) -> None:
        raise Interrupted

    before = signal.signal(signal.SIGALRM, on_alarm)
    try:
        while len(seen) < records:
            consumer = kafka.consumer(commit_every_records=100)
            ended = False
            while len(seen) < records and not ended:
                try:
                    signal.setitimer(signal.ITIMER_REAL, chance.uniform(0.001, 0.02))
                    for batch in consumer.batches(1):
                        seen.update(map(number, batch))
                        if len(seen) == records:
                            break
                    signal.setitimer(signal.ITIMER_REAL, 0)
                except Interrupted:
                    interruptions += 1
                except ClientFailed:
                    signal.setitimer(signal.ITIMER_REAL, 0)
                    ended = True
            signal.setitimer(signal.ITIMER_REAL, 0)
            consumer.close()
            assert set(range(kafka.committed()[0])) <= seen
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert interruptions > 0
    eventually(lambda: kafka.committed()[0] > 0)
