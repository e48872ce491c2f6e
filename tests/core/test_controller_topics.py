"""What the controller lets topics be: their settings, and how many partitions they have."""

from __future__ import annotations

import pytest
from deciding import Cluster

from lossless.core.admin_messages import CreatePartitions, topic_resource
from lossless.core.controller import Decision
from lossless.core.messages import AdminAnswer, CreateTopic, DeleteTopic, Error, TopicPartition
from lossless.core.metadata import PartitionState


@pytest.fixture
def three() -> Cluster:
    cluster = Cluster(1, 2, 3)
    cluster.create(2, copies=2)
    return cluster


def create(cluster: Cluster, request: CreateTopic) -> AdminAnswer:
    decision = cluster.controller.on_create_topic(request, cluster.image.end_offset)
    answer = cluster.committed(decision)
    assert isinstance(answer, AdminAnswer)
    return answer


def add(cluster: Cluster, request: CreatePartitions) -> AdminAnswer:
    answer = cluster.committed(cluster.controller.on_create_partitions(request))
    assert isinstance(answer, AdminAnswer)
    return answer


# Settings of a new topic


@pytest.mark.parametrize(
    ("key", "value", "told"),
    [
        ("no.such.setting", "1", "Unknown topic config name: no.such.setting"),
        (
            "retention.ms",
            "soon",
            "Invalid value soon for configuration retention.ms: Not a number of type LONG",
        ),
        ("retention.ms", None, "Null value not supported for topic configs: retention.ms"),
    ],
)
def test_a_topic_with_a_wrong_setting_is_not_created(
    three: Cluster, key: str, value: str | None, told: str
) -> None:
    request = CreateTopic("payments", 1, 9, ((key, value),))
    assert create(three, request) == AdminAnswer(Error.INVALID_CONFIG, told)
    assert "payments" not in three.image.topics


def test_names_that_metrics_could_not_tell_apart_are_refused(three: Cluster) -> None:
    assert create(three, CreateTopic("a.b_c", 1, 1)).error is Error.NONE
    answer = create(three, CreateTopic("a_b.c", 1, 1))
    assert answer == AdminAnswer(Error.INVALID_TOPIC_EXCEPTION, "a_b.c collides with a.b_c")


def test_a_topic_that_is_only_tried_is_judged_and_not_made(three: Cluster) -> None:
    assert create(three, CreateTopic("payments", 1, 1, validate_only=True)).error is Error.NONE
    assert "payments" not in three.image.topics


def test_a_topic_that_is_deleted_takes_its_settings_along(three: Cluster) -> None:
    create(three, CreateTopic("payments", 1, 1, (("retention.ms", "5"),)))
    assert three.image.overrides(topic_resource("payments")) == {"retention.ms": "5"}
    three.committed(three.controller.on_delete_topic(DeleteTopic("payments")))
    create(three, CreateTopic("payments", 1, 1))
    assert three.image.overrides(topic_resource("payments")) == {}


# More partitions


def test_new_partitions_go_on_where_the_others_ended(three: Cluster) -> None:
    assert add(three, CreatePartitions("orders", 6)).error is Error.NONE
    assert three.image.partition_count("orders") == 6
    together = Cluster(1, 2, 3)
    together.create(6, copies=2)
    assert three.image.partitions == together.image.partitions


def test_new_partitions_may_say_where_their_replicas_go(three: Cluster) -> None:
    three.fence(1)
    assert add(three, CreatePartitions("orders", 4, ((1, 3), (3, 2)))).error is Error.NONE
    assert three.state(2) == PartitionState((1, 3), (3,), 3)
    assert three.state(3) == PartitionState((3, 2), (3, 2), 3)


@pytest.mark.parametrize(
    ("request_", "error"),
    [
        (CreatePartitions("payments", 3), Error.UNKNOWN_TOPIC_OR_PARTITION),
        (CreatePartitions("orders", 2), Error.INVALID_PARTITIONS),
        (CreatePartitions("orders", 1), Error.INVALID_PARTITIONS),
        (CreatePartitions("orders", 4, ((1, 2),)), Error.INVALID_REPLICA_ASSIGNMENT),
        (CreatePartitions("orders", 3, ((1, 2, 3),)), Error.INVALID_REPLICA_ASSIGNMENT),
        (CreatePartitions("orders", 3, ((1, 1),)), Error.INVALID_REPLICA_ASSIGNMENT),
        (CreatePartitions("orders", 3, ((1, 9),)), Error.INVALID_REPLICA_ASSIGNMENT),
    ],
)
def test_partitions_that_cannot_be_are_refused(
    three: Cluster, request_: CreatePartitions, error: Error
) -> None:
    decision = three.controller.on_create_partitions(request_)
    assert (decision.records, decision.answer.error) == ((), error)


def test_a_topic_that_is_made_while_a_broker_is_away_has_a_replica_there(three: Cluster) -> None:
    three.fence(1)
    assert create(three, CreateTopic("payments", 2, 3)).error is Error.NONE
    made = [three.image.partitions[TopicPartition("payments", number)] for number in (0, 1)]
    assert made == [PartitionState((2, 3, 1), (2, 3), 2), PartitionState((3, 2, 1), (3, 2), 3)]
    assert add(three, CreatePartitions("orders", 3)).error is Error.NONE
    assert 1 not in three.state(2).isr


def test_partitions_without_enough_brokers_are_refused(three: Cluster) -> None:
    three.beat(3, want_shut_down=True)  # it is about to go, and nothing new is put there
    answer = create(three, CreateTopic("payments", 1, 3))
    assert answer.error is Error.INVALID_REPLICATION_FACTOR
    three.fence(1, 2, 3)
    answer = add(three, CreatePartitions("orders", 3))
    assert answer.error is Error.INVALID_REPLICATION_FACTOR
    assert TopicPartition("orders", 2) not in three.image.partitions


def test_partitions_that_are_only_tried_are_judged_and_not_made(three: Cluster) -> None:
    decision = three.controller.on_create_partitions(
        CreatePartitions("orders", 3, validate_only=True)
    )
    assert decision == Decision((), AdminAnswer(Error.NONE))
