"""Coordinators: machines whose memory is a partition of an internal topic.

Whoever leads a partition of `__consumer_offsets` coordinates the groups that hash to it, and
whoever leads one of `__transaction_state` the transactions. A *shard* is what one of them knows. It
decides, then applies: a handler looks at the state and returns records and answers; only `apply`
changes what has to outlive the process, live and when a new leader reads the log.

    absent ── this broker leads ──▶ loaded ── it no longer does ──▶ absent

Invariants
- Nothing that a shard decided is told to anybody before its records, and all that were written
  before them, are committed: an answer without records rests on them too.
- A shard dies with the reign in which it was loaded. Who waits for it then is told that it is
  elsewhere, and asks again.

Rules learnt
- A coordinator that cannot commit refuses before it decides. Deciding first and failing to write
  would leave it with a state that no log has.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from lossless.core.machine import Reply, Send, Token
from lossless.core.messages import Error, Producer, TopicPartition, WriteTxnMarker
from lossless.core.replica import Replica, Role
from lossless.log.batch import MarkerKind, Record

BATCH_RECORDS_MAX = 1000
RETRY_MS = 100


class Outcome(NamedTuple):
    """What a shard has decided."""

    records: tuple[tuple[bytes, bytes | None], ...] = ()  # keys and values; None forgets the key
    reply: tuple[Reply, ...] = ()  # once everything decided so far is committed
    send: tuple[Send, ...] = ()  # likewise
    producer: Producer | None = None  # the records count if and when its transaction is committed


class Shard(Protocol):
    """What one partition's coordinator knows. Sessions and who waits may change as they like; what
    must outlive the process changes in `apply` and `apply_marker` alone."""

    @property
    def wake_ms(self) -> int | None:
        """When `on_timer` is to be called."""

    def apply(self, record: Record, producer: Producer | None) -> None:
        """A record is in the log: written here just now, or long ago by another broker."""

    def apply_marker(self, producer: Producer, committed: bool) -> None:
        """A producer's transaction has ended in this partition."""

    def on_loaded(self, now_ms: int) -> Outcome:
        """Everything in the log has been applied: this broker coordinates from now on."""

    def on_request(self, token: Token, request: Any, now_ms: int) -> Outcome: ...

    def on_answer(self, source: int, request: Any, answer: Any, now_ms: int) -> Outcome:
        """To what a shard of this broker sent, perhaps another one or one that is gone. None:
        nobody knows whether it arrived."""

    def on_timer(self, now_ms: int) -> Outcome: ...


@dataclass(slots=True)
class _Loaded:
    shard: Shard
    leader_epoch: int
    asked: dict[Token, Any] = field(default_factory=dict)  # who has no answer yet
    # What has been decided and is not committed: up to where the log must be, and what is due then.
    pending: deque[tuple[int, tuple[Reply, ...], tuple[Send, ...]]] = field(default_factory=deque)


class Coordinators:
    """The shards of one internal topic that this broker has."""

    def __init__(
        self,
        topic: str,
        replicas: Mapping[TopicPartition, Replica],
        make: Callable[[int], Shard],
        refusal: Callable[[Any, Error], Any],
        touch: Callable[[TopicPartition], None],
    ) -> None:
        self.topic = topic
        self._replicas = replicas
        self._make = make
        self._refusal = refusal  # the answer to a request that no shard can deal with now
        self._touch = touch  # a replica that a shard has written to
        self._loaded: dict[int, _Loaded] = {}
        self._pending: set[int] = set()  # who has decided what is not told yet
        self.wake_ms: int | None = None
        self.replies: list[Reply] = []  # whoever takes them clears them
        self.sends: list[Send] = []  # likewise

    @property
    def numbers(self) -> list[int]:
        """The partitions whose shards are here."""
        return list(self._loaded)

    def _plan_to_wake(self) -> None:
        wakes = (loaded.shard.wake_ms for loaded in self._loaded.values())
        self.wake_ms = min((wake for wake in wakes if wake is not None), default=None)

    # Who coordinates

    def on_leadership(self, now_ms: int) -> None:
        """The metadata has changed: other partitions may be led here."""
        for number, loaded in list(self._loaded.items()):
            replica = self._replicas.get(TopicPartition(self.topic, number))
            if replica is None or not _leads(replica, loaded.leader_epoch):
                self._unload(number)
        for partition, replica in self._replicas.items():
            is_ours = partition.topic == self.topic and replica.role is Role.LEADER
            if is_ours and partition.partition not in self._loaded:
                self._load(partition.partition, replica, now_ms)

    def _load(self, number: int, replica: Replica, now_ms: int) -> None:
        shard = self._make(number)
        for batch in replica.log.batches(replica.log.log_start_offset):
            producer = Producer(batch.producer_id, batch.producer_epoch)
            if batch.is_control:
                marker = batch.marker()
                if marker is not None:
                    shard.apply_marker(producer, marker.kind is MarkerKind.COMMIT)
                continue
            for record in batch.records():
                shard.apply(record, producer if batch.is_transactional else None)
        self._loaded[number] = _Loaded(shard, replica.leader_epoch)
        self._act(number, shard.on_loaded(now_ms), now_ms)

    def _unload(self, number: int) -> None:
        self._pending.discard(number)
        for token, request in self._loaded.pop(number).asked.items():
            self._refuse(token, request, Error.NOT_COORDINATOR)
        self._plan_to_wake()

    # What happens

    def on_request(self, number: int, token: Token, request: Any, now_ms: int) -> None:
        loaded = self._loaded.get(number)
        if loaded is None:
            self._refuse(token, request, Error.NOT_COORDINATOR)
        elif not self._replica(number).may_commit:
            self._refuse(token, request, Error.COORDINATOR_NOT_AVAILABLE)
        else:
            loaded.asked[token] = request
            self._act(number, loaded.shard.on_request(token, request, now_ms), now_ms)

    def tell_all(self, tell: Callable[[Any], None]) -> None:
        """Every shard, of what happened elsewhere; what follows from it is decided by its timer."""
        for loaded in self._loaded.values():
            tell(loaded.shard)
        self._plan_to_wake()

    def on_answer(self, source: int, request: Any, answer: Any, now_ms: int) -> None:
        for number, loaded in list(self._loaded.items()):
            self._act(number, loaded.shard.on_answer(source, request, answer, now_ms), now_ms)

    def on_marker(self, request: WriteTxnMarker) -> None:
        """A marker was written to a partition of this topic."""
        loaded = self._loaded.get(request.partition.partition)
        if loaded is not None:
            producer = Producer(request.producer_id, request.producer_epoch)
            loaded.shard.apply_marker(producer, request.committed)

    def on_timer(self, now_ms: int) -> None:
        if self.wake_ms is None or self.wake_ms > now_ms:
            return
        for number, loaded in list(self._loaded.items()):
            wake_ms = loaded.shard.wake_ms
            if wake_ms is not None and wake_ms <= now_ms and self._replica(number).may_commit:
                self._act(number, loaded.shard.on_timer(now_ms), now_ms)
        if self.wake_ms is not None and self.wake_ms <= now_ms:
            self.wake_ms = now_ms + RETRY_MS  # nothing can be written; it may be possible then

    def _act(self, number: int, outcome: Outcome, now_ms: int) -> None:
        loaded, replica = self._loaded[number], self._replica(number)
        for start in range(0, len(outcome.records), BATCH_RECORDS_MAX):
            first = replica.log.log_end_offset
            part = outcome.records[start : start + BATCH_RECORDS_MAX]
            records = [
                Record(first + at, now_ms, key, value) for at, (key, value) in enumerate(part)
            ]
            replica.append_decided(records, outcome.producer, now_ms)
            for record in records:
                loaded.shard.apply(record, outcome.producer)
        if outcome.records:
            self._touch(TopicPartition(self.topic, number))
        self._plan_to_wake()
        if outcome.reply or outcome.send:
            self._pending.add(number)
            loaded.pending.append((replica.log.log_end_offset, outcome.reply, outcome.send))

    def complete(self) -> None:
        """What is committed by now may be told."""
        for number in list(self._pending):
            loaded = self._loaded[number]
            high_watermark = self._replica(number).high_watermark
            while loaded.pending and loaded.pending[0][0] <= high_watermark:
                _, replies, sends = loaded.pending.popleft()
                for reply in replies:
                    loaded.asked.pop(reply.token, None)
                self.replies += replies
                self.sends += sends
            if not loaded.pending:
                self._pending.discard(number)

    def _refuse(self, token: Token, request: Any, error: Error) -> None:
        self.replies.append(Reply(token, self._refusal(request, error)))

    def _replica(self, number: int) -> Replica:
        return self._replicas[TopicPartition(self.topic, number)]


def partition_for(key: str, partitions: int) -> int:
    """Which partition of an internal topic is responsible for a group or a transactional id: Java's
    hash of the text, so that every broker and every tool agrees."""
    units = key.encode("utf-16-be", "surrogatepass")
    code = 0
    for at in range(0, len(units), 2):
        code = (31 * code + (units[at] << 8) + units[at + 1]) & 0xFFFFFFFF
    signed = code - (1 << 32) if code >= 1 << 31 else code
    return (0 if signed == -(1 << 31) else abs(signed)) % partitions


def _leads(replica: Replica, leader_epoch: int) -> bool:
    return replica.role is Role.LEADER and replica.leader_epoch == leader_epoch
