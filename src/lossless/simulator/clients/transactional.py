"""A producer whose records belong together: a unit of them is to be there as a whole, or not.

    starting ── InitProducerId ──▶ ready ── a unit is due ──▶ open ── all are decided ──▶ ending
                    ▲                ▲                                                   │
                    └─ version 1, a  └───────────── EndTxn is answered ──────────────────┘
                       record failed

Without transactions the states are the same, and nobody is asked: what is stored is there for
everybody at once, whatever becomes of the rest.

Where versions differ (KIP-890)
    1    the client adds partitions before it writes to them; the epoch stays when a transaction
         ends, and is raised by InitProducerId only if a record has failed (KIP-360)
    2    the leader adds them; every end gives another epoch

Rules of the Java client that matter here
- A record that has been tried for too long fails, in flight or not: it may still arrive. The
  transaction is then aborted.
- A transaction to which nothing was sent ends without anybody being asked.
- Who is fenced has a successor, or was too slow for its transaction's timeout. It stops.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from lossless.core.machine import Effects, Send, Token
from lossless.core.messages import (
    TRANSACTIONS_TOPIC,
    Error,
    Metadata,
    Produce,
    ProduceAnswer,
    TopicPartition,
)
from lossless.core.transactions.messages import (
    AddPartitionsToTxn,
    AddPartitionsToTxnAnswer,
    EndTxn,
    EndTxnAnswer,
    InitProducerId,
    InitProducerIdAnswer,
)
from lossless.log.batch import Record, build
from lossless.simulator.clients.leaders import Leaders
from lossless.simulator.clients.producer import RETRIABLE
from lossless.simulator.clients.question import TROUBLES, Question
from lossless.simulator.settings import (
    BACKOFF_MS,
    DELIVERY_MS,
    REQUEST_TIMEOUT_MS,
    TRANSACTION_MS,
    ProducerSettings,
)
from lossless.simulator.world import OnConnection
from lossless.verifier.history import Acknowledged, Event, Failed, Sent, TransactionEnded

_AGAIN = RETRIABLE | TROUBLES


class State(enum.Enum):
    STARTING = "starting"
    READY = "ready"
    OPEN = "open"
    ENDING = "ending"
    FENCED = "fenced"


@dataclass(slots=True)
class _Record:
    value: str
    partition: TopicPartition
    sequence: int
    expires_ms: int
    retry_ms: int = 0
    asked: Produce | None = None  # what is under way
    broker: int = 0  # who was asked
    late_ms: int = 0
    was_sent: bool = False


class TransactionalProducer:
    def __init__(
        self,
        name: str,
        transactional_id: str,
        settings: ProducerSettings,
        partitions: tuple[TopicPartition, ...],
        leaders: Leaders,
        coordinators: Leaders,
        *,
        producer_id: int,
        tell: Callable[[Event], None],
    ) -> None:
        self.name = name
        self.settings = settings
        self._transactional_id = transactional_id
        self._partitions = partitions
        self._leaders = leaders
        self._coordinators = coordinators
        self._question = Question(coordinators, TRANSACTIONS_TOPIC, transactional_id)
        self._producer_id, self._epoch = producer_id, 0  # of its own, without transactions
        self._tell = tell
        self.state = State.STARTING if settings.transactional else State.READY
        self._records = settings.records
        self._next_value = 0
        self._next_ms = 0
        self._sequences = dict.fromkeys(partitions, 0)
        self._connections: dict[int, int] = {}  # to each broker, how many there were before
        self._units = 0
        self._unit = ""  # the name of what is open
        self._open: list[_Record] = []  # of the unit, and not decided
        self._added: set[TopicPartition] = set()
        self._is_begun = False  # somebody else knows of the transaction
        self._has_failed = False  # a record of it
        self._ends_committed = False  # what was asked for

    @property
    def left(self) -> int:
        return self._records - self._next_value

    @property
    def is_done(self) -> bool:
        is_calm = self.state is State.READY and self._next_value >= self._records
        return is_calm or self.state is State.FENCED

    # Events

    def on_start(self, now_ms: int) -> Effects:
        self._next_ms = now_ms
        if self.state is State.STARTING:
            self._question.ask(InitProducerId(self._transactional_id, TRANSACTION_MS))
        return self._after(now_ms)

    def on_timer(self, now_ms: int) -> Effects:
        return self._after(now_ms)

    def on_request(self, source: int, token: Token, request: Any, now_ms: int) -> Effects:
        raise NotImplementedError("nobody asks a producer")

    def on_flushed(self, log: str, offset: int, now_ms: int) -> Effects:
        raise NotImplementedError("a producer has no log")

    def on_answer(self, source: int, request: Any, answer: Any, now_ms: int) -> Effects:
        if isinstance(request, Metadata):
            is_for_coordinators = TRANSACTIONS_TOPIC in request.topics
            who = self._coordinators if is_for_coordinators else self._leaders
            who.on_answer(answer, now_ms)
        elif isinstance(request, Produce):
            self._on_produced(request, answer, now_ms)
        elif self._question.is_about(request):
            self._on_coordinated(request, answer, now_ms)
        return self._after(now_ms)

    def on_crash(self, now_ms: int) -> None:
        """What was under way is decided by nobody."""
        for record in list(self._open):
            self._fail(record, "the producer died", now_ms, certain=False)

    def allow(self, more: int, now_ms: int) -> Effects:
        """There is more to send, from now on."""
        self._records += more
        self._next_ms = now_ms
        return self._after(now_ms)

    # The application

    def _begin(self, now_ms: int) -> None:
        self._next_ms = now_ms + self.settings.interval_ms
        self._open_unit()
        for _ in range(min(self.settings.unit, self.left)):
            value, partition = f"{self.name}-{self._next_value}", self._next_partition()
            self._next_value += 1
            self._add(value, partition, now_ms)

    def _open_unit(self) -> None:
        self._unit = f"{self.name}-t{self._units}"
        self._units += 1
        self.state = State.OPEN
        self._is_begun = self._has_failed = False
        self._added.clear()

    def _add(self, value: str, partition: TopicPartition, now_ms: int) -> None:
        self._tell(Sent(now_ms, self.name, partition, value, self._unit))
        sequence = self._sequences[partition]
        self._sequences[partition] += 1
        self._open.append(_Record(value, partition, sequence, now_ms + DELIVERY_MS))

    def _next_partition(self) -> TopicPartition:
        return self._partitions[self._next_value % len(self._partitions)]

    def _is_kept(self) -> bool:
        """Whether the application, too, wants the unit to be there."""
        every = self.settings.abort_every
        return not self._has_failed and not (every and self._units % every == 0)

    def _end(self, now_ms: int) -> None:
        committed = self._ends_committed = self._is_kept()
        if self.settings.transactional and self._is_begun:
            self.state = State.ENDING
            version = 5 if self.settings.transaction_version >= 2 else 4
            self._question.ask(
                EndTxn(self._transactional_id, self._producer_id, self._epoch, committed, version)
            )
        else:
            self._on_ended(now_ms)

    def _on_ended(self, now_ms: int) -> None:
        self._tell(TransactionEnded(now_ms, self.name, self._unit, self._ends_committed))
        self.state = State.READY
        if self._has_failed and self.settings.transactional:
            if self.settings.transaction_version < 2:
                # What has failed may come late: it must not find its sequence free.
                self.state = State.STARTING
                self._question.ask(
                    InitProducerId(
                        self._transactional_id, TRANSACTION_MS, self._producer_id, self._epoch
                    )
                )
        elif self._has_failed:
            self._continue_as(self._producer_id, self._epoch + 1)

    def _continue_as(self, producer_id: int, epoch: int) -> None:
        if (producer_id, epoch) != (self._producer_id, self._epoch):
            self._producer_id, self._epoch = producer_id, epoch
            self._sequences = dict.fromkeys(self._partitions, 0)

    # Sending

    def _after(self, now_ms: int) -> Effects:
        if self.state is State.READY and self.left and now_ms >= self._next_ms:
            self._begin(now_ms)
        sends = self._sends(now_ms) if self.state is State.OPEN else []
        if self.state is State.OPEN and not self._open:
            self._end(now_ms)
        if self.settings.transactional and self.state is not State.FENCED:
            sends += self._question.sends(now_ms)
            sends += self._coordinators.question(now_ms)
        sends += self._leaders.question(now_ms)
        return Effects(send=tuple(sends), wake_ms=self._wake_ms(now_ms))

    def _wake_ms(self, now_ms: int) -> int | None:
        wakes = [record.expires_ms for record in self._open]
        for record in self._open:
            wakes += [record.late_ms] if record.asked is not None else []
            wakes += [record.retry_ms] if record.retry_ms > now_ms else []
        if self.state is State.READY and self.left:
            wakes.append(self._next_ms)
        if self.settings.transactional and self.state is not State.FENCED:
            wakes += self._question.wakes(now_ms)
            if self._coordinators.wake_ms is not None:
                wakes.append(self._coordinators.wake_ms)
        if self._leaders.wake_ms is not None:
            wakes.append(self._leaders.wake_ms)
        return max(min(wakes), now_ms + 1) if wakes else None

    def _sends(self, now_ms: int) -> list[Send]:
        """In each partition one after the other."""
        sends = []
        busy: set[TopicPartition] = set()
        for record in list(self._open):
            if record.asked is not None and now_ms >= record.late_ms:
                self._give_up(record, now_ms)
            if now_ms >= record.expires_ms:
                self._fail(record, "it took too long", now_ms, certain=not record.was_sent)
            elif self._has_failed and record.asked is None:
                # The transaction will be aborted: nothing is begun for it any more.
                self._fail(record, "another failed", now_ms, certain=not record.was_sent)
            elif record.asked is None and record.partition not in busy:
                sends += self._send(record, now_ms)
            busy.add(record.partition)
        return sends

    def _send(self, record: _Record, now_ms: int) -> list[Send]:
        leader = self._leaders.of(record.partition)
        if leader is None:
            self._leaders.refresh(now_ms)
        if leader is None or record.retry_ms > now_ms or not self._may_write(record.partition):
            return []
        record.asked = self._request(record, now_ms)
        record.broker, record.late_ms = leader.leader, now_ms + REQUEST_TIMEOUT_MS
        record.was_sent = self._is_begun = True
        number = self._connections.get(leader.leader, 0)
        return [Send(leader.leader, OnConnection(record.asked, number))]

    def _may_write(self, partition: TopicPartition) -> bool:
        settings = self.settings
        if not settings.transactional or settings.transaction_version >= 2:
            return True
        if partition in self._added:
            return True
        if self._question.is_idle:
            self._is_begun = True
            self._question.ask(
                AddPartitionsToTxn(
                    self._transactional_id,
                    self._producer_id,
                    self._epoch,
                    tuple(sorted({record.partition for record in self._open})),
                    version=3,
                )
            )
        return False

    def _request(self, record: _Record, now_ms: int) -> Produce:
        transactional = self.settings.transactional
        data = build(
            [Record(0, now_ms, None, record.value.encode())],
            producer_id=self._producer_id,
            producer_epoch=self._epoch,
            base_sequence=record.sequence,
            transactional=transactional,
        ).data
        return Produce(
            -1,
            REQUEST_TIMEOUT_MS,
            ((record.partition, data),),
            self._transactional_id if transactional else None,
            12 if self.settings.transaction_version >= 2 else 11,
        )

    def _give_up(self, record: _Record, now_ms: int) -> None:
        """No answer in time: the connection is closed."""
        self._connections[record.broker] = self._connections.get(record.broker, 0) + 1
        self._again(record, now_ms)

    def _again(self, record: _Record, now_ms: int) -> None:
        record.asked = None
        record.retry_ms = now_ms + BACKOFF_MS
        self._leaders.refresh(now_ms)

    # What came of it

    def _on_produced(self, request: Produce, answer: ProduceAnswer | None, now_ms: int) -> None:
        record = next((one for one in self._open if one.asked is request), None)
        if record is None:
            return  # it was given up
        if answer is None:
            self._again(record, now_ms)
            return
        (produced,) = answer.partitions
        if produced.error is Error.NONE:
            self._open.remove(record)
            self._tell(
                Acknowledged(
                    now_ms, self.name, record.partition, record.value, produced.base_offset
                )
            )
        elif produced.error in _AGAIN:
            self._again(record, now_ms)
        else:
            # The first attempt may have been written: then the second is out of order.
            self._fail(record, produced.error.name, now_ms, certain=False)

    def _fail(self, record: _Record, why: str, now_ms: int, *, certain: bool) -> None:
        self._open.remove(record)
        self._has_failed = True
        self._tell(Failed(now_ms, self.name, record.partition, record.value, why, certain))

    def _on_coordinated(self, request: Any, answer: Any, now_ms: int) -> None:
        error = _error(answer)
        if not self._question.settles(answer, error, now_ms):
            return
        if error is not Error.NONE:
            self.state = State.FENCED
            for record in list(self._open):
                reason = "fenced" if error is None else error.name
                self._fail(record, reason, now_ms, certain=not record.was_sent)
            return
        match answer:
            case InitProducerIdAnswer():
                self._continue_as(answer.producer_id, answer.producer_epoch)
                self.state = State.READY
            case AddPartitionsToTxnAnswer():
                self._added.update(request.partitions)
            case EndTxnAnswer():
                if self.settings.transaction_version >= 2:
                    self._continue_as(answer.producer_id, answer.producer_epoch)
                self._on_ended(now_ms)


def _error(answer: Any) -> Error | None:
    if isinstance(answer, AddPartitionsToTxnAnswer):
        errors = [error for _, error in answer.partitions if error is not Error.NONE]
        return errors[0] if errors else Error.NONE
    return None if answer is None else Error(answer.error)
