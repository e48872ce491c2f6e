"""OffsetCommit (8): how far a group has come."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from lossless.core.groups.messages import (
    NO_RETENTION,
    OffsetCommit,
    OffsetToCommit,
    PartitionError,
)
from lossless.core.messages import UNKNOWN_EPOCH, Error, TopicPartition
from lossless.core.metadata import Image
from lossless.wire.codec import Fields, milliseconds
from lossless.wire.context import Broker, Call

KEY = 8


async def serve(call: Call, broker: Broker) -> Fields:
    asked = call.request
    known, unknown = offsets_of(asked.topics, broker.image)
    retention = getattr(asked, "retention_time", None)
    partitions: tuple[PartitionError, ...] = ()
    if known or not unknown:
        answer = await broker.ask(
            OffsetCommit(
                asked.group_id,
                known,
                asked.generation_id_or_member_epoch,
                asked.member_id,
                getattr(asked, "group_instance_id", None),
                NO_RETENTION if retention is None else milliseconds(retention),
                call.version,
            )
        )
        partitions = answer.partitions
    return {"topics": told((*partitions, *unknown))}


def offsets_of(
    topics: Any, image: Image
) -> tuple[tuple[OffsetToCommit, ...], tuple[PartitionError, ...]]:
    """What can be committed, and partitions that there are none of."""
    known, unknown = [], []
    for topic in topics:
        for said in topic.partitions:
            partition = TopicPartition(topic.name, said.partition_index)
            if partition in image.partitions:
                epoch = getattr(said, "committed_leader_epoch", UNKNOWN_EPOCH)
                metadata = said.committed_metadata or ""
                known.append(OffsetToCommit(partition, said.committed_offset, epoch, metadata))
            else:
                unknown.append(PartitionError(partition, Error.UNKNOWN_TOPIC_OR_PARTITION))
    return tuple(known), tuple(unknown)


def told(partitions: Iterable[PartitionError]) -> list[Fields]:
    topics: dict[str, list[Fields]] = {}
    for partition, error in partitions:
        said = {"partition_index": partition.partition, "error_code": error}
        topics.setdefault(partition.topic, []).append(said)
    return [{"name": name, "partitions": said} for name, said in topics.items()]
