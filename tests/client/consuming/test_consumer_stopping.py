"""stop() ends exactly one loop or run, whenever it is called."""

from __future__ import annotations

import sys
from types import FrameType
from typing import Any

import pytest
from consumed import Kafka, Running, Seen

from lossless.client.consuming import Consumer

NOWHERE = {"bootstrap.servers": "127.0.0.1:1"}


async def asleep(message: object) -> None:
    del message


@pytest.mark.parametrize(
    "options",
    [{}, {"workers": 2}, {"workers": 2, "order": "none"}],
    ids=["one worker", "workers", "without order"],
)
def test_stop_between_two_runs_ends_the_second_and_not_the_third(
    kafka: Kafka, options: dict[str, Any]
) -> None:
    kafka.make_topic()
    kafka.fill(3)
    with kafka.consumer(**options) as consumer:
        seen = Seen()
        first = Running(consumer, seen)
        seen.wait_for(range(3))
        consumer.stop()
        first.join()
        consumer.stop()
        kafka.fill(3, first=3)
        Running(consumer, seen).join()
        assert not {3, 4, 5} & set(seen.numbers)
        third = Running(consumer, seen)
        seen.wait_for(range(6))
        consumer.stop()
        third.join()
    assert kafka.committed() == [6]


def test_stop_between_two_runs_of_coroutines_ends_the_second(kafka: Kafka) -> None:
    kafka.make_topic()
    with kafka.consumer(worker_kind="asyncio") as consumer:
        consumer.stop()
        consumer.run(asleep)
        consumer.stop()
        Running(consumer, asleep).join()


class StoppingAt:
    """Calls stop() at one line of `_begin`, as a signal handler or another thread may."""

    def __init__(self, consumer: Consumer, line: int) -> None:
        self._consumer = consumer
        self._left = line
        self._code = Consumer._begin.__code__

    def __call__(self, frame: FrameType, event: str, _: Any) -> Any:
        if frame.f_code is not self._code:
            return None
        if event == "line":
            self._left -= 1
            if self._left == 0:
                self._consumer.stop()
        return self

    @property
    def stopped(self) -> bool:
        return self._left <= 0


def test_stop_is_not_lost_wherever_it_meets_a_loop_that_begins() -> None:
    traced = sys.gettrace()
    for line in range(1, 100):
        # Without the request to stop the loop would wait for records, until this ends it.
        with Consumer("orders", NOWHERE, group="billing", connect_timeout_s=2) as consumer:
            stopping = StoppingAt(consumer, line)
            sys.settrace(stopping)
            try:
                loop = iter(consumer)
            finally:
                sys.settrace(traced)
            if not stopping.stopped:
                consumer.stop()
            assert list(loop) == []
        if not stopping.stopped:
            break
    assert line > 5
