"""Metadata (3): brokers, topics, partitions, who leads. Topics may come into being by being asked
for; whoever asks is told that there is none yet, and asks again."""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from typing import Any

from lossless.core.messages import INTERNAL_TOPICS, NO_LEADER, Error, TopicPartition
from lossless.core.metadata import Image
from lossless.core.settings.policies import InternalTopic, internal_topics
from lossless.wire.codec import Fields
from lossless.wire.context import Broker, Call
from lossless.wire.create_topics import KEY as CREATE_TOPICS
from lossless.wire.topic_names import problem

KEY = 3
WITH_TOPIC_IDS, BY_TOPIC_IDS = 10, 12


async def serve(call: Call, broker: Broker) -> Fields:
    endpoints = broker.endpoints(call.listener)
    topics = _topics(call, broker.image)
    missing = [
        topic["name"]
        for topic in topics
        if topic["error_code"] is Error.UNKNOWN_TOPIC_OR_PARTITION and topic["name"]
    ]
    if missing and _may_create(call, broker):
        await create(broker, missing)
    return {
        "brokers": [
            {
                "node_id": number,
                "host": endpoint.host,
                "port": endpoint.port,
                "rack": broker.image.brokers[number].rack,
            }
            for number, endpoint in sorted(endpoints.items())
        ],
        "cluster_id": broker.cluster_id,
        # Any broker hands on what is for the controller, which clients do not reach.
        "controller_id": broker.number
        if broker.number in endpoints
        else min(endpoints, default=-1),
        "topics": topics,
    }


def _may_create(call: Call, broker: Broker) -> bool:
    is_enabled = broker.settings.topic_creation.auto_create_topics_enable
    return is_enabled and getattr(call.request, "allow_auto_topic_creation", True)


async def create(broker: Broker, names: Iterable[str]) -> None:
    """Asks the controller for topics: internal topics with their own settings, others with the
    defaults. The result is visible in the next metadata."""
    internal = internal_topics(broker.settings)
    topics = [_new_topic(name, internal.get(name)) for name in names]
    await broker.ask_controller(CREATE_TOPICS, {"topics": topics, "timeout": 5000})


def _new_topic(name: str, internal: InternalTopic | None) -> Fields:
    if internal is None:
        return {"name": name, "num_partitions": -1, "replication_factor": -1}
    return {
        "name": name,
        "num_partitions": internal.num_partitions,
        "replication_factor": internal.replication_factor,
        "configs": [{"name": key, "value": value} for key, value in internal.overrides.items()],
    }


def _topics(call: Call, image: Image) -> list[dict[str, Any]]:
    asked = call.request.topics
    if asked is None or (call.version == 0 and not asked):
        return [of_topic(name, image) for name in sorted(image.topics)]
    found = []
    for topic in asked:
        topic_id = getattr(topic, "topic_id", None) if call.version >= WITH_TOPIC_IDS else None
        if topic.name is not None:
            found.append(of_topic(topic.name, image))
        elif topic_id is not None and topic_id.int in image.topic_names:
            found.append(of_topic(image.topic_names[topic_id.int], image))
        else:
            # Before version 12 a topic has to have a name.
            is_named = call.version < BY_TOPIC_IDS
            error = Error.INVALID_REQUEST if is_named else Error.UNKNOWN_TOPIC_ID
            found.append(_refused("" if is_named else None, error) | {"topic_id": topic_id})
    return found


def _refused(name: str | None, error: Error) -> dict[str, Any]:
    is_internal = name in INTERNAL_TOPICS
    return {"error_code": error, "name": name, "is_internal": is_internal, "partitions": []}


def of_topic(name: str, image: Image) -> dict[str, Any]:
    if problem(name):
        return _refused(name, Error.INVALID_TOPIC_EXCEPTION)
    if name not in image.topics:
        return _refused(name, Error.UNKNOWN_TOPIC_OR_PARTITION)
    return {
        "error_code": Error.NONE,
        "name": name,
        "topic_id": uuid.UUID(int=image.topics[name]),
        "is_internal": name in INTERNAL_TOPICS,
        "partitions": [
            of_partition(TopicPartition(name, number), image)
            for number in range(image.partition_count(name))
        ],
    }


def of_partition(partition: TopicPartition, image: Image) -> dict[str, Any]:
    state = image.partitions[partition]
    return {
        "error_code": Error.LEADER_NOT_AVAILABLE if state.leader == NO_LEADER else Error.NONE,
        "partition_index": partition.partition,
        "leader_id": state.leader,
        "leader_epoch": state.leader_epoch,
        "replica_nodes": state.replicas,
        "isr_nodes": state.isr,
        "offline_replicas": [broker for broker in state.replicas if not image.is_active(broker)],
    }
