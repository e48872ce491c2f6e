"""Positions that the application changes, and partitions that it pauses."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import (
    OFFSET_BEGINNING,
    OFFSET_END,
    KafkaError,
    KafkaException,
    Message,
    TopicPartition,
)
from consumed import PATIENCE_S, Kafka, Seen, eventually, number, running

from lossless.client.consuming import assignment, consumer
from lossless.client.stores import SqliteStore
from lossless.errors import BadInput, Unavailable

PROTOCOLS: dict[str, dict[str, Any]] = {
    "eager": {},
    "cooperative": {"partition.assignment.strategy": "cooperative-sticky"},
    "consumer": {"group.protocol": "consumer", "session.timeout.ms": None},
}


@pytest.mark.parametrize("protocol", PROTOCOLS.values(), ids=PROTOCOLS.keys())
def test_a_loop_goes_on_from_where_it_seeks(kafka: Kafka, protocol: dict[str, Any]) -> None:
    kafka.make_topic(partitions=2)
    kafka.fill(20, partitions=2)  # even numbers in partition 0, odd ones in 1
    seen: list[int] = []
    with kafka.consumer(settings=protocol) as consumer:
        for message in consumer:
            seen.append(number(message))
            if seen.count(10) == 1 and number(message) == 10:  # at offset 5
                consumer.seek(TopicPartition(kafka.topic, 0, 2))
            if len(seen) == 24:
                consumer.stop()
    assert [n for n in seen if n % 2 == 0] == [0, 2, 4, 6, 8, 10, 4, 6, 8, 10, 12, 14, 16, 18]
    assert [n for n in seen if n % 2] == list(range(1, 20, 2))
    assert kafka.committed(2) == [10, 10]


def test_a_position_that_was_sought_is_committed(kafka: Kafka) -> None:
    """Or else a crash would undo it."""
    kafka.make_topic()
    kafka.fill(10)
    seen = Seen()
    with running(kafka.consumer(workers=2, order="key", commit_every_s=0.05), seen) as run:
        eventually(lambda: kafka.committed() == [10])
        run.consumer.seek(TopicPartition(kafka.topic, 0, OFFSET_BEGINNING))
        seen.wait_for_count(20)
        eventually(lambda: kafka.committed() == [10])
        run.consumer.seek(TopicPartition(kafka.topic, 0, 4))
        seen.wait_for_count(26)
        run.consumer.seek(TopicPartition(kafka.topic, 0, OFFSET_END))
    assert sorted(seen.numbers) == sorted([*range(10), *range(10), *range(4, 10)])
    assert kafka.committed() == [10]


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("closing", [False, True])
def test_a_handler_that_seeks_does_not_hold_up_a_revocation_that_waits_for_it(
    kafka: Kafka, workers: int, closing: bool
) -> None:
    """Eager members give all partitions back when another one joins, and when they close."""
    kafka.make_topic(partitions=2)
    kafka.fill(20, partitions=2)
    in_hand = threading.Event()
    errors: list[Exception] = []
    seen, others = Seen(), Seen()

    def seeks() -> bool:
        try:
            first.seek(TopicPartition(kafka.topic, 1, 0))
        except (Unavailable, BadInput) as error:
            errors.append(error)
        return not errors

    def handler(message: Message) -> None:
        seen(message)
        if number(message) == 8 and not in_hand.is_set():
            in_hand.set()
            eventually(lambda: not seeks())

    settings = {"heartbeat.interval.ms": 100}
    first = kafka.consumer(workers=workers, settings=settings, drain_timeout_s=PATIENCE_S / 2)
    second = kafka.consumer(settings=settings)
    with running(first, handler):
        assert in_hand.wait(PATIENCE_S)
        if closing:
            first.close(PATIENCE_S / 3)
            assert not first.assigned
        with running(second, others):
            eventually(lambda: set(seen.numbers) | set(others.numbers) == set(range(20)))
    (error,) = errors
    assert isinstance(error, Unavailable)
    assert "waits for the records in hand" in error.what


def test_a_record_in_hand_does_not_undo_a_seek(kafka: Kafka) -> None:
    kafka.make_topic()
    kafka.fill(10)
    in_hand, go_on = threading.Event(), threading.Event()
    seen = Seen()

    def handler(message: Message) -> None:
        seen(message)
        if len(seen.numbers) == 6:
            in_hand.set()
            assert go_on.wait(30)

    with running(kafka.consumer(workers=1, commit_every_s=0.05), handler) as run:
        assert in_hand.wait(30)
        run.consumer.seek(TopicPartition(kafka.topic, 0, 2))
        eventually(lambda: kafka.committed() == [2])
        go_on.set()
        seen.wait_for_count(14)
    assert seen.numbers == [*range(6), *range(2, 10)]


def test_what_cannot_be_sought_is_refused(kafka: Kafka, tmp_path: Path) -> None:
    kafka.make_topic()
    kafka.fill(3)
    there = TopicPartition(kafka.topic, 0, 1)
    with kafka.consumer() as consumer:
        with pytest.raises(BadInput, match="no partition is assigned yet"):
            consumer.seek(there)
        next(iter(consumer))
        assert consumer.assigned == [TopicPartition(kafka.topic, 0)]
        with pytest.raises(BadInput, match="offset 4 is not in the log, which has 0 to 3"):
            consumer.seek(TopicPartition(kafka.topic, 0, 4))
        with pytest.raises(BadInput, match="-7: not assigned"):
            consumer.seek(TopicPartition(kafka.topic, 7, 0))
        with pytest.raises(BadInput, match="-7: not assigned"):
            consumer.pause([TopicPartition(kafka.topic, 7)])
        with pytest.raises(BadInput, match="'orders' is not a partition"):
            consumer.seek("orders")  # type: ignore[arg-type]
        with pytest.raises(BadInput, match="put it into a list"):
            consumer.pause(there)  # type: ignore[arg-type]
    with (
        SqliteStore(tmp_path / "store.db") as store,
        kafka.consumer(store=store) as consumer,
        pytest.raises(BadInput, match="positions are the store's"),
    ):
        consumer.seek(there)


def test_a_seek_in_a_hook_is_refused_instead_of_waiting_for_itself(kafka: Kafka) -> None:
    kafka.make_topic()
    kafka.fill(1)
    with (
        kafka.consumer(on_assigned=lambda begun: consumer.seek(begun[0])) as consumer,
        pytest.raises(BadInput, match="called in a hook"),
    ):
        next(iter(consumer))


@pytest.mark.parametrize("workers", [1, 2])
def test_a_partition_that_is_paused_is_read_when_it_is_resumed(kafka: Kafka, workers: int) -> None:
    kafka.make_topic(partitions=2)
    kafka.fill(4, partitions=2)
    seen = Seen()
    with running(kafka.consumer(workers=workers, order="key"), seen) as run:
        seen.wait_for(range(4))
        paused = [TopicPartition(kafka.topic, 0)]
        run.consumer.pause(paused)
        eventually(lambda: run.consumer.metrics.paused == 1)
        kafka.fill(4, first=4, partitions=2)
        seen.wait_for([5, 7])
        assert not {4, 6} & set(seen.numbers)
        run.consumer.resume(paused)
        seen.wait_for(range(8))
    assert len(seen.numbers) == 8
    assert kafka.committed(2) == [4, 4]


def test_a_seek_that_did_not_begin_in_time_never_happens(
    kafka: Kafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    kafka.make_topic()
    kafka.fill(5)
    monkeypatch.setattr(consumer, "CALL_S", 0.1)
    let_go = threading.Event()
    seen = []
    with kafka.consumer() as reading:
        for message in reading:
            seen.append(number(message))
            if number(message) == 2:
                assert reading._poller is not None
                busy = reading._poller.call(let_go.wait)
                with pytest.raises(Unavailable, match="seek did not begin"):
                    reading.seek(TopicPartition(kafka.topic, 0, 0))
                let_go.set()
                assert busy.result(10)
            if len(seen) == 5:
                reading.stop()
    assert seen == [0, 1, 2, 3, 4]
    assert kafka.committed() == [5]


def test_a_seek_without_brokers_ends_and_says_why(
    kafka: Kafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    kafka.make_topic()
    kafka.fill(1)
    monkeypatch.setattr(assignment, "SEEK_S", 0.1)

    class NobodyAnswers:
        def get_watermark_offsets(self, *_: Any, **__: Any) -> None:
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT))

    with kafka.consumer() as reading:
        for _ in reading:
            assert reading._poller is not None
            positions = reading._poller.assignment._positions
            with monkeypatch.context() as patched:
                patched.setattr(positions, "_consumer", NobodyAnswers())
                with pytest.raises(Unavailable, match="begins and ends could not be read"):
                    reading.seek(TopicPartition(kafka.topic, 0, 0))
            reading.stop()
    assert kafka.committed() == [1]
