"""A consumer: reads from where its group is, processes, commits; whoever follows it goes on there.

Where it commits                          and what that means when it dies
    after      what is processed          some is processed again
    before     what was delivered         what was not processed yet is skipped (C3)
    auto       Java: at a poll, what the polls before it returned. Safe if that is processed by
               then; not if it was handed to a thread (C4).
               librdkafka: at any time, what was delivered, so that the record in process is skipped

Where it stands after a truncation is told by leader epochs (KIP-320): the client seeks to where the
histories part, silently unless the reset policy is none. A history that is no shorter than its
position it takes for its own. Without epochs it goes on in another history, or finds itself out of
range.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple

from lossless.core.machine import Effects, Send, Token
from lossless.core.messages import (
    CONSUMER,
    UNKNOWN_EPOCH,
    Error,
    Fetch,
    FetchAnswer,
    FetchPartition,
    ListOffsets,
    ListOffsetsAnswer,
    Metadata,
    OffsetKind,
    TopicPartition,
)
from lossless.log.batch import Batch, Record, parse_all
from lossless.log.index import AbortedTransaction
from lossless.simulator.clients.leaders import Leaders
from lossless.simulator.settings import BACKOFF_MS, FETCH_WAIT_MS, ConsumerSettings
from lossless.verifier.history import Committed, Event, Processed, Read, Reset

_NEVER = 1 << 60


class Offset(NamedTuple):
    """To be committed: where a group goes on, and the epoch of the record before."""

    offset: int
    last_epoch: int


NOTHING = Offset(0, UNKNOWN_EPOCH)
Offsets = dict[tuple[str, TopicPartition], Offset]
Near = Callable[[TopicPartition, int], int]  # the broker to read from, beside this leader


class Position:
    """Of one partition."""

    __slots__ = (
        "ask_ms",
        "asked",
        "committed",
        "delivered",
        "last_epoch",
        "needs_reset",
        "offset",
        "polled",
        "unprocessed",
    )

    def __init__(self) -> None:
        self.offset: int | None = None
        self.last_epoch = UNKNOWN_EPOCH  # of the last record read
        self.needs_reset: str | None = None
        self.asked: Fetch | ListOffsets | None = None  # what is under way
        self.ask_ms = 0
        self.unprocessed = 0  # of what was delivered
        self.committed = NOTHING  # or about to be
        self.delivered = NOTHING
        self.polled = NOTHING  # what the polls before the last one returned


class Hidden:
    """Of what a reader of committed records gets, the batches of transactions that were aborted."""

    def __init__(self, aborted: tuple[AbortedTransaction, ...]) -> None:
        self._aborted = deque(sorted(aborted, key=lambda one: one.first_offset))
        self._producers: set[int] = set()

    def has(self, batch: Batch) -> bool:
        while self._aborted and self._aborted[0].first_offset <= batch.last_offset:
            self._producers.add(self._aborted.popleft().producer_id)
        return batch.is_transactional and batch.producer_id in self._producers

    def on_marker(self, batch: Batch) -> None:
        """What follows is of another transaction."""
        self._producers.discard(batch.producer_id)


class Consumer:
    def __init__(
        self,
        name: str,
        group: str,
        settings: ConsumerSettings,
        partitions: tuple[TopicPartition, ...],
        leaders: Leaders,
        *,
        offsets: Offsets,
        near: Near = lambda _partition, leader: leader,
        tell: Callable[[Event], None],
        knows_epochs: bool = True,
    ) -> None:
        self.name = name
        self.group = group
        self.settings = settings
        self.positions = {partition: Position() for partition in partitions}
        self._leaders = leaders
        self._offsets = offsets
        self._near = near
        self._tell = tell
        self._knows_epochs = knows_epochs
        self._to_process: deque[tuple[Position, TopicPartition, int, str]] = deque()
        self._process_ms = _NEVER
        self._commit_ms = _NEVER
        self.is_stopped = False  # reset policy none: the application has to decide

    @property
    def is_reading(self) -> bool:
        return not self.is_stopped

    @property
    def reads_committed(self) -> bool:
        return self.settings.isolation == "read_committed"

    # Events

    def on_start(self, now_ms: int) -> Effects:
        for partition, position in self.positions.items():
            committed = self._offsets.get((self.group, partition))
            if committed is None:
                position.needs_reset = "first start"
            else:
                self._seek(partition, committed.offset, "assigned", now_ms)
                position.last_epoch = committed.last_epoch
        if self.settings.commit == "auto":
            self._commit_ms = now_ms + self.settings.auto_commit_ms
        return self._after(now_ms)

    def on_timer(self, now_ms: int) -> Effects:
        if now_ms >= self._process_ms:
            self._process(now_ms)
        if now_ms >= self._commit_ms:
            self._commit_ms = now_ms + self.settings.auto_commit_ms
            if self.settings.client == "librdkafka":
                for partition, position in self.positions.items():
                    self._commit(partition, position.delivered, now_ms)
        return self._after(now_ms)

    def on_request(self, source: int, token: Token, request: Any, now_ms: int) -> Effects:
        raise NotImplementedError("nobody asks a consumer")

    def on_flushed(self, log: str, offset: int, now_ms: int) -> Effects:
        raise NotImplementedError("a consumer has no log")

    def on_answer(self, source: int, request: Any, answer: Any, now_ms: int) -> Effects:
        match request:
            case Metadata():
                self._leaders.on_answer(answer, now_ms)
            case ListOffsets():
                if self._is_expected(request.partition, request):
                    self._on_listed(request.partition, answer, now_ms)
            case Fetch():
                if self._is_expected(request.partitions[0].partition, request):
                    self._on_fetched(request.partitions[0], answer, now_ms)
        return self._after(now_ms)

    def _is_expected(self, partition: TopicPartition, request: Fetch | ListOffsets) -> bool:
        """Else the partition was taken away since, or given back."""
        position = self.positions.get(partition)
        if position is None or position.asked is not request:
            return False
        position.asked = None
        return True

    # Reading

    def _after(self, now_ms: int) -> Effects:
        sends = self._leaders.question(now_ms)
        wakes = [self._process_ms, self._commit_ms]
        self._on_group(sends, wakes, now_ms)
        for partition, position in self.positions.items() if self.is_reading else ():
            is_busy = position.unprocessed and not self.settings.hand_off
            if position.asked is not None or is_busy:
                continue
            if position.ask_ms > now_ms:
                wakes.append(position.ask_ms)
                continue
            leader = self._leaders.of(partition)
            if leader is None:
                self._leaders.refresh(now_ms)
                continue
            epoch = leader.leader_epoch if self._knows_epochs else UNKNOWN_EPOCH
            question = position.asked = self._question(partition, position, epoch, now_ms)
            is_fetch = isinstance(question, Fetch)
            is_near = is_fetch and self.settings.from_follower
            target = self._near(partition, leader.leader) if is_near else leader.leader
            sends.append(Send(target, question))
        sends += self._leaders.question(now_ms)
        if self._leaders.wake_ms is not None:
            wakes.append(self._leaders.wake_ms)
        wake_ms = min(wakes)
        return Effects(
            send=tuple(sends), wake_ms=None if wake_ms == _NEVER else max(wake_ms, now_ms + 1)
        )

    def _on_group(self, sends: list[Send], wakes: list[int], now_ms: int) -> None:
        """What a member of a group has to ask, and when to look again."""

    def _question(
        self, partition: TopicPartition, position: Position, epoch: int, now_ms: int
    ) -> Fetch | ListOffsets:
        if position.offset is None or position.needs_reset is not None:
            is_latest = self.settings.reset == "latest"
            at = OffsetKind.LATEST if is_latest else OffsetKind.EARLIEST
            return ListOffsets(partition, epoch, at, self.reads_committed)
        self._poll(partition, position, now_ms)
        asked = FetchPartition(
            partition,
            position.offset,
            epoch,
            position.last_epoch if self._knows_epochs else UNKNOWN_EPOCH,
            bytes_max=200,
        )
        return Fetch(CONSUMER, -1, FETCH_WAIT_MS, 1, (asked,), self.reads_committed)

    def _poll(self, partition: TopicPartition, position: Position, now_ms: int) -> None:
        """The Java client commits here by itself, if its time has come."""
        if self.settings.commit == "auto" and self.settings.client == "java":
            if now_ms + self.settings.auto_commit_ms >= self._commit_ms:
                self._commit(partition, position.polled, now_ms)
            position.polled = position.delivered

    def _on_fetched(self, asked: FetchPartition, answer: FetchAnswer | None, now_ms: int) -> None:
        partition = asked.partition
        position = self.positions[partition]
        if answer is None:
            self._leaders.refresh(now_ms)
            position.ask_ms = now_ms + BACKOFF_MS
            return
        (fetched,) = answer.partitions
        if fetched.error is Error.OFFSET_OUT_OF_RANGE:
            self._needs_reset(position, "out of range")
        elif fetched.error is not Error.NONE:
            self._leaders.refresh(now_ms)
            position.ask_ms = now_ms + BACKOFF_MS
        elif fetched.diverging is not None:
            self._on_diverging(partition, fetched.diverging.end_offset, now_ms)
        else:
            hidden = Hidden(fetched.aborted)
            for batch in parse_all(fetched.data):
                is_shown = not hidden.has(batch) and not batch.is_control
                if batch.is_control:
                    hidden.on_marker(batch)
                for record in batch.records() if is_shown else ():
                    self._on_record(partition, position, record, batch.leader_epoch, now_ms)
                position.offset = batch.next_offset
            self._on_delivered(partition, position, now_ms)

    def _on_record(
        self,
        partition: TopicPartition,
        position: Position,
        record: Record,
        epoch: int,
        now_ms: int,
    ) -> None:
        if position.offset is None or record.offset < position.offset or record.value is None:
            return
        value = record.value.decode()
        position.last_epoch = epoch
        self._tell(Read(now_ms, self.name, partition, record.offset, value))
        self._to_process.append((position, partition, record.offset, value))
        position.unprocessed += 1

    def _on_delivered(self, partition: TopicPartition, position: Position, now_ms: int) -> None:
        if not position.unprocessed:
            return
        assert position.offset is not None
        position.delivered = Offset(position.offset, position.last_epoch)
        if self.settings.commit == "before":
            self._commit(partition, position.delivered, now_ms)
        self._process_ms = min(self._process_ms, now_ms + self.settings.processing_ms)

    # Processing

    def _process(self, now_ms: int) -> None:
        position, partition, _, _ = self._finish(now_ms)
        position.unprocessed -= 1
        is_ours = self.positions.get(partition) is position  # still, or it was taken away
        if self.settings.commit == "after" and not position.unprocessed and is_ours:
            self._commit(partition, position.delivered, now_ms)

    def _finish(self, now_ms: int) -> tuple[Position, TopicPartition, int, str]:
        """One record, which takes its time."""
        done = self._to_process.popleft()
        _, partition, offset, value = done
        self._tell(Processed(now_ms, self.name, self.group, partition, offset, value))
        self._process_ms = now_ms + self.settings.processing_ms if self._to_process else _NEVER
        return done

    def _discard_deliveries(self) -> None:
        self._to_process.clear()
        self._process_ms = _NEVER

    def _commit(self, partition: TopicPartition, offset: Offset, now_ms: int) -> None:
        key = (self.group, partition)
        if self._offsets.get(key, NOTHING) != offset:
            self._offsets[key] = offset
            self._tell(Committed(now_ms, self.group, partition, offset.offset))

    # Going elsewhere

    def _on_listed(
        self, partition: TopicPartition, answer: ListOffsetsAnswer | None, now_ms: int
    ) -> None:
        position = self.positions[partition]
        if answer is None or answer.error is not Error.NONE:
            self._leaders.refresh(now_ms)
            position.ask_ms = now_ms + BACKOFF_MS
            return
        why = position.needs_reset or "first start"
        position.needs_reset = None
        position.last_epoch = UNKNOWN_EPOCH
        self._seek(partition, answer.offset, why, now_ms)

    def _needs_reset(self, position: Position, why: str) -> None:
        if self.settings.reset == "none":
            self.is_stopped = True
        position.needs_reset = why

    def _on_diverging(self, partition: TopicPartition, offset: int, now_ms: int) -> None:
        position = self.positions[partition]
        position.last_epoch = UNKNOWN_EPOCH
        if position.offset is not None and offset >= position.offset:
            return  # the client looks at where the other history ends, and at nothing else
        if self.settings.reset == "none":
            self.is_stopped = True
            return
        self._seek(partition, offset, "truncation detected", now_ms)

    def _seek(self, partition: TopicPartition, offset: int, why: str, now_ms: int) -> None:
        position = self.positions[partition]
        self._tell(Reset(now_ms, self.name, partition, position.offset, offset, why))
        position.offset = offset
