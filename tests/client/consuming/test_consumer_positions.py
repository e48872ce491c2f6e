"""Where reading begins: never by a silent jump."""

from __future__ import annotations

import threading
from typing import Any, cast

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition
from confluent_kafka.admin import AdminClient
from consumed import Kafka, eventually, number

from lossless.client.consuming.positions import Leaving, Positions
from lossless.client.consuming.settings import ConsumerOptions
from lossless.client.errors import (
    InvalidPosition,
    LogTruncated,
    NoCommittedOffset,
    OffsetOutOfRange,
    StoreUnavailable,
)
from lossless.client.metrics import ConsumerMetrics
from lossless.client.stores.interface import Store
from lossless.errors import BadInput
from topics import grow_topic, produce

PROTOCOLS: dict[str, dict[str, Any]] = {
    "eager": {},
    "cooperative": {"partition.assignment.strategy": "cooperative-sticky"},
    "consumer": {"group.protocol": "consumer", "session.timeout.ms": None},
}


@pytest.fixture(params=PROTOCOLS)
def protocol(request: pytest.FixtureRequest) -> dict[str, Any]:
    return PROTOCOLS[request.param]


def first_of(kafka: Kafka, **options: Any) -> int:
    with kafka.consumer(**options) as consumer:
        return number(next(iter(consumer)))


def delete_below(kafka: Kafka, offset: int) -> None:
    admin = AdminClient({"bootstrap.servers": kafka.servers})
    for future in admin.delete_records([TopicPartition(kafka.topic, 0, offset)]).values():
        future.result()


def test_without_an_offset_the_policy_decides(kafka: Kafka) -> None:
    """Claim C2."""
    kafka.make_topic()
    kafka.fill(10)
    assert first_of(kafka, group="a-" + kafka.group, no_offset="earliest") == 0
    with (
        kafka.consumer(no_offset="stop") as consumer,
        pytest.raises(NoCommittedOffset, match=kafka.group),
    ):
        next(iter(consumer))
    assert kafka.committed()[0] < 0


def test_who_begins_at_the_end_commits_that_before_anything_comes(kafka: Kafka) -> None:
    """Or else a crash would begin further on, and skip what came between."""
    kafka.make_topic()
    kafka.fill(10)
    consumer = kafka.consumer(no_offset="latest")
    with consumer:
        loop = iter(consumer)
        eventually(lambda: kafka.committed() == [10])
        kafka.fill(1, first=10)
        assert number(next(loop)) == 10
    assert consumer.metrics.jumps == 1


def test_a_partition_added_later_is_read_from_its_first_record(
    kafka: Kafka, protocol: dict[str, Any]
) -> None:
    """The end is where the group begins, not where each partition does."""
    kafka.make_topic(partitions=2)
    kafka.fill(10, partitions=2)
    with kafka.consumer(no_offset="latest", settings=protocol) as consumer:
        loop = iter(consumer)
        eventually(lambda: kafka.committed(2) == [5, 5])
        kafka.fill(1, first=10)
        assert number(next(loop)) == 10
    grow_topic(kafka.servers, kafka.topic, 3)
    produce(kafka.servers, kafka.topic, [(2, None, b"11")])
    with kafka.consumer(no_offset="latest", settings=protocol) as consumer:
        seen = {number(message) for _, message in zip(range(2), consumer, strict=False)}
    assert seen == {10, 11}


def test_auto_offset_reset_says_that_a_group_without_an_offset_stops(kafka: Kafka) -> None:
    kafka.make_topic()
    kafka.fill(1)
    for reset in ("none", "error"):
        settings = {"auto.offset.reset": reset}
        with kafka.consumer(settings=settings) as consumer, pytest.raises(NoCommittedOffset):
            next(iter(consumer))
        with pytest.raises(BadInput, match="contradict"):
            kafka.consumer(settings=settings, no_offset="earliest")


@pytest.mark.parametrize(("policy", "first"), [("stop", None), ("earliest", 7), ("latest", 10)])
def test_records_deleted_unread_are_told_of(
    kafka: Kafka,
    protocol: dict[str, Any],
    policy: str,
    first: int | None,
    caplog: pytest.LogCaptureFixture,
) -> None:
    kafka.make_topic()
    kafka.fill(10)
    kafka.commit(TopicPartition(kafka.topic, 0, 2))
    delete_below(kafka, 7)
    with kafka.consumer(out_of_range=policy, settings=protocol) as consumer:
        loop = iter(consumer)
        if first is None:
            with pytest.raises(OffsetOutOfRange, match="5 records were deleted unread"):
                next(loop)
            assert kafka.committed() == [2]
            return
        if policy == "latest":
            eventually(lambda: kafka.committed() == [10])
            kafka.fill(1, first=10)
        assert number(next(loop)) == first
        assert consumer.metrics.jumps == 1
    assert "5 records were deleted unread" in caplog.text


def test_other_partitions_go_on_where_they_were(kafka: Kafka, protocol: dict[str, Any]) -> None:
    kafka.make_topic(partitions=2)
    kafka.fill(20, partitions=2)
    kafka.commit(TopicPartition(kafka.topic, 0, 2), TopicPartition(kafka.topic, 1, 4))
    delete_below(kafka, 7)
    seen = []
    with kafka.consumer(out_of_range="earliest", settings=protocol) as consumer:
        for message in consumer:
            seen.append(number(message))
            if len(set(seen)) == 3 + 6:
                consumer.stop()
    assert set(seen) == {14, 16, 18} | {9, 11, 13, 15, 17, 19}
    assert kafka.committed(2) == [10, 10]


@pytest.mark.parametrize("policy", ["stop", "continue"])
def test_a_log_that_was_truncated_behind_the_group_is_noticed(
    kafka: Kafka, protocol: dict[str, Any], policy: str
) -> None:
    """Claim C11. The group has read to 10 in epoch 0, and epoch 0 ends at 5 now."""
    kafka.make_topic()
    kafka.fill(5)
    kafka.commit(TopicPartition(kafka.topic, 0, 10, leader_epoch=0))
    with kafka.consumer(truncated=policy, settings=protocol) as consumer:
        loop = iter(consumer)
        if policy == "stop":
            with pytest.raises(LogTruncated, match=r"truncated to 5.*5 records"):
                next(loop)
            return
        eventually(lambda: kafka.committed() == [5])
        kafka.fill(1, first=5)
        assert number(next(loop)) == 5
        assert consumer.metrics.jumps == 1


def test_errors_of_positions_say_what_to_do(kafka: Kafka) -> None:
    kafka.make_topic()
    kafka.fill(1)
    kafka.commit(TopicPartition(kafka.topic, 0, 100))
    with kafka.consumer() as consumer, pytest.raises(InvalidPosition) as stopped:
        next(iter(consumer))
    assert "out_of_range" in str(stopped.value)
    assert stopped.value.exit_code == 1


class FiveRecords:
    """Stands where confluent-kafka's consumer does: all that is asked is where the log ends."""

    def get_watermark_offsets(self, _place: TopicPartition, timeout: float) -> tuple[int, int]:
        assert timeout > 0
        return 0, 5


def test_an_offset_beyond_the_end_is_truncation_if_records_were_read_up_to_there() -> None:
    """A fetch may be refused before the epoch was compared."""
    positions = Positions(
        cast("Consumer", FiveRecords()),
        ConsumerOptions(topics=("orders",)),
        ConsumerMetrics(group="g"),
        group="g",
        store=None,
        timeout_s=1,
        closing=threading.Event(),
    )
    error = KafkaError(KafkaError._AUTO_OFFSET_RESET, "Broker: Offset out of range")
    told = Message(topic="orders", partition=0, offset=9, error=error)
    with pytest.raises(LogTruncated, match="4 records that were read"):
        positions.recover(told, TopicPartition("orders", 0, 9, leader_epoch=3))
    with pytest.raises(OffsetOutOfRange, match="offset 9 is not in the log"):
        positions.recover(told, TopicPartition("orders", 0, 9))


class NobodyAnswers:
    """Stands where confluent-kafka's consumer does, and where a store does."""

    def get_watermark_offsets(self, _place: TopicPartition, timeout: float) -> tuple[int, int]:
        raise KafkaException(KafkaError(KafkaError._TIMED_OUT, f"after {timeout} s"))

    def claim(self, _group: str, _places: object, **_: object) -> dict[TopicPartition, int | None]:
        raise StoreUnavailable("the database is away")


def test_who_closes_asks_neither_brokers_nor_the_store_again() -> None:
    nobody = NobodyAnswers()
    closing = threading.Event()
    closing.set()
    positions = Positions(
        cast("Consumer", nobody),
        ConsumerOptions(topics=("orders",)),
        ConsumerMetrics(group="g"),
        group="g",
        store=cast("Store", nobody),
        timeout_s=600,
        closing=closing,
    )
    error = KafkaError(KafkaError._AUTO_OFFSET_RESET, "Broker: Offset out of range")
    told = Message(topic="orders", partition=0, offset=9, error=error)
    with pytest.raises(Leaving):
        positions.recover(told, TopicPartition("orders", 0, 9))
    with pytest.raises(Leaving):
        positions.starts([TopicPartition("orders", 0)])
