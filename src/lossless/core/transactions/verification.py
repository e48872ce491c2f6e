"""What the leader of a partition asks before it writes for a transaction (KIP-890).

A batch that comes late, after its transaction has ended, would open one that nobody ends: readers
of committed records would wait for ever. So a leader writes the first batch of a transaction only
when the coordinator knows that the partition belongs to it.

    open here already    ──▶ go on
    not open             ──▶ hold ──▶ ask the coordinator ──▶ release, or refuse

    Produce up to 11     the client has added the partition; the coordinator is asked to verify it
    Produce from 12      nobody has; the coordinator is asked to add it

Invariants
- Requests of one producer are released in the order in which they came. Clients number batches in
  that order, and a leader that knows nothing of a producer takes any number as the first.
- An answer speaks for the epoch that was asked for, and for a partition that has seen no marker of
  that producer since and has been led here throughout. Else a yes to the transaction before this
  one would be taken as a yes to this one. Where it does not count, the coordinator is asked again.

Rules learnt
- When a batch is refused, those that were sent after it must not get in before it comes again: the
  lowest sequence that waits is remembered, and higher ones are out of order.
- While the transaction before is still ending, a Produce that adds waits here for a moment: the
  client would only come again (KAFKA-18654).

Whoever uses this asks `on_produce` for each request that has transactional batches, tells it of
markers and of lost leadership, and appends what is released at once, in the order given.
"""

from __future__ import annotations

import enum
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from lossless.core.machine import Token
from lossless.core.messages import Error, Producer, TopicPartition
from lossless.core.transactions.config import VerificationConfig
from lossless.core.transactions.messages import AddPartitionsToTxn, AddPartitionsToTxnAnswer


class Support(enum.Enum):
    """What the client that sends understands, and so what the leader does for it."""

    VERIFIES = "the client adds partitions, and knows no TRANSACTION_ABORTABLE"
    VERIFIES_ABORTABLE = "the client adds partitions"
    ADDS = "the leader adds partitions"

    @classmethod
    def of_produce(cls, version: int) -> Support:
        return cls._of(version, abortable_since=11)

    @classmethod
    def of_txn_offset_commit(cls, version: int) -> Support:
        return cls._of(version, abortable_since=4)

    @classmethod
    def _of(cls, version: int, abortable_since: int) -> Support:
        if version < abortable_since:
            return cls.VERIFIES
        return cls.VERIFIES_ABORTABLE if version == abortable_since else cls.ADDS


class TransactionalBatch(NamedTuple):
    partition: TopicPartition
    producer: Producer
    base_sequence: int


class Release(NamedTuple):
    """A request may go on, but for the partitions that are refused."""

    token: Token
    refused: tuple[tuple[TopicPartition, Error], ...] = ()


class Verdict(NamedTuple):
    release: tuple[Release, ...] = ()  # to be appended now, in this order
    send: tuple[AddPartitionsToTxn, ...] = ()  # each to the coordinator of its transactional id


class _Held(NamedTuple):
    token: Token
    batches: tuple[TransactionalBatch, ...]
    support: Support


@dataclass(slots=True)
class _Queue:
    """The requests of one producer that wait; the coordinator is asked for the first of them."""

    transactional_id: str
    producer: Producer
    held: deque[_Held] = field(default_factory=deque)
    asked: AddPartitionsToTxn | None = None  # and not answered
    outdated: set[TopicPartition] = field(default_factory=set)  # where the answer will not count
    first_asked_ms: int = 0
    ask_again_ms: int | None = None


@dataclass(slots=True)
class _Lowest:
    """The first batch that a partition has to get next from a producer."""

    epoch: int
    sequence: int
    seen_ms: int


class Verification:
    """`is_open` says whether a producer's transaction, of that epoch, is open in a partition."""

    def __init__(
        self,
        config: VerificationConfig,
        is_open: Callable[[TopicPartition, Producer], bool],
    ) -> None:
        self._config = config
        self._is_open = is_open
        self._queues: dict[tuple[str, int], _Queue] = {}  # by transactional id and producer id
        self._lowest: dict[tuple[TopicPartition, int], _Lowest] = {}  # by producer id, oldest first

    @property
    def wake_ms(self) -> int | None:
        if not self._queues:  # asked at every event
            return None
        wakes = (queue.ask_again_ms for queue in self._queues.values())
        return min((wake for wake in wakes if wake is not None), default=None)

    # Requests

    def on_produce(
        self,
        token: Token,
        transactional_id: str | None,
        batches: tuple[TransactionalBatch, ...],
        support: Support,
        now_ms: int,
    ) -> Verdict:
        """A request with transactional batches, one for a partition; others need not come here."""
        if not transactional_id:
            return _refused(token, batches, Error.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
        if len({batch.producer for batch in batches}) != 1:
            return _refused(token, batches, Error.INVALID_PRODUCER_ID_MAPPING)
        if support is not Support.ADDS and not self._config.partition_verification_enable:
            return Verdict((Release(token),))
        producer = batches[0].producer
        key = (transactional_id, producer.id)
        queue = self._queues.get(key)
        fenced: tuple[Release, ...] = ()
        if queue is not None and producer.epoch < queue.producer.epoch:
            return _refused(token, batches, Error.INVALID_PRODUCER_EPOCH)
        if queue is not None and producer.epoch > queue.producer.epoch:
            fenced = self._fence(queue)
            queue = None
        self._note_sequences(batches, now_ms)
        held = _Held(token, batches, support)
        if queue is None:
            if not self._unknown(held):
                return Verdict((*fenced, Release(token)))
            queue = self._queues[key] = _Queue(transactional_id, producer)
        queue.held.append(held)
        if queue.asked is not None or queue.ask_again_ms is not None:
            return Verdict(fenced)
        return _after(fenced, self._ask(queue, now_ms))

    def _fence(self, queue: _Queue) -> tuple[Release, ...]:
        """A later epoch has come: nothing that waits can be written any more."""
        del self._queues[queue.transactional_id, queue.producer.id]
        return tuple(
            Release(
                held.token,
                tuple((each, Error.INVALID_PRODUCER_EPOCH) for each in self._unknown(held)),
            )
            for held in queue.held
        )

    def _ask(self, queue: _Queue, now_ms: int) -> Verdict:
        """About the first who waits. Whoever need not be asked about goes on."""
        releases: list[Release] = []
        while queue.held:
            unknown = self._unknown(queue.held[0])
            if unknown:
                queue.first_asked_ms = now_ms
                return Verdict(tuple(releases), (self._question(queue, unknown),))
            releases.append(Release(queue.held.popleft().token))
        del self._queues[queue.transactional_id, queue.producer.id]
        return Verdict(tuple(releases))

    def _question(
        self, queue: _Queue, partitions: tuple[TopicPartition, ...]
    ) -> AddPartitionsToTxn:
        queue.asked = AddPartitionsToTxn(
            queue.transactional_id,
            *queue.producer,
            partitions,
            verify_only=queue.held[0].support is not Support.ADDS,
        )
        queue.outdated.clear()
        return queue.asked

    def _unknown(self, held: _Held) -> tuple[TopicPartition, ...]:
        return tuple(
            batch.partition
            for batch in held.batches
            if not self._is_open(batch.partition, batch.producer)
        )

    # Answers

    def on_answer(
        self, request: AddPartitionsToTxn, answer: AddPartitionsToTxnAnswer | None, now_ms: int
    ) -> Verdict:
        """None: nobody knows whether the coordinator was asked. Who finds no coordinator says so by
        a refusal with COORDINATOR_NOT_AVAILABLE."""
        queue = self._queues.get((request.transactional_id, request.producer_id))
        if queue is None or queue.asked != request:
            return Verdict()  # it was about an epoch that has been fenced since
        queue.asked = None
        errors = _errors(request, answer)
        agreed = {partition for partition, error in errors.items() if error is Error.NONE}
        if agreed & queue.outdated:
            return self._ask(queue, now_ms)
        again_ms = now_ms + self._config.retry_backoff_ms
        is_ending = Error.CONCURRENT_TRANSACTIONS in errors.values()
        end_ms = queue.first_asked_ms + self._config.retry_backoff_max_ms
        if is_ending and queue.held[0].support is Support.ADDS and again_ms <= end_ms:
            queue.ask_again_ms = again_ms
            return Verdict()
        releases = self._settle(queue, errors)
        return _after(releases, self._ask(queue, now_ms))

    def _settle(self, queue: _Queue, errors: Mapping[TopicPartition, Error]) -> tuple[Release, ...]:
        """The first who waits goes on where the coordinator agrees. What it has said is as true for
        those behind, which must not get in where the first was refused."""
        releases = []
        going_on: set[TopicPartition] = set()
        while queue.held and errors.keys() >= set(self._unknown(queue.held[0])):
            held = queue.held.popleft()
            refused = []
            for batch in held.batches:
                if self._is_open(batch.partition, batch.producer):
                    continue
                error = _understood(errors[batch.partition], held.support)
                if error is Error.NONE and batch.partition not in going_on:
                    error = self._order(batch)
                if error is Error.NONE:
                    going_on.add(batch.partition)
                else:
                    refused.append((batch.partition, error))
            releases.append(Release(held.token, tuple(refused)))
        return tuple(releases)

    # What happens in between

    def on_marker(self, partition: TopicPartition, producer_id: int) -> None:
        """A transaction has ended here: answers to what was asked before do not count."""
        self._lowest.pop((partition, producer_id), None)
        for queue in self._queues.values():
            if queue.producer.id == producer_id:
                queue.outdated.add(partition)

    def on_leadership_lost(self, partition: TopicPartition) -> None:
        """Somebody else may write markers here from now on."""
        for key in [key for key in self._lowest if key[0] == partition]:
            del self._lowest[key]
        for queue in self._queues.values():
            queue.outdated.add(partition)

    def on_timer(self, now_ms: int) -> Verdict:
        verdict = Verdict()
        for queue in list(self._queues.values()):
            if queue.ask_again_ms is not None and queue.ask_again_ms <= now_ms:
                queue.ask_again_ms = None
                first_asked_ms = queue.first_asked_ms
                asked = self._ask(queue, now_ms)
                queue.first_asked_ms = first_asked_ms
                verdict = Verdict(verdict.release + asked.release, verdict.send + asked.send)
        return verdict

    # Sequences

    def _note_sequences(self, batches: tuple[TransactionalBatch, ...], now_ms: int) -> None:
        while self._lowest:
            oldest, old = next(iter(self._lowest.items()))
            if now_ms - old.seen_ms < self._config.producer_id_expiration_ms:
                break
            del self._lowest[oldest]
        for partition, producer, sequence in batches:
            key = (partition, producer.id)
            known = self._lowest.get(key)
            if self._is_open(partition, producer):
                self._lowest.pop(key, None)
            elif known is None or producer.epoch > known.epoch:
                self._lowest.pop(key, None)
                self._lowest[key] = _Lowest(producer.epoch, sequence, now_ms)
            elif producer.epoch == known.epoch:
                known.sequence = min(known.sequence, sequence)

    def _order(self, batch: TransactionalBatch) -> Error:
        known = self._lowest.get((batch.partition, batch.producer.id))
        if known is not None and batch.base_sequence > known.sequence:
            return Error.OUT_OF_ORDER_SEQUENCE_NUMBER
        return Error.NONE


def produce_error(error: Error, support: Support) -> Error:
    """How a refusal is told to who produces. Clients do not expect a coordinator's troubles here;
    NOT_ENOUGH_REPLICAS makes them come again without looking for another leader."""
    if error is Error.CONCURRENT_TRANSACTIONS and support is Support.ADDS:
        return error
    return Error.NOT_ENOUGH_REPLICAS if error in _TROUBLES else error


def txn_offset_commit_error(error: Error) -> Error:
    """How a refusal is told to who commits offsets in a transaction."""
    return Error.COORDINATOR_LOAD_IN_PROGRESS if error is Error.NETWORK_EXCEPTION else error


_TROUBLES = frozenset(
    {
        Error.CONCURRENT_TRANSACTIONS,
        Error.NETWORK_EXCEPTION,
        Error.COORDINATOR_LOAD_IN_PROGRESS,
        Error.COORDINATOR_NOT_AVAILABLE,
        Error.NOT_COORDINATOR,
        Error.OPERATION_NOT_ATTEMPTED,
    }
)


def _errors(
    request: AddPartitionsToTxn, answer: AddPartitionsToTxnAnswer | None
) -> dict[TopicPartition, Error]:
    if answer is None:
        return dict.fromkeys(request.partitions, Error.NETWORK_EXCEPTION)
    given = dict(answer.partitions)
    return {each: given.get(each, Error.UNKNOWN_SERVER_ERROR) for each in request.partitions}


def _understood(error: Error, support: Support) -> Error:
    """By the name that this client knows for it."""
    if error is Error.PRODUCER_FENCED:
        return Error.INVALID_PRODUCER_EPOCH
    if error is Error.TRANSACTION_ABORTABLE and support is Support.VERIFIES:
        return Error.INVALID_TXN_STATE
    return error


def _refused(token: Token, batches: tuple[TransactionalBatch, ...], error: Error) -> Verdict:
    return Verdict((Release(token, tuple((batch.partition, error) for batch in batches)),))


def _after(releases: tuple[Release, ...], verdict: Verdict) -> Verdict:
    return Verdict(releases + verdict.release, verdict.send)
