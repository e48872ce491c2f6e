"""DeleteRecords (21): records before an offset are gone, and the log starts there.

The answer comes when all live replicas have moved their start, and names the lowest start of all,
as in Kafka. Here each replica has it on disk by then: no crash brings the records back. Kafka
writes it down once a minute.

An offset of -1 is where what is committed ends. Of a topic that is only compacted nothing can be
deleted, nor of the brokers' own topics.
"""

from __future__ import annotations

from lossless.core.admin_messages import topic_resource
from lossless.core.dynamic_settings import properties_now
from lossless.core.messages import (
    INTERNAL_TOPICS,
    UNKNOWN_EPOCH,
    DeleteRecords,
    DeleteRecordsAnswer,
    Error,
    ListOffsets,
    OffsetKind,
    TopicPartition,
)
from lossless.core.settings.topics import topic_value
from lossless.wire.codec import Fields, milliseconds
from lossless.wire.context import Broker, Call

KEY = 21
TO_HIGH_WATERMARK = -1


async def serve(call: Call, broker: Broker) -> Fields:
    timeout_ms = milliseconds(call.request.timeout)
    asked = [
        DeleteRecords(TopicPartition(topic.name, said.partition_index), said.offset, timeout_ms)
        for topic in call.request.topics
        for said in topic.partitions
    ]
    refused = {
        request.partition: error for request in asked if (error := _refusal(request, broker))
    }
    rest = [request for request in asked if request.partition not in refused]
    answers = [DeleteRecordsAnswer(*refusal) for refusal in refused.items()]
    answers += await broker.ask_all([await _resolved(request, broker) for request in rest])
    topics: dict[str, list[Fields]] = {}
    for answer in answers:
        topics.setdefault(answer.partition.topic, []).append(
            {
                "partition_index": answer.partition.partition,
                "low_watermark": answer.low_watermark,
                "error_code": answer.error,
            }
        )
    return {
        "topics": [{"name": name, "partitions": partitions} for name, partitions in topics.items()]
    }


def _refusal(request: DeleteRecords, broker: Broker) -> Error | None:
    if request.partition not in broker.image.partitions:
        return Error.UNKNOWN_TOPIC_OR_PARTITION
    if request.partition.topic in INTERNAL_TOPICS:
        return Error.INVALID_TOPIC_EXCEPTION
    if not _may_delete(request.partition.topic, broker):
        return Error.POLICY_VIOLATION
    return None


def _may_delete(topic: str, broker: Broker) -> bool:
    image = broker.image
    properties = properties_now(broker.settings, image, broker.number)
    policies = topic_value("cleanup.policy", image.overrides(topic_resource(topic)), properties)
    assert isinstance(policies, tuple)
    return "delete" in policies


async def _resolved(request: DeleteRecords, broker: Broker) -> DeleteRecords:
    if request.offset != TO_HIGH_WATERMARK:
        return request
    latest = await broker.ask(
        ListOffsets(request.partition, UNKNOWN_EPOCH, OffsetKind.LATEST, read_committed=False)
    )
    # Whoever cannot say where the end is refuses this, too.
    return request._replace(offset=latest.offset)
