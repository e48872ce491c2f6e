"""DescribeTopicPartitions (75): the same as Metadata, in pages, with the eligible leaders."""

from __future__ import annotations

from typing import Any

from lossless.core.messages import Error, TopicPartition
from lossless.wire import metadata
from lossless.wire.codec import Fields
from lossless.wire.context import Broker, Call

KEY = 75
PARTITIONS_MAX = 2000  # max.request.partition.size.limit


async def serve(call: Call, broker: Broker) -> Fields:
    image, request = broker.image, call.request
    names = sorted({topic.name for topic in request.topics} or image.topics)
    cursor = request.cursor
    if cursor is not None:
        if cursor.partition_index < 0:
            names = []
        names = [name for name in names if name >= cursor.topic_name]
    limit = max(1, min(request.response_partition_limit, PARTITIONS_MAX))
    topics: list[dict[str, Any]] = []
    following: Fields | None = None
    for name in names:
        described = metadata.of_topic(name, image)
        start = cursor.partition_index if cursor is not None and cursor.topic_name == name else 0
        numbers = [said["partition_index"] for said in described["partitions"]][start:]
        if limit <= 0 or (numbers and len(numbers) > limit):
            following = {"topic_name": name, "partition_index": start + max(0, limit)}
            numbers = numbers[: max(0, limit)]
            if not numbers:
                break
        described["partitions"] = [_partition(TopicPartition(name, at), broker) for at in numbers]
        limit -= len(numbers)
        topics.append(described)
        if following is not None:
            break
    return {"topics": topics, "next_cursor": following}


def _partition(partition: TopicPartition, broker: Broker) -> Fields:
    state = broker.image.partitions[partition]
    last_known = (state.last_known_leader,) if state.last_known_leader >= 0 else ()
    described = metadata.of_partition(partition, broker.image)
    assert described["error_code"] in (Error.NONE, Error.LEADER_NOT_AVAILABLE)
    return described | {
        "eligible_leader_replicas": state.elr,
        "last_known_elr": last_known,
    }
