"""A member of a group that writes a copy of each record to another topic, in transactions.

    records are delivered ── processed ──▶ copies are sent ── all are stored ──▶ the group's offsets
            ▲                                                                         │
            └────────────── the transaction is committed ◀────────────────────────────┘

The offsets are a part of the transaction (`commit=transaction`), so that a record is consumed if
and only if its copy is there. With `commit=after` they are committed on their own once the
transaction has ended, and a member that dies in between leaves copies that its successor writes
again.

Where versions differ (KIP-890)
    1    the client adds the group's partition of __consumer_offsets to the transaction
    2    the group's coordinator adds it

Rules of the Java client and of its users that matter here
- Offsets are committed with the member's generation (KIP-447): the coordinator refuses those of a
  member that has been replaced, and the transaction is aborted.
- Offsets are looked up with `require_stable`: the next member waits until the transaction of the
  last one has ended.
- After an abort the application begins again at the offsets that are committed. A producer that
  was fenced begins again with another epoch.
- In a rebalance the open transaction is ended before partitions are given up.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

from lossless.core.coordination import TransactionalCommit
from lossless.core.groups.messages import OffsetCommitAnswer, OffsetToCommit, TxnOffsetCommit
from lossless.core.machine import Effects, Send
from lossless.core.messages import (
    OFFSETS_TOPIC,
    TRANSACTIONS_TOPIC,
    Error,
    Metadata,
    Produce,
    Producer,
    TopicPartition,
)
from lossless.core.transactions.messages import (
    AddOffsetsToTxn,
    AddOffsetsToTxnAnswer,
    AddPartitionsToTxn,
    EndTxn,
    InitProducerId,
)
from lossless.simulator.clients.consumer import Offset, Position
from lossless.simulator.clients.leaders import Leaders
from lossless.simulator.clients.member import Member
from lossless.simulator.clients.member import State as Membership
from lossless.simulator.clients.question import Question
from lossless.simulator.clients.transactional import State, TransactionalProducer
from lossless.simulator.settings import TRANSACTION_MS, ProducerSettings
from lossless.simulator.world import OUTPUT_TOPIC
from lossless.verifier.history import Committed, Consumed, Event

_OF_OUTPUT = (
    Produce | InitProducerId | AddPartitionsToTxn | AddOffsetsToTxn | EndTxn | TransactionalCommit
)
_FENCED = (Error.INVALID_PRODUCER_EPOCH, Error.PRODUCER_FENCED, Error.INVALID_PRODUCER_ID_MAPPING)


class Input(NamedTuple):
    """A record that was processed."""

    position: Position
    partition: TopicPartition
    offset: int
    value: str


class OutputProducer(TransactionalProducer):
    """Sends what it is given in one transaction, with the offsets of a group."""

    def __init__(
        self,
        name: str,
        transactional_id: str,
        settings: ProducerSettings,
        leaders: Leaders,
        coordinators: Leaders,
        *,
        partitions: tuple[TopicPartition, ...],
        group: str,
        groups: Leaders,
        tell: Callable[[Event], None],
    ) -> None:
        super().__init__(
            name,
            transactional_id,
            replace(settings, records=0),
            partitions,
            leaders,
            coordinators,
            producer_id=-1,
            tell=tell,
        )
        self._group = group
        self._commit = Question(groups, OFFSETS_TOPIC, group)
        self._offsets: Mapping[TopicPartition, Offset] = {}  # still to be committed
        self._generation, self._member_id = -1, ""
        self._is_group_added = False
        self.outcome: bool | None = None  # of the last transaction, until it is taken

    @property
    def is_ready(self) -> bool:
        return self.state is State.READY and self.outcome is None

    def start(self) -> None:
        self.state = State.STARTING
        self._question.ask(InitProducerId(self._transactional_id, TRANSACTION_MS))

    def begin(
        self,
        inputs: list[Input],
        offsets: Mapping[TopicPartition, Offset],
        generation: int,
        member_id: str,
        now_ms: int,
    ) -> None:
        self._open_unit()
        self._offsets, self._is_group_added = offsets, False
        self._generation, self._member_id = generation, member_id
        for _, partition, offset, value in inputs:
            self._tell(
                Consumed(now_ms, self.name, self._group, partition, offset, value, self._unit)
            )
            output = TopicPartition(OUTPUT_TOPIC, partition.partition)
            self._add(f"{value}@{self._unit}", output, now_ms)

    def on_answer(self, source: int, request: Any, answer: Any, now_ms: int) -> Effects:
        if self._commit.is_about(request):
            self._on_offsets_committed(answer, now_ms)
        return super().on_answer(source, request, answer, now_ms)

    def _after(self, now_ms: int) -> Effects:
        effects = super()._after(now_ms)
        sends = self._commit.sends(now_ms)
        wakes = [*self._commit.wakes(now_ms), effects.wake_ms]
        wake_ms = min((wake for wake in wakes if wake is not None), default=None)
        return Effects(send=(*effects.send, *sends), wake_ms=wake_ms)

    def _end(self, now_ms: int) -> None:
        if self._has_failed or not self._offsets:
            super()._end(now_ms)
            return
        if not (self._question.is_idle and self._commit.is_idle):
            return  # it is under way
        self._is_begun = True
        producer = Producer(self._producer_id, self._epoch)
        is_added = self._is_group_added or self.settings.transaction_version >= 2
        if not is_added:
            self._question.ask(
                AddOffsetsToTxn(self._transactional_id, *producer, self._group, version=3)
            )
            return
        offsets = tuple(
            OffsetToCommit(partition, offset, epoch)
            for partition, (offset, epoch) in self._offsets.items()
        )
        commit = TxnOffsetCommit(self._group, offsets, producer, self._generation, self._member_id)
        version = 5 if self.settings.transaction_version >= 2 else 4
        self._commit.ask(TransactionalCommit(self._transactional_id, version, commit))

    def _on_offsets_committed(self, answer: OffsetCommitAnswer | None, now_ms: int) -> None:
        errors = [] if answer is None else [one.error for one in answer.partitions]
        error = next((one for one in errors if one is not Error.NONE), Error.NONE)
        if not self._commit.settles(answer, error, now_ms):
            return
        if error in _FENCED:
            self._begin_again()
        elif error is Error.NONE:
            self._offsets = {}
        else:
            self._has_failed = True  # the member has been replaced, or the transaction is over

    def _on_coordinated(self, request: Any, answer: Any, now_ms: int) -> None:
        super()._on_coordinated(request, answer, now_ms)
        if self.state is State.FENCED:
            self._begin_again()
        elif isinstance(answer, AddOffsetsToTxnAnswer) and answer.error is Error.NONE:
            self._is_group_added = True

    def _on_ended(self, now_ms: int) -> None:
        super()._on_ended(now_ms)
        self.outcome = self._ends_committed

    def _begin_again(self) -> None:
        """Nobody says how the transaction ends."""
        self.outcome = False
        self._commit.drop()
        self.start()


class Transformer(Member):
    def __init__(self, *given: Any, output: OutputProducer, **options: Any) -> None:
        super().__init__(*given, **options)
        self.output = output
        self._waiting: list[Input] = []  # processed, and in no transaction yet
        self._consumed: list[Input] = []  # in the open transaction
        self._moves: dict[TopicPartition, Offset] = {}  # the group, if it is committed

    @property
    def is_calm(self) -> bool:
        return super().is_calm and not (self._waiting or self._consumed) and self.output.is_ready

    def on_start(self, now_ms: int) -> Effects:
        self.output.start()
        return super().on_start(now_ms)

    def on_answer(self, source: int, request: Any, answer: Any, now_ms: int) -> Effects:
        topics = request.topics if isinstance(request, Metadata) else ()
        is_of_output = OUTPUT_TOPIC in topics or TRANSACTIONS_TOPIC in topics
        if not (is_of_output or isinstance(request, _OF_OUTPUT)):
            return super().on_answer(source, request, answer, now_ms)
        first = self.output.on_answer(source, request, answer, now_ms)
        then = self._after(now_ms)
        return Effects(send=(*first.send, *then.send), wake_ms=then.wake_ms)

    def on_crash(self, now_ms: int) -> None:
        self.output.on_crash(now_ms)

    def _on_group(self, sends: list[Send], wakes: list[int], now_ms: int) -> None:
        self._take_outcome(now_ms)
        self._maybe_begin(now_ms)
        effects = self.output.on_timer(now_ms)
        self._take_outcome(now_ms)
        sends += effects.send
        wakes += [effects.wake_ms] if effects.wake_ms is not None else []
        super()._on_group(sends, wakes, now_ms)

    # Transactions

    def _process(self, now_ms: int) -> None:
        position, partition, offset, value = self._finish(now_ms)
        self._waiting.append(Input(position, partition, offset, value))

    def _maybe_begin(self, now_ms: int) -> None:
        """Of everything that was delivered, once all of it is processed."""
        if self._to_process or not self._waiting or not self.output.is_ready:
            return
        self._consumed = [one for one in self._waiting if self._has(one)]
        self._waiting.clear()
        if self._consumed:
            self._moves = {one.partition: one.position.delivered for one in self._consumed}
            within = self._moves if self.settings.commit == "transaction" else {}
            self.output.begin(self._consumed, within, self._generation, self._member_id, now_ms)

    def _has(self, one: Input) -> bool:
        """Whether the partition is still this member's, and has not been begun again."""
        return self.positions.get(one.partition) is one.position

    def _take_outcome(self, now_ms: int) -> None:
        is_committed, self.output.outcome = self.output.outcome, None
        if is_committed is None:
            return
        consumed, self._consumed = self._consumed, []
        if not is_committed:
            self._start_over()
            return
        for one in consumed:
            one.position.unprocessed -= 1
        for partition, offset in self._moves.items():
            if self.settings.commit == "transaction":
                self._tell(Committed(now_ms, self.group, partition, offset.offset))
            elif any(one.partition == partition and self._has(one) for one in consumed):
                self._commit(partition, offset, now_ms)

    def _start_over(self) -> None:
        """Where the group is."""
        self._drop()
        partitions = tuple(self.positions)
        self.positions.clear()
        if partitions and self.state is Membership.MEMBER:
            self._look_up(partitions)

    def _drop(self) -> None:
        self._waiting.clear()
        self._discard_deliveries()

    # The group

    def _maybe_give_up(self, now_ms: int) -> None:
        if not (self._waiting or self._consumed):
            super()._maybe_give_up(now_ms)

    def _lose(self, error: Error) -> None:
        self._drop()
        super()._lose(error)
