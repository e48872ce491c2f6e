"""What is read and written by hand, Produce and Fetch, is what kio reads and writes."""

from __future__ import annotations

import struct
import time
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
from lossless.log.leader_epochs import EpochEnd
from lossless.wire import codec, fetch, produce
from lossless.wire.bounds import ELEMENTS_MAX, TAGS_MAX, BadMessage
from lossless.wire.encoding import varint

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


@pytest.mark.parametrize("version", range(3, 14))
def test_a_produce_that_ends_too_early_is_refused_wherever_it_ends(version: int) -> None:
    topics = [
        {
            **named(topic, version, produce.WITH_TOPIC_IDS, "name"),
            "partition_data": [{"index": 0, "records": b"r" * 200}, {"index": 1, "records": b""}],
        }
        for topic in TOPICS
    ]
    message = codec.make(
        codec.request_class(PRODUCE, version),
        {"transactional_id": "mine", "acks": -1, "timeout": 1, "topic_data": topics},
    )
    frame = codec.write(message)
    assert len(produce.understood(frame, 0, version, NAMES).request.batches) == 4
    for size in range(len(frame)):
        with pytest.raises(BadMessage):
            produce.understood(frame[:size], 0, version, NAMES)


def test_tagged_fields_of_a_produce_are_passed_over() -> None:
    topic = {"name": "orders", "partition_data": [{"index": 3, "records": b"records"}]}
    message = codec.make(codec.request_class(PRODUCE, 9), {"acks": 1, "topic_data": [topic]})
    frame = codec.write(message)
    assert frame.endswith(b"records\0\0\0")  # of the partition, of the topic, of the request
    request, _ = produce.understood(frame[:-3] + b"\1\x09\3abc" * 3, 0, 9, NAMES)
    assert request.batches == ((TopicPartition("orders", 3), b"records"),)


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
    fetch.read_plain(data, 0, version, NAMES, 1000)


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
    ids = {name: TOPICS[name].to_bytes(16, "big") for name in by_topic(asked)}
    plain = fetch.read_plain(b"head" + written, 4, fetch.VERSION, NAMES, 1000)
    assert plain == (request._replace(bytes_max=1000), ids)
    for size in range(len(written)):
        assert fetch.read_plain(written[:size], 0, fetch.VERSION, NAMES, 1000) is None


@pytest.mark.parametrize("version", range(4, 19))
@given(
    asked=partitions,
    session=st.sampled_from([(0, -1), (0, -1), (0, 0), (7, -1), (7, 3)]),
    rack=st.sampled_from(["", "", "here"]),
    forgets=st.booleans(),
    replica=st.sampled_from([CONSUMER, 0, 2]),
    known=st.sampled_from([NAMES, {9: "payments"}]),
    unknown_tag=st.sampled_from([b"\0", b"\1\x63\0"]),
)
def test_what_is_read_plainly_is_what_is_read_otherwise(
    version: int,
    asked: list[Any],
    session: tuple[int, int],
    rack: str,
    forgets: bool,
    replica: int,
    known: dict[int, str],
    unknown_tag: bytes,
) -> None:
    topics = [
        {
            **named(name, version, fetch.WITH_TOPIC_IDS, "topic"),
            "partitions": [
                {"partition": one[1], "fetch_offset": one[2], "partition_max_bytes": one[4]}
                for one in group
            ],
        }
        for name, group in by_topic(asked).items()
    ]
    state = {"replica_state": {"replica_id": replica, "replica_epoch": 5}}
    forgotten = [{**named("orders", version, 13, "topic"), "partitions": [3]}]
    message = codec.make(
        codec.request_class(FETCH, version),
        {
            **((state if replica >= 0 else {}) if version >= 15 else {"replica_id": replica}),
            "max_wait": 500,
            "min_bytes": 1,
            "max_bytes": 1 << 20,
            "isolation_level": 1,
            "session_id": session[0],
            "session_epoch": session[1],
            "topics": topics,
            "forgotten_topics_data": forgotten if forgets else [],
            "rack_id": rack,
        },
    )
    frame = codec.write(message)
    is_tagged = version >= 15 and replica == CONSUMER and unknown_tag != b"\0"
    if is_tagged:
        frame = frame[:-1] + unknown_tag
    plain = fetch.read_plain(frame, 0, version, known, 1 << 30)
    read = fetch.read(frame, 0, version, known)
    is_plain = (
        version >= 15
        and session == (0, -1)
        and not rack
        and not forgets
        and not is_tagged
        and all(one.name for one in read.named)
    )
    assert (plain is not None) == is_plain
    if plain is not None:
        assert plain[0] == fetch.understood(read, [one.partition for one in read.named])
        assert plain[1] == {one.name: one.topic for one in read.named}


def _asked(partitions: list[TopicPartition]) -> Fetch:
    return Fetch(2, 77, 500, 1, tuple(FetchPartition(one, 0) for one in partitions))


def _by_kio(fields: Any) -> bytes:
    return codec.write(codec.make(codec.response_class(FETCH, fetch.VERSION), fields))


def _told(partitions: list[Fetched], *, read_committed: bool = False) -> Any:
    """With everything that an answer may have: who leads instead, and where to find it."""
    leader = {"leader_id": 3, "leader_epoch": 9}
    node = {"node_id": 3, "host": "localhost", "port": 9092, "rack": None}
    told = [
        fetch.Told(
            TOPICS[one.partition.topic].to_bytes(16, "big"), one, leader if one.error else None
        )
        for one in partitions
    ]
    is_refused = any(one.error for one in partitions)
    return fetch.told(0, told, [node] if is_refused else (), read_committed)


fetched_errors = st.sampled_from(
    [Error.NONE, Error.NOT_LEADER_OR_FOLLOWER, Error.UNKNOWN_SERVER_ERROR]
)
diverging = st.none() | st.builds(EpochEnd, epochs, st.integers(0, 2**63 - 1))


@given(
    done=partitions,
    data=records | st.binary(min_size=20_000, max_size=20_000),
    rest=st.lists(st.tuples(fetched_errors, diverging), min_size=6, max_size=6),
)
def test_a_follower_reads_of_an_answer_what_kio_has_written(
    done: list[Any], data: bytes, rest: list[tuple[Error, EpochEnd | None]]
) -> None:
    fetched = [
        Fetched(TopicPartition(*one[:2]), error, one[2], one[2], 0, parting, (), data)
        for one, (error, parting) in zip(done, rest, strict=False)
    ]
    request = _asked([one.partition for one in fetched])
    message = _by_kio(_told(fetched))
    assert fetch.answered(b"head" + message, 4, request, NAMES).partitions == tuple(fetched)


@given(done=partitions, data=records)
def test_a_follower_reads_what_a_leader_writes_by_hand(done: list[Any], data: bytes) -> None:
    fetched = [
        Fetched(TopicPartition(*one[:2]), Error.NONE, one[2], one[2], 0, None, (), data)
        for one in done
    ]
    request = _asked([one.partition for one in fetched])
    frame = b"".join(fetch.all_well(77, fetch.VERSION, 0, fetched, TOPICS, False))
    assert fetch.answered(frame, 9, request, NAMES).partitions == tuple(fetched)


def _two_topics() -> list[Fetched]:
    diverging = EpochEnd(4, 70)
    return [
        Fetched(TopicPartition("orders", 0), Error.NONE, 100, 90, 10, None, (), b"records" * 30),
        Fetched(TopicPartition("orders", 1), Error.NONE, 100, 90, 10, diverging, (), b""),
        Fetched(TopicPartition("payments", 0), Error.NOT_LEADER_OR_FOLLOWER),
    ]


def test_what_an_answer_does_not_mention_is_unknown() -> None:
    asked = [TopicPartition("payments", 5), TopicPartition("orders", 1)]
    answer = fetch.answered(_by_kio(_told(_two_topics())), 0, _asked(asked), NAMES)
    assert answer.partitions == (Fetched(asked[0], Error.UNKNOWN_TOPIC_ID), _two_topics()[1])
    empty = fetch.answered(_by_kio({}), 0, _asked(asked), NAMES)
    assert empty.partitions == tuple(Fetched(one, Error.UNKNOWN_TOPIC_ID) for one in asked)


def test_aborted_transactions_are_passed_over() -> None:
    aborted = (AbortedTransaction(7, 1, 5, 6), AbortedTransaction(8, 2, 5, 6))
    told = [_two_topics()[0]._replace(aborted=aborted), *_two_topics()[1:]]
    request = _asked([one.partition for one in told])
    answer = fetch.answered(_by_kio(_told(told, read_committed=True)), 0, request, NAMES)
    assert list(answer.partitions) == _two_topics()


def test_no_records_at_all_are_none() -> None:
    said = {"partition_index": 0, "high_watermark": 5, "records": None}
    topic = {"topic_id": uuid.UUID(int=TOPICS["orders"]), "partitions": [said]}
    request = _asked([TopicPartition("orders", 0)])
    (fetched,) = fetch.answered(_by_kio({"responses": [topic]}), 0, request, NAMES).partitions
    assert (fetched.high_watermark, fetched.diverging, fetched.data) == (5, None, b"")


def test_tagged_fields_that_nobody_knows_are_passed_over() -> None:
    message = _by_kio(_told(_two_topics()[:1]))
    assert message.endswith(b"\0\0\0")  # of the partition, of the topic, of the answer
    unknown = b"\1\x09\3abc"
    request = _asked([TopicPartition("orders", 0)])
    answer = fetch.answered(message[:-3] + unknown * 3, 0, request, NAMES)
    assert list(answer.partitions) == _two_topics()[:1]


def test_an_answer_that_ends_too_early_is_refused_wherever_it_ends() -> None:
    message = _by_kio(_told(_two_topics()))
    request = _asked([one.partition for one in _two_topics()])
    assert list(fetch.answered(message, 0, request, NAMES).partitions) == _two_topics()
    for size in range(len(message)):
        with pytest.raises(BadMessage):
            fetch.answered(message[:size], 0, request, NAMES)


@pytest.mark.parametrize("missing", [b"\0", b"\2" + bytes(16) + b"\0"])
def test_an_answer_without_its_arrays_is_refused(missing: bytes) -> None:
    message = bytes(10) + missing + bytes(100)
    with pytest.raises(BadMessage):
        fetch.answered(message, 0, _asked([]), NAMES)


def test_a_fetch_that_is_refused_as_a_whole_has_no_partitions() -> None:
    message = _by_kio({"error_code": Error.FETCH_SESSION_ID_NOT_FOUND})
    with pytest.raises(ValueError, match="FETCH_SESSION_ID_NOT_FOUND"):
        fetch.answered(message, 0, _asked([]), NAMES)


@given(data=st.binary(max_size=80))
def test_bytes_that_are_no_answer_are_refused_and_not_guessed(data: bytes) -> None:
    with suppress(ValueError):  # and nothing else
        fetch.answered(data, 0, _asked([]), NAMES)


# Floods


def test_partitions_of_all_topics_together_are_bounded() -> None:
    half = ELEMENTS_MAX // 2
    partition = b"\0\0\0\0\0\0"  # its number, no records, no tags
    topic = b"\2a" + varint(half + 1) + partition * half + b"\0"
    fits = b"\0" + struct.pack(">hi", 1, 0) + varint(2) + topic + b"\0"
    assert len(produce.understood(fits, 0, 9, {}).request.batches) == half
    with pytest.raises(BadMessage, match="elements"):
        produce.understood(b"\0" + struct.pack(">hi", 1, 0) + varint(3) + topic * 2, 0, 9, {})
    topic = b"\2a" + varint(half + 1) + bytes(33) * half + b"\0"
    whole = struct.pack(">iiiibii", -1, 0, 0, 0, 0, 0, -1) + varint(3) + topic * 2
    with pytest.raises(BadMessage, match="elements"):
        fetch.read(whole, 0, 12, {})


@pytest.mark.parametrize("count", [TAGS_MAX + 1, 0x7FFFFFFF])
def test_tags_behind_a_partition_are_bounded(count: int) -> None:
    tags = varint(count) + b"\0" * 1_000_000
    body = b"\0" + struct.pack(">hi", 1, 0) + b"\2\2a\2\0\0\0\0\0" + tags
    started = time.process_time()
    with pytest.raises(BadMessage, match="tagged fields"):
        produce.understood(body, 0, 9, {})
    assert time.process_time() - started < 0.5
