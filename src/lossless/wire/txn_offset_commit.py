"""TxnOffsetCommit (28): offsets of a group that count if and when a transaction is committed.

From version 3 on a member says who it is, so that one that was replaced cannot commit (KIP-447);
from version 5 on the group's coordinator makes itself part of the transaction (KIP-890).
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from lossless.core.coordination import TransactionalCommit
from lossless.core.groups.messages import (
    NO_GENERATION,
    NO_MEMBER_ID,
    OffsetToCommit,
    PartitionError,
    TxnOffsetCommit,
)
from lossless.core.messages import UNKNOWN_EPOCH, Error, Producer, TopicPartition
from lossless.wire.codec import Fields
from lossless.wire.context import Broker, Call
from lossless.wire.partitions_by_topic import by_topic

KEY = 28
KNOWS_LOADING = 2  # clients of earlier versions do not expect COORDINATOR_LOAD_IN_PROGRESS


async def serve(call: Call, broker: Broker) -> Fields:
    request, unknown = understood(call, broker.image.partitions)
    results = [PartitionError(each, Error.UNKNOWN_TOPIC_OR_PARTITION) for each in unknown]
    if request.commit.offsets:
        answer = await broker.ask(request)
        results += answer.partitions
    topics = by_topic(
        (
            partition,
            {
                "partition_index": partition.partition,
                "error_code": _understandable(error, call.version),
            },
        )
        for partition, error in results
    )
    return {"topics": [{"name": name, "partitions": said} for name, said in topics.items()]}


def understood(
    call: Call, existing: Collection[TopicPartition]
) -> tuple[TransactionalCommit, list[TopicPartition]]:
    """What can be committed; and partitions that do not exist."""
    request = call.request
    offsets = [_offset(topic.name, said) for topic in request.topics for said in topic.partitions]
    commit = TxnOffsetCommit(
        request.group_id,
        tuple(offset for offset in offsets if offset.partition in existing),
        Producer(request.producer_id, request.producer_epoch),
        getattr(request, "generation_id", NO_GENERATION),
        getattr(request, "member_id", NO_MEMBER_ID),
        getattr(request, "group_instance_id", None),
    )
    unknown = [offset.partition for offset in offsets if offset.partition not in existing]
    return TransactionalCommit(request.transactional_id, call.version, commit), unknown


def _offset(topic: str, said: Any) -> OffsetToCommit:
    return OffsetToCommit(
        TopicPartition(topic, said.partition_index),
        said.committed_offset,
        getattr(said, "committed_leader_epoch", UNKNOWN_EPOCH),
        said.committed_metadata or "",
    )


def _understandable(error: Error, version: int) -> Error:
    if error is Error.COORDINATOR_LOAD_IN_PROGRESS and version < KNOWS_LOADING:
        return Error.COORDINATOR_NOT_AVAILABLE
    return error
