"""The transaction coordinator: the transactional ids of one partition of `__transaction_state`.

A transaction ends in two steps. *Prepare* is the decision: once it is committed the producer is
answered, and every partition gets a marker. *Complete* says that all markers are written.

    EndTxn ──▶ Prepare is committed ──▶ WriteTxnMarker to every leader ──▶ Complete
                      │                        ▲        │
                      │                        └────────┘ no leader, not the leader, no answer
                      └── a new coordinator finds it in the log and goes on from here

Invariants
- What is in `transactions` changes in `apply` alone, and replaying the log gives it back.
- A marker is sent only for a transaction whose Prepare is committed, and Complete is written only
  when every partition has its marker or no longer exists.
- Markers carry the coordinator's epoch, which is the leader epoch of the partition: those of an
  earlier coordinator are refused where a later one has written.

Rules learnt
- A broker that does not know a partition may be behind, or may have given it away. The partition
  is left out only when the metadata here no longer has it: a marker that is never written leaves
  readers waiting for ever. For the same reason no partition is added that is not known here yet.
- A leader that is frozen keeps its connections and never answers. Whoever leads in its place is
  asked as soon as the metadata has it.
- The epoch that a producer had before is remembered and not written down, as in Kafka: whoever
  asks for its InitProducerId again after a failover is fenced.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from lossless.core.coordinator import Outcome, partition_for
from lossless.core.machine import Reply, Send, Token
from lossless.core.messages import (
    OFFSETS_TOPIC,
    Error,
    Producer,
    TopicPartition,
    WriteTxnMarker,
    WriteTxnMarkerAnswer,
)
from lossless.core.transactions import decisions
from lossless.core.transactions.config import TransactionConfig
from lossless.core.transactions.decisions import Decided
from lossless.core.transactions.messages import (
    AddOffsetsToTxn,
    AddOffsetsToTxnAnswer,
    AddPartitionsToTxn,
    AddPartitionsToTxnAnswer,
    DescribeTransaction,
    DescribeTransactionAnswer,
    EndTxn,
    EndTxnAnswer,
    InitProducerId,
    InitProducerIdAnswer,
    ListedTransaction,
    ListTransactions,
    ListTransactionsAnswer,
    refusal,
)
from lossless.core.transactions.records import decode_key, decode_value, encode_key, encode_value
from lossless.core.transactions.state import (
    BY_LABEL,
    IDLE,
    PREPARED,
    Transaction,
    TransactionState,
    completed,
)
from lossless.log.batch import NO_PRODUCER_EPOCH, Record

LoggedRecord = tuple[bytes, bytes | None]

# The partition can have nothing of this transaction.
_NOTHING_TO_END = frozenset({Error.UNSUPPORTED_FOR_MESSAGE_FORMAT, Error.UNSUPPORTED_VERSION})
# Somebody with a later epoch has been there: this coordinator has no more to say.
_TOO_LATE = frozenset({Error.INVALID_PRODUCER_EPOCH, Error.TRANSACTION_COORDINATOR_FENCED})

# From which version on clients know PRODUCER_FENCED; before, it had another name.
_FENCED_SINCE: dict[type, int] = {
    InitProducerId: 4,
    AddPartitionsToTxn: 2,
    AddOffsetsToTxn: 2,
    EndTxn: 2,
}


@dataclass(slots=True)
class _Ending:
    """A transaction whose markers are being written."""

    transactional_id: str
    committed: bool
    # Partitions without a marker: the leader that has been asked for it and has not answered.
    waiting: dict[TopicPartition, int | None]
    is_given_up: bool = False


class TransactionShard:
    def __init__(
        self,
        config: TransactionConfig,
        *,
        coordinator_epoch: int,
        next_producer_id: Callable[[], int | None],
        leader_of: Callable[[TopicPartition], int | None],
        exists: Callable[[TopicPartition], bool],
        offsets_partition_count: Callable[[], int],
    ) -> None:
        self.transactions: dict[str, Transaction] = {}
        self._config = config
        self._coordinator_epoch = coordinator_epoch
        self._next_producer_id = next_producer_id
        self._leader_of = leader_of
        self._exists = exists
        self._offsets_partition_count = offsets_partition_count
        self._last_epochs: dict[str, int] = {}
        self._endings: dict[Producer, _Ending] = {}
        self._next_ask_ms: int | None = None  # whoever has not been asked for a marker
        self._next_abort_check_ms: int | None = None
        self._next_expiry_check_ms: int | None = None

    @property
    def wake_ms(self) -> int | None:
        wakes = [self._next_ask_ms]
        if self.transactions:
            wakes += [self._next_abort_check_ms, self._next_expiry_check_ms]
        return min((wake for wake in wakes if wake is not None), default=None)

    # What has happened

    def apply(self, record: Record, producer: Producer | None) -> None:  # noqa: ARG002
        transactional_id = None if record.key is None else decode_key(record.key)
        if transactional_id is None:
            return
        if record.value is None:
            self.transactions.pop(transactional_id, None)
            self._last_epochs.pop(transactional_id, None)
        else:
            self.transactions[transactional_id] = decode_value(record.value)

    def apply_marker(self, producer: Producer, committed: bool) -> None:
        """Nobody writes to this topic in a transaction."""

    def on_loaded(self, now_ms: int) -> Outcome:
        self._next_abort_check_ms = now_ms + self._config.abort_timed_out_interval_ms
        self._next_expiry_check_ms = now_ms + self._config.remove_expired_interval_ms
        outcome = Outcome()
        for transactional_id, known in self.transactions.items():
            if known.state in PREPARED:
                outcome = _joined(outcome, self._begin_ending(transactional_id, known, now_ms))
        return outcome

    # Requests

    def on_request(self, token: Token, request: Any, now_ms: int) -> Outcome:
        match request:
            case InitProducerId():
                return self._on_init_producer_id(token, request, now_ms)
            case AddPartitionsToTxn():
                return self._on_add_partitions(token, request, now_ms)
            case AddOffsetsToTxn():
                return self._on_add_offsets(token, request, now_ms)
            case EndTxn():
                return self._on_end_txn(token, request, now_ms)
            case DescribeTransaction():
                return _answered(token, self._described(request))
            case ListTransactions():
                return _answered(token, self._listed(request, now_ms))
            case _:
                raise TypeError(f"no request of a transaction coordinator: {request!r}")

    def _on_init_producer_id(self, token: Token, request: InitProducerId, now_ms: int) -> Outcome:
        transactional_id = request.transactional_id
        decided = decisions.init_producer_id(
            self.transactions.get(transactional_id),
            self._last_epochs.get(transactional_id, NO_PRODUCER_EPOCH),
            request,
            self._next_producer_id,
            self._config.transaction_max_timeout_ms,
            self._config.transaction_version,
            now_ms,
        )
        next_one = decided.next
        if next_one is None:
            return _answered_by_error(token, request, decided.error)
        if next_one.state is TransactionState.PREPARE_ABORT:
            # Its epoch is nobody's: who asked comes again, and gets one more.
            aborting = self._decide(transactional_id, decided, now_ms)
            return _joined(
                aborting, _answered_by_error(token, request, Error.CONCURRENT_TRANSACTIONS)
            )
        answer = InitProducerIdAnswer(Error.NONE, next_one.producer_id, next_one.producer_epoch)
        return _joined(self._decide(transactional_id, decided, now_ms), _answered(token, answer))

    def _on_add_partitions(self, token: Token, request: AddPartitionsToTxn, now_ms: int) -> Outcome:
        transactional_id = request.transactional_id
        if not transactional_id:
            return _answered_by_error(token, request, Error.INVALID_REQUEST)
        unknown = {each for each in request.partitions if not self._exists(each)}
        if unknown:
            return _answered(token, _not_attempted(request, unknown))
        known = self.transactions.get(transactional_id)
        if request.verify_only:
            verified = decisions.verify_partitions(known, request)
            return _answered(token, AddPartitionsToTxnAnswer(transactional_id, verified))
        decided = decisions.add_partitions(
            known,
            request.producer_id,
            request.producer_epoch,
            request.partitions,
            decisions.version_of_add(request),
            now_ms,
        )
        # Each partition gets the one error, or none.
        return _joined(
            self._decide(transactional_id, decided, now_ms),
            _answered_by_error(token, request, decided.error),
        )

    def _on_add_offsets(self, token: Token, request: AddOffsetsToTxn, now_ms: int) -> Outcome:
        transactional_id = request.transactional_id
        if not transactional_id:
            return _answered_by_error(token, request, Error.INVALID_REQUEST)
        # The group's coordinator hashes by the partitions that the topic has.
        count = self._offsets_partition_count() or self._config.offsets_topic_partitions
        number = partition_for(request.group_id, count)
        decided = decisions.add_partitions(
            self.transactions.get(transactional_id),
            request.producer_id,
            request.producer_epoch,
            (TopicPartition(OFFSETS_TOPIC, number),),
            0,  # from version 2 on, the group's coordinator adds the partition itself
            now_ms,
        )
        if decided.error is not Error.NONE:
            return _answered_by_error(token, request, decided.error)
        return _joined(
            self._decide(transactional_id, decided, now_ms),
            _answered(token, AddOffsetsToTxnAnswer(Error.NONE)),
        )

    def _on_end_txn(self, token: Token, request: EndTxn, now_ms: int) -> Outcome:
        transactional_id = request.transactional_id
        if not transactional_id:
            return _answered_by_error(token, request, Error.INVALID_REQUEST)
        known = self.transactions.get(transactional_id)
        decided = decisions.end_txn(known, request, self._next_producer_id, now_ms)
        if known is None or decided.error is not Error.NONE:
            return _answered_by_error(token, request, decided.error)
        if decided.next is None:
            answer = EndTxnAnswer(Error.NONE, known.producer_id, known.producer_epoch)
            return _answered(token, answer)
        answer = EndTxnAnswer(Error.NONE, *decisions.after_end(decided.next))
        return _joined(self._decide(transactional_id, decided, now_ms), _answered(token, answer))

    def _decide(self, transactional_id: str, decided: Decided, now_ms: int) -> Outcome:
        """What is to be written, and sent once it is committed."""
        next_one = decided.next
        if next_one is None:
            return Outcome()
        if decided.last_epoch is not None:
            self._last_epochs[transactional_id] = decided.last_epoch
        outcome = Outcome(records=(_logged(transactional_id, next_one),))
        if next_one.state not in PREPARED:
            return outcome
        return _joined(outcome, self._begin_ending(transactional_id, next_one, now_ms))

    # Administrators

    def _described(self, request: DescribeTransaction) -> DescribeTransactionAnswer:
        transactional_id = request.transactional_id
        if not transactional_id:
            return DescribeTransactionAnswer(Error.INVALID_REQUEST, transactional_id)
        known = self.transactions.get(transactional_id)
        if known is None:
            return DescribeTransactionAnswer(Error.TRANSACTIONAL_ID_NOT_FOUND, transactional_id)
        partitions = known.partitions
        if known.state in PREPARED:
            partitions = tuple(sorted(self._endings[_producer(known)].waiting))
        return DescribeTransactionAnswer(
            Error.NONE,
            transactional_id,
            known.state.label,
            known.transaction_timeout_ms,
            known.start_timestamp_ms,
            known.producer_id,
            known.producer_epoch,
            partitions,
        )

    def _listed(self, request: ListTransactions, now_ms: int) -> ListTransactionsAnswer:
        try:
            pattern = re.compile(request.transactional_id_pattern or ".*", re.DOTALL)
        except re.error:
            return ListTransactionsAnswer(Error.INVALID_REGULAR_EXPRESSION)
        states = {BY_LABEL.get(label) for label in request.state_filters}
        unknown = tuple(label for label in request.state_filters if label not in BY_LABEL)
        found = []
        for transactional_id, known in self.transactions.items():
            if request.producer_id_filters and known.producer_id not in request.producer_id_filters:
                continue
            if request.state_filters and known.state not in states:
                continue
            # Who has no transaction counts as old, as in Kafka.
            if 0 <= request.duration_filter_ms >= now_ms - known.start_timestamp_ms:
                continue
            if pattern.fullmatch(transactional_id) is None:
                continue
            found.append(ListedTransaction(transactional_id, known.producer_id, known.state.label))
        return ListTransactionsAnswer(Error.NONE, unknown, tuple(found))

    # The end of a transaction

    def _begin_ending(self, transactional_id: str, known: Transaction, now_ms: int) -> Outcome:
        producer = _producer(known)
        committed = known.state is TransactionState.PREPARE_COMMIT
        waiting: dict[TopicPartition, int | None] = dict.fromkeys(known.partitions)
        self._endings[producer] = _Ending(transactional_id, committed, waiting)
        return self._ask_leaders(producer, known, now_ms)

    def _ask_leaders(self, producer: Producer, known: Transaction, now_ms: int) -> Outcome:
        """`known` is what is to be completed: it may not be applied yet."""
        ending = self._endings[producer]
        sends = []
        for partition, asked in list(ending.waiting.items()):
            leader = self._leader_of(partition)
            if not self._exists(partition):
                del ending.waiting[partition]
            elif leader is None:
                self._ask_later(now_ms)
            elif leader != asked:
                ending.waiting[partition] = leader
                marker = WriteTxnMarker(
                    partition, *producer, self._coordinator_epoch, ending.committed
                )
                sends.append(Send(leader, marker))
        if ending.waiting:
            return Outcome(send=tuple(sends))
        return self._complete(producer, known, now_ms)

    def _ask_later(self, now_ms: int) -> None:
        if self._next_ask_ms is None:
            self._next_ask_ms = now_ms + self._config.marker_retry_backoff_ms

    def _complete(self, producer: Producer, known: Transaction, now_ms: int) -> Outcome:
        ending = self._endings.pop(producer)
        return Outcome(records=(_logged(ending.transactional_id, completed(known, now_ms)),))

    def on_answer(self, source: int, request: Any, answer: Any, now_ms: int) -> Outcome:
        if not isinstance(request, WriteTxnMarker):
            return Outcome()
        producer = Producer(request.producer_id, request.producer_epoch)
        ending = self._endings.get(producer)
        is_ours = request.coordinator_epoch == self._coordinator_epoch
        if ending is None or not is_ours or request.partition not in ending.waiting:
            return Outcome()
        error = answer.error if isinstance(answer, WriteTxnMarkerAnswer) else None
        if error in _TOO_LATE:
            ending.is_given_up = True
            return Outcome()
        if error is Error.NONE or error in _NOTHING_TO_END:
            del ending.waiting[request.partition]
        elif ending.waiting[request.partition] == source:
            ending.waiting[request.partition] = None
            self._ask_later(now_ms)
        if ending.waiting:
            return Outcome()
        return self._complete(producer, self.transactions[ending.transactional_id], now_ms)

    # Time

    def on_leaders_changed(self, now_ms: int) -> None:
        """Some partitions may have another leader."""
        if self._endings:
            self._next_ask_ms = now_ms

    def on_timer(self, now_ms: int) -> Outcome:
        outcome = Outcome()
        if _is_due(self._next_ask_ms, now_ms):
            self._next_ask_ms = None
            outcome = self._ask_all_leaders(now_ms)
        if _is_due(self._next_abort_check_ms, now_ms):
            self._next_abort_check_ms = now_ms + self._config.abort_timed_out_interval_ms
            outcome = _joined(outcome, self._abort_timed_out(now_ms))
        if _is_due(self._next_expiry_check_ms, now_ms):
            self._next_expiry_check_ms = now_ms + self._config.remove_expired_interval_ms
            outcome = _joined(outcome, self._forget_idle(now_ms))
        return outcome

    def _ask_all_leaders(self, now_ms: int) -> Outcome:
        outcome = Outcome()
        for producer, ending in list(self._endings.items()):
            if not ending.is_given_up:
                known = self.transactions[ending.transactional_id]
                outcome = _joined(outcome, self._ask_leaders(producer, known, now_ms))
        return outcome

    def _abort_timed_out(self, now_ms: int) -> Outcome:
        outcome = Outcome()
        for transactional_id, known in self.transactions.items():
            end_ms = known.start_timestamp_ms + known.transaction_timeout_ms
            if known.state is TransactionState.ONGOING and end_ms < now_ms:
                decided = decisions.fenced(known, self._config.transaction_version, now_ms)
                outcome = _joined(outcome, self._decide(transactional_id, decided, now_ms))
        return outcome

    def _forget_idle(self, now_ms: int) -> Outcome:
        before_ms = now_ms - self._config.transactional_id_expiration_ms
        return Outcome(
            records=tuple(
                (encode_key(transactional_id), None)
                for transactional_id, known in self.transactions.items()
                if known.state in IDLE and known.last_update_timestamp_ms <= before_ms
            )
        )


def _is_due(at_ms: int | None, now_ms: int) -> bool:
    return at_ms is not None and at_ms <= now_ms


def _producer(known: Transaction) -> Producer:
    return Producer(known.producer_id, known.producer_epoch)


def _logged(transactional_id: str, transaction: Transaction) -> LoggedRecord:
    return encode_key(transactional_id), encode_value(transaction)


def _answered(token: Token, answer: Any) -> Outcome:
    return Outcome(reply=(Reply(token, answer),))


def _answered_by_error(token: Token, request: Any, error: Error) -> Outcome:
    """An answer that is nothing but an error, by the name that clients of this version know."""
    if error is Error.PRODUCER_FENCED and request.version < _FENCED_SINCE[type(request)]:
        error = Error.INVALID_PRODUCER_EPOCH
    return _answered(token, refusal(request, error))


def _not_attempted(
    request: AddPartitionsToTxn, unknown: set[TopicPartition]
) -> AddPartitionsToTxnAnswer:
    return AddPartitionsToTxnAnswer(
        request.transactional_id,
        tuple(
            (
                partition,
                Error.UNKNOWN_TOPIC_OR_PARTITION
                if partition in unknown
                else Error.OPERATION_NOT_ATTEMPTED,
            )
            for partition in request.partitions
        ),
    )


def _joined(first: Outcome, second: Outcome) -> Outcome:
    return Outcome(
        first.records + second.records, first.reply + second.reply, first.send + second.send
    )
