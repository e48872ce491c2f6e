"""ListPartitionReassignments (46), served by the active controller: moves that are not over."""

from __future__ import annotations

from lossless.core.admin_messages import ListReassignments
from lossless.core.messages import TopicPartition
from lossless.wire.codec import Fields
from lossless.wire.context import Call, Controller

KEY = 46


async def serve(call: Call, controller: Controller) -> Fields:
    partitions = None
    if call.request.topics is not None:
        partitions = tuple(
            TopicPartition(topic.name, number)
            for topic in call.request.topics
            for number in topic.partition_indexes
        )
    answer = await controller.ask(ListReassignments(partitions))
    topics: dict[str, list[Fields]] = {}
    for found in answer.found:
        topics.setdefault(found.partition.topic, []).append(
            {
                "partition_index": found.partition.partition,
                "replicas": found.replicas,
                "adding_replicas": found.adding,
                "removing_replicas": found.removing,
            }
        )
    return {
        "error_code": answer.error,
        "topics": [{"name": name, "partitions": moving} for name, moving in topics.items()],
    }
