"""A host of one transaction coordinator: a log in memory, a clock, and leaders that answer as told.

What the coordinator decides is written and applied at once; it is told when it is committed, at
once unless `is_committing` is off.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from lossless.core.coordinator import Outcome
from lossless.core.machine import Send
from lossless.core.messages import Error, TopicPartition, WriteTxnMarkerAnswer
from lossless.core.transactions.config import TransactionConfig
from lossless.core.transactions.messages import (
    AddPartitionsToTxn,
    EndTxn,
    InitProducerId,
    InitProducerIdAnswer,
)
from lossless.core.transactions.records import decode_value, encode_key, encode_value
from lossless.core.transactions.shard import TransactionShard
from lossless.core.transactions.state import EPOCH_LAST_USED, Transaction, TransactionState
from lossless.log.batch import Record

ORDERS = TopicPartition("orders", 0)
PAYMENTS = TopicPartition("payments", 3)
LEADER = 7
OLD = 4  # a version of EndTxn that leaves epochs alone
NEW = 5  # one that raises them


class Host:
    def __init__(
        self, config: TransactionConfig | None = None, first_producer_id: int = 1000
    ) -> None:
        self.config = config or TransactionConfig()
        self.now_ms = 1_000_000
        self.log: list[tuple[bytes, bytes | None]] = []
        self.next_id: int = first_producer_id
        self.has_ids = True
        self.leaders: dict[TopicPartition, int | None] = {}  # else LEADER
        self.gone: set[TopicPartition] = set()
        self.offsets_partitions = 0  # the topic of offsets does not exist yet
        self.coordinator_epoch = 0
        self.is_committing = True
        self.pending: list[Outcome] = []
        self.committed_end = 0
        self.sent: list[Send] = []
        self.replies: dict[Any, Any] = {}
        self.tokens = 0
        self.on_decided: Callable[[Outcome], None] = lambda _: None
        self.shard = self.fail_over()

    def _next_producer_id(self) -> int | None:
        if not self.has_ids:
            return None
        self.next_id += 1
        return self.next_id - 1

    def make(self) -> TransactionShard:
        return TransactionShard(
            self.config,
            coordinator_epoch=self.coordinator_epoch,
            next_producer_id=self._next_producer_id,
            leader_of=lambda partition: self.leaders.get(partition, LEADER),
            exists=lambda partition: partition not in self.gone,
            offsets_partition_count=lambda: self.offsets_partitions,
        )

    def replayed(self) -> TransactionShard:
        """Another coordinator that has read the log."""
        shard = self.make()
        for offset, (key, value) in enumerate(self.log):
            shard.apply(Record(offset, 0, key, value), None)
        return shard

    def fail_over(self, *, keeps_all: bool = True) -> TransactionShard:
        """What was not told is told by nobody, and another coordinator goes on. What was not
        committed may be lost."""
        self.coordinator_epoch += 1
        if not keeps_all:
            del self.log[self.committed_end :]
        self.pending.clear()
        self.sent.clear()
        self.shard = self.replayed()
        self.act(self.shard.on_loaded(self.now_ms))
        return self.shard

    def act(self, outcome: Outcome) -> None:
        self.on_decided(outcome)
        for key, value in outcome.records:
            self.log.append((key, value))
            self.shard.apply(Record(len(self.log) - 1, self.now_ms, key, value), None)
        self.pending.append(outcome)
        if self.is_committing:
            self.commit()

    def commit(self) -> None:
        for outcome in self.pending:
            self.sent += outcome.send
            self.replies |= dict(outcome.reply)
        self.pending.clear()
        self.committed_end = len(self.log)

    def ask(self, request: Any) -> Any:
        """The answer, or None if it is not there yet."""
        self.tokens += 1
        self.act(self.shard.on_request(self.tokens, request, self.now_ms))
        return self.replies.get(self.tokens)

    def answer(self, send: Send, error: Error | None = Error.NONE) -> None:
        """None: the connection broke."""
        self.sent.remove(send)
        marker = send.request
        answer = None if error is None else WriteTxnMarkerAnswer(marker.partition, error)
        self.act(self.shard.on_answer(send.to, marker, answer, self.now_ms))

    def answer_all(self, error: Error | None = Error.NONE) -> None:
        for send in list(self.sent):
            self.answer(send, error)

    def wait(self, ms: int) -> None:
        """Time passes, and every timer on the way fires."""
        end_ms = self.now_ms + ms
        while self.shard.wake_ms is not None and self.shard.wake_ms <= end_ms:
            self.now_ms = max(self.now_ms, self.shard.wake_ms)
            self.act(self.shard.on_timer(self.now_ms))
        self.now_ms = end_ms

    # What a producer does

    def init(self, name: str = "shop", **fields: Any) -> InitProducerIdAnswer:
        fields.setdefault("transaction_timeout_ms", 60_000)
        answer = self.ask(InitProducerId(name, **fields))
        assert isinstance(answer, InitProducerIdAnswer)
        return answer

    def add(
        self, producer: Any, *partitions: TopicPartition, name: str = "shop", **fields: Any
    ) -> Error:
        """The one error of all partitions."""
        request = AddPartitionsToTxn(
            name, producer.producer_id, producer.producer_epoch, partitions or (ORDERS,), **fields
        )
        (error,) = {error for _, error in self.ask(request).partitions}
        assert isinstance(error, Error)
        return error

    def end(self, producer: Any, committed: bool, version: int = NEW, name: str = "shop") -> Any:
        return self.ask(
            EndTxn(name, producer.producer_id, producer.producer_epoch, committed, version)
        )

    def open(self, *partitions: TopicPartition) -> InitProducerIdAnswer:
        """A producer with a transaction."""
        producer = self.init()
        assert self.add(producer, *partitions) is Error.NONE
        return producer

    def state(self, name: str = "shop") -> TransactionState:
        return self.shard.transactions[name].state

    def logged(self) -> list[Transaction]:
        return [decode_value(value) for _, value in self.log if value is not None]

    def put(self, name: str, transaction: Transaction) -> None:
        """Something to begin with, as if it had been in the log."""
        self.act(Outcome(records=((encode_key(name), encode_value(transaction)),)))


def nearly_exhausted(state: TransactionState = TransactionState.EMPTY) -> Transaction:
    """A producer with the last epoch that it can use."""
    is_ongoing = state is TransactionState.ONGOING
    return Transaction(
        500,
        EPOCH_LAST_USED,
        60_000,
        state,
        (ORDERS,) if is_ongoing else (),
        1_000_000,
        1_000_000 if is_ongoing else -1,
    )
