"""Where a reader starts, what a fetch waits for, and who answers it."""

from __future__ import annotations

import threading
import time

import pytest
from confluent_kafka import (
    OFFSET_BEGINNING,
    OFFSET_END,
    Consumer,
    KafkaError,
    KafkaException,
    TopicPartition,
)
from confluent_kafka.admin import OffsetSpec
from subject import FETCH, TIMEOUT_S, Subject, fetched, read_to_the_end, take, text

from lossless.core.error_codes import Error
from lossless.engines.waiting import wait_until
from one_request import ask, error_of

VALUES = [str(number) for number in range(10)]
END = OFFSET_END  # as the client calls it when no record is that late


def filled(kafka: Subject) -> str:
    """A topic whose record n has the value n and the time 1000 n + 500."""
    topic = kafka.topic(retention_ms="-1")
    kafka.send(
        topic,
        *({"value": value, "timestamp": 1000 * int(value) + 500} for value in VALUES),
        linger_ms=50,
    )
    return topic


def first(consumer: Consumer, topic: str, offset: int) -> str:
    consumer.assign([TopicPartition(topic, 0, offset)])
    return text(take(consumer, 1)[0])


def test_a_reader_starts_where_it_says(kafka: Subject) -> None:
    topic = filled(kafka)
    with kafka.consumer() as consumer:
        assert first(consumer, topic, OFFSET_BEGINNING) == "0"
        assert first(consumer, topic, 4) == "4"
        consumer.seek(TopicPartition(topic, 0, 2))
        assert [text(message) for message in take(consumer, 3)] == ["2", "3", "4"]
        consumer.assign([TopicPartition(topic, 0, OFFSET_END)])
        assert consumer.poll(0.3) is None
        kafka.send(topic, "new")
        assert text(take(consumer, 1)[0]) == "new"


@pytest.mark.parametrize(("reset", "expected"), [("earliest", "0"), ("latest", "new")])
def test_without_an_offset_the_reset_decides(kafka: Subject, reset: str, expected: str) -> None:
    topic = filled(kafka)
    with kafka.consumer(auto_offset_reset=reset, enable_partition_eof=True) as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        read = read_to_the_end(consumer)
        kafka.send(topic, "new")
        assert text((read or take(consumer, 1))[0]) == expected


@pytest.mark.parametrize("offset", [-5, 11, 1_000_000])
def test_an_offset_outside_the_log_is_an_error_if_the_reset_says_so(
    kafka: Subject, offset: int
) -> None:
    topic = filled(kafka)
    assert error_of(kafka.fetch(topic, 0, offset)) is Error.OFFSET_OUT_OF_RANGE
    if offset < 0:
        return  # for a client that is another way to say where
    with kafka.consumer(auto_offset_reset="error") as consumer:
        consumer.assign([TopicPartition(topic, 0, offset)])
        message = consumer.poll(TIMEOUT_S)
        assert message is not None
        error = message.error()
        assert error is not None
        assert error.code() == KafkaError._AUTO_OFFSET_RESET
        assert "out of range" in error.str().lower()


def test_the_end_of_the_log_is_no_error(kafka: Subject) -> None:
    topic = filled(kafka)
    answer = kafka.fetch(topic, 0, 10)
    assert (error_of(answer), answer.high_watermark, answer.records or b"") == (Error.NONE, 10, b"")


def test_a_fetch_within_a_batch_brings_the_whole_batch(kafka: Subject) -> None:
    topic = filled(kafka)
    (only,) = kafka.stored(topic)
    assert kafka.fetch(topic, 0, 5).records == only.data
    assert kafka.fetch(topic, 0, 5, partition_max_bytes=1).records == only.data


@pytest.mark.parametrize(
    ("time_ms", "expected"), [(0, 0), (501, 1), (3500, 3), (3501, 4), (9500, 9), (9501, END)]
)
def test_the_first_record_at_or_after_a_time_is_found(
    kafka: Subject, time_ms: int, expected: int
) -> None:
    topic = filled(kafka)
    with kafka.consumer() as consumer:
        (found,) = consumer.offsets_for_times([TopicPartition(topic, 0, time_ms)], TIMEOUT_S)
    assert found.error is None
    assert found.offset == expected


def test_offsets_are_listed_by_what_they_are(kafka: Subject) -> None:
    topic = filled(kafka)
    kafka.send(topic, {"value": "late", "timestamp": 5000})

    def listed(spec: OffsetSpec) -> tuple[int, int]:
        partition = TopicPartition(topic, 0)
        found = kafka.admin.list_offsets({partition: spec})[partition].result(TIMEOUT_S)
        return found.offset, found.timestamp

    assert listed(OffsetSpec.earliest()) == (0, -1)
    assert listed(OffsetSpec.latest()) == (11, -1)
    assert listed(OffsetSpec.max_timestamp()) == (9, 9500)
    assert listed(OffsetSpec.for_timestamp(4500)) == (4, 4500)


def test_deleted_records_are_gone_and_reading_starts_after_them(kafka: Subject) -> None:
    topic = filled(kafka)
    partition = TopicPartition(topic, 0, 4)
    deleted = kafka.admin.delete_records([partition])[partition].result(TIMEOUT_S)
    assert deleted.low_watermark == 4
    assert error_of(kafka.fetch(topic, 0, 3)) is Error.OFFSET_OUT_OF_RANGE
    with kafka.consumer() as consumer:
        assert consumer.get_watermark_offsets(TopicPartition(topic, 0), TIMEOUT_S) == (4, 10)
        assert first(consumer, topic, OFFSET_BEGINNING) == "4"
    beyond = TopicPartition(topic, 0, 11)
    with pytest.raises(KafkaException) as refused:
        kafka.admin.delete_records([beyond])[beyond].result(TIMEOUT_S)
    assert refused.value.args[0].code() == Error.OFFSET_OUT_OF_RANGE


def test_a_fetch_waits_for_as_many_bytes_as_it_wants_but_not_for_ever(kafka: Subject) -> None:
    topic = filled(kafka)
    started = time.monotonic()
    answer = kafka.fetch(topic, 0, 0, min_bytes=1_000_000, max_wait=400)
    assert time.monotonic() - started >= 0.4
    assert answer.records == kafka.stored(topic)[0].data


def test_a_fetch_that_waits_is_answered_when_a_record_comes(kafka: Subject) -> None:
    topic = filled(kafka)
    answers = []

    def wait() -> None:
        answers.append(kafka.fetch(topic, 0, 10, min_bytes=1, max_wait=15_000))

    started = time.monotonic()
    waiting = threading.Thread(target=wait)
    waiting.start()
    kafka.send(topic, "new")
    waiting.join(TIMEOUT_S)
    assert time.monotonic() - started < 14
    assert answers[0].records == kafka.fetch(topic, 0, 10).records != b""


def test_a_reader_is_sent_to_the_replica_in_its_rack(kafka: Subject) -> None:
    topic = filled(kafka)
    leader = kafka.leader(topic)
    for broker, rack in enumerate("abc", start=1):
        nearest = kafka.fetch(topic, 0, 0, rack_id=rack)
        if kafka.address(broker) == leader:
            assert nearest.records
            continue
        assert (nearest.preferred_read_replica, nearest.records or b"") == (broker, b"")
        # It tells its readers of a record with its next fetch, when it hears that all have it.
        address = kafka.address(broker)
        assert wait_until(
            lambda at=address: fetched(at, topic, 0, 0).records == kafka.stored(topic)[0].data,
            timeout_s=TIMEOUT_S,
        )
    for rack in "abc":
        assert kafka.values(topic, client_rack=rack) == VALUES


def test_a_fetch_session_tells_what_is_new(kafka: Subject) -> None:
    topic = filled(kafka)
    leader = kafka.leader(topic)
    partition = {"partition": 0, "fetch_offset": 10, "partition_max_bytes": 1 << 20}
    partition |= {"log_start_offset": -1, "current_leader_epoch": -1}
    asked = {"max_wait": 0, "min_bytes": 0, "max_bytes": 1 << 20, "replica_id": -1}
    opened = ask(
        leader,
        FETCH,
        12,
        **asked,
        session_id=0,
        session_epoch=0,
        topics=[{"topic": topic, "partitions": [partition]}],
    )
    session = opened.session_id
    assert session > 0
    assert len(opened.responses) == 1
    nothing = ask(leader, FETCH, 12, **asked, session_id=session, session_epoch=1, topics=[])
    assert (error_of(nothing), nothing.responses) == (Error.NONE, ())
    kafka.send(topic, "new")
    new = ask(leader, FETCH, 12, **asked, session_id=session, session_epoch=2, topics=[])
    assert new.responses[0].partitions[0].records == kafka.fetch(topic, 0, 10).records
    skipped = ask(leader, FETCH, 12, **asked, session_id=session, session_epoch=9, topics=[])
    assert error_of(skipped) is Error.INVALID_FETCH_SESSION_EPOCH
    unknown = ask(leader, FETCH, 12, **asked, session_id=1, session_epoch=1, topics=[])
    assert error_of(unknown) is Error.FETCH_SESSION_ID_NOT_FOUND
