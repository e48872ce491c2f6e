"""What is sent comes back: keys, values, headers, times, every codec, every acknowledgement."""

from __future__ import annotations

import struct
import time
from collections import Counter

import pytest
from confluent_kafka import TIMESTAMP_CREATE_TIME, TIMESTAMP_LOG_APPEND_TIME, KafkaError
from subject import (
    METADATA,
    TIMEOUT_S,
    Subject,
    batch,
    error_code,
    led_partitions,
    new_producer_id,
    produced,
    text,
)

from default_batches import DEFAULT_HEADERS, sealed, sent_by
from lossless.core.error_codes import Error
from lossless.engines.waiting import wait_until
from lossless.log.batch import Record
from lossless.log.compression import Compression, compressed
from one_request import ask, error_of

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
MEGABYTE = 1024 * 1024


def test_keys_values_headers_and_times_come_back_as_they_were_sent(kafka: Subject) -> None:
    topic = kafka.topic(retention_ms="-1")
    sent = [
        {"key": b"k", "value": b"v", "timestamp": 1_000},
        {"key": None, "value": b"v", "timestamp": 999},
        {"key": b"k", "value": None, "timestamp": 1_700_000_000_123},
        {"key": None, "value": None, "timestamp": 2},
        {"key": b"", "value": b"", "timestamp": 3},
        {
            "key": b"\xff\0",
            "value": b"\0" * 100,
            "timestamp": 4,
            "headers": [("a", b"1"), ("a", b"2"), ("none", None), ("", b""), ("\u00fc", b"\xff")],
        },
    ]
    delivered = kafka.send(topic, *sent)
    assert [message.offset() for message in delivered] == list(range(len(sent)))
    read = kafka.read(topic)
    assert [message.offset() for message in read] == list(range(len(sent)))
    for message, record in zip(read, sent, strict=True):
        assert (message.key(), message.value()) == (record["key"], record["value"])
        assert message.timestamp() == (TIMESTAMP_CREATE_TIME, record["timestamp"])
        assert message.headers() == record.get("headers")


def test_the_brokers_clock_counts_where_the_topic_says_so(kafka: Subject) -> None:
    topic = kafka.topic(message_timestamp_type="LogAppendTime")
    before_ms = int(time.time() * 1000)
    (delivered,) = kafka.send(topic, {"value": b"v", "timestamp": 1_000})
    after_ms = int(time.time() * 1000)
    (read,) = kafka.read(topic)
    kind, time_ms = read.timestamp()
    assert kind == TIMESTAMP_LOG_APPEND_TIME
    assert before_ms <= time_ms <= after_ms
    assert delivered.timestamp() == (TIMESTAMP_LOG_APPEND_TIME, time_ms)


def test_a_time_too_far_from_the_brokers_is_refused(kafka: Subject) -> None:
    topic = kafka.topic(message_timestamp_after_max_ms="1000")
    future = {"value": b"v", "timestamp": int(time.time() * 1000) + 3_600_000}
    assert error_code(lambda: kafka.send(topic, future)) is Error.INVALID_TIMESTAMP
    old = kafka.topic(message_timestamp_before_max_ms="1000")
    past = {"value": b"v", "timestamp": 1_000}
    assert error_code(lambda: kafka.send(old, past)) is Error.INVALID_TIMESTAMP
    assert kafka.read(topic) == kafka.read(old) == []


def test_an_empty_topic_has_an_end_and_nothing_before_it(kafka: Subject) -> None:
    topic = kafka.topic(2)
    assert kafka.read(topic, 2) == []


@pytest.mark.parametrize("size", [MEGABYTE - 200, MEGABYTE + 1])
def test_records_beyond_a_megabyte_are_refused_unless_the_topic_allows_them(
    kafka: Subject, size: int
) -> None:
    topic, larger = kafka.topic(), kafka.topic(max_message_bytes="2000000")
    value = bytes(size)
    expected = Error.NONE if size < MEGABYTE else Error.MESSAGE_TOO_LARGE
    assert error_code(lambda: kafka.send(topic, value, message_max_bytes=4_000_000)) is expected
    assert len(kafka.read(topic)) == (1 if expected is Error.NONE else 0)
    kafka.send(larger, value, message_max_bytes=4_000_000)
    (read,) = kafka.read(larger)
    assert read.value() == value


@pytest.mark.parametrize("codec", CODECS)
def test_a_batch_stays_as_the_producer_compressed_it(kafka: Subject, codec: str) -> None:
    topic = kafka.topic()
    values = [f"value {number} " * 20 for number in range(20)]
    kafka.send(topic, *values, compression_type=codec, linger_ms=100)
    assert {one.compression for one in kafka.stored(topic)} == {Compression[codec.upper()]}
    assert kafka.values(topic) == values


@pytest.mark.parametrize("codec", ["uncompressed", "gzip", "snappy", "lz4", "zstd"])
def test_the_topics_codec_is_what_is_stored(kafka: Subject, codec: str) -> None:
    topic = kafka.topic(compression_type=codec)
    values = [f"value {number} " * 20 for number in range(20)]
    sent = "lz4" if codec != "lz4" else "gzip"
    kafka.send(topic, *values, compression_type=sent, linger_ms=100)
    kafka.send(topic, *values, linger_ms=100)
    kind = Compression.NONE if codec == "uncompressed" else Compression[codec.upper()]
    assert {one.compression for one in kafka.stored(topic)} == {kind}
    assert kafka.values(topic) == values * 2


@pytest.mark.parametrize("acks", ["0", "1", "all"])
def test_records_arrive_with_every_kind_of_acknowledgement(kafka: Subject, acks: str) -> None:
    topic = kafka.topic(3)
    values = [str(number) for number in range(30)]
    kafka.send(topic, *values, acks=acks)
    assert wait_until(lambda: sorted(kafka.values(topic, 3)) == sorted(values), timeout_s=TIMEOUT_S)


@pytest.mark.parametrize("acks", [2, -2])
def test_other_numbers_of_acknowledgements_are_refused(kafka: Subject, acks: int) -> None:
    topic = kafka.topic()
    answer = produced(kafka.leader(topic), topic, batch("v"), acks=acks)
    assert error_of(answer) is Error.INVALID_REQUIRED_ACKS
    assert kafka.stored(topic) == []


def test_the_default_producer_of_every_client_library_is_accepted(kafka: Subject) -> None:
    topic = kafka.topic(len(DEFAULT_HEADERS))
    leaders = led_partitions(kafka.addresses()[0], topic)
    for partition, client in enumerate(DEFAULT_HEADERS):
        data = sent_by(client, Record(0, 1, None, b"a"), Record(1, 1, None, b"b")).data
        answer = produced(kafka.address(leaders[partition]), topic, data, partition=partition)
        assert (error_of(answer), answer.base_offset) == (Error.NONE, 0), client
    assert Counter(kafka.values(topic, len(DEFAULT_HEADERS))) == dict.fromkeys(
        ("a", "b"), len(DEFAULT_HEADERS)
    )


REFUSED_HEADERS = {
    "less than no records": (-1, -2),
    "no records": (0, -1),
    "more offsets than records": (1, 1),
    "fewer offsets than records": (2, 0),
}


@pytest.mark.parametrize(("count", "last_delta"), REFUSED_HEADERS.values(), ids=REFUSED_HEADERS)
def test_a_batch_whose_offsets_are_not_those_of_its_records_is_refused(
    kafka: Subject, count: int, last_delta: int
) -> None:
    topic = kafka.topic()
    data = bytearray(batch("v"))
    struct.pack_into(">i", data, 23, last_delta)
    struct.pack_into(">i", data, 57, count)
    answer = produced(kafka.leader(topic), topic, bytes(sealed(data).data))
    assert error_of(answer) is Error.INVALID_RECORD
    assert kafka.stored(topic) == []


def _poison(kind: Compression, body: bytes, count: int) -> bytes:
    """A batch with a right checksum that says that it holds so many records in this body."""
    data = bytearray(batch("v")[:61] + body)
    struct.pack_into(">i", data, 8, len(data) - 12)
    struct.pack_into(">hi", data, 21, kind, count - 1)
    struct.pack_into(">i", data, 57, count)
    return bytes(sealed(data).data)


ONE_RECORD = batch("v")[61:]
POISON = {
    **{f"garbage under {kind.name.lower()}": (kind, b"\xff" * 99, 1) for kind in Compression},
    **{
        f"5 records that hold one, {kind.name.lower()}": (kind, compressed(kind, ONE_RECORD), 5)
        for kind in Compression
    },
    "a record that is longer than it says": (
        Compression.NONE,
        bytes((ONE_RECORD[0] - 2, *ONE_RECORD[1:])),
        1,
    ),
    "two records that are one": (Compression.NONE, ONE_RECORD * 2, 1),
}


@pytest.mark.parametrize(("kind", "body", "count"), POISON.values(), ids=POISON)
def test_records_that_no_consumer_can_read_are_refused(
    kafka: Subject, kind: Compression, body: bytes, count: int
) -> None:
    topic = kafka.topic()
    leader = kafka.leader(topic)
    answer = produced(leader, topic, _poison(kind, body, count))
    assert error_of(answer) is not Error.NONE
    assert error_of(produced(leader, topic, batch("good"))) is Error.NONE
    assert kafka.values(topic) == ["good"]


def test_a_refusal_names_the_records_at_fault(kafka: Subject) -> None:
    """So that a producer fails those for good, and reports the others as not at fault."""
    topic = kafka.topic(cleanup_policy="compact")
    errors: Counter[str] = Counter()
    producer = kafka.producer(linger_ms=1000)
    for number in range(100):
        key = None if number % 10 == 0 else str(number)
        producer.produce(
            topic, b"v", key, on_delivery=lambda error, _: errors.update([error.name()])
        )
    producer.flush(TIMEOUT_S)
    assert errors == {"INVALID_RECORD": 10, "_INVALID_DIFFERENT_RECORD": 90}
    assert kafka.stored(topic) == []


def test_an_idempotent_producers_batches_are_numbered(kafka: Subject) -> None:
    topic = kafka.topic()
    kafka.send(topic, "a", enable_idempotence=True)
    kafka.send(topic, "b", enable_idempotence=True)
    first, second = kafka.stored(topic)
    assert first.producer_id >= 0
    assert second.producer_id not in (-1, first.producer_id)
    assert (first.producer_epoch, first.base_sequence) == (0, 0)


def test_a_batch_sent_again_is_stored_once_and_a_gap_is_refused(kafka: Subject) -> None:
    topic = kafka.topic()
    leader = kafka.leader(topic)
    numbered = {"producer_id": new_producer_id(leader), "producer_epoch": 0}

    def send(sequence: int, *values: str, **fields: int) -> tuple[Error, int]:
        data = batch(*values, base_sequence=sequence, **{**numbered, **fields})
        answer = produced(leader, topic, data)
        return error_of(answer), answer.base_offset

    assert send(0, "a", "b") == (Error.NONE, 0)
    assert send(2, "c") == (Error.NONE, 2)
    assert send(0, "a", "b") == (Error.NONE, 0)
    assert send(4, "d") == (Error.OUT_OF_ORDER_SEQUENCE_NUMBER, -1)
    assert send(0, "e", producer_epoch=1) == (Error.NONE, 3)
    assert send(3, "f", producer_epoch=0) == (Error.INVALID_PRODUCER_EPOCH, -1)
    assert send(1, "g", producer_epoch=2) == (Error.OUT_OF_ORDER_SEQUENCE_NUMBER, -1)
    assert kafka.values(topic) == ["a", "b", "c", "e"]


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        pytest.param(batch("v")[:-1], Error.INVALID_RECORD, id="cut"),
        pytest.param(b"", Error.INVALID_RECORD, id="empty"),
        pytest.param(batch("v")[:-1] + b"\x01", Error.CORRUPT_MESSAGE, id="checksum"),
        pytest.param(batch("v") * 2, Error.INVALID_RECORD, id="two batches"),
        pytest.param(batch("v", control=True), Error.INVALID_RECORD, id="control"),
    ],
)
def test_bytes_that_are_no_batch_are_refused(kafka: Subject, data: bytes, expected: Error) -> None:
    topic = kafka.topic()
    assert error_of(produced(kafka.leader(topic), topic, data)) is expected
    assert kafka.stored(topic) == []


def test_a_key_stays_in_its_partition_and_everything_is_read_from_many(kafka: Subject) -> None:
    topic = kafka.topic(24)
    records = [{"key": str(number % 60), "value": str(number)} for number in range(300)]
    kafka.send(topic, *records, linger_ms=20)
    read = kafka.read(topic, 24)
    assert sorted(map(text, read)) == sorted(record["value"] for record in records)
    partitions = {(message.key(), message.partition()) for message in read}
    assert len(partitions) == 60
    assert len(Counter(number for _, number in partitions)) > 12


def test_a_topic_comes_into_being_with_its_first_record(kafka: Subject) -> None:
    topic = kafka.name()
    kafka.send(topic, "first")
    assert kafka.values(topic) == ["first"]
    assert kafka.cluster.in_sync_replicas(topic, 0) == [1, 2, 3]


def test_who_asks_without_auto_creation_creates_nothing(kafka: Subject) -> None:
    topic = kafka.name()
    fields = {"topics": [{"name": topic}], "allow_auto_topic_creation": False}
    for address in kafka.addresses():
        (said,) = ask(address, METADATA, 12, **fields).topics
        assert error_of(said) is Error.UNKNOWN_TOPIC_OR_PARTITION
    fields["allow_auto_topic_creation"] = True
    (said,) = ask(kafka.addresses()[0], METADATA, 12, **fields).topics
    assert error_of(said) in (Error.UNKNOWN_TOPIC_OR_PARTITION, Error.LEADER_NOT_AVAILABLE)
    assert wait_until(
        lambda: list(led_partitions(kafka.addresses()[0], topic)) == [0], timeout_s=TIMEOUT_S
    )


@pytest.mark.parametrize("name", ["a b", "..", "x" * 250, "a/b"])
def test_a_name_that_no_topic_may_have_is_not_created(kafka: Subject, name: str) -> None:
    fields = {"topics": [{"name": name}], "allow_auto_topic_creation": True}
    (said,) = ask(kafka.addresses()[0], METADATA, 12, **fields).topics
    assert error_of(said) is Error.INVALID_TOPIC_EXCEPTION
    assert name not in kafka.admin.list_topics(timeout=TIMEOUT_S).topics


def test_a_consumer_of_a_topic_that_is_not_there_is_told_so(kafka: Subject) -> None:
    topic = kafka.name()
    with kafka.consumer(group_id=topic, topic_metadata_propagation_max_ms=0) as consumer:
        consumer.subscribe([topic])
        message = consumer.poll(TIMEOUT_S)
        assert message is not None
        error = message.error()
        assert error is not None
        assert error.code() == KafkaError.UNKNOWN_TOPIC_OR_PART
    assert topic not in kafka.admin.list_topics(timeout=TIMEOUT_S).topics
