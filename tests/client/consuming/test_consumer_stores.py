"""Handlers with a store: what is stored is stored once, whoever owns the partition."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Message, TopicPartition
from confluent_kafka.admin import AdminClient
from consumed import PATIENCE_S, Kafka, Running, eventually, number, running

from lossless.client.errors import HandlerFailed, InvalidPosition, StoreUnavailable
from lossless.client.retrying import Backoff, DeadLetters, InPlace
from lossless.client.stores import SqliteStore
from lossless.errors import BadInput


@pytest.fixture
def database(tmp_path: Path) -> Path:
    file = tmp_path / "orders.db"
    connection = sqlite3.connect(file)
    connection.execute("CREATE TABLE orders (number INTEGER)")
    connection.commit()
    connection.close()
    return file


@pytest.fixture
def store(database: Path) -> Iterator[SqliteStore]:
    with SqliteStore(str(database)) as opened:
        yield opened


def rows(database: Path) -> list[int]:
    connection = sqlite3.connect(database)
    try:
        return [row for (row,) in connection.execute("SELECT number FROM orders ORDER BY rowid")]
    finally:
        connection.close()


def insert(message: Message, unit: Any) -> None:
    unit.execute("INSERT INTO orders VALUES (?)", (number(message),))


def test_the_position_is_the_stores_not_the_groups(
    kafka: Kafka, database: Path, store: SqliteStore
) -> None:
    kafka.make_topic()
    kafka.fill(20)
    with running(kafka.consumer(store=store, commit_every_records=5), insert):
        eventually(lambda: len(rows(database)) == 20)
    assert kafka.committed() == [20]
    kafka.commit(TopicPartition(kafka.topic, 0, 3))  # somebody winds the group back
    kafka.fill(5, first=20)
    with running(kafka.consumer(store=store), insert):
        eventually(lambda: len(rows(database)) == 25)
    assert rows(database) == list(range(25))


def test_a_slow_handler_stores_by_time_and_not_only_at_the_end(
    kafka: Kafka, database: Path, store: SqliteStore
) -> None:
    kafka.make_topic()
    kafka.fill(20)
    halt, go_on = threading.Event(), threading.Event()

    def slow(message: Message, unit: Any) -> None:
        insert(message, unit)
        if number(message) == 9:
            halt.set()
            assert go_on.wait(PATIENCE_S)

    with running(kafka.consumer(store=store, commit_every_s=1e-9), slow):
        assert halt.wait(PATIENCE_S)
        assert rows(database) == list(range(9))
        go_on.set()
        eventually(lambda: len(rows(database)) == 20)


def test_a_record_that_fails_takes_back_itself_and_nothing_else(
    kafka: Kafka, database: Path, store: SqliteStore
) -> None:
    kafka.make_topic()
    kafka.make_topic(topic=f"{kafka.topic}-dlt")
    kafka.fill(10)

    def handler(message: Message, unit: Any) -> None:
        insert(message, unit)
        if number(message) == 4:
            raise ValueError("after it was inserted")

    consumer = kafka.consumer(store=store, retry=DeadLetters())
    with running(consumer, handler):
        eventually(lambda: len(rows(database)) == 9)
    assert rows(database) == [0, 1, 2, 3, 5, 6, 7, 8, 9]
    assert consumer.metrics.dead_lettered == 1
    assert kafka.committed() == [10]


def test_a_record_is_tried_again_and_what_came_before_is_stored(
    kafka: Kafka, database: Path, store: SqliteStore
) -> None:
    kafka.make_topic()
    kafka.fill(10)
    attempts = 0

    def handler(message: Message, unit: Any) -> None:
        nonlocal attempts
        insert(message, unit)
        if number(message) == 4:
            attempts += 1
            if attempts < 3:
                raise ConnectionError("not yet")
            assert rows(database) == [0, 1, 2, 3]

    policy = InPlace(backoff=Backoff(first_s=0.01))
    with running(kafka.consumer(store=store, retry=policy), handler):
        eventually(lambda: len(rows(database)) == 10)
    assert rows(database) == list(range(10))
    assert attempts == 3


def test_without_a_policy_the_first_failure_is_the_end(
    kafka: Kafka, database: Path, store: SqliteStore
) -> None:
    kafka.make_topic()
    kafka.fill(10)

    def handler(message: Message, unit: Any) -> None:
        insert(message, unit)
        if number(message) == 4:
            raise ValueError("never")

    with kafka.consumer(store=store) as consumer, pytest.raises(HandlerFailed):
        consumer.run(handler)
    assert rows(database) == [0, 1, 2, 3]
    assert kafka.committed() == [4]


def test_a_member_that_lost_its_partition_stores_nothing_more(
    kafka: Kafka, database: Path, store: SqliteStore
) -> None:
    """Claim C13: another has claimed it, which Kafka has not told this one yet."""
    kafka.make_topic(partitions=2)
    kafka.fill(20, partitions=2)
    run = Running(kafka.consumer(store=store, commit_every_s=0.1), insert)
    try:
        eventually(lambda: len(rows(database)) == 20)
        with SqliteStore(str(database)) as other:
            other.claim(kafka.group, [(kafka.topic, 0)])
        kafka.fill(20, first=20, partitions=2)
        # The partition that is still its own goes on.
        odd = set(range(1, 40, 2))
        eventually(lambda: odd <= set(rows(database)))
        eventually(lambda: run.consumer.metrics.paused == 1)
    finally:
        run.close()
    assert run.failure is None
    assert sorted(rows(database)) == sorted({*range(20), *odd})
    assert kafka.committed(2) == [10, 20]


def test_a_topic_that_was_created_again_is_not_read_from_the_old_position(
    kafka: Kafka, database: Path
) -> None:
    kafka.make_topic()
    kafka.fill(100)
    with SqliteStore(str(database)) as store, running(kafka.consumer(store=store), insert):
        eventually(lambda: len(rows(database)) == 100)
    admin = AdminClient({"bootstrap.servers": kafka.servers})
    admin.delete_topics([kafka.topic])[kafka.topic].result()
    eventually(lambda: kafka.topic not in admin.list_topics(timeout=10).topics)
    kafka.make_topic()
    kafka.fill(150)
    with SqliteStore(str(database)) as store:
        run = Running(kafka.consumer(store=store), insert)
        run.join()
        run.close()
    assert isinstance(run.failure, InvalidPosition)
    assert "deleted and created again" in str(run.failure)
    assert len(rows(database)) == 100


class Flaky:
    """A store whose database goes away for a while."""

    def __init__(self, store: SqliteStore) -> None:
        self._store = store
        self.down = threading.Event()
        self.asked = 0
        self.refuses_claims = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def begin(self) -> Any:
        if self.down.is_set():
            self.asked += 1
            raise StoreUnavailable("the database is down")
        return self._store.begin()

    def claim(self, group: str, partitions: Any, **more: Any) -> Any:
        if self.down.is_set() and self.refuses_claims:
            self.asked += 1
            raise StoreUnavailable("the database is down")
        return self._store.claim(group, partitions, **more)


def test_partitions_that_come_while_the_database_is_down_are_begun_when_it_is_back(
    kafka: Kafka, database: Path, store: SqliteStore
) -> None:
    kafka.make_topic()
    kafka.fill(10)
    flaky = Flaky(store)
    flaky.refuses_claims = True
    flaky.down.set()
    with running(kafka.consumer(store=flaky), insert):
        eventually(lambda: flaky.asked >= 2)
        flaky.down.clear()
        eventually(lambda: len(rows(database)) == 10)
    assert rows(database) == list(range(10))


def test_a_store_that_is_empty_has_nothing_whatever_the_group_has_committed(
    kafka: Kafka, database: Path, store: SqliteStore
) -> None:
    kafka.make_topic()
    kafka.fill(10)
    kafka.commit(TopicPartition(kafka.topic, 0, 6))
    with running(kafka.consumer(store=store), insert):
        eventually(lambda: len(rows(database)) == 10)
    assert rows(database) == list(range(10))


def test_a_database_that_is_down_is_waited_for(
    kafka: Kafka, database: Path, store: SqliteStore
) -> None:
    kafka.make_topic()
    kafka.fill(10)
    flaky = Flaky(store)
    with running(kafka.consumer(store=flaky), insert):
        eventually(lambda: len(rows(database)) == 10)
        flaky.down.set()
        kafka.fill(10, first=10)
        eventually(lambda: flaky.asked >= 2)
        flaky.down.clear()
        eventually(lambda: len(rows(database)) == 20)
    assert rows(database) == list(range(20))


def test_stop_ends_the_wait_for_a_database(kafka: Kafka, store: SqliteStore) -> None:
    kafka.make_topic()
    kafka.fill(1)
    flaky = Flaky(store)
    flaky.down.set()
    run = Running(kafka.consumer(store=flaky), insert)
    eventually(lambda: flaky.asked >= 1)
    run.close()
    assert run.failure is None  # nothing was promised: who comes next repeats it


def test_partitions_move_between_members_with_stores_of_their_own(
    kafka: Kafka, database: Path
) -> None:
    kafka.make_topic(partitions=4)
    kafka.fill(200, partitions=4)
    with (
        SqliteStore(str(database)) as one,
        SqliteStore(str(database)) as two,
        running(kafka.consumer(store=one), insert),
    ):
        eventually(lambda: len(rows(database)) > 0)
        with running(kafka.consumer(store=two), insert):
            kafka.fill(200, first=200, partitions=4)
            eventually(lambda: len(rows(database)) >= 400)
        kafka.fill(200, first=400, partitions=4)
        eventually(lambda: len(rows(database)) >= 600)
    assert sorted(rows(database)) == list(range(600))


def test_a_store_wants_one_record_after_the_other(kafka: Kafka, store: SqliteStore) -> None:
    with pytest.raises(BadInput, match="one record after the other"):
        kafka.consumer(store=store, workers=4)
