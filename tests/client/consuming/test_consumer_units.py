"""Units of a store, without Kafka: what comes again, what does not, and how often it was tried."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Message, TopicPartition

from lossless.client.consuming.chunks import Chunks
from lossless.client.consuming.failures import Failures
from lossless.client.consuming.units import Units
from lossless.client.errors import StoreUnavailable
from lossless.client.metrics import ConsumerMetrics
from lossless.client.retrying import Again, Decision, Failure
from lossless.client.stores.interface import SqlUnit
from lossless.client.stores.sqlite import SqliteStore
from lossless.engines.waiting import wait_until

ORDERS = ("orders", 0)
RECORDS = 3


class Shaky(SqliteStore):
    """Each unit that is begun is looked at first."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.on_unit: Callable[[Any], None] = lambda _unit: None

    def begin(self) -> Any:
        unit = super().begin()
        self.on_unit(unit)
        return unit


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Shaky]:
    made = Shaky(tmp_path / "store.sqlite")
    made.claim("g", [ORDERS])
    with made.begin() as unit:
        unit.execute("CREATE TABLE stored (number INTEGER)")
    yield made
    made.close()


def stored(store: Shaky) -> list[int]:
    with store.begin() as unit:
        return [row[0] for row in unit.execute("SELECT number FROM stored ORDER BY number")]


@contextmanager
def running(
    store: Shaky, handler: Callable[[Message, SqlUnit], None], policy: Any = None
) -> Iterator[Chunks]:
    """Three records are processed, and then the loop ends."""
    metrics = ConsumerMetrics(group="g")
    chunks = Chunks(metrics, buffered_max=100)
    nobody: Any = None
    units = Units(
        chunks,
        store,
        Failures(policy, metrics, group="g", forwarder=nobody),
        handler,
        commit_every_s=60,
        fence=nobody,
    )
    records = [Message(topic="orders", partition=0, offset=n, value=b"") for n in range(RECORDS)]
    chunks.take_in(records, {ORDERS: TopicPartition(*ORDERS, RECORDS)})
    loop = threading.Thread(target=units.run)
    loop.start()
    try:
        yield chunks
        assert wait_until(lambda: chunks.finished() == RECORDS, timeout_s=30)
    finally:
        chunks.end(None)
        loop.join(30)
    assert not loop.is_alive()


def insert(message: Message, unit: SqlUnit) -> None:
    unit.execute("INSERT INTO stored VALUES (?)", [message.offset()])


def test_what_was_stored_though_nobody_heard_of_it_is_not_processed_again(store: Shaky) -> None:
    handled: list[int | None] = []
    lost: list[Any] = []

    def handler(message: Message, unit: SqlUnit) -> None:
        handled.append(message.offset())
        insert(message, unit)

    def lose_the_answer(unit: Any) -> None:
        commit = unit.commit

        def commit_unheard() -> None:
            commit()
            if not lost:
                lost.append(unit)
                raise StoreUnavailable("the connection was cut")

        unit.commit = commit_unheard

    store.on_unit = lose_the_answer
    with running(store, handler):
        pass
    assert len(lost) == 1
    assert handled == [0, 1, 2]
    assert stored(store) == [0, 1, 2]


def test_what_was_begun_when_the_store_went_away_is_taken_back_and_comes_again(
    store: Shaky,
) -> None:
    handled: list[int | None] = []

    def handler(message: Message, unit: SqlUnit) -> None:
        handled.append(message.offset())
        insert(message, unit)
        if len(handled) == 2:
            raise StoreUnavailable("the database is away")

    with running(store, handler):
        pass
    assert handled == [0, 1, 0, 1, 2]
    assert stored(store) == [0, 1, 2]


class Counting:
    """Tries again at once, and notes how often it was asked."""

    def __init__(self) -> None:
        self.attempts: list[int] = []

    def decide(self, failure: Failure) -> Decision:
        self.attempts.append(failure.attempt)
        return Again(0.0)


def test_every_attempt_has_its_number(store: Shaky) -> None:
    policy = Counting()

    def handler(message: Message, unit: SqlUnit) -> None:
        insert(message, unit)
        if message.offset() == 1 and len(policy.attempts) < 3:
            raise ValueError("not yet")

    with running(store, handler, policy):
        pass
    assert policy.attempts == [1, 2, 3]
    assert stored(store) == [0, 1, 2]


def test_a_record_can_fail_any_number_of_times(store: Shaky) -> None:
    """More often than the interpreter nests calls."""
    policy = Counting()
    times = sys.getrecursionlimit() + 100

    def handler(message: Message, unit: SqlUnit) -> None:
        insert(message, unit)
        if message.offset() == 1 and len(policy.attempts) < times:
            raise ValueError("not yet")

    with running(store, handler, policy):
        pass
    assert policy.attempts == list(range(1, times + 1))
    assert stored(store) == [0, 1, 2]
