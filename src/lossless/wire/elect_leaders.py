"""ElectLeaders (43), served by the active controller: the preferred replica, or anybody.

Who asks for all partitions is told of those only where an election was needed.
"""

from __future__ import annotations

import enum

from lossless.core.messages import ElectLeader, Error, TopicPartition
from lossless.wire.codec import Fields
from lossless.wire.context import Call, Controller

KEY = 43


class ElectionType(enum.IntEnum):
    PREFERRED = 0
    UNCLEAN = 1


async def serve(call: Call, controller: Controller) -> Fields:
    kind = getattr(call.request, "election_type", ElectionType.PREFERRED)
    asked = call.request.topic_partitions
    if kind not in set(ElectionType):
        return {"error_code": Error.INVALID_REQUEST, "replica_election_results": []}
    partitions = (
        sorted(controller.image.partitions)
        if asked is None
        else [TopicPartition(topic.topic, at) for topic in asked for at in topic.partitions]
    )
    answers = await controller.ask_all(
        [ElectLeader(partition, kind == ElectionType.UNCLEAN) for partition in partitions]
    )
    topics: dict[str, list[Fields]] = {}
    for partition, answer in zip(partitions, answers, strict=True):
        told = topics.setdefault(partition.topic, [])
        if asked is None and answer.error is Error.ELECTION_NOT_NEEDED:
            continue
        told.append(
            {
                "partition_id": partition.partition,
                "error_code": answer.error,
                "error_message": answer.what or None,
            }
        )
    return {
        "replica_election_results": [
            {"topic": topic, "partition_result": told} for topic, told in topics.items()
        ]
    }
