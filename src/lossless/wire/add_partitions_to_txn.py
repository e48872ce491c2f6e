"""AddPartitionsToTxn (24): partitions become part of a transaction, or are asked to be.

    up to version 3    a client, of one transaction
    from version 4     leaders of partitions, of several: to verify what a client has added, or to
                       add what it produces (KIP-890)

Clients may not write to the brokers' own topics; as in Kafka, one partition that is refused keeps
the others from being added.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from lossless.core.messages import INTERNAL_TOPICS, Error, TopicPartition
from lossless.core.transactions.messages import AddPartitionsToTxn, AddPartitionsToTxnAnswer
from lossless.wire.codec import Fields
from lossless.wire.context import Broker, Call
from lossless.wire.partitions_by_topic import by_topic, numbers_by_topic

KEY, VERSION = 24, 5
BATCHED = 4


async def serve(call: Call, broker: Broker) -> Fields:
    requests = understood(call.request, call.version)
    if call.version < BATCHED and (refused := _refusal(requests[0])):
        return told([refused], call.version)
    return told(await broker.ask_all(requests), call.version)


def understood(message: Any, version: int) -> list[AddPartitionsToTxn]:
    if version < BATCHED:
        return [
            AddPartitionsToTxn(
                message.v3_and_below_transactional_id,
                message.v3_and_below_producer_id,
                message.v3_and_below_producer_epoch,
                _partitions(message.v3_and_below_topics),
                version=version,
            )
        ]
    return [
        AddPartitionsToTxn(
            said.transactional_id,
            said.producer_id,
            said.producer_epoch,
            _partitions(said.topics),
            said.verify_only,
            version,
        )
        for said in message.transactions
    ]


def _partitions(topics: Iterable[Any]) -> tuple[TopicPartition, ...]:
    return tuple(
        TopicPartition(topic.name, number) for topic in topics for number in topic.partitions
    )


def _refusal(request: AddPartitionsToTxn) -> AddPartitionsToTxnAnswer | None:
    errors = [
        Error.TOPIC_AUTHORIZATION_FAILED
        if partition.topic in INTERNAL_TOPICS
        else Error.OPERATION_NOT_ATTEMPTED
        for partition in request.partitions
    ]
    if Error.TOPIC_AUTHORIZATION_FAILED not in errors:
        return None
    partitions = tuple(zip(request.partitions, errors, strict=True))
    return AddPartitionsToTxnAnswer(request.transactional_id, partitions)


def told(answers: Sequence[AddPartitionsToTxnAnswer], version: int) -> Fields:
    if version < BATCHED:
        return {"results_by_topic_v3_and_below": _results(answers[0])}
    return {
        "results_by_transaction": [
            {"transactional_id": answer.transactional_id, "topic_results": _results(answer)}
            for answer in answers
        ]
    }


def _results(answer: AddPartitionsToTxnAnswer) -> list[Fields]:
    topics = by_topic(
        (partition, {"partition_index": partition.partition, "partition_error_code": error})
        for partition, error in answer.partitions
    )
    return [{"name": name, "results_by_partition": results} for name, results in topics.items()]


# What a leader of partitions asks a coordinator


def asked(request: AddPartitionsToTxn) -> Fields:
    topics = numbers_by_topic(request.partitions)
    transaction = {
        "transactional_id": request.transactional_id,
        "producer_id": request.producer_id,
        "producer_epoch": request.producer_epoch,
        "verify_only": request.verify_only,
        "topics": [{"name": name, "partitions": numbers} for name, numbers in topics.items()],
    }
    return {"transactions": [transaction]}


def answered(message: Any, request: AddPartitionsToTxn) -> AddPartitionsToTxnAnswer:
    error = Error(message.error_code.value)
    if error is not Error.NONE:
        partitions = tuple((partition, error) for partition in request.partitions)
        return AddPartitionsToTxnAnswer(request.transactional_id, partitions)
    results = message.results_by_transaction
    if [said.transactional_id for said in results] != [request.transactional_id]:
        raise ValueError("not about the transaction that was asked for")
    return AddPartitionsToTxnAnswer(
        request.transactional_id,
        tuple(
            (
                TopicPartition(topic.name, said.partition_index),
                Error(said.partition_error_code.value),
            )
            for topic in results[0].topic_results
            for said in topic.results_by_partition
        ),
    )
