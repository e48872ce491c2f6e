"""WriteTxnMarkers (27): a coordinator ends transactions in the partitions that a broker leads.

The machine asks for one partition at a time, and so do its requests; what others send may have
many, and is answered when each has its marker or its refusal.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from lossless.core.messages import (
    Error,
    TopicPartition,
    WriteTxnMarker,
    WriteTxnMarkerAnswer,
)
from lossless.wire.codec import Fields
from lossless.wire.context import Broker, Call
from lossless.wire.partitions_by_topic import by_topic

KEY, VERSION = 27, 1


async def serve(call: Call, broker: Broker) -> Fields:
    requests = understood(call.request)
    return told(zip(requests, await broker.ask_all(requests), strict=True))


def understood(message: Any) -> list[WriteTxnMarker]:
    return [
        WriteTxnMarker(
            TopicPartition(topic.name, number),
            said.producer_id,
            said.producer_epoch,
            said.coordinator_epoch,
            said.transaction_result,
        )
        for said in message.markers
        for topic in said.topics
        for number in topic.partition_indexes
    ]


def told(answers: Iterable[tuple[WriteTxnMarker, WriteTxnMarkerAnswer]]) -> Fields:
    producers: dict[int, list[tuple[TopicPartition, Fields]]] = {}
    for request, (partition, error) in answers:
        said = {"partition_index": partition.partition, "error_code": error}
        producers.setdefault(request.producer_id, []).append((partition, said))
    return {
        "markers": [
            {
                "producer_id": producer_id,
                "topics": [
                    {"name": name, "partitions": partitions}
                    for name, partitions in by_topic(said).items()
                ],
            }
            for producer_id, said in producers.items()
        ]
    }


def asked(request: WriteTxnMarker) -> Fields:
    topic, number = request.partition
    marker = {
        "producer_id": request.producer_id,
        "producer_epoch": request.producer_epoch,
        "transaction_result": request.committed,
        "topics": [{"name": topic, "partition_indexes": [number]}],
        "coordinator_epoch": request.coordinator_epoch,
    }
    return {"markers": [marker]}


def answered(message: Any, request: WriteTxnMarker) -> WriteTxnMarkerAnswer:
    found = [
        (said.producer_id, TopicPartition(topic.name, result.partition_index), result.error_code)
        for said in message.markers
        for topic in said.topics
        for result in topic.partitions
    ]
    if [one[:2] for one in found] != [(request.producer_id, request.partition)]:
        raise ValueError("not about the marker that was asked for")
    return WriteTxnMarkerAnswer(request.partition, Error(found[0][2].value))
