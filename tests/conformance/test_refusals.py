"""What brokers refuse, with which of Kafka's error codes. Asked without a client in between."""

from __future__ import annotations

import contextlib
import socket
import uuid
from typing import Any

import pytest
from confluent_kafka import ElectionType, TopicPartition
from subject import (
    FETCH,
    LIST_OFFSETS,
    METADATA,
    PRODUCE,
    TIMEOUT_S,
    Subject,
    batch,
    fetched,
    led_partitions,
    produced,
)

from lossless.core.error_codes import Error
from lossless.engines.waiting import wait_until
from lossless.wire.codec import read, response_class
from lossless.wire.frames import request
from one_request import ask, ask_in_bytes, error_of, written

API_VERSIONS, OFFSET_FOR_LEADER_EPOCH, REASSIGN = 18, 23, 45
NOBODY = uuid.UUID(int=0xDEAD)


def listed(address: str, topic: str, **fields: Any) -> Any:
    partition = {"partition_index": 0, "timestamp": -1, "current_leader_epoch": -1} | fields
    topics = [{"name": topic, "partitions": [partition]}]
    answer = ask(address, LIST_OFFSETS, 7, replica_id=-1, isolation_level=0, topics=topics)
    return answer.topics[0].partitions[0]


def epoch_end(address: str, topic: str, epoch: int, **fields: Any) -> Any:
    partition = {"partition": 0, "leader_epoch": epoch, "current_leader_epoch": -1} | fields
    topics = [{"topic": topic, "partitions": [partition]}]
    answer = ask(address, OFFSET_FOR_LEADER_EPOCH, 4, replica_id=-1, topics=topics)
    return answer.topics[0].partitions[0]


# Topics and partitions that are not there


def test_an_unknown_partition_is_refused_by_whoever_is_asked(kafka: Subject) -> None:
    topic = kafka.topic()
    for address in kafka.addresses():
        for name, partition in ((topic, 1), (topic, -1), (kafka.name(), 0)):
            answers = [
                produced(address, name, batch("v"), partition=partition),
                fetched(address, name, partition, 0),
                listed(address, name, partition_index=partition),
                epoch_end(address, name, 0, partition=partition),
            ]
            said = [error_of(answer) for answer in answers]
            assert said == [Error.UNKNOWN_TOPIC_OR_PARTITION] * 4


def test_an_unknown_topic_id_is_refused(kafka: Subject) -> None:
    topic = kafka.topic()
    leader, topic_id = kafka.leader(topic), kafka.topic_id(topic)
    assert error_of(produced(leader, topic_id, batch("v"), version=13)) is Error.NONE
    assert error_of(produced(leader, NOBODY, batch("v"), version=13)) is Error.UNKNOWN_TOPIC_ID
    partition = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1000}
    partition |= {"log_start_offset": -1, "current_leader_epoch": -1}
    topics = [{"topic_id": NOBODY, "partitions": [partition]}]
    whole = {"max_wait": 0, "min_bytes": 0, "max_bytes": 1000, "session_epoch": -1}
    said = ask(leader, FETCH, 13, topics=topics, **whole).responses[0].partitions[0]
    assert error_of(said) is Error.UNKNOWN_TOPIC_ID
    (said,) = ask(leader, METADATA, 12, topics=[{"topic_id": NOBODY, "name": None}]).topics
    assert error_of(said) is Error.UNKNOWN_TOPIC_ID
    (said,) = ask(leader, METADATA, 12, topics=[{"topic_id": topic_id, "name": None}]).topics
    assert (error_of(said), said.name) == (Error.NONE, topic)


# Who leads


def test_a_follower_takes_no_records_and_tells_who_leads(kafka: Subject) -> None:
    topic = kafka.topic()
    follower = kafka.follower(topic)
    said = produced(follower, topic, batch("v"), version=10)
    assert error_of(said) is Error.NOT_LEADER_OR_FOLLOWER
    assert kafka.address(said.current_leader.leader_id) == kafka.leader(topic)
    assert said.current_leader.leader_epoch == 0
    assert error_of(listed(follower, topic)) is Error.NOT_LEADER_OR_FOLLOWER
    assert error_of(epoch_end(follower, topic, 0)) is Error.NOT_LEADER_OR_FOLLOWER
    assert kafka.stored(topic) == []


def test_a_broker_without_the_partition_serves_no_reader(kafka: Subject) -> None:
    topic = kafka.topic(replicas=1)
    leader = kafka.leader(topic)
    for address in kafka.addresses():
        expected = Error.NONE if address == leader else Error.NOT_LEADER_OR_FOLLOWER
        assert error_of(fetched(address, topic, 0, 0)) is expected
        assert error_of(produced(address, topic, batch("v"), acks=1)) is expected


def test_a_leader_epoch_that_is_not_the_leaders_is_refused(kafka: Subject) -> None:
    topic = kafka.topic(replicas=2)
    address = kafka.addresses()[0]
    (first,) = led_partitions(address, topic).values()
    (said,) = ask(address, METADATA, 12, topics=[{"name": topic}]).topics
    second = next(one for one in said.partitions[0].replica_nodes if one != first)
    moved = {"partition_index": 0, "replicas": [second, first]}
    topics = [{"name": topic, "partitions": [moved]}]
    assert (
        error_of(ask(address, REASSIGN, 0, timeout=TIMEOUT_S * 1000, topics=topics)) is Error.NONE
    )
    kafka.admin.elect_leaders(ElectionType.PREFERRED, [TopicPartition(topic, 0)]).result(TIMEOUT_S)
    assert wait_until(
        lambda: all(led_partitions(at, topic) == {0: second} for at in kafka.addresses()),
        timeout_s=TIMEOUT_S,
    )
    leader = kafka.address(second)

    def answers(epoch: int) -> list[Error]:
        return [
            error_of(fetched(leader, topic, 0, 0, current_leader_epoch=epoch)),
            error_of(listed(leader, topic, current_leader_epoch=epoch)),
            error_of(epoch_end(leader, topic, 0, current_leader_epoch=epoch)),
        ]

    assert answers(0) == [Error.FENCED_LEADER_EPOCH] * 3
    assert answers(1000) == [Error.UNKNOWN_LEADER_EPOCH] * 3
    (known,) = ask(leader, METADATA, 12, topics=[{"name": topic}]).topics
    assert answers(known.partitions[0].leader_epoch) == [Error.NONE] * 3


def test_who_asks_where_an_epoch_ends_is_told(kafka: Subject) -> None:
    topic = kafka.topic()
    leader = kafka.leader(topic)
    assert error_of(produced(leader, topic, batch("a", "b"))) is Error.NONE
    ended = epoch_end(leader, topic, 0)
    assert (error_of(ended), ended.leader_epoch, ended.end_offset) == (Error.NONE, 0, 2)
    later = epoch_end(leader, topic, 7)
    assert (error_of(later), later.leader_epoch, later.end_offset) == (Error.NONE, -1, -1)


def test_a_batch_that_wants_no_answer_and_is_refused_costs_the_connection(kafka: Subject) -> None:
    """That is how a producer with acks=0 learns that it should look for the leader."""
    topic = kafka.topic()
    topics = [{"name": topic, "partition_data": [{"index": 0, "records": batch("v")}]}]
    message = written(PRODUCE, 9, acks=0, timeout=1000, topic_data=topics)
    with pytest.raises(ConnectionError):
        ask_in_bytes(kafka.follower(topic), PRODUCE, 9, message)
    assert kafka.stored(topic) == []


# Versions


@pytest.mark.parametrize("version", range(5))
def test_every_version_of_api_versions_is_answered(kafka: Subject, version: int) -> None:
    names = {"client_software_name": "conformance", "client_software_version": "1"}
    for address in kafka.addresses():
        said = ask(address, API_VERSIONS, version, **(names if version >= 3 else {}))
        assert error_of(said) is Error.NONE
        ranges = {one.api_key: (one.min_version, one.max_version) for one in said.api_keys}
        assert ranges[PRODUCE] == (0, 13)
        assert ranges[API_VERSIONS] == (0, 4)


def test_a_version_of_api_versions_that_is_not_there_is_answered_in_the_first(
    kafka: Subject,
) -> None:
    frame = ask_in_bytes(kafka.addresses()[0], API_VERSIONS, 99, b"\1\1\0", tagged=True)
    said = read(response_class(API_VERSIONS, 0), frame, 4)
    assert error_of(said) is Error.UNSUPPORTED_VERSION
    (only,) = said.api_keys
    assert (only.api_key, only.min_version, only.max_version) == (API_VERSIONS, 0, 4)


def test_a_client_with_a_name_that_is_none_is_refused(kafka: Subject) -> None:
    names = {"client_software_name": "not a name!", "client_software_version": "1"}
    said = ask(kafka.addresses()[0], API_VERSIONS, 3, **names)
    assert error_of(said) is Error.INVALID_REQUEST


@pytest.mark.parametrize(
    ("key", "version", "message"),
    [
        pytest.param(PRODUCE, 2, b"", id="below the range"),
        pytest.param(METADATA, 99, b"", id="above the range"),
        pytest.param(METADATA, -1, b"", id="negative"),
        pytest.param(999, 0, b"", id="unknown request"),
        pytest.param(METADATA, 12, b"\xff" * 9, id="no message"),
        pytest.param(56, 2, b"", id="between brokers only"),
    ],
)
def test_what_cannot_be_answered_costs_the_connection(
    kafka: Subject, key: int, version: int, message: bytes
) -> None:
    with pytest.raises(ConnectionError):
        ask_in_bytes(kafka.addresses()[0], key, version, message, tagged=True)


def test_a_frame_that_is_too_long_costs_the_connection(kafka: Subject) -> None:
    host, _, port = kafka.addresses()[0].rpartition(":")
    for length in (-1, (1 << 31) - 1):
        with socket.create_connection((host, int(port)), timeout=TIMEOUT_S) as connection:
            connection.sendall(length.to_bytes(4, "big", signed=True) + bytes(20))
            # It need not wait until all that we have sent is read.
            with contextlib.suppress(ConnectionResetError):
                assert connection.recv(1) == b""


def test_requests_are_answered_in_their_order(kafka: Subject) -> None:
    """One that waits holds up those behind it on the same connection."""
    topic = kafka.topic()
    host, _, port = kafka.leader(topic).rpartition(":")
    partition = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1000}
    partition |= {"log_start_offset": -1, "current_leader_epoch": -1}
    waits = written(
        FETCH,
        12,
        max_wait=300,
        min_bytes=1,
        max_bytes=1000,
        session_epoch=-1,
        replica_id=-1,
        topics=[{"topic": topic, "partitions": [partition]}],
    )
    quick = written(METADATA, 12, topics=[])
    with socket.create_connection((host, int(port)), timeout=TIMEOUT_S) as connection:
        connection.sendall(request(FETCH, 12, 1, "raw", waits, tagged=True))
        connection.sendall(request(METADATA, 12, 2, "raw", quick, tagged=True))
        received = b""
        while len(received) < 8:
            received += connection.recv(8 - len(received))
    assert int.from_bytes(received[4:8], "big") == 1
