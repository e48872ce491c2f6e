"""AlterPartitionReassignments (45), served by the active controller: replicas move to other
brokers, or stay where they were. The move goes on after the answer."""

from __future__ import annotations

from lossless.core.admin_messages import AlterReassignment
from lossless.core.messages import TopicPartition
from lossless.wire.codec import Fields
from lossless.wire.context import Call, Controller

KEY = 45


async def serve(call: Call, controller: Controller) -> Fields:
    may_change = getattr(call.request, "allow_replication_factor_change", True)
    topics = call.request.topics
    asked = [
        AlterReassignment(
            TopicPartition(topic.name, said.partition_index),
            None if said.replicas is None else tuple(said.replicas),
            may_change,
        )
        for topic in topics
        for said in topic.partitions
    ]
    answers = iter(await controller.ask_all(asked))
    responses = [
        {
            "name": topic.name,
            "partitions": [
                {
                    "partition_index": said.partition_index,
                    "error_code": answer.error,
                    "error_message": answer.what or None,
                }
                for said, answer in zip(topic.partitions, answers, strict=False)
            ],
        }
        for topic in topics
    ]
    told: dict[str, object] = {"responses": responses}
    if call.version >= 1:
        told["allow_replication_factor_change"] = may_change
    return told
