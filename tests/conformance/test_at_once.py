"""What clients ask right after a change, in the requests of kafka-go and confluent-kafka-python.

The broker that answered the change shows it at once. Apache Kafka promises that only after a while,
and is given the while.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType
from subject import METADATA, TIMEOUT_S, Subject

from lossless.core.error_codes import Error
from lossless.engines.waiting import wait_until
from one_connection import OneConnection
from one_request import error_of

CREATE_TOPICS, DELETE_TOPICS, DESCRIBE_CONFIGS, ALTER_CONFIGS = 19, 20, 32, 33
DESCRIBE_SCRAM, ALTER_SCRAM = 50, 51
TOPIC = 2
SHA_512 = 2


def shows(kafka: Subject, condition: Callable[[], bool]) -> bool:
    return condition() if kafka.engine == "embedded" else wait_until(condition, timeout_s=TIMEOUT_S)


def create(client: OneConnection, topic: str) -> None:
    asked = {"name": topic, "num_partitions": 1, "replication_factor": 1}
    answer = client.ask(CREATE_TOPICS, 2, topics=[asked], timeout=10_000, validate_only=False)
    assert error_of(answer.topics[0]) is Error.NONE


def partitions_of(client: OneConnection, *topics: str) -> list[tuple[Error, int]]:
    asked = [{"name": topic} for topic in topics]
    answer = client.ask(METADATA, 6, topics=asked, allow_auto_topic_creation=False)
    return [(error_of(topic), len(topic.partitions)) for topic in answer.topics]


def test_kafka_gos_altered_settings(kafka: Subject) -> None:
    topic, key = kafka.name(), "max.message.bytes"
    with OneConnection(kafka.addresses()[0], "kafka-go") as client:
        create(client, topic)
        configs = [{"name": key, "value": "200000"}]
        resource = {"resource_type": TOPIC, "resource_name": topic}

        def altered() -> bool:
            asked = [{**resource, "configs": configs}]
            answer = client.ask(ALTER_CONFIGS, 1, resources=asked, validate_only=False)
            return error_of(answer.responses[0]) is Error.NONE

        def value() -> Any:
            asked = [{**resource, "configuration_keys": [key]}]
            found = client.ask(DESCRIBE_CONFIGS, 3, resources=asked).results[0].configs
            return found[0].value if found else None

        assert shows(kafka, altered)
        assert shows(kafka, lambda: value() == "200000")


def test_kafka_gos_deleted_topics(kafka: Subject) -> None:
    topics = [kafka.name(), kafka.name()]
    with OneConnection(kafka.addresses()[0], "kafka-go") as client:
        for topic in topics:
            create(client, topic)
        assert shows(kafka, lambda: partitions_of(client, *topics) == [(Error.NONE, 1)] * 2)
        answer = client.ask(DELETE_TOPICS, 1, topic_names=topics, timeout=10_000)
        assert [error_of(one) for one in answer.responses] == [Error.NONE] * 2
        gone = [(Error.UNKNOWN_TOPIC_OR_PARTITION, 0)] * 2
        assert shows(kafka, lambda: partitions_of(client, *topics) == gone)


def test_kafka_gos_users(kafka: Subject) -> None:
    name = kafka.name()
    with OneConnection(kafka.addresses()[0], "kafka-go") as client:

        def known() -> tuple[Error, list[tuple[int, int]]]:
            (user,) = client.ask(DESCRIBE_SCRAM, 0, users=[{"name": name}]).results
            infos = [(int(one.mechanism), int(one.iterations)) for one in user.credential_infos]
            return error_of(user), infos

        given = {"name": name, "mechanism": SHA_512, "iterations": 15_000}
        given |= {"salt": b"my-salt", "salted_password": b"my-salted-password"}
        answer = client.ask(ALTER_SCRAM, 0, deletions=[], upsertions=[given])
        assert error_of(answer.results[0]) is Error.NONE
        assert shows(kafka, lambda: known() == (Error.NONE, [(SHA_512, 15_000)]))
        taken = {"name": name, "mechanism": SHA_512}
        answer = client.ask(ALTER_SCRAM, 0, deletions=[taken], upsertions=[])
        assert error_of(answer.results[0]) is Error.NONE
        assert shows(kafka, lambda: known() == (Error.RESOURCE_NOT_FOUND, []))


def test_confluent_kafkas_incrementally_altered_settings(kafka: Subject) -> None:
    first = kafka.topic(2, 1, compression_type="gzip")
    second = kafka.topic(2, 1, compression_type="gzip")

    def alter(topic: str, *changes: tuple[str, str | None, AlterConfigOpType]) -> None:
        entries = [
            ConfigEntry(name, value, incremental_operation=how) for name, value, how in changes
        ]
        resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=entries)
        (future,) = kafka.admin.incremental_alter_configs([resource]).values()
        future.result(TIMEOUT_S)

    def described(topic: str) -> list[str]:
        (future,) = kafka.admin.describe_configs(
            [ConfigResource(ResourceType.TOPIC, topic)]
        ).values()
        entries = future.result(TIMEOUT_S).values()
        return sorted(str(entry) for entry in entries if not entry.is_default)

    compressed = 'compression.type="gzip"'
    # The cluster has agreed on it (KIP-966), so it is not a default.
    minimum = 'min.insync.replicas="1"'
    assert wait_until(lambda: described(first) == [compressed, minimum], timeout_s=TIMEOUT_S)
    alter(
        first,
        ("cleanup.policy", "compact", AlterConfigOpType.APPEND),
        ("retention.ms", "10000", AlterConfigOpType.SET),
    )
    alter(
        second,
        ("cleanup.policy", "delete", AlterConfigOpType.SUBTRACT),
        ("retention.ms", "5000", AlterConfigOpType.SET),
    )
    settled = ['cleanup.policy="delete,compact"', compressed, minimum, 'retention.ms="10000"']
    assert wait_until(lambda: described(first) == settled, timeout_s=TIMEOUT_S)
    settled = ['cleanup.policy=""', compressed, minimum, 'retention.ms="5000"']
    assert wait_until(lambda: described(second) == settled, timeout_s=TIMEOUT_S)
    alter(
        second,
        ("compression.type", None, AlterConfigOpType.DELETE),
        ("retention.ms", "10000", AlterConfigOpType.SET),
    )
    settled = ['cleanup.policy=""', minimum, 'retention.ms="10000"']
    assert wait_until(lambda: described(second) == settled, timeout_s=TIMEOUT_S)
