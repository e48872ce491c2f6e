"""A host for one group coordinator: its records are committed at once, and a twin reads them.

After every event the twin, which knows the log and nothing else, must know what the shard knows.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from functools import partial
from itertools import count
from typing import Any

from lossless.core.coordinator import Outcome
from lossless.core.groups.config import GroupConfig, TopicView
from lossless.core.groups.messages import (
    ConsumerGroupHeartbeat,
    ConsumerGroupHeartbeatAnswer,
    Heartbeat,
    HeartbeatAnswer,
    JoinGroup,
    JoinGroupAnswer,
    LeaveGroup,
    LeaveGroupAnswer,
    ListGroups,
    MemberIdentity,
    OffsetCommit,
    OffsetCommitAnswer,
    OffsetFetch,
    OffsetFetchAnswer,
    OffsetToCommit,
    SyncGroup,
    SyncGroupAnswer,
    TopicPartitions,
)
from lossless.core.groups.records import Key, Value, decode_key, decode_value, encoded
from lossless.core.groups.shard import GroupShard
from lossless.core.messages import Error, Producer, TopicPartition
from lossless.log.batch import Record

GROUP = "billing"
ORDERS = TopicView(0xA1, 3)
PAYMENTS = TopicView(0xB2, 2)
ORDERS_0 = TopicPartition("orders", 0)
ORDERS_1 = TopicPartition("orders", 1)
PAYMENTS_0 = TopicPartition("payments", 0)
SESSION_MS = 10_000
REBALANCE_MS = 60_000
START_MS = 1_000_000
# Nothing to wait for, unless a test is about waiting.
PROMPT = GroupConfig(initial_rebalance_delay_ms=0)


class Host:
    def __init__(self, config: GroupConfig = PROMPT) -> None:
        self.config = config
        self.now_ms = START_MS
        self.topics: dict[str, TopicView] = {"orders": ORDERS, "payments": PAYMENTS}
        self.log: list[tuple[Record, Producer | None]] = []
        self._history: list[Callable[[GroupShard], None]] = []  # the log, with its markers
        self.answers: dict[int, Any] = {}
        self.waiting: dict[int, Any] = {}  # requests without an answer
        self._drawn = count(1)
        self._tokens = count(1)
        self.shard = self._made()
        self.twin = self._made()
        self._act(self.shard.on_loaded(self.now_ms))

    def _made(self) -> GroupShard:
        return GroupShard(
            0,
            config=self.config,
            draw=lambda below: next(self._drawn) % below,
            topics=lambda: self.topics,
        )

    # What happens

    def send(self, request: Any) -> int:
        """The token of a request, which may have to wait for its answer."""
        token = next(self._tokens)
        self.waiting[token] = request
        self._act(self.shard.on_request(token, request, self.now_ms))
        return token

    def ask(self, request: Any) -> Any:
        token = self.send(request)
        assert token in self.answers, f"no answer yet to {request}"
        return self.answers[token]

    def answer(self, token: int) -> Any:
        """None: it has to wait."""
        return self.answers.get(token)

    def pass_ms(self, duration_ms: int) -> None:
        until_ms = self.now_ms + duration_ms
        while (wake_ms := self.shard.wake_ms) is not None and wake_ms <= until_ms:
            self.now_ms = max(self.now_ms, wake_ms)
            self._act(self.shard.on_timer(self.now_ms))
        self.now_ms = until_ms

    def end_transaction(self, producer: Producer, *, committed: bool) -> None:
        self._apply(lambda shard: shard.apply_marker(producer, committed))
        self._compare()

    def write(self, key: Key, value: Value | None, producer: Producer | None = None) -> None:
        """What another broker wrote, once."""
        self._append((encoded(key, value),), producer)

    def fail_over(self, config: GroupConfig | None = None) -> None:
        """Another broker coordinates, with what the log says. Who waited is told to ask it."""
        self.waiting.clear()
        self.config = config or self.config
        self.shard = self._made()
        for apply in self._history:
            apply(self.shard)
        self._act(self.shard.on_loaded(self.now_ms))

    def _act(self, outcome: Outcome) -> None:
        self._append(outcome.records, outcome.producer)
        for token, answer in outcome.reply:
            assert token not in self.answers, "answered twice"
            self.answers[token] = answer
            self.waiting.pop(token, None)
        self._compare()

    def _append(
        self, records: tuple[tuple[bytes, bytes | None], ...], producer: Producer | None
    ) -> None:
        for key, value in records:
            record = Record(len(self.log), self.now_ms, key, value)
            self.log.append((record, producer))
            self._apply(partial(_apply, record, producer))

    def _apply(self, apply: Callable[[GroupShard], None]) -> None:
        self._history.append(apply)
        apply(self.shard)
        apply(self.twin)

    def _compare(self) -> None:
        assert self.shard.durable() == self.twin.durable(), "a failover would forget something"

    def written(self, since: int = 0) -> list[tuple[Key | None, Value | None]]:
        """The records from there on, as they were meant."""
        found: list[tuple[Key | None, Value | None]] = []
        for record, _ in self.log[since:]:
            assert record.key is not None
            key = decode_key(record.key)
            is_kept = key is not None and record.value is not None
            found.append((key, decode_value(key, record.value) if is_kept else None))  # type: ignore[arg-type]
        return found

    # What clients do

    def join(self, member_id: str = "", **said: Any) -> int:
        return self.send(joining(member_id, **said))

    def member(self, **said: Any) -> str:
        """The id of a member whose join waits, or was answered."""
        told: JoinGroupAnswer = self.ask(joining(**said))
        assert told.error is Error.MEMBER_ID_REQUIRED
        self.join(told.member_id, **said)
        return told.member_id

    def sync(self, member_id: str, generation: int = 1, **said: Any) -> int:
        assignments = tuple(said.pop("assignments", {}).items())
        return self.send(SyncGroup(GROUP, generation, member_id, assignments=assignments, **said))

    def stable(self, *names: str, **said: Any) -> list[str]:
        """A group whose first member leads, and has assigned; the ids of its members."""
        members = [self.member(client_id=name, **said) for name in names or ("a",)]
        self.pass_ms(self.config.initial_rebalance_delay_ms)
        given = {member: f"to {member}".encode() for member in members}
        for member in members[::-1]:
            self.sync(member, assignments=given if member == members[0] else {})
        return members

    def beat(self, member_id: str, generation: int = 1, instance: str | None = None) -> Error:
        answer: HeartbeatAnswer = self.ask(Heartbeat(GROUP, generation, member_id, instance))
        return answer.error

    def leave(self, *members: str, instance: str | None = None) -> LeaveGroupAnswer:
        who = tuple(MemberIdentity(member, instance) for member in members)
        answer: LeaveGroupAnswer = self.ask(LeaveGroup(GROUP, who))
        return answer

    def commit(self, partition: TopicPartition = ORDERS_0, offset: int = 5, **said: Any) -> Error:
        said.setdefault("group_id", GROUP)
        metadata = said.pop("metadata", "")
        leader_epoch = said.pop("leader_epoch", -1)
        offsets = (OffsetToCommit(partition, offset, leader_epoch, metadata),)
        answer: OffsetCommitAnswer = self.ask(OffsetCommit(offsets=offsets, **said))
        ((_, error),) = answer.partitions
        return error

    def fetched(self, partition: TopicPartition = ORDERS_0, **said: Any) -> int | Error:
        """The committed offset, or why there is none to be told."""
        said.setdefault("group_id", GROUP)
        answer: OffsetFetchAnswer = self.ask(OffsetFetch(partitions=(partition,), **said))
        if answer.error is not Error.NONE:
            return answer.error
        (found,) = answer.partitions
        return found.offset if found.error is Error.NONE else found.error

    def state(self, group_id: str = GROUP) -> str | None:
        return next((group.state for group in self.groups() if group.group_id == group_id), None)

    def groups(self) -> Any:
        return self.ask(ListGroups()).groups

    def joined(self, token: int) -> JoinGroupAnswer:
        answer: JoinGroupAnswer = self.answers[token]
        assert answer.error is Error.NONE
        return answer

    def synced(self, token: int) -> SyncGroupAnswer:
        answer: SyncGroupAnswer = self.answers[token]
        return answer

    # Members of consumer groups

    def consume(self, member_id: str, epoch: int = 0, **said: Any) -> ConsumerGroupHeartbeatAnswer:
        answer: ConsumerGroupHeartbeatAnswer = self.ask(consuming(member_id, epoch, **said))
        return answer


def _apply(record: Record, producer: Producer | None, shard: GroupShard) -> None:
    shard.apply(record, producer)


def joining(member_id: str = "", **said: Any) -> JoinGroup:
    return JoinGroup(
        **{
            "group_id": GROUP,
            "member_id": member_id,
            "session_timeout_ms": SESSION_MS,
            "rebalance_timeout_ms": REBALANCE_MS,
            "protocol_type": "consumer",
            "protocols": (("range", subscription("orders")),),
            "client_id": "app",
            "client_host": "/10.0.0.1",
            **said,
        }
    )


def consuming(member_id: str, epoch: int = 0, **said: Any) -> ConsumerGroupHeartbeat:
    if epoch == 0:
        said = {
            "rebalance_timeout_ms": REBALANCE_MS,
            "subscribed_topic_names": ("orders",),
            "topic_partitions": (),
            **said,
        }
    said.setdefault("group_id", GROUP)
    return ConsumerGroupHeartbeat(member_id=member_id, member_epoch=epoch, **said)


def subscription(*topics: str) -> bytes:
    """What a consumer says with its protocol: version 0, topics, and nothing of its own."""
    names = b"".join(struct.pack(">h", len(topic)) + topic.encode() for topic in topics)
    return struct.pack(">hi", 0, len(topics)) + names + struct.pack(">i", -1)


def orders(*partitions: int) -> tuple[TopicPartitions, ...]:
    return (TopicPartitions(ORDERS.id, partitions),) if partitions else ()


def payments(*partitions: int) -> tuple[TopicPartitions, ...]:
    return (TopicPartitions(PAYMENTS.id, partitions),) if partitions else ()
