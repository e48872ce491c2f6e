"""A transactional id as its coordinator knows it: eight states, and who may follow whom.

    Empty ──▶ Ongoing ──▶ PrepareCommit ──▶ CompleteCommit ──▶ Ongoing, Empty
      │          ├──────▶ PrepareAbort ───▶ CompleteAbort ───▶ Ongoing, Empty
      │          └──▶ (PrepareEpochFence) ──▶ PrepareAbort
      └──▶ PrepareAbort     an abort of nothing is allowed from version 2 on, here and when complete
    Empty, CompleteCommit, CompleteAbort ──▶ (Dead): forgotten after a long silence

What is in brackets has a number in Kafka's format and is never written: an epoch is fenced by the
record that prepares the abort, and the dead leave a tombstone.

Invariants
- A producer id and an epoch belong to one transactional id, and never step back: a new epoch is
  one more, or 0 of a new producer id.
- The last epoch of a producer id is never given to a producer, so that there is always one left to
  fence it with.
"""

from __future__ import annotations

import enum
from typing import NamedTuple

from lossless.core.messages import TopicPartition
from lossless.log.batch import NO_PRODUCER_ID

EPOCH_MAX = (1 << 15) - 1
EPOCH_LAST_USED = EPOCH_MAX - 1
NO_TIMESTAMP = -1


class TransactionState(enum.IntEnum):
    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5
    DEAD = 6
    PREPARE_EPOCH_FENCE = 7

    @property
    def label(self) -> str:
        """As administrators see it."""
        return self.name.title().replace("_", "")


BY_LABEL = {state.label: state for state in TransactionState}

PREPARED = frozenset({TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT})
COMPLETE = frozenset({TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT})
IDLE = COMPLETE | {TransactionState.EMPTY}

ALLOWED_BEFORE: dict[TransactionState, frozenset[TransactionState]] = {
    TransactionState.EMPTY: IDLE,
    TransactionState.ONGOING: IDLE | {TransactionState.ONGOING},
    TransactionState.PREPARE_COMMIT: frozenset({TransactionState.ONGOING}),
    TransactionState.PREPARE_ABORT: IDLE
    | {TransactionState.ONGOING, TransactionState.PREPARE_EPOCH_FENCE},
    TransactionState.COMPLETE_COMMIT: frozenset({TransactionState.PREPARE_COMMIT}),
    TransactionState.COMPLETE_ABORT: frozenset({TransactionState.PREPARE_ABORT}),
    TransactionState.DEAD: IDLE,
    TransactionState.PREPARE_EPOCH_FENCE: frozenset({TransactionState.ONGOING}),
}


class Transaction(NamedTuple):
    """All that is written down about a transactional id."""

    producer_id: int
    producer_epoch: int
    transaction_timeout_ms: int
    state: TransactionState
    partitions: tuple[TopicPartition, ...]  # sorted: equal sets are equal records
    last_update_timestamp_ms: int
    start_timestamp_ms: int = NO_TIMESTAMP
    previous_producer_id: int = NO_PRODUCER_ID
    next_producer_id: int = NO_PRODUCER_ID  # takes over when this transaction is complete
    client_transaction_version: int = 0

    @property
    def is_epoch_exhausted(self) -> bool:
        return self.producer_epoch >= EPOCH_LAST_USED


class IllegalTransition(Exception):
    """A decision that the table does not allow: a bug of ours, never an answer to a request."""


def _followed_by(known: Transaction, state: TransactionState) -> Transaction:
    if known.state not in ALLOWED_BEFORE[state]:
        raise IllegalTransition(f"{known.state.label} is not followed by {state.label}")
    return known._replace(state=state)


def created(producer_id: int, timeout_ms: int, now_ms: int) -> Transaction:
    return Transaction(producer_id, 0, timeout_ms, TransactionState.EMPTY, (), now_ms)


def initialised(
    known: Transaction, producer_id: int, epoch: int, timeout_ms: int, now_ms: int
) -> Transaction:
    return _followed_by(known, TransactionState.EMPTY)._replace(
        producer_id=producer_id,
        previous_producer_id=known.producer_id,
        producer_epoch=epoch,
        transaction_timeout_ms=timeout_ms,
        partitions=(),
        start_timestamp_ms=NO_TIMESTAMP,
        last_update_timestamp_ms=now_ms,
    )


def with_partitions(
    known: Transaction, added: tuple[TopicPartition, ...], version: int, now_ms: int
) -> Transaction:
    start_ms = now_ms if known.state in IDLE else known.start_timestamp_ms
    return _followed_by(known, TransactionState.ONGOING)._replace(
        partitions=tuple(sorted({*known.partitions, *added})),
        start_timestamp_ms=start_ms,
        last_update_timestamp_ms=now_ms,
        client_transaction_version=version,
    )


def prepared(
    known: Transaction,
    committed: bool,
    epoch: int,
    version: int,
    now_ms: int,
    next_producer_id: int = NO_PRODUCER_ID,
) -> Transaction:
    state = TransactionState.PREPARE_COMMIT if committed else TransactionState.PREPARE_ABORT
    return _followed_by(known, state)._replace(
        producer_epoch=epoch,
        next_producer_id=next_producer_id,
        # An abort of nothing has no beginning, and needs one.
        start_timestamp_ms=now_ms if known.state in IDLE else known.start_timestamp_ms,
        last_update_timestamp_ms=now_ms,
        client_transaction_version=version,
    )


def completed(known: Transaction, now_ms: int) -> Transaction:
    is_commit = known.state is TransactionState.PREPARE_COMMIT
    state = TransactionState.COMPLETE_COMMIT if is_commit else TransactionState.COMPLETE_ABORT
    complete = _followed_by(known, state)._replace(
        previous_producer_id=known.producer_id, partitions=(), last_update_timestamp_ms=now_ms
    )
    if known.next_producer_id == NO_PRODUCER_ID:
        return complete
    return complete._replace(
        producer_id=known.next_producer_id, producer_epoch=0, next_producer_id=NO_PRODUCER_ID
    )
