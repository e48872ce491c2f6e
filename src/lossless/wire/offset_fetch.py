"""OffsetFetch (9): how far a group has come; from version 8 on of several groups at once."""

from __future__ import annotations

from typing import Any

from lossless.core.groups.messages import OffsetFetch, OffsetFetchAnswer
from lossless.core.messages import Error, TopicPartition
from lossless.wire.codec import Fields
from lossless.wire.context import Broker, Call

KEY = 9
BATCHED = 8


async def serve(call: Call, broker: Broker) -> Fields:
    asked = call.request
    require_stable = getattr(asked, "require_stable", False)
    if call.version >= BATCHED:
        answers = await broker.ask_all(
            [
                OffsetFetch(
                    group.group_id,
                    _partitions(group.topics),
                    require_stable,
                    getattr(group, "member_id", None),
                    getattr(group, "member_epoch", -1),
                )
                for group in asked.groups
            ]
        )
        return {
            "groups": [
                {
                    "group_id": answer.group_id,
                    "error_code": answer.error,
                    "topics": _topics(answer),
                }
                for answer in answers
            ]
        }
    partitions = _partitions(asked.topics)
    answer = await broker.ask(OffsetFetch(asked.group_id, partitions, require_stable))
    if call.version < 2 and answer.error is not Error.NONE:
        # Before version 2 an error has no place but with the partitions.
        return {"topics": _refused(partitions or (), answer.error)}
    return {"error_code": answer.error, "topics": _topics(answer)}


def _partitions(topics: Any) -> tuple[TopicPartition, ...] | None:
    if topics is None:
        return None
    return tuple(
        TopicPartition(topic.name, index) for topic in topics for index in topic.partition_indexes
    )


def _topics(answer: OffsetFetchAnswer) -> list[Fields]:
    topics: dict[str, list[Fields]] = {}
    for fetched in answer.partitions:
        topics.setdefault(fetched.partition.topic, []).append(
            {
                "partition_index": fetched.partition.partition,
                "committed_offset": fetched.offset,
                "committed_leader_epoch": fetched.leader_epoch,
                "metadata": fetched.metadata,
                "error_code": fetched.error,
            }
        )
    return [{"name": name, "partitions": said} for name, said in topics.items()]


def _refused(partitions: tuple[TopicPartition, ...], error: Error) -> list[Fields]:
    topics: dict[str, list[Fields]] = {}
    for name, index in partitions:
        said = {"partition_index": index, "committed_offset": -1, "error_code": error}
        topics.setdefault(name, []).append({**said, "metadata": ""})
    return [{"name": name, "partitions": said} for name, said in topics.items()]
