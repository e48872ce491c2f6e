"""A producer: numbered records, acks, retries, several requests in flight, idempotence.

Where clients differ
    idempotence          Java: on unless acks is not all, and then silently off (KAFKA-13673);
                         librdkafka: off unless asked for
    a sequence is gone   Java tells the application of that one record, starts a new epoch and
                         numbers what is in flight anew (KIP-360); librdkafka stops for good

Without idempotence every request is retried by itself, so that what was sent later may be stored
earlier: it was on its way already. With it, what is sent again is sent alone.

Idempotence has a gap at its beginning: a leader that does not know a producer takes any sequence,
because what came before may have expired. If the first record gets lost and the second, on its way
already, does not, the first can never be stored (the application is told), and what is in flight
gets new sequences: stored before, it is stored again. `first_alone` is what an application can do
about it: wait for the first acknowledgement before it sends more.

The log remembers five batches of a producer, so that none is sent while an earlier one, five
sequences before it, is undecided. (Whether the Java client keeps to that when a request that timed
out is retried among later ones, we have not seen on a live cluster.)
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from lossless.core.machine import Effects, Send, Token
from lossless.core.messages import (
    Error,
    Metadata,
    Produce,
    ProduceAnswer,
    TopicPartition,
)
from lossless.log.batch import NO_PRODUCER_ID, Data, Record, build
from lossless.log.producers import BATCHES_MAX
from lossless.simulator.clients.leaders import Leaders
from lossless.simulator.settings import BACKOFF_MS, REQUEST_TIMEOUT_MS, ProducerSettings
from lossless.verifier.history import Acknowledged, Event, Failed, Sent

RETRIABLE = frozenset(
    {
        Error.UNKNOWN_TOPIC_OR_PARTITION,
        Error.LEADER_NOT_AVAILABLE,
        Error.NOT_LEADER_OR_FOLLOWER,
        Error.REQUEST_TIMED_OUT,
        Error.NOT_ENOUGH_REPLICAS,
        Error.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        Error.KAFKA_STORAGE_ERROR,
        Error.FENCED_LEADER_EPOCH,
        Error.UNKNOWN_LEADER_EPOCH,
    }
)
# The record may be in a log although the producer was told that it is not.
UNCERTAIN = frozenset({Error.REQUEST_TIMED_OUT, Error.NOT_ENOUGH_REPLICAS_AFTER_APPEND})


@dataclass(slots=True)
class _Batch:
    value: str
    partition: TopicPartition
    sequence: int
    retry_ms: int = 0
    is_retry: bool = False
    is_in_flight: bool = False


class Producer:
    def __init__(
        self,
        name: str,
        settings: ProducerSettings,
        partitions: tuple[TopicPartition, ...],
        leaders: Leaders,
        *,
        producer_id: int,
        tell: Callable[[Event], None],
    ) -> None:
        self.name = name
        self.settings = settings
        self._partitions = partitions
        self._leaders = leaders
        self._producer_id = producer_id if settings.is_idempotent else NO_PRODUCER_ID
        self._epoch = 0
        self._tell = tell
        self._next_value = 0
        self._records = settings.records
        self._next_ms = 0
        self._sequences = dict.fromkeys(partitions, 0)
        self.batches: list[_Batch] = []  # sent by the application, and not decided
        self._acknowledged: set[TopicPartition] = set()  # where a leader knows this epoch
        self.is_fatal = False

    @property
    def left(self) -> int:
        """What the application has not sent yet."""
        return self._records - self._next_value

    @property
    def is_done(self) -> bool:
        return self._next_value >= self._records and not self.batches

    def on_start(self, now_ms: int) -> Effects:
        self._next_ms = now_ms
        return self._after(now_ms)

    def on_timer(self, now_ms: int) -> Effects:
        if now_ms >= self._next_ms and self._next_value < self._records:
            self._send_next(now_ms)
        return self._after(now_ms)

    def on_request(self, source: int, token: Token, request: Any, now_ms: int) -> Effects:
        raise NotImplementedError("nobody asks a producer")

    def on_flushed(self, log: str, offset: int, now_ms: int) -> Effects:
        raise NotImplementedError("a producer has no log")

    def on_answer(self, source: int, request: Any, answer: Any, now_ms: int) -> Effects:
        if isinstance(request, Metadata):
            self._leaders.on_answer(answer, now_ms)
        elif isinstance(request, _Carried):
            self._on_produced(request.batch, answer, now_ms)
        return self._after(now_ms)

    # The application

    def allow(self, more: int, now_ms: int) -> Effects:
        """There is more to send, from now on."""
        self._records += more
        self._next_ms = now_ms
        return self.on_timer(now_ms)

    def _send_next(self, now_ms: int) -> None:
        self._next_ms = now_ms + self.settings.interval_ms
        if len(self.batches) >= self.settings.in_flight_max:
            return
        number = self._next_value
        self._next_value += 1
        partition = self._partitions[number % len(self._partitions)]
        value = f"{self.name}-{number}"
        self._tell(Sent(now_ms, self.name, partition, value))
        if self.is_fatal:
            self._tell(Failed(now_ms, self.name, partition, value, "the producer has failed", True))
            return
        self.batches.append(_Batch(value, partition, self._sequences[partition]))
        self._sequences[partition] += 1

    def _after(self, now_ms: int) -> Effects:
        sends = []
        undecided: dict[TopicPartition, int] = {}  # where, and the first sequence
        queued: set[TopicPartition] = set()  # where something waits, and holds back what follows
        for batch in list(self.batches):
            first = undecided.setdefault(batch.partition, batch.sequence)
            is_first = first == batch.sequence
            if batch.is_in_flight or batch.partition in queued:
                continue
            leader = self._leaders.of(batch.partition)
            if leader is None:
                self._leaders.refresh(now_ms)
            is_held = self.settings.is_idempotent and (
                batch.sequence - first >= BATCHES_MAX or (not is_first and self._waits(batch))
            )
            if leader is None or is_held or batch.retry_ms > now_ms:
                queued.add(batch.partition)
                continue
            sends.append(Send(leader.leader, self._request(batch, now_ms)))
            if self.settings.acks == 0:
                self._decide(batch)
                self._tell(Acknowledged(now_ms, self.name, batch.partition, batch.value, None))
            else:
                batch.is_in_flight = True
        sends += self._leaders.question(now_ms)
        wakes = [batch.retry_ms for batch in self.batches if batch.retry_ms > now_ms]
        if self._next_value < self._records:
            wakes.append(max(self._next_ms, now_ms + 1))
        if self._leaders.wake_ms is not None:
            wakes.append(max(self._leaders.wake_ms, now_ms + 1))
        return Effects(send=tuple(sends), wake_ms=min(wakes, default=None))

    def _waits(self, batch: _Batch) -> bool:
        """For those before it, if it is sent again or nothing was acknowledged yet."""
        is_new_here = batch.partition not in self._acknowledged
        return batch.is_retry or (is_new_here and self.settings.first_alone)

    def _request(self, batch: _Batch, now_ms: int) -> _Carried:
        record = Record(0, now_ms, None, batch.value.encode())
        is_idempotent = self.settings.is_idempotent
        data = build(
            [record],
            producer_id=self._producer_id,
            producer_epoch=self._epoch if is_idempotent else -1,
            base_sequence=batch.sequence if is_idempotent else -1,
        ).data
        return _Carried(
            self.settings.acks, REQUEST_TIMEOUT_MS, ((batch.partition, data),), batch=batch
        )

    # What came of it

    def _on_produced(self, batch: _Batch, answer: ProduceAnswer | None, now_ms: int) -> None:
        batch.is_in_flight = False
        if batch not in self.batches:
            return
        if answer is None:
            self._leaders.refresh(now_ms)
            self._retry(batch, "the connection is gone", now_ms, certain=False)
            return
        (produced,) = answer.partitions
        if produced.error is Error.NONE:
            self._acknowledged.add(batch.partition)
            self._decide(batch)
            self._tell(
                Acknowledged(now_ms, self.name, batch.partition, batch.value, produced.base_offset)
            )
        elif produced.error is Error.OUT_OF_ORDER_SEQUENCE_NUMBER:
            self._on_out_of_order(batch, now_ms)
        elif produced.error in RETRIABLE:
            self._leaders.refresh(now_ms)
            is_certain = produced.error not in UNCERTAIN
            self._retry(batch, produced.error.name, now_ms, certain=is_certain)
        else:
            self._fail(batch, produced.error.name, now_ms, certain=True)

    def _retry(self, batch: _Batch, why: str, now_ms: int, *, certain: bool) -> None:
        if self.settings.retries:
            batch.is_retry = True
            batch.retry_ms = now_ms + BACKOFF_MS
        else:
            self._fail(batch, why, now_ms, certain=certain)

    def _on_out_of_order(self, batch: _Batch, now_ms: int) -> None:
        first = next(b for b in self.batches if b.partition == batch.partition)
        batch.is_retry = True
        batch.retry_ms = now_ms + BACKOFF_MS
        if batch is not first:
            return
        if self.settings.client == "java":
            self._fail(batch, "OUT_OF_ORDER_SEQUENCE_NUMBER", now_ms, certain=False)
            self._epoch += 1
            for partition in self._partitions:
                mine = [b for b in self.batches if b.partition == partition]
                for sequence, renumbered in enumerate(mine):
                    renumbered.sequence = sequence
                self._sequences[partition] = len(mine)
            self._acknowledged.clear()
        else:
            self.is_fatal = True
            for open_batch in list(self.batches):
                self._fail(open_batch, "fatal: a sequence is gone", now_ms, certain=False)

    def _fail(self, batch: _Batch, why: str, now_ms: int, *, certain: bool) -> None:
        self._decide(batch)
        self._tell(Failed(now_ms, self.name, batch.partition, batch.value, why, certain))

    def _decide(self, batch: _Batch) -> None:
        self.batches.remove(batch)

    def on_crash(self, now_ms: int) -> None:
        """What was under way is decided by nobody."""
        for batch in list(self.batches):
            self._fail(batch, "the producer died", now_ms, certain=False)


class _Carried(Produce):
    """A request that remembers which batch it carries. The broker sees a Produce."""

    batch: _Batch

    def __new__(
        cls,
        acks: int,
        timeout_ms: int,
        batches: tuple[tuple[TopicPartition, Data], ...],
        *,
        batch: _Batch,
    ) -> _Carried:
        made = super().__new__(cls, acks, timeout_ms, batches)
        made.batch = batch
        return made
