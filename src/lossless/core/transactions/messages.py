"""What transactional producers, brokers and administrators ask a transaction coordinator.

The names are Kafka's. A request that carries several transactions, AddPartitionsToTxn from version
4 on and DescribeTransactions, is one message for each of them here, because each may belong to
another coordinator. `version` is that of the request: errors and epochs depend on it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from lossless.core.messages import Error, TopicPartition
from lossless.log.batch import NO_PRODUCER_EPOCH, NO_PRODUCER_ID


class InitProducerId(NamedTuple):
    transactional_id: str
    transaction_timeout_ms: int
    producer_id: int = NO_PRODUCER_ID  # both given: who asks wants to go on as itself (KIP-360)
    producer_epoch: int = NO_PRODUCER_EPOCH
    version: int = 5


class InitProducerIdAnswer(NamedTuple):
    error: Error
    producer_id: int = NO_PRODUCER_ID
    producer_epoch: int = NO_PRODUCER_EPOCH


class AddPartitionsToTxn(NamedTuple):
    """By clients up to version 3; by brokers from version 4 on, for what a client produces."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    partitions: tuple[TopicPartition, ...]
    verify_only: bool = False
    version: int = 5


class AddPartitionsToTxnAnswer(NamedTuple):
    transactional_id: str
    partitions: tuple[tuple[TopicPartition, Error], ...]


class AddOffsetsToTxn(NamedTuple):
    transactional_id: str
    producer_id: int
    producer_epoch: int
    group_id: str
    version: int = 4


class AddOffsetsToTxnAnswer(NamedTuple):
    error: Error


class EndTxn(NamedTuple):
    transactional_id: str
    producer_id: int
    producer_epoch: int
    committed: bool
    version: int = 5


class EndTxnAnswer(NamedTuple):
    error: Error
    producer_id: int = NO_PRODUCER_ID  # with which the next transaction begins
    producer_epoch: int = NO_PRODUCER_EPOCH


class DescribeTransaction(NamedTuple):
    transactional_id: str


class DescribeTransactionAnswer(NamedTuple):
    error: Error
    transactional_id: str
    transaction_state: str = ""
    transaction_timeout_ms: int = 0
    transaction_start_time_ms: int = 0
    producer_id: int = 0
    producer_epoch: int = 0
    partitions: tuple[TopicPartition, ...] = ()  # while it ends: those without a marker


class ListTransactions(NamedTuple):
    """Asked of every shard that a broker has."""

    state_filters: tuple[str, ...] = ()
    producer_id_filters: tuple[int, ...] = ()
    duration_filter_ms: int = -1
    transactional_id_pattern: str = ""


class ListedTransaction(NamedTuple):
    transactional_id: str
    producer_id: int
    transaction_state: str


class ListTransactionsAnswer(NamedTuple):
    error: Error
    unknown_state_filters: tuple[str, ...] = ()
    transactions: tuple[ListedTransaction, ...] = ()


KeyedRequest = InitProducerId | AddPartitionsToTxn | AddOffsetsToTxn | EndTxn | DescribeTransaction
Request = KeyedRequest | ListTransactions
Answer = (
    InitProducerIdAnswer
    | AddPartitionsToTxnAnswer
    | AddOffsetsToTxnAnswer
    | EndTxnAnswer
    | DescribeTransactionAnswer
    | ListTransactionsAnswer
)


def key_of(request: KeyedRequest) -> str:
    """Whose coordinator is to be asked. ListTransactions has none: every shard is asked."""
    return request.transactional_id


def refusal(request: Request, error: Error) -> Answer:
    """The answer to a request that was not dealt with."""
    match request:
        case InitProducerId():
            return InitProducerIdAnswer(error)
        case AddPartitionsToTxn():
            partitions = tuple((partition, error) for partition in request.partitions)
            return AddPartitionsToTxnAnswer(request.transactional_id, partitions)
        case AddOffsetsToTxn():
            return AddOffsetsToTxnAnswer(error)
        case EndTxn():
            return EndTxnAnswer(error)
        case DescribeTransaction():
            return DescribeTransactionAnswer(error, request.transactional_id)
        case ListTransactions():
            return ListTransactionsAnswer(error)


def merged_listings(answers: Iterable[ListTransactionsAnswer]) -> ListTransactionsAnswer:
    """What a broker says of all its shards. One that cannot tell makes the whole incomplete."""
    unknown: dict[str, None] = {}
    transactions: list[ListedTransaction] = []
    for answer in answers:
        if answer.error is not Error.NONE:
            return ListTransactionsAnswer(answer.error)
        unknown |= dict.fromkeys(answer.unknown_state_filters)
        transactions += answer.transactions
    return ListTransactionsAnswer(Error.NONE, tuple(unknown), tuple(transactions))
