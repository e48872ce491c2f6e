"""APIs for topics and their partitions, asked of real nodes: two brokers and a controller."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import Any

import pytest
from admin_cluster import CONTROLLER, AdminCluster

from lossless.core.messages import Error
from lossless.log.batch import Record, build

CREATE_TOPICS, DELETE_TOPICS, DELETE_RECORDS, LIST_OFFSETS, PRODUCE = 19, 20, 21, 2, 0
DESCRIBE_LOG_DIRS, CREATE_PARTITIONS, ELECT_LEADERS = 35, 37, 43
ALTER_REASSIGNMENTS, LIST_REASSIGNMENTS = 45, 46
VERSIONS = [
    *((CREATE_PARTITIONS, version) for version in range(4)),
    *((ELECT_LEADERS, version) for version in range(3)),
    *((ALTER_REASSIGNMENTS, version) for version in range(2)),
    (LIST_REASSIGNMENTS, 0),
    *((DELETE_RECORDS, version) for version in range(3)),
    *((DESCRIBE_LOG_DIRS, version) for version in range(1, 5)),
]


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AdminCluster]:
    cluster = AdminCluster(tmp_path_factory.mktemp("two"), 2)
    yield cluster
    cluster.stop()


@pytest.fixture
def topic(two: AdminCluster, request: pytest.FixtureRequest) -> str:
    """Two partitions: 0 on brokers 1 and 2, led by 1; 1 on broker 2 and 1, led by 2."""
    name = request.node.name
    placed = [
        {"partition_index": 0, "broker_ids": [1, 2]},
        {"partition_index": 1, "broker_ids": [2, 1]},
    ]
    (made,) = create(two, new(name, assignments=placed))
    assert made.error_code.value == Error.NONE
    two.everywhere(lambda broker: two.partition(name, 1, of=broker))
    return name


def new(name: str, partitions: int = -1, copies: int = -1, **others: Any) -> dict[str, Any]:
    return {"name": name, "num_partitions": partitions, "replication_factor": copies, **others}


def create(two: AdminCluster, *topics: dict[str, Any], version: int = 7, **others: Any) -> Any:
    return two.ask(CREATE_TOPICS, version, {"topics": topics, "timeout": 5000, **others}).topics


def errors(results: Any) -> list[Error]:
    return [Error(one.error_code.value) for one in results]


def produce(two: AdminCluster, topic: str, *values: bytes) -> None:
    records = build([Record(at, 1, None, value) for at, value in enumerate(values)]).data
    data = [{"name": topic, "partition_data": [{"index": 0, "records": records}]}]
    answer = two.ask(PRODUCE, 9, {"acks": -1, "timeout": 5000, "topic_data": data})
    assert errors(answer.responses[0].partition_responses) == [Error.NONE]


# Creating and deleting


def test_a_new_topic_is_described_in_the_answer(two: AdminCluster) -> None:
    configs = [{"name": "retention.ms", "value": "5"}]
    (made,) = create(two, new("described", configs=configs))
    assert (made.num_partitions, made.replication_factor) == (1, 2)
    assert made.topic_id.int != 0
    told = {config.name: config for config in made.configs}
    assert (told["retention.ms"].value, told["retention.ms"].config_source) == ("5", 1)
    assert (told["segment.ms"].value, told["segment.ms"].config_source) == ("604800000", 5)


def test_topics_that_cannot_be_are_refused_one_by_one(two: AdminCluster) -> None:
    made = create(
        two,
        new("twice"),
        new("twice"),
        new("wrong.setting", configs=[{"name": "no.such", "value": "1"}]),
        new("no.value", configs=[{"name": "retention.ms", "value": None}]),
        new("__cluster_metadata"),
        new("no good"),
        new("too-many", copies=3),
        new("none", 0),
        new("counted", 1, assignments=[{"partition_index": 0, "broker_ids": [1]}]),
        new(
            "uneven",
            assignments=[
                {"partition_index": 0, "broker_ids": [1]},
                {"partition_index": 1, "broker_ids": [1, 2]},
            ],
        ),
        new("fine"),
    )
    assert {one.name: Error(one.error_code.value) for one in made} == {
        "twice": Error.INVALID_REQUEST,
        "wrong.setting": Error.INVALID_CONFIG,
        "no.value": Error.INVALID_CONFIG,
        "__cluster_metadata": Error.INVALID_REQUEST,
        "no good": Error.INVALID_TOPIC_EXCEPTION,
        "too-many": Error.INVALID_REPLICATION_FACTOR,
        "none": Error.INVALID_PARTITIONS,
        "counted": Error.INVALID_REQUEST,
        "uneven": Error.INVALID_REPLICA_ASSIGNMENT,
        "fine": Error.NONE,
    }


def test_a_topic_is_deleted_by_name_or_by_id_but_not_by_both(two: AdminCluster) -> None:
    made = {one.name: one.topic_id for one in create(two, *map(new, "abcd"))}
    nobody, unknown = uuid.UUID(int=0), uuid.UUID(int=5)
    asked = [
        {"name": "a", "topic_id": nobody},
        {"name": None, "topic_id": made["b"]},
        {"name": "c", "topic_id": made["c"]},
        {"name": "d", "topic_id": nobody},
        {"name": None, "topic_id": made["d"]},
        {"name": None, "topic_id": unknown},
        {"name": None, "topic_id": nobody},
        {"name": "nowhere", "topic_id": nobody},
    ]
    answer = two.ask(DELETE_TOPICS, 6, {"topics": asked, "timeout": 5000})
    assert errors(answer.responses) == [
        Error.NONE,
        Error.NONE,
        Error.INVALID_REQUEST,
        Error.INVALID_REQUEST,  # one topic, by its name and by its id
        Error.INVALID_REQUEST,
        Error.UNKNOWN_TOPIC_ID,
        Error.INVALID_REQUEST,
        Error.UNKNOWN_TOPIC_OR_PARTITION,
    ]
    assert [one.name for one in answer.responses[:2]] == ["a", "b"]


@pytest.mark.parametrize(
    ("version", "error"), [(1, Error.INVALID_REQUEST), (3, Error.TOPIC_DELETION_DISABLED)]
)
def test_where_deleting_is_turned_off_no_topic_is_deleted(
    undeletable: AdminCluster, version: int, error: Error
) -> None:
    create(undeletable, new("kept"))
    answer = undeletable.ask(DELETE_TOPICS, version, {"topic_names": ["kept"], "timeout": 5000})
    assert errors(answer.responses) == [error]


@pytest.fixture(scope="module")
def undeletable(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AdminCluster]:
    cluster = AdminCluster(tmp_path_factory.mktemp("one"), 1, delete_topic_enable="false")
    yield cluster
    cluster.stop()


# Partitions


@pytest.mark.parametrize(("key", "version"), VERSIONS)
def test_every_version_is_answered(two: AdminCluster, key: int, version: int) -> None:
    """With a topic that there is not, so that the answer has something to say."""
    fields: dict[int, dict[str, Any]] = {
        CREATE_PARTITIONS: {
            "topics": [{"name": "nowhere", "count": 2, "assignments": None}],
            "timeout": 5000,
            "validate_only": True,
        },
        ELECT_LEADERS: {"topic_partitions": [{"topic": "nowhere", "partitions": [0]}]},
        ALTER_REASSIGNMENTS: {
            "topics": [{"name": "nowhere", "partitions": [{"partition_index": 0, "replicas": [1]}]}]
        },
        LIST_REASSIGNMENTS: {"topics": [{"name": "nowhere", "partition_indexes": [0]}]},
        DELETE_RECORDS: {
            "topics": [{"name": "nowhere", "partitions": [{"partition_index": 0, "offset": 1}]}],
            "timeout": 5000,
        },
        DESCRIBE_LOG_DIRS: {"topics": [{"topic": "nowhere", "partitions": [0]}]},
    }
    answer = two.ask(key, version, fields[key])
    unknown = (
        f"error_code=<ErrorCode.unknown_topic_or_partition: {Error.UNKNOWN_TOPIC_OR_PARTITION}>"
    )
    assert (unknown in repr(answer)) is (key not in (LIST_REASSIGNMENTS, DESCRIBE_LOG_DIRS))


def test_a_topic_gets_more_partitions_and_never_fewer(two: AdminCluster, topic: str) -> None:
    def grow(*topics: tuple[str, int], **others: Any) -> list[Error]:
        asked = [{"name": name, "count": count, "assignments": None} for name, count in topics]
        fields = {"topics": asked, "timeout": 5000, "validate_only": False, **others}
        return errors(two.ask(CREATE_PARTITIONS, 3, fields).results)

    assert grow((topic, 3), validate_only=True) == [Error.NONE]
    assert grow((topic, 3), (topic, 4)) == [Error.INVALID_REQUEST]
    assert grow((topic, 3)) == [Error.NONE]
    assert grow((topic, 3)) == [Error.INVALID_PARTITIONS]
    assert two.until(lambda: two.partition(topic, 2)).replica_nodes == (1, 2)


def test_an_election_is_not_needed_where_the_preferred_replica_leads(
    two: AdminCluster, topic: str
) -> None:
    def elect(version: int, **fields: Any) -> Any:
        return two.ask(ELECT_LEADERS, version, {"timeout": 5000, **fields})

    asked = [{"topic": topic, "partitions": [0, 1]}]
    (told,) = elect(2, election_type=0, topic_partitions=asked).replica_election_results
    assert errors(told.partition_result) == [Error.ELECTION_NOT_NEEDED] * 2
    (told,) = elect(0, topic_partitions=asked).replica_election_results
    assert errors(told.partition_result) == [Error.ELECTION_NOT_NEEDED] * 2
    every = elect(2, election_type=1, topic_partitions=None).replica_election_results
    assert topic in {one.topic for one in every}
    assert [one.partition_result for one in every] == [()] * len(every)
    refused = elect(2, election_type=7, topic_partitions=asked)
    assert refused.error_code.value == Error.INVALID_REQUEST


def test_another_order_of_replicas_and_an_election_make_another_leader(
    two: AdminCluster, topic: str
) -> None:
    asked = [{"name": topic, "partitions": [{"partition_index": 0, "replicas": [2, 1]}]}]
    two.ask(ALTER_REASSIGNMENTS, 1, {"topics": asked})
    elections = [{"topic": topic, "partitions": [0]}]
    answer = two.ask(ELECT_LEADERS, 2, {"election_type": 0, "topic_partitions": elections})
    (told,) = answer.replica_election_results
    assert errors(told.partition_result) == [Error.NONE]
    assert two.until(lambda: two.partition(topic).leader_id == 2)


def test_moves_are_refused_one_by_one_and_listed_while_they_last(
    two: AdminCluster, topic: str
) -> None:
    asked = [
        {
            "name": topic,
            "partitions": [
                {"partition_index": 0, "replicas": [9]},
                {"partition_index": 1, "replicas": None},
                {"partition_index": 7, "replicas": [1]},
            ],
        }
    ]
    answer = two.ask(ALTER_REASSIGNMENTS, 0, {"topics": asked})
    assert errors(answer.responses[0].partitions) == [
        Error.INVALID_REPLICA_ASSIGNMENT,
        Error.NO_REASSIGNMENT_IN_PROGRESS,
        Error.UNKNOWN_TOPIC_OR_PARTITION,
    ]
    fewer = [{"name": topic, "partitions": [{"partition_index": 0, "replicas": [2]}]}]
    kept = {"topics": fewer, "allow_replication_factor_change": False}
    answer = two.ask(ALTER_REASSIGNMENTS, 1, kept)
    assert errors(answer.responses[0].partitions) == [Error.INVALID_REPLICATION_FACTOR]
    assert not answer.allow_replication_factor_change
    assert two.ask(LIST_REASSIGNMENTS, 0, {"topics": None}).topics == ()


def test_a_replica_that_is_moved_away_is_gone_from_its_broker(
    two: AdminCluster, topic: str
) -> None:
    produce(two, topic, b"a")
    fewer = [{"name": topic, "partitions": [{"partition_index": 0, "replicas": [2]}]}]
    answer = two.ask(ALTER_REASSIGNMENTS, 1, {"topics": fewer})
    assert errors(answer.responses[0].partitions) == [Error.NONE]
    two.until(lambda: two.partition(topic).leader_id == 2)
    assert two.partition(topic).replica_nodes == (2,)
    asked = {"topics": [{"topic": topic, "partitions": [0]}]}
    assert two.ask(DESCRIBE_LOG_DIRS, 4, asked).results[0].topics == ()
    (left,) = two.ask(DESCRIBE_LOG_DIRS, 4, asked, of=2).results[0].topics
    assert left.partitions[0].partition_size > 0


def test_what_the_controller_decides_is_asked_of_it_directly_too(
    two: AdminCluster, topic: str
) -> None:
    asked = {"topics": [{"name": topic, "count": 1}], "timeout": 5000, "validate_only": False}
    answer = two.ask(CREATE_PARTITIONS, 3, asked, of=CONTROLLER)
    assert errors(answer.results) == [Error.INVALID_PARTITIONS]


def test_a_broker_that_nobody_knows_is_not_unregistered(two: AdminCluster) -> None:
    answer = two.ask(64, 0, {"broker_id": 9})
    assert answer.error_code.value == Error.BROKER_ID_NOT_REGISTERED


# Records and logs


def test_records_before_an_offset_are_deleted_for_everybody(two: AdminCluster, topic: str) -> None:
    produce(two, topic, b"a", b"b", b"c")

    def delete(offset: int, *, of: int = 1) -> Any:
        asked = [{"name": topic, "partitions": [{"partition_index": 0, "offset": offset}]}]
        answer = two.ask(DELETE_RECORDS, 2, {"topics": asked, "timeout": 5000}, of=of)
        return answer.topics[0].partitions[0]

    def earliest() -> int:
        asked = [{"name": topic, "partitions": [{"partition_index": 0, "timestamp": -2}]}]
        answer = two.ask(LIST_OFFSETS, 6, {"replica_id": -1, "topics": asked})
        return int(answer.topics[0].partitions[0].offset)

    assert delete(9).error_code.value == Error.OFFSET_OUT_OF_RANGE
    assert delete(1, of=2).error_code.value == Error.NOT_LEADER_OR_FOLLOWER
    assert (delete(1).low_watermark, earliest()) == (1, 1)
    assert (delete(-1).low_watermark, earliest()) == (3, 3)


def test_of_a_compacted_topic_no_records_are_deleted(two: AdminCluster) -> None:
    create(two, new("compacted", configs=[{"name": "cleanup.policy", "value": "compact"}]))
    two.until(lambda: two.partition("compacted") is not None)
    asked = [{"name": "compacted", "partitions": [{"partition_index": 0, "offset": 0}]}]
    answer = two.ask(DELETE_RECORDS, 2, {"topics": asked, "timeout": 5000})
    assert errors(answer.topics[0].partitions) == [Error.POLICY_VIOLATION]


def test_logs_are_described_with_their_sizes_and_the_room_that_is_left(
    two: AdminCluster, topic: str
) -> None:
    produce(two, topic, b"x" * 1000)
    answer = two.ask(DESCRIBE_LOG_DIRS, 4, {"topics": None})
    (folder,) = answer.results
    sizes = {
        (one.name, partition.partition_index): partition.partition_size
        for one in folder.topics
        for partition in one.partitions
    }
    assert 1000 < sizes[topic, 0] < 1200
    assert sizes[topic, 1] == 0
    assert 0 < folder.usable_bytes < folder.total_bytes
