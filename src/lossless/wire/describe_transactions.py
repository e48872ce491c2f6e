"""DescribeTransactions (65): what a coordinator knows of transactional ids."""

from __future__ import annotations

from lossless.core.transactions.messages import DescribeTransaction, DescribeTransactionAnswer
from lossless.wire.codec import Fields
from lossless.wire.context import Broker, Call
from lossless.wire.partitions_by_topic import numbers_by_topic

KEY = 65


async def serve(call: Call, broker: Broker) -> Fields:
    answers = await broker.ask_all(list(map(DescribeTransaction, call.request.transactional_ids)))
    return {"transaction_states": [_told(answer) for answer in answers]}


def _told(answer: DescribeTransactionAnswer) -> Fields:
    topics = numbers_by_topic(answer.partitions)
    return {
        "error_code": answer.error,
        "transactional_id": answer.transactional_id,
        "transaction_state": answer.transaction_state,
        "transaction_timeout": answer.transaction_timeout_ms,
        "transaction_start_time": answer.transaction_start_time_ms,
        "producer_id": answer.producer_id,
        "producer_epoch": answer.producer_epoch,
        "topics": [{"topic": name, "partitions": numbers} for name, numbers in topics.items()],
    }
