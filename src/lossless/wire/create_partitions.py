"""CreatePartitions (37), served by the active controller."""

from __future__ import annotations

from collections import Counter
from typing import Any

from lossless.core.admin_messages import CreatePartitions
from lossless.core.messages import AdminAnswer, Error
from lossless.wire.codec import Fields
from lossless.wire.context import Call, Controller
from lossless.wire.create_topics import PARTITIONS_MAX

KEY = 37


async def serve(call: Call, controller: Controller) -> Fields:
    counts = Counter(topic.name for topic in call.request.topics)
    named = {topic.name: topic for topic in call.request.topics}  # one answer for each name
    return {
        "results": [
            await _create(topic, counts[topic.name], call.request.validate_only, controller)
            for topic in named.values()
        ]
    }


async def _create(topic: Any, times: int, validate_only: bool, controller: Controller) -> Fields:
    if times > 1:
        answer = AdminAnswer(Error.INVALID_REQUEST, f"{topic.name} is asked for {times} times")
    elif topic.count > PARTITIONS_MAX + controller.image.partition_count(topic.name):
        answer = AdminAnswer(Error.POLICY_VIOLATION, f"{topic.count} partitions are too many")
    else:
        assignment = topic.assignments
        if assignment is not None:
            assignment = tuple(tuple(placed.broker_ids) for placed in assignment)
        answer = await controller.ask(
            CreatePartitions(topic.name, topic.count, assignment, validate_only)
        )
    return {
        "name": topic.name,
        "error_code": answer.error,
        "error_message": answer.what or None,
    }
