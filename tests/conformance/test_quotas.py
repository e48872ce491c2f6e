"""Client quotas: described, altered, and enforced as KIP-219 has it."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from typing import Any

import pytest
from subject import FETCH, PRODUCE, Subject, batch
from test_java_tools import tool

from lossless.core.error_codes import Error
from lossless.engines.waiting import wait_until
from lossless.wire.codec import milliseconds
from one_connection import OneConnection
from one_request import ask, error_of

DESCRIBE, ALTER, API_VERSIONS = 48, 49, 18
METADATA, CREATE_TOPICS, DELETE_TOPICS, CREATE_PARTITIONS = 3, 19, 20, 37
EXACT, DEFAULT, ANY = 0, 1, 2
TIMEOUT_S = 60.0
Entity = dict[str, str | None]


def alter(
    kafka: Subject, entity: Entity, *, validate_only: bool = False, **limits: float | None
) -> Error:
    fields = changes(entity, **limits) | {"validate_only": validate_only}
    return error_of(ask(kafka.addresses()[0], ALTER, 1, **fields).entries[0])


def changes(entity: Entity, **limits: float | None) -> dict[str, Any]:
    """The fields of a request to alter."""
    named = [{"entity_type": kind, "entity_name": name} for kind, name in entity.items()]
    ops = [
        {"key": key, "value": value or 0.0, "remove": value is None}
        for key, value in limits.items()
    ]
    return {"entries": [{"entity": named, "ops": ops}], "validate_only": False}


def described(
    address: str, *components: tuple[str, int, str | None], strict: bool = False
) -> tuple[Error, list[tuple[Entity, dict[str, float]]]]:
    asked = [
        {"entity_type": kind, "match_type": match, "match": name}
        for kind, match, name in components
    ]
    answer = ask(address, DESCRIBE, 1, components=asked, strict=strict)
    found = [
        (
            {part.entity_type: part.entity_name for part in entry.entity},
            {one.key: one.value for one in entry.values},
        )
        for entry in answer.entries or ()
    ]
    return error_of(answer), found


@pytest.fixture(autouse=True)
def without_limits(kafka: Subject) -> Iterator[None]:
    """No limit of one test concerns another."""
    yield
    for entity, limits in described(kafka.addresses()[0])[1]:
        assert alter(kafka, entity, **dict.fromkeys(limits)) is Error.NONE
    for address in kafka.addresses():
        assert wait_until(lambda at=address: described(at)[1] == [], timeout_s=TIMEOUT_S)


def limit(kafka: Subject, entity: Entity, **limits: float | None) -> None:
    """Sets limits, and waits until every broker has them."""
    assert alter(kafka, entity, **limits) is Error.NONE
    for address in kafka.addresses():
        assert wait_until(
            lambda at=address: (entity, limits) in described(at)[1], timeout_s=TIMEOUT_S
        )


def test_limits_are_set_changed_and_removed(kafka: Subject) -> None:
    name = kafka.name()
    entity: Entity = {"client-id": name}
    assert alter(kafka, entity, validate_only=True, producer_byte_rate=5.0) is Error.NONE
    limit(kafka, entity, producer_byte_rate=1e9, request_percentage=99.5)
    limit(kafka, {"client-id": None}, consumer_byte_rate=1e9)
    limit(kafka, {"client-id": name, "user": "alice"}, consumer_byte_rate=1e9)
    first = kafka.addresses()[0]
    assert alter(kafka, entity, producer_byte_rate=None) is Error.NONE
    exact = ("client-id", EXACT, name)
    one = (entity, {"request_percentage": 99.5})
    assert wait_until(
        lambda: described(first, exact, strict=True) == (Error.NONE, [one]), timeout_s=TIMEOUT_S
    )
    assert len(described(first, exact)[1]) == 2
    assert len(described(first, ("client-id", ANY, None))[1]) == 3
    assert [found for found, _ in described(first, ("client-id", DEFAULT, None))[1]] == [
        {"client-id": None}
    ]
    assert described(first, ("user", DEFAULT, None)) == (Error.NONE, [])
    assert len(described(first)[1]) == 3


@pytest.mark.parametrize(
    ("entity", "limits"),
    [
        ({}, {"producer_byte_rate": 1.0}),
        ({"group": "x"}, {"producer_byte_rate": 1.0}),
        ({"user": ""}, {"producer_byte_rate": 1.0}),
        ({"user": "a", "ip": "127.0.0.1"}, {"producer_byte_rate": 1.0}),
        ({"ip": "127.0.0.1"}, {"producer_byte_rate": 1.0}),
        ({"user": "a"}, {"connection_creation_rate": 1.0}),
        ({"user": "a"}, {"no_such_rate": 1.0}),
        ({"user": "a"}, {"producer_byte_rate": 0.5}),
        ({"user": "a"}, {"producer_byte_rate": -1.0}),
        ({"user": "a"}, {"producer_byte_rate": 1e19}),
    ],
    ids=str,
)
def test_limits_that_cannot_be_are_refused(
    kafka: Subject, entity: Entity, limits: dict[str, float]
) -> None:
    assert alter(kafka, entity, **limits) is Error.INVALID_REQUEST
    assert described(kafka.addresses()[0])[1] == []


@pytest.mark.parametrize(
    ("components", "expected"),
    [
        ([("user", EXACT, None)], Error.INVALID_REQUEST),
        ([("user", DEFAULT, "a")], Error.INVALID_REQUEST),
        ([("user", ANY, "a")], Error.INVALID_REQUEST),
        ([("user", 7, None)], Error.INVALID_REQUEST),
        ([("", ANY, None)], Error.INVALID_REQUEST),
        ([("user", ANY, None), ("user", EXACT, "a")], Error.INVALID_REQUEST),
        ([("user", ANY, None), ("ip", ANY, None)], Error.INVALID_REQUEST),
        ([("group", ANY, None)], Error.UNSUPPORTED_VERSION),
    ],
    ids=str,
)
def test_filters_that_cannot_be_are_refused(
    kafka: Subject, components: list[tuple[str, int, str | None]], expected: Error
) -> None:
    assert described(kafka.addresses()[0], *components)[0] is expected


# Throttling


class Client(OneConnection):
    def produce(self, topic: str, data: bytes) -> Any:
        topics = [{"name": topic, "partition_data": [{"index": 0, "records": data}]}]
        return self.ask(PRODUCE, 9, acks=-1, timeout=10_000, topic_data=topics)

    def fetch(self, topic: str) -> Any:
        asked = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1 << 24}
        asked |= {"log_start_offset": -1, "current_leader_epoch": -1}
        topics = [{"topic": topic, "partitions": [asked]}]
        limits = {"max_wait": 0, "min_bytes": 0, "max_bytes": 1 << 25, "replica_id": -1}
        return self.ask(FETCH, 12, topics=topics, session_epoch=-1, **limits)


def throttled_ms(answer: Any) -> int:
    return milliseconds(answer.throttle_time)


def test_a_producer_over_its_limit_is_told_to_wait_and_is_not_read_meanwhile(
    kafka: Subject,
) -> None:
    topic, name = kafka.topic(), kafka.name()
    limit(kafka, {"client-id": name}, producer_byte_rate=2_000.0)
    with Client(kafka.leader(topic), name) as client:
        answer = client.produce(topic, batch("x" * 21_500))
        assert error_of(answer.responses[0].partition_responses[0]) is Error.NONE
        waits_ms = throttled_ms(answer)
        assert 0 < waits_ms < 2_000
        began_s = time.monotonic()
        client.produce(topic, batch("y"))
        assert (time.monotonic() - began_s) * 1000 > waits_ms * 0.9
    with Client(kafka.leader(topic), kafka.name()) as other:
        assert throttled_ms(other.produce(topic, batch("x" * 21_500))) == 0


def test_a_consumer_over_its_limit_gets_no_records_until_it_has_waited(kafka: Subject) -> None:
    topic, name = kafka.topic(), kafka.name()
    kafka.send(topic, "x" * 9_000)
    limit(kafka, {"client-id": name}, consumer_byte_rate=1_600.0)
    with Client(kafka.leader(topic), name) as client:
        first = client.fetch(topic)
        assert throttled_ms(first) == 0
        assert len(first.responses[0].partitions[0].records or b"") > 9_000
        second = client.fetch(topic)
        assert 0 < throttled_ms(second) < 5_000
        assert second.responses == ()
        assert wait_until(lambda: client.fetch(topic).responses != (), timeout_s=TIMEOUT_S)


def test_requests_that_take_too_long_are_told_to_wait(kafka: Subject) -> None:
    name = kafka.name()
    limit(kafka, {"client-id": name}, request_percentage=0.0001)
    with Client(kafka.addresses()[0], name) as client:
        asked = {"topics": None, "allow_auto_topic_creation": False}
        answers = [client.ask(METADATA, 12, **asked) for _ in range(2)]
    assert all(0 < throttled_ms(answer) <= 1_000 for answer in answers)


def test_topics_beyond_the_limit_are_refused_until_tokens_are_back(kafka: Subject) -> None:
    name = kafka.name()
    limit(kafka, {"client-id": name}, controller_mutation_rate=1.0)

    def create(client: Client, topic: str, version: int = 7) -> tuple[Error, int]:
        asked = {"name": topic, "num_partitions": 12, "replication_factor": 1}
        answer = client.ask(
            CREATE_TOPICS, version, topics=[asked], timeout=10_000, validate_only=False
        )
        return error_of(answer.topics[0]), throttled_ms(answer)

    with Client(kafka.addresses()[0], name) as client:
        first, second = kafka.name(), kafka.name()
        assert create(client, first) == (Error.NONE, 0)  # eleven seconds' worth, and one more
        error, waits_ms = create(client, second)
        assert error is Error.THROTTLING_QUOTA_EXCEEDED
        assert 0 < waits_ms <= 1_100
        error, waits_ms = create(client, second, version=5)  # which is not refused
        assert error is Error.NONE
        assert waits_ms > 0
    for topic in (first, second):
        kafka.knows(topic, 12)


def test_the_first_entity_that_has_a_limit_counts(kafka: Subject) -> None:
    topic, name = kafka.topic(), kafka.name()
    limit(kafka, {"client-id": name}, producer_byte_rate=1.0)
    limit(kafka, {"user": None}, producer_byte_rate=1e9)

    def waits(client_id: str) -> bool:
        with Client(kafka.leader(topic), client_id) as client:
            return throttled_ms(client.produce(topic, batch("x" * 100))) > 0

    assert not waits(name)
    limit(kafka, {"user": None, "client-id": name}, producer_byte_rate=1.0)
    assert waits(name)
    assert not waits(kafka.name())
    limit(kafka, {"user": "ANONYMOUS"}, producer_byte_rate=1e9)
    assert not waits(name)


def test_connections_beyond_the_limit_of_their_address_are_closed(kafka: Subject) -> None:
    address = kafka.addresses()[0]
    entity: Entity = {"ip": "127.0.0.1"}
    with OneConnection(address, "admin") as admin:
        limit(kafka, entity, connection_creation_rate=10.0)
        taken = 0
        with contextlib.suppress(ConnectionError):
            while taken < 200:
                with OneConnection(address, "many") as client:
                    client.ask(API_VERSIONS, 0)
                taken += 1
        answer = admin.ask(ALTER, 1, **changes(entity, connection_creation_rate=None))
        assert error_of(answer.entries[0]) is Error.NONE
    assert taken < 200


# Clients


def test_javas_tool_sets_and_describes_limits(kafka: Subject) -> None:
    def configure(*arguments: str) -> str:
        entity = ("--entity-type", "clients", "--entity-name", name)
        return tool(kafka, "ConfigCommand", *arguments, *entity, package="kafka.admin")

    name = kafka.name()
    configure("--alter", "--add-config", "producer_byte_rate=1048576")
    assert "producer_byte_rate=1048576.0" in configure("--describe")
    configure("--alter", "--delete-config", "producer_byte_rate")
    assert described(kafka.addresses()[0]) == (Error.NONE, [])
