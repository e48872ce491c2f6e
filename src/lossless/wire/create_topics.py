"""CreateTopics (19), served by the active controller. From version 5 on the answer tells what the
new topic goes by: its settings and where each comes from."""

from __future__ import annotations

import uuid
from collections import Counter
from typing import Any

from lossless.core.admin_messages import ALL_BROKERS
from lossless.core.messages import AdminAnswer, CreateTopic, Error
from lossless.core.settings.describe import describe_topic
from lossless.wire.codec import Fields
from lossless.wire.context import Call, Controller
from lossless.wire.topic_names import problem

KEY = 19
FROM_DEFAULT = -1  # as a number of partitions or replicas
METADATA_TOPIC = "__cluster_metadata"
STRICT_FROM = 6  # from here on there is an error for clients that create too much
PARTITIONS_MAX = 10_000  # of one request, as Kafka has it


async def serve(call: Call, controller: Controller) -> Fields:
    counts = Counter(topic.name for topic in call.request.topics)
    validate_only = getattr(call.request, "validate_only", False)
    named = {topic.name: topic for topic in call.request.topics}  # one answer for each name
    total = sum(max(topic.num_partitions, 0) for topic in named.values())
    client = call.client(strict_from=STRICT_FROM)
    told, throttle_ms = [], 0
    for topic in named.values():
        answer = _refusal(topic, counts[topic.name], total)
        request = None
        if answer is None:
            request = _request(topic, validate_only, controller)._replace(client=client)
            answer = await controller.ask(request)
        told.append(_told(topic, request, answer, controller))
        throttle_ms = max(throttle_ms, answer.throttle_ms)
    return {"throttle_time": throttle_ms, "topics": told}


def _told(
    topic: Any, request: CreateTopic | None, answer: AdminAnswer, controller: Controller
) -> dict[str, Any]:
    told: dict[str, Any] = {
        "name": topic.name,
        "error_code": answer.error,
        "error_message": answer.what or None,
        "num_partitions": -1,
        "replication_factor": -1,
        "configs": [],
    }
    if answer.error is Error.NONE and request is not None:
        replicas = len(request.assignment[0]) if request.assignment else request.replication_factor
        told["topic_id"] = uuid.UUID(int=controller.image.topics.get(topic.name, 0))
        told["num_partitions"] = request.partitions
        told["replication_factor"] = replicas
        told["configs"] = _configs(request, controller)
    return told


def _refusal(topic: Any, times: int, total: int) -> AdminAnswer | None:
    if times > 1:
        return AdminAnswer(Error.INVALID_REQUEST, f"{topic.name} is asked for {times} times")
    if topic.name == METADATA_TOPIC:
        return AdminAnswer(Error.INVALID_REQUEST, f"{topic.name} is the controllers' own")
    if wrong := problem(topic.name):
        return AdminAnswer(Error.INVALID_TOPIC_EXCEPTION, wrong)
    if total > PARTITIONS_MAX:
        return AdminAnswer(Error.POLICY_VIOLATION, f"{total} partitions at once are too many")
    is_counted = (topic.num_partitions, topic.replication_factor) != (FROM_DEFAULT, FROM_DEFAULT)
    if topic.assignments and is_counted:
        return AdminAnswer(
            Error.INVALID_REQUEST, "who places replicas does not count them: say -1 for both"
        )
    numbers = sorted(placed.partition_index for placed in topic.assignments)
    if numbers != list(range(len(numbers))):
        return AdminAnswer(Error.INVALID_REPLICA_ASSIGNMENT, "partitions are numbered from 0 on")
    if len({len(placed.broker_ids) for placed in topic.assignments}) > 1:
        return AdminAnswer(
            Error.INVALID_REPLICA_ASSIGNMENT, "all partitions have equally many replicas"
        )
    return None


def _request(topic: Any, validate_only: bool, controller: Controller) -> CreateTopic:
    placed = sorted(topic.assignments, key=lambda said: said.partition_index)
    assignment = tuple(tuple(said.broker_ids) for said in placed)
    partitions, replicas = topic.num_partitions, topic.replication_factor
    if partitions == FROM_DEFAULT:
        partitions = len(assignment) or controller.settings.topic_creation.num_partitions
    if replicas == FROM_DEFAULT:
        replicas = controller.settings.topic_creation.default_replication_factor
    return CreateTopic(
        topic.name,
        partitions,
        replicas,
        tuple((said.name, said.value) for said in topic.configs),
        assignment,
        validate_only,
    )


def _configs(request: CreateTopic, controller: Controller) -> list[Fields]:
    overrides = {name: value for name, value in request.config if value is not None}
    cluster_defaults = controller.image.overrides(ALL_BROKERS)
    return [
        {
            "name": one.name,
            "value": one.value,
            "read_only": one.is_read_only,
            "config_source": one.source,
            "is_sensitive": one.is_sensitive,
        }
        for one in describe_topic(overrides, controller.settings.properties, cluster_defaults)
    ]
