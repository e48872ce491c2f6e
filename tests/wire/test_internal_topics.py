"""The topics of coordinators have their own shape, however they come into being."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from admin_cluster import AdminCluster
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

import lossless
from lossless.engines.interface import Cluster
from topics import create_new, create_topic, produce

METADATA, DESCRIBE_CONFIGS, TOPIC = 3, 32, 2
SETTINGS = {
    "__consumer_offsets": {"cleanup.policy": "compact", "segment.bytes": "104857600"},
    "__transaction_state": {"cleanup.policy": "compact", "unclean.leader.election.enable": "false"},
}


@pytest.fixture(scope="module")
def one(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AdminCluster]:
    counts = {"offsets.topic.num.partitions": "7", "transaction.state.log.num.partitions": "5"}
    cluster = AdminCluster(tmp_path_factory.mktemp("one"), 1, **counts)
    yield cluster
    cluster.stop()


@pytest.mark.parametrize(
    ("topic", "count"), [("__consumer_offsets", 7), ("__transaction_state", 5)]
)
def test_internal_topics_that_metadata_requests_create_have_their_own_shape(
    one: AdminCluster, topic: str, count: int
) -> None:
    def partitions() -> int:
        asked = {"topics": [{"name": topic}], "allow_auto_topic_creation": True}
        (found,) = one.ask(METADATA, 12, asked).topics
        return len(found.partitions)

    assert one.until(partitions) == count
    asked = {"resources": [{"resource_type": TOPIC, "resource_name": topic}]}
    (described,) = one.ask(DESCRIBE_CONFIGS, 4, asked).results
    settings = {one.name: one.value for one in described.configs}
    assert settings.items() >= SETTINGS[topic].items()


@pytest.fixture
def fresh() -> Iterator[Cluster]:
    with lossless.cluster(brokers=1) as cluster:
        yield cluster


def _consume_transform_commit(cluster: Cluster, group: str) -> list[TopicPartition]:
    servers: dict[str, Any] = {"bootstrap.servers": cluster.bootstrap_servers, "log_level": 0}
    create_topic(cluster.bootstrap_servers, f"in-{group}", partitions=1, replicas=1)
    create_topic(cluster.bootstrap_servers, f"out-{group}", partitions=1, replicas=1)
    produce(cluster.bootstrap_servers, f"in-{group}", [(0, None, b"record")])
    consumer = Consumer({**servers, "group.id": group, "auto.offset.reset": "earliest"})
    consumer.subscribe([f"in-{group}"])
    try:
        (message,) = consumer.consume(1, 60)
        producer = Producer({**servers, "transactional.id": group})
        producer.init_transactions(60)
        producer.begin_transaction()
        producer.produce(f"out-{group}", message.value())
        position, metadata = (
            consumer.position(consumer.assignment()),
            consumer.consumer_group_metadata(),
        )
        producer.send_offsets_to_transaction(position, metadata, 60)
        producer.commit_transaction(60)
        return consumer.committed(consumer.assignment(), 60)
    finally:
        consumer.close()


def test_transactions_commit_offsets_after_a_client_has_tried_to_write_internal_topics(
    fresh: Cluster,
) -> None:
    refused: list[Any] = []
    producer = Producer({"bootstrap.servers": fresh.bootstrap_servers, "log_level": 0})
    for topic in SETTINGS:
        producer.produce(topic, b"x", on_delivery=lambda error, _: refused.append(error))
    assert producer.flush(60) == 0
    assert [KafkaException(error).args[0].name() for error in refused] == ["TOPIC_EXCEPTION"] * 2
    for group in ("first", "second", "third", "fourth"):
        assert [one.offset for one in _consume_transform_commit(fresh, group)] == [1]


def test_transactions_commit_offsets_to_a_topic_that_an_administrator_has_created(
    fresh: Cluster,
) -> None:
    admin = AdminClient({"bootstrap.servers": fresh.bootstrap_servers})
    create_new(admin, NewTopic("__consumer_offsets", 3, 1, config={"cleanup.policy": "compact"}))
    for group in ("first", "second", "third"):
        assert [one.offset for one in _consume_transform_commit(fresh, group)] == [1]
