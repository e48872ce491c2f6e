"""The group coordinator of one partition of `__consumer_offsets`: every group that hashes to it.

    classic      JoinGroup, SyncGroup, Heartbeat, LeaveGroup
    consumer     ConsumerGroupHeartbeat, ConsumerGroupDescribe
    offsets      OffsetCommit, TxnOffsetCommit, OffsetFetch, OffsetDelete
    here         ListGroups, DescribeGroup, DeleteGroup

A group id belongs to one protocol at a time. A group that is empty changes to the other when a
member of the other joins; its offsets stay. A group with members does not: the newcomer is refused.

Left out: changing the protocol of a group with members (KIP-848's online migration), share groups,
streams groups.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from lossless.core.coordinator import Outcome, Shard
from lossless.core.groups.classic import ClassicProtocol
from lossless.core.groups.classic_group import (
    CONSUMER_PROTOCOL_TYPE,
    ClassicGroup,
    ClassicMember,
    ClassicState,
)
from lossless.core.groups.config import GroupConfig, TopicView
from lossless.core.groups.consumer import ConsumerProtocol
from lossless.core.groups.consumer_group import ConsumerGroup
from lossless.core.groups.messages import (
    ConsumerGroupDescribe,
    ConsumerGroupDescribeAnswer,
    ConsumerGroupHeartbeat,
    ConsumerGroupHeartbeatAnswer,
    DeleteGroup,
    DeleteGroupAnswer,
    DescribedMember,
    DescribeGroup,
    DescribeGroupAnswer,
    Heartbeat,
    HeartbeatAnswer,
    JoinGroup,
    JoinGroupAnswer,
    LeaveGroup,
    LeaveGroupAnswer,
    ListedGroup,
    ListGroups,
    ListGroupsAnswer,
    OffsetCommit,
    OffsetDelete,
    OffsetDeleteAnswer,
    OffsetFetch,
    OffsetFetchAnswer,
    Request,
    SyncGroup,
    SyncGroupAnswer,
    TopicsDeleted,
    TopicsDeletedAnswer,
    TxnOffsetCommit,
)
from lossless.core.groups.offsets import Commits, refused
from lossless.core.groups.records import decode_key, decode_value
from lossless.core.groups.step import Step
from lossless.core.groups.store import GroupStore
from lossless.core.groups.timers import Kind, Timer, Timers
from lossless.core.machine import Token
from lossless.core.messages import Error, Producer
from lossless.log.batch import Record

NOT_FOUND_VERSION = 6  # of DescribeGroups: from here on a group that does not exist is an error
_ALIVE = (ClassicState.STABLE, ClassicState.PREPARING_REBALANCE)


class GroupShard(Shard):
    def __init__(
        self,
        partition: int,
        *,
        config: GroupConfig,
        draw: Callable[[int], int],
        topics: Callable[[], Mapping[str, TopicView]],
    ) -> None:
        self.partition = partition
        self._config = config
        self._timers = Timers()
        self._store = GroupStore()
        self._classic = ClassicProtocol(self._store, self._timers, config, draw)
        self._consumer = ConsumerProtocol(self._store, self._timers, config, draw, topics)
        self._commits = Commits(self._store, config)

    @property
    def wake_ms(self) -> int | None:
        return self._timers.wake_ms

    def durable(self) -> Any:
        """What a coordinator that reads the log would know, too."""
        return self._store.durable()

    # What the log says

    def apply(self, record: Record, producer: Producer | None) -> None:
        key = None if record.key is None else decode_key(record.key)
        if key is None:
            return
        value = None if record.value is None else decode_value(key, record.value)
        if value is None and record.value is not None:
            return
        self._store.apply(record.offset, key, value, producer)

    def apply_marker(self, producer: Producer, committed: bool) -> None:
        self._store.offsets.end_transaction(producer, committed)

    # What happens

    def on_loaded(self, now_ms: int) -> Outcome:
        step = Step(now_ms)
        self._classic.on_loaded(step)
        self._consumer.on_loaded(now_ms)
        self._check_retention_later(now_ms)
        return step.outcome()

    def on_request(self, token: Token, request: Request, now_ms: int) -> Outcome:
        step = Step(now_ms)
        match request:
            case JoinGroup():
                self._classic.on_join(token, request, step)
            case SyncGroup():
                self._classic.on_sync(token, request, step)
            case Heartbeat():
                self._classic.on_heartbeat(token, request, step)
            case LeaveGroup():
                self._classic.on_leave(token, request, step)
            case ConsumerGroupHeartbeat():
                self._consumer.on_heartbeat(token, request, step)
            case ConsumerGroupDescribe():
                self._consumer.on_describe(token, request, step)
            case OffsetCommit():
                self._on_commit(token, request, step)
            case TxnOffsetCommit():
                self._commits.on_txn_commit(token, request, step)
            case OffsetFetch():
                self._commits.on_fetch(token, request, step)
            case OffsetDelete():
                self._commits.on_delete(token, request, step)
            case TopicsDeleted():
                self._commits.on_topics_deleted(request.topics, step)
                step.answer(token, TopicsDeletedAnswer(Error.NONE))
            case ListGroups():
                step.answer(token, self._listed(request))
            case DescribeGroup():
                step.answer(token, self._described(request))
            case _:
                step.answer(token, self._deleted(request, step))
        return step.outcome()

    def on_answer(self, source: int, request: Any, answer: Any, now_ms: int) -> Outcome:  # noqa: ARG002
        return Outcome()  # a group coordinator asks nobody

    def on_timer(self, now_ms: int) -> Outcome:
        step = Step(now_ms)
        silent: dict[str, list[str]] = {}  # members of consumer groups, by group
        unrevoked: dict[str, list[str]] = {}
        for timer in self._timers.take_due(now_ms):
            match timer.kind:
                case Kind.SESSION if timer.group_id in self._store.classic:
                    group = self._store.classic[timer.group_id]
                    self._classic.on_session_timeout(group, timer.member_id, step)
                case Kind.SESSION:
                    silent.setdefault(timer.group_id, []).append(timer.member_id)
                case Kind.REVOKE:
                    unrevoked.setdefault(timer.group_id, []).append(timer.member_id)
                case Kind.JOIN:
                    self._classic.on_join_timeout(timer.group_id, step)
                case Kind.SYNC:
                    self._classic.on_sync_timeout(timer.group_id, step)
                case _:
                    self._commits.expire(step)
                    self._check_retention_later(now_ms)
        # A consumer group changes when its records are applied, after this: so it is looked at
        # once, whatever happened to how many of its members.
        for group_id in dict.fromkeys([*silent, *unrevoked]):
            consumer_group = self._store.consumer.get(group_id)
            if consumer_group is not None:
                late = unrevoked.get(group_id, [])
                self._consumer.on_timeouts(consumer_group, silent.get(group_id, []), late, step)
        return step.outcome()

    def _check_retention_later(self, now_ms: int) -> None:
        interval_ms = self._config.offsets_retention_check_interval_ms
        self._timers.set(Timer(Kind.RETENTION), now_ms + interval_ms)

    def _on_commit(self, token: Token, request: OffsetCommit, step: Step) -> None:
        error = self._commits.on_commit(token, request, step)
        group = self._store.classic.get(request.group_id)
        if error is not Error.NONE or group is None or group.state not in _ALIVE:
            return
        if request.member_id in group.members:  # else a rule is off
            # A member that commits is alive.
            self._classic.keep_alive(group, request.member_id, step.now_ms)

    # Administrators

    def _listed(self, request: ListGroups) -> ListGroupsAnswer:
        states = {state.strip().lower() for state in request.states}
        types = {type_.strip().lower() for type_ in request.types}
        groups = [_listed(group) for group in self._store.all()]
        return ListGroupsAnswer(
            Error.NONE,
            tuple(
                group
                for group in groups
                if (not states or group.state.lower() in states)
                and (not types or group.type in types)
            ),
        )

    def _described(self, request: DescribeGroup) -> DescribeGroupAnswer:
        group = self._store.classic.get(request.group_id)
        if group is None:
            dead = ClassicState.DEAD.value
            if request.api_version < NOT_FOUND_VERSION:
                return DescribeGroupAnswer(Error.NONE, request.group_id, state=dead)
            message = f"Group {request.group_id} is not a classic group."
            error = Error.GROUP_ID_NOT_FOUND
            return DescribeGroupAnswer(error, request.group_id, message, dead)
        is_stable = group.state is ClassicState.STABLE
        # In between, what members say to each other may be of two protocols.
        protocol = (group.protocol_name or "") if is_stable else ""
        return DescribeGroupAnswer(
            Error.NONE,
            group.group_id,
            None,
            group.state.value,
            group.protocol_type or "",
            protocol,
            tuple(_described(member, protocol) for member in group.members.values()),
        )

    def _deleted(self, request: DeleteGroup, step: Step) -> DeleteGroupAnswer:
        group = self._store.get(request.group_id)
        if group is None:
            return DeleteGroupAnswer(Error.GROUP_ID_NOT_FOUND, request.group_id)
        if not group.is_empty:
            return DeleteGroupAnswer(Error.NON_EMPTY_GROUP, request.group_id)
        self._commits.forget_all(group.group_id, step)
        for key in group.record_keys():
            step.write(key, None)
        return DeleteGroupAnswer(Error.NONE, request.group_id)


def refusal(request: Request, error: Error) -> Any:
    """The answer to a request that no shard can deal with now."""
    match request:
        case JoinGroup():
            return JoinGroupAnswer(error, request.member_id)
        case SyncGroup():
            return SyncGroupAnswer(error)
        case Heartbeat():
            return HeartbeatAnswer(error)
        case LeaveGroup():
            return LeaveGroupAnswer(error)
        case ConsumerGroupHeartbeat():
            return ConsumerGroupHeartbeatAnswer(error)
        case ConsumerGroupDescribe():
            return ConsumerGroupDescribeAnswer(error, request.group_id)
        case OffsetCommit() | TxnOffsetCommit():
            return refused(request.offsets, error)
        case OffsetFetch():
            return OffsetFetchAnswer(error, request.group_id)
        case OffsetDelete():
            return OffsetDeleteAnswer(error)
        case TopicsDeleted():
            return TopicsDeletedAnswer(error)
        case ListGroups():
            return ListGroupsAnswer(error)
        case DescribeGroup():
            return DescribeGroupAnswer(error, request.group_id)
        case _:
            return DeleteGroupAnswer(error, request.group_id)


def _listed(group: ClassicGroup | ConsumerGroup) -> ListedGroup:
    if isinstance(group, ConsumerGroup):
        return ListedGroup(group.group_id, CONSUMER_PROTOCOL_TYPE, group.state.value, "consumer")
    return ListedGroup(group.group_id, group.protocol_type or "", group.state.value, "classic")


def _described(member: ClassicMember, protocol: str) -> DescribedMember:
    return DescribedMember(
        member.member_id,
        member.group_instance_id,
        member.client_id,
        member.client_host,
        member.metadata(protocol) if protocol else b"",
        member.assignment,
    )
