"""What is read and written by hand, Produce and Fetch, is what kio reads and writes."""

from __future__ import annotations

import uuid
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lossless.core.messages import (
    CONSUMER,
    UNKNOWN_EPOCH,
    Error,
    Fetch,
    Fetched,
    FetchPartition,
    Produced,
    TopicPartition,
)
from lossless.log.index import AbortedTransaction
from lossless.wire import codec, fetch, produce
from lossless.wire.bounds import BadMessage

TOPICS = {"orders": 7 << 64, "payments": 9}
NAMES = {number: name for name, number in TOPICS.items()}
FETCH, PRODUCE = 1, 0

numbers = st.integers(0, 2**31 - 1)
offsets = st.integers(-1, 2**63 - 1)
epochs = st.integers(-1, 2**31 - 1)
partitions = st.lists(
    st.tuples(st.sampled_from(sorted(TOPICS)), st.integers(0, 99), offsets, epochs, numbers),
    max_size=6,
    unique_by=lambda one: one[:2],
)
records = st.binary(max_size=300)


def by_topic(values: list[Any]) -> dict[str, list[Any]]:
    topics: dict[str, list[Any]] = {}
    for value in values:
        topics.setdefault(value[0], []).append(value)
    return topics


def named(name: str, version: int, since: int, field: str) -> dict[str, Any]:
    return {"topic_id": uuid.UUID(int=TOPICS[name])} if version >= since else {field: name}


@pytest.mark.parametrize("version", range(4, 19))
@given(asked=partitions, wait=numbers, epoch=epochs, rack=st.text(max_size=9), replica=epochs)
def test_a_fetch_is_read_as_kio_reads_it(
    version: int, asked: list[Any], wait: int, epoch: int, rack: str, replica: int
) -> None:
    topics = [
        {
            **named(name, version, fetch.WITH_TOPIC_IDS, "topic"),
            "partitions": [
                {
                    "partition": index,
                    "current_leader_epoch": leader_epoch,
                    "fetch_offset": offset,
                    "last_fetched_epoch": leader_epoch,
                    "log_start_offset": offset,
                    "partition_max_bytes": size,
                }
                for _, index, offset, leader_epoch, size in group
            ],
        }
        for name, group in by_topic(asked).items()
    ]
    state = {"replica_state": {"replica_id": replica, "replica_epoch": 5}}
    message = codec.make(
        codec.request_class(FETCH, version),
        {
            **(state if version >= 15 else {"replica_id": replica}),
            "max_wait": wait,
            "min_bytes": 1,
            "max_bytes": wait,
            "isolation_level": 1,
            "session_id": wait,
            "session_epoch": epoch,
            "topics": topics,
            "forgotten_topics_data": [
                {**named(name, version, 13, "topic"), "partitions": [3, 4]} for name in TOPICS
            ],
            "rack_id": rack,
        },
    )
    read = fetch.read(b"head" + codec.write(message), 4, version, NAMES)
    is_flexible, has_ids = version >= 12, version >= 13
    keys = {name: TOPICS[name].to_bytes(16, "big") if has_ids else name for name in TOPICS}
    assert read.named == [
        fetch.Asked(
            keys[name],
            name,
            FetchPartition(
                TopicPartition(name, index),
                offset,
                leader_epoch if version >= 9 else UNKNOWN_EPOCH,
                leader_epoch if is_flexible else UNKNOWN_EPOCH,
                offset if version >= 5 else -1,
                size,
            ),
        )
        for group in by_topic(asked).values()
        for name, index, offset, leader_epoch, size in group
    ]
    assert read.replica == (CONSUMER if replica < 0 else replica)
    assert (read.wait_ms_max, read.bytes_min, read.bytes_max) == (wait, 1, wait)
    assert read.read_committed
    if version >= 7:
        assert (read.session_id, read.session_epoch) == (wait, epoch)
        assert read.forgotten == [(keys[name], index) for name in TOPICS for index in (3, 4)]
    else:
        assert (read.session_id, read.session_epoch, read.forgotten) == (0, -1, [])
    assert read.rack_id == (rack if version >= 11 else "")
    if version >= 15:
        assert read.broker_epoch == 5


@pytest.mark.parametrize("version", range(3, 14))
@given(sent=partitions, data=records, acks=st.sampled_from([-1, 0, 1]), name=st.none() | st.text())
def test_a_produce_is_read_as_kio_reads_it(
    version: int, sent: list[Any], data: bytes, acks: int, name: str | None
) -> None:
    topics = [
        {
            **named(topic, version, produce.WITH_TOPIC_IDS, "name"),
            "partition_data": [{"index": one[1], "records": data} for one in group],
        }
        for topic, group in by_topic(sent).items()
    ]
    message = codec.make(
        codec.request_class(PRODUCE, version),
        {"transactional_id": name, "acks": acks, "timeout": 1234, "topic_data": topics},
    )
    request, unknown = produce.understood(codec.write(message), 0, version, NAMES)
    assert (request.acks, request.timeout_ms, request.transactional_id) == (acks, 1234, name)
    assert request.version == version
    assert not unknown
    assert list(request.batches) == [
        (TopicPartition(*one[:2]), data) for group in by_topic(sent).values() for one in group
    ]


def test_partitions_of_an_id_that_nobody_knows_are_told_apart() -> None:
    unknown_id = uuid.UUID(int=1234)
    topics = [{"topic_id": unknown_id, "partition_data": [{"index": 3, "records": b"x"}]}]
    message = codec.make(codec.request_class(PRODUCE, 13), {"acks": 1, "topic_data": topics})
    request, unknown = produce.understood(codec.write(message), 0, 13, NAMES)
    assert request.batches == ()
    assert unknown == ((unknown_id.bytes, 3),)
    told = produce.told((), unknown, TOPICS, {}, ())
    answer = codec.make(codec.response_class(PRODUCE, 13), told)
    (topic,) = answer.responses
    assert topic.topic_id == unknown_id
    assert topic.partition_responses[0].error_code.value == Error.UNKNOWN_TOPIC_ID


@given(data=st.binary(max_size=60), version=st.integers(3, 18))
def test_bytes_that_are_no_request_are_refused_and_not_guessed(data: bytes, version: int) -> None:
    for read in (fetch.read, produce.understood):
        with suppress(BadMessage):  # and nothing else
            read(data, 0, version, NAMES)


@pytest.mark.parametrize("version", range(3, 14))
@given(done=partitions)
def test_an_answer_to_produce_is_what_kio_would_write(version: int, done: list[Any]) -> None:
    produced = [
        Produced(TopicPartition(name, index), Error.NONE, offset, offset, -1)
        for group in by_topic(done).values()
        for name, index, offset, *_ in group
    ]
    frame = produce.all_well(77, version, produced, TOPICS)
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4
    assert int.from_bytes(frame[4:8], "big") == 77
    at = 9 if version >= produce.FLEXIBLE else 8
    expected = codec.make(
        codec.response_class(PRODUCE, version), produce.told(produced, (), TOPICS, {}, ())
    )
    assert frame[at:] == codec.write(expected)


@pytest.mark.parametrize("read_committed", [False, True])
@pytest.mark.parametrize("version", range(4, 19))
@given(done=partitions, data=records)
def test_an_answer_to_fetch_is_what_kio_would_write(
    version: int, read_committed: bool, done: list[Any], data: bytes
) -> None:
    aborted = (AbortedTransaction(7, 1, 5, 6),) if read_committed else ()
    fetched = [
        Fetched(TopicPartition(name, index), Error.NONE, offset, offset, 0, None, aborted, data)
        for group in by_topic(done).values()
        for name, index, offset, *_ in group
    ]
    buffers = fetch.all_well(77, version, 12, fetched, TOPICS, read_committed)
    frame = b"".join(buffers)
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4
    at = 9 if version >= fetch.FLEXIBLE else 8
    told = [
        fetch.Told(
            TOPICS[one.partition.topic].to_bytes(16, "big")
            if version >= fetch.WITH_TOPIC_IDS
            else one.partition.topic,
            one,
        )
        for one in fetched
    ]
    fields = fetch.told(12, told, (), read_committed)
    expected = codec.make(codec.response_class(FETCH, version), fields)
    assert frame[at:] == codec.write(expected)


@given(asked=partitions)
def test_what_a_follower_asks_is_what_kio_would_write_and_what_a_leader_reads(
    asked: list[Any],
) -> None:
    request = Fetch(
        2,
        77,
        500,
        1,
        tuple(
            FetchPartition(TopicPartition(name, index), offset, epoch, epoch, 0, size)
            for group in by_topic(asked).values()
            for name, index, offset, epoch, size in group
        ),
    )
    written = fetch.asked(request, TOPICS)
    by_kio = codec.read(codec.request_class(FETCH, fetch.VERSION), written, 0)
    assert codec.write(by_kio) == written
    read = fetch.read(written, 0, fetch.VERSION, NAMES)
    assert fetch.understood(read, [one.partition for one in read.named]) == request
