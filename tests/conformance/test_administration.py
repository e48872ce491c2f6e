"""Topics, partitions, settings, replicas and leaders, by what an administrator asks."""

from __future__ import annotations

from typing import Any

import pytest
from confluent_kafka import ElectionType, TopicCollection
from confluent_kafka.admin import (
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    NewPartitions,
    NewTopic,
    ResourceType,
)
from subject import METADATA, TIMEOUT_S, Subject, error_code, led_partitions

from lossless.core.error_codes import Error
from lossless.engines.waiting import wait_until
from lossless.wire.differences import UNKNOWN_OPERATION
from one_request import ask, error_of

CREATE_TOPICS, DELETE_TOPICS, DELETE_RECORDS = 19, 20, 21
DESCRIBE_LOG_DIRS, CREATE_PARTITIONS = 35, 37
ELECT, ALTER, REASSIGN, LIST_REASSIGNMENTS, DESCRIBE_QUORUM = 43, 44, 45, 46, 55
SET, DELETE, APPEND, SUBTRACT = 0, 1, 2, 3
TOPIC, BROKER = 2, 4


def create(kafka: Subject, name: str, **fields: Any) -> Any:
    asked = {"num_partitions": 1, "replication_factor": 1, "assignments": [], "configs": []}
    topics = [{"name": name, **asked, **fields}]
    timeout = {"timeout": 10_000, "validate_only": False}
    return ask(kafka.addresses()[0], CREATE_TOPICS, 7, topics=topics, **timeout).topics[0]


def exists(kafka: Subject, name: str) -> bool:
    return name in kafka.admin.list_topics(timeout=TIMEOUT_S).topics


# Topics


def test_a_topic_is_what_it_was_created_as(kafka: Subject) -> None:
    name = kafka.name()
    configs = [{"name": "retention.ms", "value": "1000"}, {"name": "flush.ms", "value": None}]
    made = create(kafka, name, num_partitions=3, replication_factor=2, configs=configs[:1])
    assert (error_of(made), made.num_partitions, made.replication_factor) == (Error.NONE, 3, 2)
    assert {one.name: one.value for one in made.configs}["retention.ms"] == "1000"
    kafka.knows(name, 3)
    described = kafka.admin.describe_topics(TopicCollection([name]))[name].result(TIMEOUT_S)
    assert kafka.topic_id(name) == made.topic_id
    assert [one.id for one in described.partitions] == [0, 1, 2]
    for partition in described.partitions:
        assert len(partition.replicas) == 2
        assert partition.leader.id in {replica.id for replica in partition.replicas}
    assert not described.is_internal


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"name": ""}, Error.INVALID_TOPIC_EXCEPTION),
        ({"name": "."}, Error.INVALID_TOPIC_EXCEPTION),
        ({"name": "a b"}, Error.INVALID_TOPIC_EXCEPTION),
        ({"name": "ü"}, Error.INVALID_TOPIC_EXCEPTION),
        ({"name": "x" * 250}, Error.INVALID_TOPIC_EXCEPTION),
        ({"num_partitions": 0}, Error.INVALID_PARTITIONS),
        ({"num_partitions": -2}, Error.INVALID_PARTITIONS),
        ({"replication_factor": 0}, Error.INVALID_REPLICATION_FACTOR),
        ({"replication_factor": 4}, Error.INVALID_REPLICATION_FACTOR),
        ({"configs": [{"name": "no.such", "value": "1"}]}, Error.INVALID_CONFIG),
        ({"configs": [{"name": "retention.ms", "value": "soon"}]}, Error.INVALID_CONFIG),
        ({"configs": [{"name": "retention.ms", "value": "-2"}]}, Error.INVALID_CONFIG),
        ({"configs": [{"name": "cleanup.policy", "value": "keep"}]}, Error.INVALID_CONFIG),
        ({"configs": [{"name": "retention.ms", "value": None}]}, Error.INVALID_CONFIG),
        ({"configs": [{"name": "min.insync.replicas", "value": "0"}]}, Error.INVALID_CONFIG),
        ({"assignments": [{"partition_index": 0, "broker_ids": [1]}]}, Error.INVALID_REQUEST),
    ],
    ids=lambda value: str(value)[:50] if isinstance(value, dict) else value.name,
)
def test_a_topic_that_cannot_be_is_refused(
    kafka: Subject, fields: dict[str, Any], expected: Error
) -> None:
    name = str(fields.get("name", kafka.name()))
    made = create(kafka, **{"name": name, **fields})
    assert error_of(made) is expected
    assert made.error_message
    assert not exists(kafka, name)


@pytest.mark.parametrize(
    ("assignment", "expected"),
    [
        ([(0, [3, 1]), (1, [2])], Error.INVALID_REPLICA_ASSIGNMENT),
        ([(0, [3, 1]), (1, [2, 3])], Error.NONE),
        ([(0, [9])], Error.INVALID_REPLICA_ASSIGNMENT),
        ([(0, [1, 1])], Error.INVALID_REPLICA_ASSIGNMENT),
        ([(0, [])], Error.INVALID_REPLICA_ASSIGNMENT),
        ([(1, [1])], Error.INVALID_REPLICA_ASSIGNMENT),
        ([(0, [1]), (0, [2])], Error.INVALID_REPLICA_ASSIGNMENT),
    ],
    ids=str,
)
def test_replicas_go_where_an_administrator_says_if_they_can(
    kafka: Subject, assignment: list[tuple[int, list[int]]], expected: Error
) -> None:
    name = kafka.name()
    assigned = [{"partition_index": one, "broker_ids": ids} for one, ids in assignment]
    unsaid = {"num_partitions": -1, "replication_factor": -1}
    made = create(kafka, name, assignments=assigned, **unsaid)
    assert error_of(made) is expected
    if expected is Error.NONE:
        kafka.knows(name, len(assignment))
        (said,) = ask(kafka.addresses()[0], METADATA, 12, topics=[{"name": name}]).topics
        found = [(one.partition_index, list(one.replica_nodes)) for one in said.partitions]
        assert sorted(found) == assignment


def test_a_name_that_is_taken_is_refused_and_so_is_one_that_looks_like_it(kafka: Subject) -> None:
    name = f"{kafka.name()}.a"
    assert error_of(create(kafka, name)) is Error.NONE
    assert error_of(create(kafka, name)) is Error.TOPIC_ALREADY_EXISTS
    assert error_of(create(kafka, name.replace(".", "_"))) is Error.INVALID_TOPIC_EXCEPTION


def test_two_topics_of_one_name_in_a_request_are_both_refused(kafka: Subject) -> None:
    asked = {"name": kafka.name(), "num_partitions": 1, "replication_factor": 1}
    topics = [asked, asked]
    said = ask(kafka.addresses()[0], CREATE_TOPICS, 7, topics=topics, timeout=10_000).topics
    assert {error_of(one) for one in said} == {Error.INVALID_REQUEST}
    assert not exists(kafka, str(asked["name"]))


def test_what_is_only_validated_is_not_done(kafka: Subject) -> None:
    name = kafka.name()
    new = NewTopic(name, 1, 1)
    kafka.admin.create_topics([new], validate_only=True)[name].result(TIMEOUT_S)
    assert not exists(kafka, name)


def test_a_topic_that_is_deleted_and_created_again_is_another(kafka: Subject) -> None:
    name = kafka.topic()
    first = kafka.topic_id(name)
    kafka.send(name, "old")
    kafka.admin.delete_topics([name])[name].result(TIMEOUT_S)
    for address in kafka.addresses():
        assert wait_until(lambda at=address: not led_partitions(at, name), timeout_s=TIMEOUT_S)
    assert error_of(create(kafka, name)) is Error.NONE
    kafka.knows(name, 1)
    assert kafka.topic_id(name) != first
    assert kafka.values(name) == []
    (said,) = ask(
        kafka.addresses()[0], DELETE_TOPICS, 6, topics=[{"topic_id": first}], timeout=10_000
    ).responses
    assert error_of(said) is Error.UNKNOWN_TOPIC_ID
    gone = kafka.name()
    refused = kafka.admin.delete_topics([gone])[gone]
    assert error_code(lambda: refused.result(TIMEOUT_S)) is Error.UNKNOWN_TOPIC_OR_PARTITION


# Partitions


@pytest.mark.parametrize(
    ("count", "assignment", "expected"),
    [
        (3, None, Error.NONE),
        (2, None, Error.INVALID_PARTITIONS),
        (1, None, Error.INVALID_PARTITIONS),
        (0, None, Error.INVALID_PARTITIONS),
        (3, [[1, 9]], Error.INVALID_REPLICA_ASSIGNMENT),
        (3, [[1]], Error.INVALID_REPLICA_ASSIGNMENT),
        (3, [[1, 2], [1, 2]], Error.INVALID_REPLICA_ASSIGNMENT),
        (3, [[3, 2]], Error.NONE),
    ],
)
def test_partitions_are_added_and_never_taken_away(
    kafka: Subject, count: int, assignment: list[list[int]] | None, expected: Error
) -> None:
    topic = kafka.topic(2, replicas=2)
    given = None if assignment is None else [{"broker_ids": ids} for ids in assignment]
    topics = [{"name": topic, "count": count, "assignments": given}]
    timeout = {"timeout": 10_000, "validate_only": False}
    (said,) = ask(kafka.addresses()[0], CREATE_PARTITIONS, 3, topics=topics, **timeout).results
    assert error_of(said) is expected
    kafka.knows(topic, 3 if expected is Error.NONE else 2)


def test_partitions_of_no_topic_are_refused(kafka: Subject) -> None:
    name = kafka.name()
    refused = kafka.admin.create_partitions([NewPartitions(name, 3)])[name]
    assert error_code(lambda: refused.result(TIMEOUT_S)) is Error.UNKNOWN_TOPIC_OR_PARTITION


# Settings


def settings(kafka: Subject, kind: ResourceType, name: str) -> dict[str, Any]:
    (future,) = kafka.admin.describe_configs([ConfigResource(kind, name)]).values()
    return dict(future.result(TIMEOUT_S))


def alter(
    kafka: Subject, *changes: tuple[str, int, str | None], name: str, kind: int = TOPIC
) -> Error:
    configs = [{"name": key, "config_operation": how, "value": to} for key, how, to in changes]
    resources = [{"resource_type": kind, "resource_name": name, "configs": configs}]
    (said,) = ask(
        kafka.addresses()[0], ALTER, 1, resources=resources, validate_only=False
    ).responses
    return error_of(said)


def test_settings_of_a_topic_are_set_and_forgotten_one_by_one(kafka: Subject) -> None:
    topic = kafka.topic(retention_ms="5000")

    def found(name: str) -> tuple[str, ConfigSource]:
        entry = settings(kafka, ResourceType.TOPIC, topic)[name]
        return entry.value, ConfigSource(entry.source)

    assert found("retention.ms") == ("5000", ConfigSource.DYNAMIC_TOPIC_CONFIG)
    assert found("max.message.bytes") == ("1048588", ConfigSource.DEFAULT_CONFIG)
    resource = ConfigResource(
        ResourceType.TOPIC,
        topic,
        incremental_configs=[
            ConfigEntry("max.message.bytes", "2000", incremental_operation=AlterConfigOpType.SET),
            ConfigEntry(
                "cleanup.policy", "compact", incremental_operation=AlterConfigOpType.APPEND
            ),
        ],
    )
    (future,) = kafka.admin.incremental_alter_configs([resource]).values()
    future.result(TIMEOUT_S)
    changed = ("2000", ConfigSource.DYNAMIC_TOPIC_CONFIG)
    assert wait_until(lambda: found("max.message.bytes") == changed, timeout_s=TIMEOUT_S)
    assert found("cleanup.policy")[0] == "delete,compact"
    assert found("retention.ms")[0] == "5000"
    assert alter(kafka, ("cleanup.policy", SUBTRACT, "delete"), name=topic) is Error.NONE
    assert alter(kafka, ("retention.ms", DELETE, None), name=topic) is Error.NONE
    default = ("604800000", ConfigSource.DEFAULT_CONFIG)
    assert wait_until(lambda: found("retention.ms") == default, timeout_s=TIMEOUT_S)
    assert wait_until(lambda: found("cleanup.policy")[0] == "compact", timeout_s=TIMEOUT_S)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ([("no.such", SET, "1")], Error.INVALID_CONFIG),
        ([("retention.ms", SET, "soon")], Error.INVALID_CONFIG),
        ([("retention.ms", APPEND, "5")], Error.INVALID_CONFIG),
        ([("retention.ms", SET, None)], Error.INVALID_REQUEST),
        ([("retention.ms", SET, "5"), ("retention.ms", SET, "6")], Error.INVALID_REQUEST),
        ([("retention.ms", SET, "5"), ("no.such", SET, "1")], Error.INVALID_CONFIG),
    ],
    ids=str,
)
def test_settings_that_cannot_be_are_refused_and_nothing_changes(
    kafka: Subject, changes: list[tuple[str, int, str | None]], expected: Error
) -> None:
    topic = kafka.topic()
    assert alter(kafka, *changes, name=topic) is expected
    entry = settings(kafka, ResourceType.TOPIC, topic)["retention.ms"]
    assert (entry.value, entry.is_default) == ("604800000", True)


def test_an_operation_on_settings_that_is_none_is_refused(kafka: Subject) -> None:
    change = ("retention.ms", 9, "5")
    refused = alter(kafka, change, name=kafka.topic())
    assert refused is UNKNOWN_OPERATION.expected(kafka.engine)


def test_settings_of_what_is_not_there_are_refused(kafka: Subject) -> None:
    name = kafka.name()
    change = ("retention.ms", SET, "5")
    assert alter(kafka, change, name=name) is Error.UNKNOWN_TOPIC_OR_PARTITION
    (future,) = kafka.admin.describe_configs([ConfigResource(ResourceType.TOPIC, name)]).values()
    assert error_code(lambda: future.result(TIMEOUT_S)) is Error.UNKNOWN_TOPIC_OR_PARTITION
    assert alter(kafka, change, name="not a broker", kind=BROKER) is Error.INVALID_REQUEST
    assert alter(kafka, change, name="x", kind=99) is Error.INVALID_REQUEST


def test_settings_of_brokers_are_described_and_some_are_altered(kafka: Subject) -> None:
    found = settings(kafka, ResourceType.BROKER, "1")
    assert found["broker.session.timeout.ms"].value == "1000"
    assert found["broker.session.timeout.ms"].is_read_only
    assert not found["log.retention.ms"].is_read_only
    assert alter(kafka, ("node.id", SET, "7"), name="1", kind=BROKER) is Error.INVALID_REQUEST
    name = "log.retention.ms"
    for change, value in (((name, SET, "7654321"), "7654321"), ((name, DELETE, None), None)):
        assert alter(kafka, change, name="1", kind=BROKER) is Error.NONE
        assert wait_until(
            lambda to=value: settings(kafka, ResourceType.BROKER, "1")[name].value == to,
            timeout_s=TIMEOUT_S,
        )
        assert settings(kafka, ResourceType.BROKER, "2")[name].value is None
    name = "log.cleaner.backoff.ms"  # an embedded broker does not act on it
    assert alter(kafka, (name, SET, "15001"), name="1", kind=BROKER) is Error.NONE
    assert wait_until(
        lambda: settings(kafka, ResourceType.BROKER, "1")[name].value == "15001",
        timeout_s=TIMEOUT_S,
    )
    assert alter(kafka, (name, DELETE, None), name="1", kind=BROKER) is Error.NONE


# Replicas and leaders


def test_replicas_move_and_bring_everything(kafka: Subject) -> None:
    name = kafka.name()
    assigned = [{"partition_index": 0, "broker_ids": [1]}]
    unsaid = {"num_partitions": -1, "replication_factor": -1}
    assert error_of(create(kafka, name, assignments=assigned, **unsaid)) is Error.NONE
    kafka.knows(name, 1)
    kafka.send(name, "a", "b")

    def reassign(replicas: list[int] | None, topic: str = name) -> Error:
        topics = [{"name": topic, "partitions": [{"partition_index": 0, "replicas": replicas}]}]
        said = ask(kafka.addresses()[0], REASSIGN, 0, timeout=10_000, topics=topics)
        return error_of(said) or error_of(said.responses[0].partitions[0])

    assert reassign(None) is Error.NO_REASSIGNMENT_IN_PROGRESS
    assert reassign([9]) is Error.INVALID_REPLICA_ASSIGNMENT
    assert reassign([2, 2]) is Error.INVALID_REPLICA_ASSIGNMENT
    assert reassign([]) is Error.INVALID_REPLICA_ASSIGNMENT
    assert reassign([2], kafka.name()) is Error.UNKNOWN_TOPIC_OR_PARTITION
    assert reassign([3, 2]) is Error.NONE

    def state() -> tuple[list[int], list[int], int]:
        (said,) = ask(kafka.addresses()[0], METADATA, 12, topics=[{"name": name}]).topics
        (one,) = said.partitions
        return list(one.replica_nodes), sorted(one.isr_nodes), int(one.leader_id)

    assert wait_until(lambda: state()[:2] == ([3, 2], [2, 3]), timeout_s=TIMEOUT_S)
    assert state()[2] in (2, 3)
    listed = ask(kafka.addresses()[0], LIST_REASSIGNMENTS, 0, timeout=10_000, topics=None)
    assert (error_of(listed), listed.topics) == (Error.NONE, ())
    assert kafka.values(name) == ["a", "b"]


def test_leaders_are_elected_when_that_is_needed(kafka: Subject) -> None:
    topic = kafka.topic()

    def elect(partition: int, kind: int = 0, name: str = topic) -> Error:
        topics = [{"topic": name, "partitions": [partition]}]
        said = ask(
            kafka.addresses()[0],
            ELECT,
            2,
            election_type=kind,
            topic_partitions=topics,
            timeout=10_000,
        )
        return error_of(said) or error_of(said.replica_election_results[0].partition_result[0])

    assert elect(0) is Error.ELECTION_NOT_NEEDED
    assert elect(0, kind=1) is Error.ELECTION_NOT_NEEDED
    assert elect(7) is Error.UNKNOWN_TOPIC_OR_PARTITION
    assert elect(0, name=kafka.name()) is Error.UNKNOWN_TOPIC_OR_PARTITION
    assert kafka.admin.elect_leaders(ElectionType.PREFERRED).result(TIMEOUT_S) is not None


# What there is


def test_the_cluster_is_described(kafka: Subject) -> None:
    described = kafka.admin.describe_cluster().result(TIMEOUT_S)
    assert described.cluster_id == kafka.cluster.plan.cluster_id
    nodes = {(node.id, f"{node.host}:{node.port}", node.rack) for node in described.nodes}
    plan = kafka.cluster.plan
    assert nodes == {(node.id, plan.address(node), node.rack) for node in plan.brokers}
    assert described.controller.id in (1, 2, 3)
    quorum = [{"topic_name": "__cluster_metadata", "partitions": [{"partition_index": 0}]}]
    said = ask(kafka.addresses()[0], DESCRIBE_QUORUM, 2, topics=quorum)
    (partition,) = said.topics[0].partitions
    assert (error_of(said), error_of(partition)) == (Error.NONE, Error.NONE)
    assert len(partition.current_voters) == 3
    assert partition.leader_id in {voter.replica_id for voter in partition.current_voters}


def test_log_directories_tell_how_large_a_partition_is(kafka: Subject) -> None:
    topic = kafka.topic()
    kafka.send(topic, "a")
    for address in kafka.addresses():
        asked = [{"topic": topic, "partitions": [0]}]

        def size(at: str = address, asked: Any = asked) -> int:
            (folder,) = ask(at, DESCRIBE_LOG_DIRS, 4, topics=asked).results
            assert error_of(folder) is Error.NONE
            assert folder.total_bytes > folder.usable_bytes > 0
            (found,) = folder.topics
            (partition,) = found.partitions
            assert not partition.is_future_key
            return int(partition.partition_size)

        assert wait_until(lambda: size() == len(kafka.stored(topic)[0].data), timeout_s=TIMEOUT_S)


def test_records_of_what_is_not_there_cannot_be_deleted(kafka: Subject) -> None:
    topic = kafka.topic()

    def delete(address: str, partition: int, offset: int = 0) -> Error:
        asked = {"partition_index": partition, "offset": offset}
        topics = [{"name": topic, "partitions": [asked]}]
        said = ask(address, DELETE_RECORDS, 2, timeout=10_000, topics=topics)
        return error_of(said.topics[0].partitions[0])

    leader, follower = kafka.leader(topic), kafka.follower(topic)
    assert delete(leader, 9) is Error.UNKNOWN_TOPIC_OR_PARTITION
    assert delete(follower, 0) is Error.NOT_LEADER_OR_FOLLOWER
    assert delete(leader, 0, 5) is Error.OFFSET_OUT_OF_RANGE
    assert delete(leader, 0, -7) is Error.OFFSET_OUT_OF_RANGE
    kafka.send(topic, "a")
    assert delete(leader, 0, -1) is Error.NONE  # everything
    assert kafka.values(topic, start=1) == []
