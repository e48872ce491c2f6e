"""OffsetDelete (47): forget how far a group has come in some partitions."""

from __future__ import annotations

from lossless.core.groups.messages import OffsetDelete, PartitionError
from lossless.core.messages import Error, TopicPartition
from lossless.wire.codec import Fields
from lossless.wire.context import Broker, Call
from lossless.wire.offset_commit import told

KEY = 47


async def serve(call: Call, broker: Broker) -> Fields:
    asked = [
        TopicPartition(topic.name, said.partition_index)
        for topic in call.request.topics
        for said in topic.partitions
    ]
    known = tuple(partition for partition in asked if partition in broker.image.partitions)
    answer = await broker.ask(OffsetDelete(call.request.group_id, known))
    if answer.error is not Error.NONE:
        return {"error_code": answer.error}
    unknown = [
        PartitionError(partition, Error.UNKNOWN_TOPIC_OR_PARTITION)
        for partition in asked
        if partition not in known
    ]
    return {"topics": told((*answer.partitions, *unknown))}
