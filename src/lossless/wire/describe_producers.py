"""DescribeProducers (61): who has written to a partition, and whose transaction is open there.

Tools ask the leader unless they are told to ask another replica, so every replica answers.
"""

from __future__ import annotations

from typing import Any

from lossless.core.messages import Error, TopicPartition
from lossless.wire.codec import Fields
from lossless.wire.context import Broker, Call
from lossless.wire.topic_names import problem

KEY = 61
NO_TRANSACTION = -1


async def serve(call: Call, broker: Broker) -> Fields:
    return {
        "topics": [
            {
                "name": topic.name,
                "partitions": [
                    _told(TopicPartition(topic.name, number), broker)
                    for number in topic.partition_indexes
                ],
            }
            for topic in call.request.topics
        ]
    }


def _told(partition: TopicPartition, broker: Broker) -> Fields:
    told: dict[str, Any] = {"partition_index": partition.partition}
    replica = broker.replicas.get(partition)
    if wrong := problem(partition.topic):
        return told | {"error_code": Error.INVALID_TOPIC_EXCEPTION, "error_message": wrong}
    if partition not in broker.image.partitions:
        return told | {"error_code": Error.UNKNOWN_TOPIC_OR_PARTITION}
    if replica is None:
        return told | {"error_code": Error.NOT_LEADER_OR_FOLLOWER}
    return told | {
        "error_code": Error.NONE,
        "active_producers": [
            {
                "producer_id": producer_id,
                "producer_epoch": known.epoch,
                "last_sequence": known.last_sequence,
                "last_timestamp": known.last_timestamp_ms,
                "coordinator_epoch": known.coordinator_epoch,
                "current_txn_start_offset": NO_TRANSACTION
                if known.transaction_first_offset is None
                else known.transaction_first_offset,
            }
            for producer_id, known in replica.log.producers.items()
        ],
    }
