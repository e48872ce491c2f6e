"""AlterPartition (56): the leader of a partition asks for another in-sync set."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import Any

from lossless.core.messages import (
    AlterPartition,
    AlterPartitionAnswer,
    Error,
    InSyncReplica,
    TopicPartition,
)
from lossless.wire.codec import Fields

KEY, VERSION = 56, 3


def asked(request: AlterPartition, topic_ids: Mapping[str, int]) -> Fields:
    topic_id = topic_ids.get(request.partition.topic, 0)
    partition = {
        "partition_index": request.partition.partition,
        "leader_epoch": request.leader_epoch,
        "new_isr_with_epochs": [
            {"broker_id": member.broker, "broker_epoch": member.broker_epoch}
            for member in request.isr
        ],
        "partition_epoch": request.partition_epoch,
    }
    return {
        "broker_id": request.broker,
        "broker_epoch": request.broker_epoch,
        "topics": [{"topic_id": uuid.UUID(int=topic_id), "partitions": [partition]}],
    }


def answered(message: Any, request: AlterPartition) -> AlterPartitionAnswer:
    if message.error_code.value:
        return AlterPartitionAnswer(request.partition, Error(message.error_code.value))
    if len(message.topics) != 1 or len(message.topics[0].partitions) != 1:
        raise ValueError("not about the partition that was asked for")
    said = message.topics[0].partitions[0]
    return AlterPartitionAnswer(
        request.partition,
        Error(said.error_code.value),
        tuple(said.isr),
        said.leader_epoch,
        said.partition_epoch,
    )


def understood(
    message: Any, topic_names: Mapping[int, str]
) -> tuple[int, list[tuple[uuid.UUID, AlterPartition]]]:
    """A core request for each partition. A topic that is not known has no name."""
    found = []
    for topic in message.topics:
        name = topic_names.get(topic.topic_id.int if topic.topic_id else 0, "")
        for said in topic.partitions:
            if hasattr(said, "new_isr_with_epochs"):
                isr = tuple(
                    InSyncReplica(member.broker_id, member.broker_epoch)
                    for member in said.new_isr_with_epochs
                )
            else:
                isr = tuple(InSyncReplica(broker, -1) for broker in said.new_isr)
            request = AlterPartition(
                message.broker_id,
                message.broker_epoch,
                TopicPartition(name, said.partition_index),
                said.leader_epoch,
                said.partition_epoch,
                isr,
            )
            found.append((topic.topic_id, request))
    return message.broker_id, found


def told(answers: list[tuple[uuid.UUID, AlterPartitionAnswer]]) -> Fields:
    for _, answer in answers:
        if answer.error in (Error.NOT_CONTROLLER, Error.STALE_BROKER_EPOCH):
            return {"error_code": answer.error}
    return {
        "topics": [
            {
                "topic_id": topic_id,
                "partitions": [
                    {
                        "partition_index": answer.partition.partition,
                        "error_code": answer.error,
                        "leader_epoch": answer.leader_epoch,
                        "isr": answer.isr,
                        "partition_epoch": answer.partition_epoch,
                    }
                ],
            }
            for topic_id, answer in answers
        ]
    }
