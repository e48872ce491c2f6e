"""The consumer group protocol (KIP-848): ConsumerGroupHeartbeat and ConsumerGroupDescribe.

A member says in its heartbeats what it subscribes to and what it has; the coordinator answers what
it may have. There is no barrier: members come and go, and each moves towards the target at its own
pace.

Rules learnt
- An answer may be lost. A member that comes with its previous epoch, and has nothing that it was
  not given, is taken for the one that it is.
- A static member that leaves for a while keeps its partitions until its session is over. Until it
  has left, nobody else gets its instance id.
- A member that does not give up partitions in time is thrown out: others wait for them.
- Whether the topics have changed is asked with every heartbeat. Kafka waits for word from its
  metadata instead, and finds the topics of regular expressions in the background.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple
from uuid import UUID

from lossless.core.groups.assignors import ASSIGNORS, Subscriber
from lossless.core.groups.config import GroupConfig, TopicView
from lossless.core.groups.consumer_group import (
    ConsumerGroup,
    ConsumerMember,
    Regexes,
    metadata_hash,
    preferred_assignor,
    topics_of,
)
from lossless.core.groups.expressions import is_valid, matches
from lossless.core.groups.messages import (
    LEAVE_EPOCH,
    LEAVE_STATIC_EPOCH,
    ConsumerGroupDescribe,
    ConsumerGroupDescribeAnswer,
    ConsumerGroupHeartbeat,
    ConsumerGroupHeartbeatAnswer,
    DescribedConsumer,
    TopicPartitions,
)
from lossless.core.groups.reconciliation import reconciled
from lossless.core.groups.records import (
    NO_PARTITIONS,
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMetadataKey,
    ConsumerGroupMetadataValue,
    ConsumerGroupRegularExpressionKey,
    ConsumerGroupRegularExpressionValue,
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupTargetAssignmentMemberValue,
    ConsumerGroupTargetAssignmentMetadataKey,
    ConsumerGroupTargetAssignmentMetadataValue,
    GroupMetadataKey,
    MemberState,
    Partitions,
    by_topic,
)
from lossless.core.groups.step import Step
from lossless.core.groups.store import GroupStore
from lossless.core.groups.timers import Kind, Timer, Timers
from lossless.core.machine import Token
from lossless.core.messages import Error

OWN_MEMBER_ID_VERSION = 1  # of ConsumerGroupHeartbeat: from here on members choose their ids
NO_REBALANCE_TIMEOUT = -1


class Refusal(NamedTuple):
    error: Error
    message: str


class Found(NamedTuple):
    """Who sent a heartbeat."""

    member: ConsumerMember
    replaces: ConsumerMember | None = None  # a static member that had left


class ConsumerProtocol:
    def __init__(
        self,
        store: GroupStore,
        timers: Timers,
        config: GroupConfig,
        draw: Callable[[int], int],
        topics: Callable[[], Mapping[str, TopicView]],
    ) -> None:
        self._store = store
        self._timers = timers
        self._config = config
        self._draw = draw
        self._topics = topics

    def on_loaded(self, now_ms: int) -> None:
        for group in self._store.consumer.values():
            for member in group.members.values():
                self._expect_heartbeat(group, member, now_ms)
                if member.state is MemberState.UNREVOKED_PARTITIONS:
                    self._expect_revocation(group, member, now_ms)

    # Heartbeats

    def on_heartbeat(self, token: Token, request: ConsumerGroupHeartbeat, step: Step) -> None:
        refusal = self._check_request(request)
        if refusal is None:
            is_leaving = request.member_epoch in (LEAVE_EPOCH, LEAVE_STATIC_EPOCH)
            decide = self._leave if is_leaving else self._stay
            decided = decide(request, step)
        else:
            decided = refusal
        if isinstance(decided, Refusal):
            decided = ConsumerGroupHeartbeatAnswer(decided.error, decided.message)
        step.answer(token, decided)

    def _check_request(self, request: ConsumerGroupHeartbeat) -> Refusal | None:
        epoch = request.member_epoch
        needs_id = request.api_version >= OWN_MEMBER_ID_VERSION or epoch > 0 or epoch == LEAVE_EPOCH
        message = ""
        if needs_id and not request.member_id:
            message = "MemberId can't be empty."
        elif not request.group_id:
            message = "GroupId can't be empty."
        elif request.instance_id == "":
            message = "InstanceId can't be empty."
        elif request.rack_id == "":
            message = "RackId can't be empty."
        elif epoch == 0:
            message = _check_join(request)
        elif epoch == LEAVE_STATIC_EPOCH and request.instance_id is None:
            message = "InstanceId can't be null."
        elif epoch < LEAVE_STATIC_EPOCH:
            message = "MemberEpoch is invalid."
        if message:
            return Refusal(Error.INVALID_REQUEST, message)
        assignors = self._config.consumer_assignors
        if request.server_assignor is not None and request.server_assignor not in assignors:
            known = ", ".join(assignors)
            return Refusal(
                Error.UNSUPPORTED_ASSIGNOR,
                f"ServerAssignor {request.server_assignor} is not supported. It can be: {known}.",
            )
        if request.subscribed_topic_regex and not is_valid(request.subscribed_topic_regex):
            return Refusal(
                Error.INVALID_REGULAR_EXPRESSION,
                f"SubscribedTopicRegex {request.subscribed_topic_regex} is not valid.",
            )
        return None

    def _stay(
        self, request: ConsumerGroupHeartbeat, step: Step
    ) -> ConsumerGroupHeartbeatAnswer | Refusal:
        group = self._group(request)
        if isinstance(group, Refusal):
            return group
        if len(group.members) >= self._config.consumer_max_size and (
            request.member_id not in group.members
        ):
            return Refusal(Error.GROUP_MAX_SIZE_REACHED, f"Group {group.group_id} is full.")
        owned = _partitions(request.topic_partitions)
        found = self._find(group, request, owned)
        if isinstance(found, Refusal):
            return found
        member, replaced = found
        others = [
            one
            for one in group.members.values()
            if one.member_id != member.member_id and one is not replaced
        ]
        updated = _updated(member, request)

        regexes = self._resolved([*others, updated])
        group_epoch = group.group_epoch
        subscribed = _topics_of_all([*others, updated], regexes)
        hashed = metadata_hash(subscribed, self._topics())
        is_new = replaced is None and member.member_id not in group.members
        if is_new or _has_other_topics(member, updated) or hashed != group.metadata_hash:
            group_epoch += 1
        targets = group.targets
        if replaced is not None:
            targets = {**targets, member.member_id: targets.get(replaced.member_id, NO_PARTITIONS)}
        if group_epoch > group.assignment_epoch:
            targets = self._assigned([*others, updated], regexes, targets)
        target_epoch = max(group_epoch, group.assignment_epoch)

        taken = NO_PARTITIONS.union(*(one.assigned | one.pending_revocation for one in others))
        target = targets.get(member.member_id, NO_PARTITIONS)
        moved = reconciled(updated, target_epoch, target, owned, taken)
        if moved is None:
            return Refusal(
                Error.FENCED_MEMBER_EPOCH,
                "The member is in an unknown state. It must abandon its partitions and rejoin.",
            )

        # Everything has been decided: it is written down in the order in which it is to be read.
        if request.group_id in self._store.classic:
            step.write(GroupMetadataKey(group.group_id), None)
        if replaced is not None:
            self._write_removal(group, replaced.member_id, step)
            self._stop_timers(group, replaced.member_id)
        if replaced is not None or updated != member or is_new:
            key = ConsumerGroupMemberMetadataKey(group.group_id, member.member_id)
            step.write(key, updated.metadata())
        self._write_regexes(group, regexes, step)
        if group_epoch > group.group_epoch:
            self._write_epoch(group, group_epoch, hashed, step)
        for member_id, partitions in targets.items():
            is_back = replaced is not None and member_id == member.member_id
            if is_back or partitions != group.targets.get(member_id):
                target_key = ConsumerGroupTargetAssignmentMemberKey(group.group_id, member_id)
                step.write(target_key, ConsumerGroupTargetAssignmentMemberValue(partitions))
        if group_epoch > group.assignment_epoch:
            step.write(
                ConsumerGroupTargetAssignmentMetadataKey(group.group_id),
                ConsumerGroupTargetAssignmentMetadataValue(group_epoch),
            )
        if replaced is not None or moved != updated or is_new:
            self._write_current(group, moved, step)
            if moved.state is MemberState.UNREVOKED_PARTITIONS:
                self._expect_revocation(group, moved, step.now_ms)
            else:
                self._timers.cancel(Timer(Kind.REVOKE, group.group_id, moved.member_id))
        self._expect_heartbeat(group, moved, step.now_ms)

        is_told = _is_full(request) or moved.assigned != member.assigned
        return ConsumerGroupHeartbeatAnswer(
            Error.NONE,
            None,
            moved.member_id,
            moved.member_epoch,
            self._config.consumer_heartbeat_interval_ms,
            _topic_partitions(moved.assigned) if is_told else None,
        )

    def _group(self, request: ConsumerGroupHeartbeat) -> ConsumerGroup | Refusal:
        group = self._store.consumer.get(request.group_id)
        if group is not None:
            return group
        classic = self._store.classic.get(request.group_id)
        if classic is not None and not classic.is_empty:
            message = f"Group {request.group_id} is not a consumer group."
            return Refusal(Error.GROUP_ID_NOT_FOUND, message)
        if request.member_epoch != 0:
            message = f"Consumer group {request.group_id} not found."
            return Refusal(Error.GROUP_ID_NOT_FOUND, message)
        return ConsumerGroup(request.group_id)  # it exists once its records are applied

    def _find(
        self, group: ConsumerGroup, request: ConsumerGroupHeartbeat, owned: Partitions | None
    ) -> Found | Refusal:
        if request.instance_id is None:
            member = group.members.get(request.member_id)
            if member is None and request.member_epoch != 0:
                return _unknown(request)
            member = member or ConsumerMember(request.member_id or self._new_id())
            return _check_epoch(member, request.member_epoch, owned) or Found(member)
        static = group.static_member(request.instance_id)
        if request.member_epoch != 0:
            known = _check_instance(static, request)
            if isinstance(known, Refusal):
                return known
            return _check_epoch(known, request.member_epoch, owned) or Found(known)
        member_id = request.member_id or self._new_id()
        if static is None:
            return Found(group.members.get(member_id, ConsumerMember(member_id)))
        if static.member_epoch != LEAVE_STATIC_EPOCH:
            return Refusal(
                Error.UNRELEASED_INSTANCE_ID,
                f"Instance id {request.instance_id} is still used by member {static.member_id}.",
            )
        back = static._replace(member_id=member_id, member_epoch=0, previous_member_epoch=0)
        return Found(back, replaces=static)

    def _new_id(self) -> str:
        return str(UUID(int=self._draw(1 << 128), version=4))

    # Leaving

    def _leave(
        self, request: ConsumerGroupHeartbeat, step: Step
    ) -> ConsumerGroupHeartbeatAnswer | Refusal:
        group = self._store.consumer.get(request.group_id)
        if group is None:
            message = f"Consumer group {request.group_id} not found."
            return Refusal(Error.GROUP_ID_NOT_FOUND, message)
        if request.instance_id is None:
            member = group.members.get(request.member_id) or _unknown(request)
        else:
            member = _check_instance(group.static_member(request.instance_id), request)
        if isinstance(member, Refusal):
            return member
        if request.member_epoch == LEAVE_STATIC_EPOCH:
            leaving = member._replace(
                member_epoch=LEAVE_STATIC_EPOCH, pending_revocation=NO_PARTITIONS
            )
            self._write_current(group, leaving, step)
        else:
            self._remove(group, [member.member_id], step)
        return ConsumerGroupHeartbeatAnswer(
            Error.NONE, None, member.member_id, request.member_epoch
        )

    def on_timeouts(
        self, group: ConsumerGroup, silent: list[str], unrevoked: list[str], step: Step
    ) -> None:
        """Members that have not been heard of, and such that were to give up partitions by now."""
        late = [
            member_id
            for member_id in unrevoked
            if (member := group.members.get(member_id)) is not None
            and member.state is MemberState.UNREVOKED_PARTITIONS
            and member.member_epoch != LEAVE_STATIC_EPOCH
        ]
        gone = [member_id for member_id in silent if member_id in group.members]
        self._remove(group, list(dict.fromkeys(gone + late)), step)

    def _remove(self, group: ConsumerGroup, member_ids: list[str], step: Step) -> None:
        """The target is worked out anew with the next heartbeat of whoever is left."""
        if not member_ids:
            return
        for member_id in member_ids:
            self._write_removal(group, member_id, step)
            self._stop_timers(group, member_id)
        left = [one for one in group.members.values() if one.member_id not in member_ids]
        regexes = self._resolved(left)
        self._write_regexes(group, regexes, step)
        hashed = metadata_hash(_topics_of_all(left, regexes), self._topics())
        self._write_epoch(group, group.group_epoch + 1, hashed, step)

    # Working it out

    def _resolved(self, members: Iterable[ConsumerMember]) -> Regexes:
        """What the regular expressions of these members stand for now."""
        expressions = {one.subscribed_topic_regex for one in members if one.subscribed_topic_regex}
        names = self._topics()
        resolved = {}
        for expression in sorted(expressions):
            resolved[expression] = frozenset(name for name in names if matches(expression, name))
        return resolved

    def _assigned(
        self,
        members: list[ConsumerMember],
        regexes: Regexes,
        targets: Mapping[str, Partitions],
    ) -> dict[str, Partitions]:
        topics = self._topics()
        names = {one.member_id: topics_of(one, regexes) for one in members}
        partition_counts = {
            topics[name].id: topics[name].partitions
            for name in _topics_of_all(members, regexes)
            if name in topics
        }
        subscribers = [
            Subscriber(
                one.member_id,
                frozenset(topics[name].id for name in names[one.member_id] if name in topics),
                targets.get(one.member_id, NO_PARTITIONS),
                one.instance_id,
            )
            for one in members
        ]
        assignor = preferred_assignor(members, self._config.consumer_assignors[0])
        return ASSIGNORS[assignor](subscribers, partition_counts)

    # Writing it down

    def _write_removal(self, group: ConsumerGroup, member_id: str, step: Step) -> None:
        step.write(ConsumerGroupCurrentMemberAssignmentKey(group.group_id, member_id), None)
        step.write(ConsumerGroupTargetAssignmentMemberKey(group.group_id, member_id), None)
        step.write(ConsumerGroupMemberMetadataKey(group.group_id, member_id), None)

    def _write_current(self, group: ConsumerGroup, member: ConsumerMember, step: Step) -> None:
        key = ConsumerGroupCurrentMemberAssignmentKey(group.group_id, member.member_id)
        step.write(key, member.current_assignment())

    def _write_epoch(self, group: ConsumerGroup, epoch: int, hashed: int, step: Step) -> None:
        key = ConsumerGroupMetadataKey(group.group_id)
        step.write(key, ConsumerGroupMetadataValue(epoch, hashed))

    def _write_regexes(self, group: ConsumerGroup, regexes: Regexes, step: Step) -> None:
        for expression, topics in regexes.items():
            if group.regexes.get(expression) != topics:
                key = ConsumerGroupRegularExpressionKey(group.group_id, expression)
                value = ConsumerGroupRegularExpressionValue(tuple(sorted(topics)), 0, step.now_ms)
                step.write(key, value)
        for expression in group.regexes:
            if expression not in regexes:
                step.write(ConsumerGroupRegularExpressionKey(group.group_id, expression), None)

    def _expect_heartbeat(self, group: ConsumerGroup, member: ConsumerMember, now_ms: int) -> None:
        session = Timer(Kind.SESSION, group.group_id, member.member_id)
        self._timers.set(session, now_ms + self._config.consumer_session_timeout_ms)

    def _expect_revocation(self, group: ConsumerGroup, member: ConsumerMember, now_ms: int) -> None:
        revoke = Timer(Kind.REVOKE, group.group_id, member.member_id)
        self._timers.set(revoke, now_ms + member.rebalance_timeout_ms)

    def _stop_timers(self, group: ConsumerGroup, member_id: str) -> None:
        self._timers.cancel(Timer(Kind.SESSION, group.group_id, member_id))
        self._timers.cancel(Timer(Kind.REVOKE, group.group_id, member_id))

    # Describing

    def on_describe(self, token: Token, request: ConsumerGroupDescribe, step: Step) -> None:
        group = self._store.consumer.get(request.group_id)
        if not request.group_id:
            answer = ConsumerGroupDescribeAnswer(Error.INVALID_GROUP_ID, request.group_id)
        elif group is None:
            answer = ConsumerGroupDescribeAnswer(
                Error.GROUP_ID_NOT_FOUND,
                request.group_id,
                f"Group {request.group_id} is not a consumer group.",
            )
        else:
            members = list(group.members.values())
            answer = ConsumerGroupDescribeAnswer(
                Error.NONE,
                group.group_id,
                None,
                group.state.value,
                group.group_epoch,
                group.assignment_epoch,
                preferred_assignor(members, self._config.consumer_assignors[0]),
                tuple(self._described(group, member) for member in members),
            )
        step.answer(token, answer)

    def _described(self, group: ConsumerGroup, member: ConsumerMember) -> DescribedConsumer:
        return DescribedConsumer(
            member.member_id,
            member.instance_id,
            member.rack_id,
            member.member_epoch,
            member.client_id,
            member.client_host,
            member.subscribed_topic_names,
            member.subscribed_topic_regex,
            self._named(member.assigned),
            self._named(group.targets.get(member.member_id, NO_PARTITIONS)),
        )

    def _named(self, partitions: Partitions) -> tuple[tuple[str, TopicPartitions], ...]:
        names = {topic.id: name for name, topic in self._topics().items()}
        return tuple(
            (names[one.topic_id], one)
            for one in _topic_partitions(partitions)
            if one.topic_id in names
        )


def _check_join(request: ConsumerGroupHeartbeat) -> str:
    if request.rebalance_timeout_ms == NO_REBALANCE_TIMEOUT:
        return "RebalanceTimeoutMs must be provided in first request."
    if request.topic_partitions is None or request.topic_partitions:
        return "TopicPartitions must be empty when (re-)joining."
    if request.subscribed_topic_names is None and request.subscribed_topic_regex is None:
        return "SubscribedTopicNames or SubscribedTopicRegex must be set when (re-)joining."
    return ""


def _check_epoch(
    member: ConsumerMember, member_epoch: int, owned: Partitions | None
) -> Refusal | None:
    if member_epoch == member.member_epoch:
        return None
    is_retry = (
        member_epoch < member.member_epoch
        and member_epoch == member.previous_member_epoch
        and owned is not None
        and owned <= member.assigned
    )
    if is_retry:
        return None
    return Refusal(
        Error.FENCED_MEMBER_EPOCH,
        f"Member epoch {member_epoch} is not {member.member_epoch}, the one that the coordinator "
        "knows. The member must abandon all its partitions and rejoin.",
    )


def _check_instance(
    member: ConsumerMember | None, request: ConsumerGroupHeartbeat
) -> ConsumerMember | Refusal:
    if member is None:
        return Refusal(Error.UNKNOWN_MEMBER_ID, f"Instance id {request.instance_id} is unknown.")
    if member.member_id != request.member_id:
        return Refusal(
            Error.FENCED_INSTANCE_ID,
            f"Instance id {request.instance_id} belongs to member {member.member_id} now.",
        )
    return member


def _unknown(request: ConsumerGroupHeartbeat) -> Refusal:
    return Refusal(
        Error.UNKNOWN_MEMBER_ID,
        f"Member {request.member_id} is not a member of group {request.group_id}.",
    )


def _updated(member: ConsumerMember, request: ConsumerGroupHeartbeat) -> ConsumerMember:
    """With what the heartbeat says that is new."""
    said = {
        "instance_id": request.instance_id,
        "rack_id": request.rack_id,
        "subscribed_topic_regex": request.subscribed_topic_regex,
        "server_assignor": request.server_assignor,
        "client_id": request.client_id,
        "client_host": request.client_host,
    }
    if request.rebalance_timeout_ms != NO_REBALANCE_TIMEOUT:
        member = member._replace(rebalance_timeout_ms=request.rebalance_timeout_ms)
    if request.subscribed_topic_names is not None:
        names = tuple(sorted(set(request.subscribed_topic_names)))
        member = member._replace(subscribed_topic_names=names)
    return member._replace(
        **{name: value for name, value in said.items() if value is not None}  # type: ignore[arg-type]
    )


def _has_other_topics(before: ConsumerMember, after: ConsumerMember) -> bool:
    return (before.subscribed_topic_names, before.subscribed_topic_regex) != (
        after.subscribed_topic_names,
        after.subscribed_topic_regex,
    )


def _is_full(request: ConsumerGroupHeartbeat) -> bool:
    """A member that is not sure of what it was told says everything, and is told everything."""
    has_topics = (
        request.subscribed_topic_names is not None or request.subscribed_topic_regex is not None
    )
    return request.member_epoch == 0 or (
        request.rebalance_timeout_ms != NO_REBALANCE_TIMEOUT
        and has_topics
        and request.topic_partitions is not None
    )


def _topics_of_all(members: Iterable[ConsumerMember], regexes: Regexes) -> frozenset[str]:
    return frozenset[str]().union(*(topics_of(member, regexes) for member in members))


def _partitions(said: tuple[TopicPartitions, ...] | None) -> Partitions | None:
    if said is None:
        return None
    return frozenset((one.topic_id, number) for one in said for number in one.partitions)


def _topic_partitions(partitions: Partitions) -> tuple[TopicPartitions, ...]:
    return tuple(TopicPartitions(*one) for one in by_topic(partitions))
