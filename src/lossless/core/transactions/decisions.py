"""What a coordinator decides about one transactional id: the rules, without any memory of its own.

Each function looks at what is known and says what comes next, or which error is the answer. They
are those of Kafka 4.1, with what its pending states amount to: between the decision to end a
transaction and its completion, whoever asks is told to come again.

Two versions of the protocol live side by side, and the version of EndTxn tells them apart:

    up to 4    epochs change with InitProducerId alone; who ends a transaction again has its epoch
    from 5     every end raises the epoch (KIP-890); who asks again has the epoch before this one

Rules learnt
- While a transaction ends, "come again" is said before any identity is checked: the producer may
  have its next producer id already, which is not in use before the end is complete (KAFKA-18575).
- A transaction that the coordinator itself aborts gets one new epoch, not two: the second would
  be beyond the last (KAFKA-19367).
- The last epoch fences and is never given away, not even to who asks again. Kafka 4.1 gives it to
  a producer that aborts what was aborted already; its next transaction can then never end.
- A zombie that names its producer id and an old epoch in InitProducerId still aborts what is going
  on. That is Kafka's way; its second attempt is refused.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from lossless.core.messages import Error, TopicPartition
from lossless.core.transactions.messages import (
    AddPartitionsToTxn,
    EndTxn,
    InitProducerId,
)
from lossless.core.transactions.state import (
    COMPLETE,
    EPOCH_LAST_USED,
    EPOCH_MAX,
    PREPARED,
    Transaction,
    TransactionState,
    completed,
    created,
    initialised,
    prepared,
    with_partitions,
)
from lossless.log.batch import NO_PRODUCER_EPOCH, NO_PRODUCER_ID

NextProducerId = Callable[[], int | None]

EPOCH_RAISED_AT_END = 2  # the transaction.version from which on every end raises the epoch
TRANSACTIONAL_ID_BYTES_MAX = (1 << 15) - 1


class Decided(NamedTuple):
    """What comes next; or an error, which may be NONE: then everything is as it was asked for."""

    next: Transaction | None = None
    error: Error = Error.NONE
    last_epoch: int | None = None  # which the producer had before; None: nothing new


def version_of_end(request: EndTxn) -> int:
    return EPOCH_RAISED_AT_END if request.version > 4 else 0


def version_of_add(request: AddPartitionsToTxn) -> int:
    return EPOCH_RAISED_AT_END if request.version > 3 else 0


# InitProducerId


def init_producer_id(
    known: Transaction | None,
    last_epoch: int,
    request: InitProducerId,
    next_producer_id: NextProducerId,
    timeout_max_ms: int,
    transaction_version: int,
    now_ms: int,
) -> Decided:
    """A next state that is PrepareAbort: what was going on is aborted first."""
    expected = _expected(request)
    is_odd = (request.producer_id == NO_PRODUCER_ID) is not (
        request.producer_epoch == NO_PRODUCER_EPOCH
    )
    size = len(request.transactional_id.encode())
    if is_odd or not 0 < size <= TRANSACTIONAL_ID_BYTES_MAX:
        return Decided(error=Error.INVALID_REQUEST)
    timeout_ms = request.transaction_timeout_ms
    if not 0 < timeout_ms <= timeout_max_ms:
        return Decided(error=Error.INVALID_TRANSACTION_TIMEOUT)
    if known is None:
        producer_id = next_producer_id()
        if producer_id is None:
            return Decided(error=Error.COORDINATOR_LOAD_IN_PROGRESS)
        return Decided(created(producer_id, timeout_ms, now_ms), last_epoch=NO_PRODUCER_EPOCH)
    if known.state in PREPARED:
        return Decided(error=Error.CONCURRENT_TRANSACTIONS)
    if expected is not None and not _may_go_on(known, *expected):
        return Decided(error=Error.PRODUCER_FENCED)
    if known.state is TransactionState.ONGOING:
        return fenced(known, transaction_version, now_ms)
    return _next_epoch(known, last_epoch, expected, next_producer_id, timeout_ms, now_ms)


def _expected(request: InitProducerId) -> tuple[int, int] | None:
    if request.producer_id == NO_PRODUCER_ID:
        return None
    return request.producer_id, request.producer_epoch


def _may_go_on(known: Transaction, producer_id: int, epoch: int) -> bool:
    """Its epoch is looked at later. With the producer id before this one, it asks again because it
    never heard that its epochs were used up."""
    is_before = producer_id == known.previous_producer_id and epoch >= EPOCH_LAST_USED
    return producer_id == known.producer_id or is_before


def _next_epoch(
    known: Transaction,
    last_epoch: int,
    expected: tuple[int, int] | None,
    next_producer_id: NextProducerId,
    timeout_ms: int,
    now_ms: int,
) -> Decided:
    epoch = known.producer_epoch
    asks_again = False
    if expected is None:
        last_epoch_now = NO_PRODUCER_EPOCH
    else:
        last_epoch_now = expected[1]
        asks_again = expected[1] == last_epoch != NO_PRODUCER_EPOCH
        if expected[1] != epoch and not asks_again:
            return Decided(error=Error.PRODUCER_FENCED)
    if asks_again and epoch < EPOCH_MAX:
        same = initialised(known, known.producer_id, epoch, timeout_ms, now_ms)
        # Who asks a third time may still know nothing but the producer id before this one.
        same = same._replace(previous_producer_id=known.previous_producer_id)
        return Decided(same, last_epoch=last_epoch)
    if not known.is_epoch_exhausted:
        next_one = initialised(known, known.producer_id, epoch + 1, timeout_ms, now_ms)
        return Decided(next_one, last_epoch=last_epoch_now)
    producer_id = next_producer_id()
    if producer_id is None:
        return Decided(error=Error.COORDINATOR_LOAD_IN_PROGRESS)
    return Decided(
        initialised(known, producer_id, 0, timeout_ms, now_ms), last_epoch=last_epoch_now
    )


def fenced(known: Transaction, transaction_version: int, now_ms: int) -> Decided:
    """The coordinator aborts what is going on, with an epoch that no producer has."""
    epoch = known.producer_epoch
    is_raised_at_end = transaction_version >= EPOCH_RAISED_AT_END
    return Decided(
        prepared(known, False, epoch + 1, transaction_version, now_ms),
        last_epoch=epoch if is_raised_at_end else NO_PRODUCER_EPOCH,
    )


# AddPartitionsToTxn, AddOffsetsToTxn


def add_partitions(
    known: Transaction | None,
    producer_id: int,
    epoch: int,
    partitions: tuple[TopicPartition, ...],
    client_transaction_version: int,
    now_ms: int,
) -> Decided:
    if known is None:
        return Decided(error=Error.INVALID_PRODUCER_ID_MAPPING)
    if known.state in PREPARED:
        return Decided(error=Error.CONCURRENT_TRANSACTIONS)
    if known.producer_id != producer_id:
        return Decided(error=Error.INVALID_PRODUCER_ID_MAPPING)
    if known.producer_epoch != epoch or epoch == EPOCH_MAX:
        return Decided(error=Error.PRODUCER_FENCED)
    is_ongoing = known.state is TransactionState.ONGOING
    if is_ongoing and set(partitions) <= set(known.partitions):
        return Decided()
    return Decided(with_partitions(known, partitions, client_transaction_version, now_ms))


def verify_partitions(
    known: Transaction | None, request: AddPartitionsToTxn
) -> tuple[tuple[TopicPartition, Error], ...]:
    """Which of them the transaction knows. Nothing is added."""
    if known is None or known.producer_id != request.producer_id:
        error = Error.INVALID_PRODUCER_ID_MAPPING
    elif known.producer_epoch != request.producer_epoch:
        error = Error.PRODUCER_FENCED
    elif known.state in PREPARED:
        error = Error.CONCURRENT_TRANSACTIONS
    else:
        members = set(known.partitions)
        return tuple(
            (each, Error.NONE if each in members else Error.TRANSACTION_ABORTABLE)
            for each in request.partitions
        )
    return tuple((each, error) for each in request.partitions)


# EndTxn


def end_txn(
    known: Transaction | None, request: EndTxn, next_producer_id: NextProducerId, now_ms: int
) -> Decided:
    """No next state and no error: it has ended so already, and the answer was lost."""
    if known is None:
        return Decided(error=Error.INVALID_PRODUCER_ID_MAPPING)
    if version_of_end(request) >= EPOCH_RAISED_AT_END:
        return _end_raising_epoch(known, request, next_producer_id, now_ms)
    return _end_keeping_epoch(known, request, now_ms)


def _end_keeping_epoch(known: Transaction, request: EndTxn, now_ms: int) -> Decided:
    if known.producer_id != request.producer_id:
        return Decided(error=Error.INVALID_PRODUCER_ID_MAPPING)
    if known.producer_epoch != request.producer_epoch or request.producer_epoch == EPOCH_MAX:
        return Decided(error=Error.PRODUCER_FENCED)
    if known.state in PREPARED:
        return Decided(error=Error.CONCURRENT_TRANSACTIONS)
    if known.state is TransactionState.ONGOING:
        epoch = known.producer_epoch
        return Decided(prepared(known, request.committed, epoch, 0, now_ms))
    return Decided(error=_already(known, request))


def _already(known: Transaction, request: EndTxn) -> Error:
    """Nothing is going on: the same end again is no news, the other one is a mistake."""
    committed = TransactionState.COMPLETE_COMMIT
    wanted = committed if request.committed else TransactionState.COMPLETE_ABORT
    return Error.NONE if known.state is wanted else Error.INVALID_TXN_STATE


def _end_raising_epoch(
    known: Transaction, request: EndTxn, next_producer_id: NextProducerId, now_ms: int
) -> Decided:
    if known.state in PREPARED:
        return Decided(error=Error.CONCURRENT_TRANSACTIONS)
    epoch = request.producer_epoch
    was_raised = (
        known.client_transaction_version >= EPOCH_RAISED_AT_END
        and known.state in COMPLETE
        and known.producer_epoch < EPOCH_MAX
    )
    asks_again_later = (
        was_raised
        and known.previous_producer_id == request.producer_id
        and epoch == EPOCH_LAST_USED
        and known.producer_epoch == 0
    )
    asks_again = asks_again_later or (was_raised and known.producer_epoch == epoch + 1)
    if known.producer_id != request.producer_id and not asks_again_later:
        return Decided(error=Error.INVALID_PRODUCER_ID_MAPPING)
    if asks_again:
        return Decided(error=_already(known, request))
    if known.producer_epoch != epoch or epoch == EPOCH_MAX:
        return Decided(error=Error.PRODUCER_FENCED)
    if request.committed and known.state is not TransactionState.ONGOING:
        return Decided(error=Error.INVALID_TXN_STATE)
    following = NO_PRODUCER_ID
    if known.is_epoch_exhausted:
        at_hand = next_producer_id()
        if at_hand is None:
            return Decided(error=Error.COORDINATOR_LOAD_IN_PROGRESS)
        following = at_hand
    version = EPOCH_RAISED_AT_END
    ending = prepared(known, request.committed, epoch + 1, version, now_ms, following)
    return Decided(ending, last_epoch=epoch)


def after_end(ending: Transaction) -> tuple[int, int]:
    """With which producer id and epoch the producer goes on once this has ended."""
    complete = completed(ending, ending.last_update_timestamp_ms)
    return complete.producer_id, complete.producer_epoch
