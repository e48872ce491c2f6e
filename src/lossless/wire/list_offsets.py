"""ListOffsets (2): where a partition begins and ends, and what was first at a time.

-1 latest │ -2 earliest │ -3 the latest time │ -4 earliest on local disk │ -5 latest in remote
storage, of which there is none
"""

from __future__ import annotations

from collections import Counter

from lossless.core.messages import (
    UNKNOWN_EPOCH,
    Error,
    ListOffsets,
    ListOffsetsAnswer,
    OffsetKind,
    TopicPartition,
)
from lossless.wire.codec import Fields
from lossless.wire.context import Broker, Call

KEY = 2
EARLIEST_LOCAL, LATEST_TIERED = -4, -5
READ_COMMITTED = 1


async def serve(call: Call, broker: Broker) -> Fields:
    read_committed = getattr(call.request, "isolation_level", 0) == READ_COMMITTED
    asked = [
        (topic.name, said, said.timestamp)
        for topic in call.request.topics
        for said in topic.partitions
    ]
    counts = Counter(TopicPartition(name, said.partition_index) for name, said, _ in asked)
    answers = await broker.ask_all(
        [
            ListOffsets(
                TopicPartition(name, said.partition_index),
                getattr(said, "current_leader_epoch", UNKNOWN_EPOCH),
                OffsetKind.EARLIEST if at == EARLIEST_LOCAL else at,
                read_committed,
            )
            for name, said, at in asked
        ]
    )
    topics: dict[str, list[Fields]] = {}
    for (name, _, at), answer in zip(asked, answers, strict=True):
        told = _told(answer, at)
        if counts[answer.partition] > 1:
            told = _told(ListOffsetsAnswer(answer.partition, Error.INVALID_REQUEST), at)
        topics.setdefault(name, []).append(told)
    return {
        "topics": [{"name": name, "partitions": partitions} for name, partitions in topics.items()]
    }


def _told(answer: ListOffsetsAnswer, at: int) -> Fields:
    if at == LATEST_TIERED and answer.error is Error.NONE:
        answer = ListOffsetsAnswer(answer.partition, Error.NONE)
    elif at < LATEST_TIERED and answer.error is Error.NONE:
        answer = ListOffsetsAnswer(answer.partition, Error.UNSUPPORTED_VERSION)
    return {
        "partition_index": answer.partition.partition,
        "error_code": answer.error,
        "timestamp": answer.timestamp_ms,
        "offset": answer.offset,
        "leader_epoch": answer.leader_epoch,
    }
