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
STRICT_FROM = 3  # from here on there is an error for clients that create too much


async def serve(call: Call, controller: Controller) -> Fields:
    counts = Counter(topic.name for topic in call.request.topics)
    named = {topic.name: topic for topic in call.request.topics}  # one answer for each name
    told, throttle_ms = [], 0
    for topic in named.values():
        answer = await _create(topic, counts[topic.name], call, controller)
        throttle_ms = max(throttle_ms, answer.throttle_ms)
        told.append(
            {
                "name": topic.name,
                "error_code": answer.error,
                "error_message": answer.what or None,
            }
        )
    return {"throttle_time": throttle_ms, "results": told}


async def _create(topic: Any, times: int, call: Call, controller: Controller) -> AdminAnswer:
    answer: AdminAnswer
    if times > 1:
        answer = AdminAnswer(Error.INVALID_REQUEST, f"{topic.name} is asked for {times} times")
    elif topic.count > PARTITIONS_MAX + controller.image.partition_count(topic.name):
        answer = AdminAnswer(Error.POLICY_VIOLATION, f"{topic.count} partitions are too many")
    else:
        assignment = topic.assignments
        if assignment is not None:
            assignment = tuple(tuple(placed.broker_ids) for placed in assignment)
        client = call.client(strict_from=STRICT_FROM)
        answer = await controller.ask(
            CreatePartitions(
                topic.name, topic.count, assignment, call.request.validate_only, client
            )
        )
    return answer
