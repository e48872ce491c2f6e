"""OffsetForLeaderEpoch (23): where an epoch ends, for consumers that doubt their position."""

from __future__ import annotations

from lossless.core.messages import UNKNOWN_EPOCH, OffsetForLeaderEpoch, TopicPartition
from lossless.wire.codec import Fields
from lossless.wire.context import Broker, Call

KEY = 23


async def serve(call: Call, broker: Broker) -> Fields:
    asked = [
        OffsetForLeaderEpoch(
            TopicPartition(topic.topic, said.partition),
            getattr(said, "current_leader_epoch", UNKNOWN_EPOCH),
            said.leader_epoch,
        )
        for topic in call.request.topics
        for said in topic.partitions
    ]
    topics: dict[str, list[Fields]] = {}
    for answer in await broker.ask_all(asked):
        end = answer.end
        topics.setdefault(answer.partition.topic, []).append(
            {
                "error_code": answer.error,
                "partition": answer.partition.partition,
                "leader_epoch": UNKNOWN_EPOCH if end is None else end.epoch,
                "end_offset": -1 if end is None or end.epoch == UNKNOWN_EPOCH else end.end_offset,
            }
        )
    return {
        "topics": [{"topic": name, "partitions": partitions} for name, partitions in topics.items()]
    }
