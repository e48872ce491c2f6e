"""A consumer in a group: it joins, is given partitions, sends heartbeats, commits, and gives up.

    joining ── JoinGroup ──▶ syncing ── SyncGroup ──▶ member ── OffsetFetch ──▶ reads
       ▲                                                │
       ├── processed and committed ◀── revoking ◀───────┤ the group rebalances
       └── at once, and nothing is committed ◀──────────┘ it is not in the group any more

The protocol is the classic one, and eager: whoever joins again has given up everything. Who leads
the group shares out the partitions.

Revoked is not lost. What is revoked is finished and committed first; what was lost is somebody
else's already, and a commit for it is refused (C13). A record that is in process when its partition
is lost is processed all the same: nobody can stop the application in the middle.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from typing import Any

from lossless.core.encoding import Writer
from lossless.core.groups.messages import (
    NO_GENERATION,
    NO_MEMBER_ID,
    NO_OFFSET,
    Heartbeat,
    JoinGroup,
    JoinGroupAnswer,
    OffsetCommit,
    OffsetCommitAnswer,
    OffsetFetch,
    OffsetFetchAnswer,
    OffsetToCommit,
    SyncGroup,
    SyncGroupAnswer,
)
from lossless.core.machine import Effects, Send
from lossless.core.messages import OFFSETS_TOPIC, Error, Metadata, TopicPartition
from lossless.simulator.clients.consumer import NOTHING, Consumer, Near, Offset, Position
from lossless.simulator.clients.leaders import Leaders
from lossless.simulator.clients.question import Question
from lossless.simulator.settings import (
    HEARTBEAT_MS,
    REBALANCE_MS,
    REQUEST_TIMEOUT_MS,
    SESSION_MS,
    ConsumerSettings,
)
from lossless.verifier.history import Committed, Event

PROTOCOL = "range"


class State(enum.Enum):
    JOINING = "joining"
    SYNCING = "syncing"
    MEMBER = "member"
    REVOKING = "revoking"


class Member(Consumer):
    def __init__(
        self,
        name: str,
        group: str,
        settings: ConsumerSettings,
        partitions: tuple[TopicPartition, ...],
        leaders: Leaders,
        coordinators: Leaders,
        *,
        near: Near = lambda _partition, leader: leader,
        tell: Callable[[Event], None],
        knows_epochs: bool = True,
    ) -> None:
        super().__init__(
            name,
            group,
            settings,
            (),
            leaders,
            offsets={},
            near=near,
            tell=tell,
            knows_epochs=knows_epochs,
        )
        self.state = State.JOINING
        self._subscribed = partitions
        self._coordinators = coordinators
        self._membership = Question(coordinators, OFFSETS_TOPIC, group)
        self._beginning = Question(coordinators, OFFSETS_TOPIC, group)
        self._commits = Question(coordinators, OFFSETS_TOPIC, group)
        self._member_id = NO_MEMBER_ID
        self._generation = NO_GENERATION
        self._beat_ms = 0
        self._to_commit: dict[TopicPartition, Offset] = {}
        self._committing: dict[TopicPartition, Offset] = {}

    @property
    def is_calm(self) -> bool:
        """It has what it was given, and nothing is under way but heartbeats."""
        is_begun = self.state is State.MEMBER and self._beginning.is_idle
        return is_begun and not self._to_commit and self._commits.is_idle

    @property
    def is_reading(self) -> bool:
        return not self.is_stopped and self.state is State.MEMBER

    # Events

    def on_start(self, now_ms: int) -> Effects:
        if self.settings.commit == "auto":
            self._commit_ms = now_ms + self.settings.auto_commit_ms
        self._join()
        return self._after(now_ms)

    def on_answer(self, source: int, request: Any, answer: Any, now_ms: int) -> Effects:
        if isinstance(request, Metadata) and OFFSETS_TOPIC in request.topics:
            self._coordinators.on_answer(answer, now_ms)
        elif self._membership.is_about(request):
            self._on_membership(request, answer, now_ms)
        elif self._beginning.is_about(request):
            self._on_offsets(answer, now_ms)
        elif self._commits.is_about(request):
            self._on_committed(answer, now_ms)
        else:
            return super().on_answer(source, request, answer, now_ms)
        return self._after(now_ms)

    def _on_group(self, sends: list[Send], wakes: list[int], now_ms: int) -> None:
        if self.is_stopped:
            return
        if self.state is State.REVOKING:
            self._maybe_give_up(now_ms)
        if self.state in (State.MEMBER, State.REVOKING) and self._membership.is_idle:
            if now_ms >= self._beat_ms:
                beat = Heartbeat(self.group, self._generation, self._member_id)
                self._membership.ask(beat)
            else:
                wakes.append(self._beat_ms)
        if self._to_commit and self._commits.is_idle:
            self._committing, self._to_commit = self._to_commit, {}
            self._commits.ask(
                OffsetCommit(
                    self.group,
                    tuple(
                        OffsetToCommit(partition, offset, epoch)
                        for partition, (offset, epoch) in self._committing.items()
                    ),
                    self._generation,
                    self._member_id,
                )
            )
        for question in (self._membership, self._beginning, self._commits):
            sends += question.sends(now_ms)
            wakes += question.wakes(now_ms)
        sends += self._coordinators.question(now_ms)
        if self._coordinators.wake_ms is not None:
            wakes.append(self._coordinators.wake_ms)

    # Joining

    def _join(self) -> None:
        self.state = State.JOINING
        subscription = Writer(flexible=False)
        subscription.int16(0)
        topics = sorted({partition.topic for partition in self._subscribed})
        subscription.count(len(topics))
        for topic in topics:
            subscription.string(topic)
        subscription.blob(b"")
        join = JoinGroup(
            self.group,
            self._member_id,
            SESSION_MS,
            REBALANCE_MS,
            "consumer",
            ((PROTOCOL, bytes(subscription.data)),),
            client_id=self.name,
        )
        self._membership.ask(join, REBALANCE_MS + REQUEST_TIMEOUT_MS)

    def _on_membership(self, request: Any, answer: Any, now_ms: int) -> None:
        error = Error.NONE if answer is None else answer.error
        if not self._membership.settles(answer, error, now_ms):
            return
        self._beat_ms = now_ms + HEARTBEAT_MS
        if error is Error.MEMBER_ID_REQUIRED:
            self._member_id = answer.member_id
            self._join()
        elif error is Error.REBALANCE_IN_PROGRESS:
            if self.state is State.MEMBER:
                self._revoke()
            elif self.state is State.SYNCING:
                self._join()
        elif error is not Error.NONE:
            self._lose(error)
        elif isinstance(answer, JoinGroupAnswer):
            self._on_joined(answer)
        elif isinstance(answer, SyncGroupAnswer):
            self._on_synced(answer)

    def _on_joined(self, answer: JoinGroupAnswer) -> None:
        self.state = State.SYNCING
        self._member_id, self._generation = answer.member_id, answer.generation_id
        assignments: tuple[tuple[str, bytes], ...] = ()
        if answer.leader == answer.member_id:
            members = sorted(member.member_id for member in answer.members)
            assignments = tuple(
                (member, _encoded(self._subscribed[at :: len(members)]))
                for at, member in enumerate(members)
            )
        sync = SyncGroup(self.group, self._generation, self._member_id, assignments=assignments)
        self._membership.ask(sync, REBALANCE_MS + REQUEST_TIMEOUT_MS)

    def _on_synced(self, answer: SyncGroupAnswer) -> None:
        self.state = State.MEMBER
        assigned = set(decoded_assignment(answer.assignment))
        partitions = tuple(one for one in self._subscribed if one.partition in assigned)
        if partitions:
            self._look_up(partitions)

    def _look_up(self, partitions: tuple[TopicPartition, ...]) -> None:
        """A reader of committed records waits for transactions that may move its group."""
        stable = self.reads_committed
        self._beginning.ask(OffsetFetch(self.group, partitions, require_stable=stable))

    def _on_offsets(self, answer: OffsetFetchAnswer | None, now_ms: int) -> None:
        errors = [] if answer is None else [answer.error, *(one.error for one in answer.partitions)]
        error = next((one for one in errors if one is not Error.NONE), None)
        if not self._beginning.settles(answer, error, now_ms) or answer is None:
            return
        for fetched in answer.partitions:
            position = self.positions[fetched.partition] = Position()
            if fetched.offset == NO_OFFSET:
                self._needs_reset(position, "nothing is committed")
            else:
                self._seek(fetched.partition, fetched.offset, "assigned", now_ms)
                position.last_epoch = fetched.leader_epoch
                committed = Offset(fetched.offset, fetched.leader_epoch)
                position.committed = position.delivered = position.polled = committed

    # Leaving

    def _revoke(self) -> None:
        """The group rebalances: what was delivered is finished, and nothing more is read."""
        self.state = State.REVOKING
        self._beginning.drop()

    def _maybe_give_up(self, now_ms: int) -> None:
        """Handed to a thread, records are not waited for: the client knows nothing of them."""
        if self._to_process and not self.settings.hand_off:
            return
        if self.settings.commit == "auto":
            for partition, position in self.positions.items():
                self._commit(partition, position.delivered, now_ms)
        if not self._to_commit and self._commits.is_idle:
            self.positions.clear()
            self._join()

    def _lose(self, error: Error) -> None:
        """Somebody else has what this member had, or will have it."""
        if error is Error.UNKNOWN_MEMBER_ID:
            self._member_id = NO_MEMBER_ID
        self._generation = NO_GENERATION
        self.positions.clear()
        self._to_commit.clear()
        self._commits.drop()
        self._beginning.drop()
        self._join()

    # Committing

    def _commit(self, partition: TopicPartition, offset: Offset, now_ms: int) -> None:
        if offset == NOTHING or self.positions[partition].committed == offset:
            return
        self.positions[partition].committed = offset
        self._to_commit[partition] = offset

    def _on_committed(self, answer: OffsetCommitAnswer | None, now_ms: int) -> None:
        errors = [] if answer is None else [one.error for one in answer.partitions]
        error = next((one for one in errors if one is not Error.NONE), Error.NONE)
        if not self._commits.settles(answer, error, now_ms):
            return
        if error is Error.NONE:
            for partition, offset in self._committing.items():
                self._tell(Committed(now_ms, self.group, partition, offset.offset))
        elif error is not Error.REBALANCE_IN_PROGRESS:
            self._lose(error)


def _encoded(partitions: tuple[TopicPartition, ...]) -> bytes:
    return ",".join(str(one.partition) for one in partitions).encode()


def decoded_assignment(data: bytes) -> list[int]:
    """What members of these groups say to each other."""
    return [int(number) for number in data.decode().split(",") if number]
