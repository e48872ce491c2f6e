"""The classic group protocol: JoinGroup, SyncGroup, Heartbeat, LeaveGroup.

The members of a group agree on a generation. Everybody joins; the coordinator picks a protocol and
a leader; the leader works out who gets what; everybody else asks for its part. What a rebalance is
about (eager, cooperative, Connect, Streams) only the members know.

Rules learnt
- A new member gets its id first and joins with it (KIP-394): a client that retries a join without
  an id would leave a dead member behind each time.
- A static member keeps its place when it comes back (KIP-345): if the protocol stays the same,
  nobody rebalances. The leader that comes back must not assign again, or assigns what all have
  (KIP-814). Whoever still uses the instance's former member id is fenced.
- Members that wait for an answer are not expected to send heartbeats. Their sessions begin anew
  when they are answered.
- Who has joined and never asks for its part holds everybody up no longer than a rebalance may take.
- A request that takes the place of one that waits has that one answered: answers go out in order,
  and one that never comes would block its connection.
"""

from __future__ import annotations

from collections.abc import Callable
from uuid import UUID

from lossless.core.groups.classic_group import ClassicGroup, ClassicMember, ClassicState
from lossless.core.groups.config import GroupConfig
from lossless.core.groups.consumer_group import ConsumerGroup
from lossless.core.groups.messages import (
    NO_MEMBER_ID,
    Heartbeat,
    HeartbeatAnswer,
    JoinGroup,
    JoinGroupAnswer,
    LeaveGroup,
    LeaveGroupAnswer,
    MemberIdentity,
    MemberLeft,
    SyncGroup,
    SyncGroupAnswer,
)
from lossless.core.groups.records import GroupMetadataKey
from lossless.core.groups.step import Step
from lossless.core.groups.store import GroupStore
from lossless.core.groups.timers import Kind, Timer, Timers
from lossless.core.machine import Token
from lossless.core.messages import Error

MEMBER_ID_REQUIRED_VERSION = 4  # of JoinGroup
SKIP_ASSIGNMENT_VERSION = 9  # of JoinGroup


class ClassicProtocol:
    def __init__(
        self, store: GroupStore, timers: Timers, config: GroupConfig, draw: Callable[[int], int]
    ) -> None:
        self._store = store
        self._timers = timers
        self._config = config
        self._draw = draw

    def on_loaded(self, step: Step) -> None:
        for group in self._store.classic.values():
            for member in group.members.values():
                self._expect_heartbeat(group, member, step.now_ms)
            if len(group.members) > self._config.max_size:
                # It was allowed more members when they joined: some will not be let in again.
                self._prepare_rebalance(group, step)

    # Joining

    def on_join(self, token: Token, request: JoinGroup, step: Step) -> None:
        consumer_group = self._store.consumer.get(request.group_id)
        error = self._check_join(request, consumer_group)
        if error is not Error.NONE:
            step.answer(token, JoinGroupAnswer(error, request.member_id))
            return
        group = self._store.classic.get(request.group_id)
        is_unknown = request.member_id == NO_MEMBER_ID
        if group is None and not is_unknown:
            step.answer(token, JoinGroupAnswer(Error.UNKNOWN_MEMBER_ID, request.member_id))
            return
        group = group or ClassicGroup(request.group_id, state_timestamp_ms=step.now_ms)
        if not self._has_room(group, request.member_id):
            group.remove(request.member_id)
            step.answer(token, JoinGroupAnswer(Error.GROUP_MAX_SIZE_REACHED))
        elif not group.supports(request.protocol_type, [name for name, _ in request.protocols]):
            answer = JoinGroupAnswer(Error.INCONSISTENT_GROUP_PROTOCOL, request.member_id)
            step.answer(token, answer)
        else:
            self._store.classic[group.group_id] = group
            if consumer_group is not None:
                # It is empty, and a classic group takes its name.
                for key in consumer_group.record_keys():
                    step.write(key, None)
            if is_unknown:
                self._join_new(token, group, request, step)
            else:
                self._join_known(token, group, request, step)

    def _check_join(self, request: JoinGroup, consumer_group: ConsumerGroup | None) -> Error:
        if not request.group_id:
            return Error.INVALID_GROUP_ID
        session_ms, config = request.session_timeout_ms, self._config
        if not config.min_session_timeout_ms <= session_ms <= config.max_session_timeout_ms:
            return Error.INVALID_SESSION_TIMEOUT
        if consumer_group is not None and not consumer_group.is_empty:
            return Error.INCONSISTENT_GROUP_PROTOCOL
        return Error.NONE

    def _has_room(self, group: ClassicGroup, member_id: str) -> bool:
        if group.is_empty:
            return True
        member = group.members.get(member_id)
        if group.state is ClassicState.PREPARING_REBALANCE:
            # Who waits is counted, not who is a member: of a group that has become too large the
            # last to join are the ones that stay outside.
            has_joined = member is not None and member.join_token is not None
            return has_joined or group.joined_count < self._config.max_size
        return member is not None or len(group.members) < self._config.max_size

    def _join_new(self, token: Token, group: ClassicGroup, request: JoinGroup, step: Step) -> None:
        prefix = request.group_instance_id or request.client_id
        member_id = f"{prefix}-{UUID(int=self._draw(1 << 128), version=4)}"
        if request.group_instance_id is not None:
            instance_id = request.group_instance_id
            if instance_id in group.static_members:
                self._replace_static(token, group, request, instance_id, member_id, step)
            else:
                self._add(token, group, request, member_id, step)
        elif request.api_version >= MEMBER_ID_REQUIRED_VERSION:
            group.pending_join[member_id] = None
            session = Timer(Kind.SESSION, group.group_id, member_id)
            self._timers.set(session, step.now_ms + request.session_timeout_ms)
            step.answer(token, JoinGroupAnswer(Error.MEMBER_ID_REQUIRED, member_id))
        else:
            self._add(token, group, request, member_id, step)

    def _join_known(
        self, token: Token, group: ClassicGroup, request: JoinGroup, step: Step
    ) -> None:
        member_id = request.member_id
        if member_id in group.pending_join:
            if request.group_instance_id is not None:
                # A static member is never asked to come back with an id.
                step.answer(token, JoinGroupAnswer(Error.UNKNOWN_SERVER_ERROR, member_id))
            else:
                self._add(token, group, request, member_id, step)
            return
        error = group.check_member(member_id, request.group_instance_id)
        if error is not Error.NONE:
            step.answer(token, JoinGroupAnswer(error, member_id))
            return
        member = group.members[member_id]
        is_leader = group.leader_id == member_id
        has_news = member.protocols != request.protocols
        is_stable = group.state is ClassicState.STABLE
        if group.state is ClassicState.PREPARING_REBALANCE or has_news or (is_stable and is_leader):
            # A leader that joins again asks for a rebalance: topics may have changed.
            self._update(token, member, request, step)
            self._rebalance_or_complete(group, step)
        else:
            # The answer to its join was lost, or it only wants to know where the group stands.
            step.answer(token, _joined(group, member_id, is_leader))

    def _add(
        self, token: Token, group: ClassicGroup, request: JoinGroup, member_id: str, step: Step
    ) -> None:
        member = ClassicMember(
            member_id,
            request.group_instance_id,
            request.client_id,
            request.client_host,
            _rebalance_timeout_ms(request),
            request.session_timeout_ms,
            request.protocols,
            is_new=True,
            join_token=token,
        )
        if group.is_initial:
            group.is_new_member_added = True
        group.add(member, request.protocol_type)
        session = Timer(Kind.SESSION, group.group_id, member_id)
        self._timers.set(session, step.now_ms + self._config.new_member_join_timeout_ms)
        self._rebalance_or_complete(group, step)

    def _update(self, token: Token, member: ClassicMember, request: JoinGroup, step: Step) -> None:
        if member.join_token is not None:
            superseded = JoinGroupAnswer(Error.REBALANCE_IN_PROGRESS, member.member_id)
            step.answer(member.join_token, superseded)
        member.protocols = request.protocols
        member.rebalance_timeout_ms = _rebalance_timeout_ms(request)
        member.session_timeout_ms = request.session_timeout_ms
        member.join_token = token

    def _replace_static(
        self,
        token: Token,
        group: ClassicGroup,
        request: JoinGroup,
        instance_id: str,
        new_id: str,
        step: Step,
    ) -> None:
        old_id = group.static_members[instance_id]
        former_leader = group.leader_id or NO_MEMBER_ID
        self._let_go(group.members[old_id], Error.FENCED_INSTANCE_ID, old_id, step)
        self._timers.cancel(Timer(Kind.SESSION, group.group_id, old_id))
        member = group.rename(instance_id, new_id)
        member.is_new = False
        self._update(token, member, request, step)
        self._expect_heartbeat(group, member, step.now_ms)
        if group.state is ClassicState.STABLE:
            if group.select_protocol() != group.protocol_name:
                self._prepare_rebalance(group, step)
                return
            is_leader = group.leader_id == new_id
            if request.api_version >= SKIP_ASSIGNMENT_VERSION:
                answer = _joined(group, new_id, is_leader)._replace(skip_assignment=is_leader)
            else:
                # It does not know its new id as the leader's, and will not assign.
                answer = _joined(group, new_id, False)._replace(leader=former_leader)
            step.answer(token, answer)
            member.join_token = None
            stored = {one.member_id: one.assignment for one in group.members.values()}
            step.write(GroupMetadataKey(group.group_id), group.to_store(stored))
        elif group.state is ClassicState.COMPLETING_REBALANCE:
            # The leader may be assigning to the old member id at this moment.
            self._prepare_rebalance(group, step)
        else:
            self._complete_if_ready(group, step)

    # Rebalancing

    def _rebalance_or_complete(self, group: ClassicGroup, step: Step) -> None:
        if group.state is ClassicState.PREPARING_REBALANCE:
            self._complete_if_ready(group, step)
        else:
            self._prepare_rebalance(group, step)

    def _prepare_rebalance(self, group: ClassicGroup, step: Step) -> None:
        if group.state is ClassicState.COMPLETING_REBALANCE:
            for member in group.members.values():
                member.assignment = b""
            self._answer_syncs(group, Error.REBALANCE_IN_PROGRESS, step)
        group.pending_sync.clear()
        self._timers.cancel(Timer(Kind.SYNC, group.group_id))
        group.is_initial = group.is_empty
        group.move_to(ClassicState.PREPARING_REBALANCE, step.now_ms)
        if group.is_initial:
            delay_ms = self._config.initial_rebalance_delay_ms
            group.is_new_member_added = False
            group.initial_delay_ms = delay_ms
            group.initial_remaining_ms = max(group.rebalance_timeout_ms - delay_ms, 0)
            self._timers.set(Timer(Kind.JOIN, group.group_id), step.now_ms + delay_ms)
        elif group.has_everybody_joined:
            self._complete_join(group, step)
        else:
            self._wait_for_joins(group, step)

    def _wait_for_joins(self, group: ClassicGroup, step: Step) -> None:
        deadline_ms = step.now_ms + group.rebalance_timeout_ms
        self._timers.set(Timer(Kind.JOIN, group.group_id), deadline_ms)

    def _complete_if_ready(self, group: ClassicGroup, step: Step) -> None:
        if not group.is_initial and group.has_everybody_joined:
            self._complete_join(group, step)

    def on_join_timeout(self, group_id: str, step: Step) -> None:
        group = self._store.classic[group_id]
        if group.is_initial and group.is_new_member_added and group.initial_remaining_ms > 0:
            delay_ms = min(self._config.initial_rebalance_delay_ms, group.initial_remaining_ms)
            group.initial_remaining_ms = max(group.initial_remaining_ms - group.initial_delay_ms, 0)
            group.initial_delay_ms = delay_ms
            group.is_new_member_added = False
            self._timers.set(Timer(Kind.JOIN, group_id), step.now_ms + delay_ms)
        else:
            self._complete_join(group, step)

    def _complete_join(self, group: ClassicGroup, step: Step) -> None:
        self._timers.cancel(Timer(Kind.JOIN, group.group_id))
        for member in list(group.members.values()):
            # A static member that has not come yet keeps its place until its session is over.
            if member.join_token is None and member.group_instance_id is None:
                self._remove(group, member, step)
        if not group.elect_joined_leader() and group.members:
            self._wait_for_joins(group, step)
            return
        group.begin_generation(step.now_ms)
        if group.is_empty:
            step.write(GroupMetadataKey(group.group_id), group.to_store({}))
            return
        for member in group.members.values():
            if member.join_token is not None:
                is_leader = group.leader_id == member.member_id
                step.answer(member.join_token, _joined(group, member.member_id, is_leader))
                member.join_token = None
            member.is_new = False
            self._expect_heartbeat(group, member, step.now_ms)
            group.pending_sync[member.member_id] = None
        deadline_ms = step.now_ms + group.rebalance_timeout_ms
        self._timers.set(Timer(Kind.SYNC, group.group_id), deadline_ms)

    def on_sync_timeout(self, group_id: str, step: Step) -> None:
        group = self._store.classic[group_id]
        for member_id in list(group.pending_sync):
            self._remove(group, group.members[member_id], step)
        self._prepare_rebalance(group, step)

    # Syncing

    def on_sync(self, token: Token, request: SyncGroup, step: Step) -> None:
        group = self._store.classic.get(request.group_id)
        error = _check_sync(request, group)
        if group is None or error is not Error.NONE:
            step.answer(token, SyncGroupAnswer(error))
            return
        member = group.members[request.member_id]
        group.pending_sync.pop(member.member_id, None)
        if not group.pending_sync:
            self._timers.cancel(Timer(Kind.SYNC, group.group_id))
        if group.state is ClassicState.STABLE:
            step.answer(token, _synced(group, member.assignment))
            return
        if member.sync_token is not None:
            step.answer(member.sync_token, SyncGroupAnswer(Error.REBALANCE_IN_PROGRESS))
        member.sync_token = token
        if group.leader_id == member.member_id:
            given = dict(request.assignments)
            assignments = {member_id: given.get(member_id, b"") for member_id in group.members}
            for one in group.members.values():
                if one.sync_token is not None:
                    step.answer(one.sync_token, _synced(group, assignments[one.member_id]))
                    one.sync_token = None
                    self._expect_heartbeat(group, one, step.now_ms)
            # What is stored makes the group stable.
            step.write(GroupMetadataKey(group.group_id), group.to_store(assignments))

    def _answer_syncs(self, group: ClassicGroup, error: Error, step: Step) -> None:
        for member in group.members.values():
            if member.sync_token is not None:
                step.answer(member.sync_token, SyncGroupAnswer(error))
                member.sync_token = None
                self._expect_heartbeat(group, member, step.now_ms)

    # Staying and leaving

    def on_heartbeat(self, token: Token, request: Heartbeat, step: Step) -> None:
        step.answer(token, HeartbeatAnswer(self._beat(request, step.now_ms)))

    def _beat(self, request: Heartbeat, now_ms: int) -> Error:
        if not request.group_id:
            return Error.INVALID_GROUP_ID
        group = self._store.classic.get(request.group_id)
        if group is None:
            return Error.UNKNOWN_MEMBER_ID
        error = group.check_member(request.member_id, request.group_instance_id)
        if error is not Error.NONE:
            return error
        if request.generation_id != group.generation_id:
            return Error.ILLEGAL_GENERATION
        self.keep_alive(group, request.member_id, now_ms)
        is_preparing = group.state is ClassicState.PREPARING_REBALANCE
        return Error.REBALANCE_IN_PROGRESS if is_preparing else Error.NONE

    def keep_alive(self, group: ClassicGroup, member_id: str, now_ms: int) -> None:
        self._expect_heartbeat(group, group.members[member_id], now_ms)

    def _expect_heartbeat(self, group: ClassicGroup, member: ClassicMember, now_ms: int) -> None:
        session = Timer(Kind.SESSION, group.group_id, member.member_id)
        self._timers.set(session, now_ms + member.session_timeout_ms)

    def on_session_timeout(self, group: ClassicGroup, member_id: str, step: Step) -> None:
        if member_id in group.pending_join:
            group.remove(member_id)
            if group.state is ClassicState.PREPARING_REBALANCE:
                self._complete_if_ready(group, step)
            return
        member = group.members.get(member_id)
        if member is not None and not member.is_heard_of:
            self._remove(group, member, step)
            self._after_loss(group, step)

    def on_leave(self, token: Token, request: LeaveGroup, step: Step) -> None:
        if not request.group_id:
            step.answer(token, LeaveGroupAnswer(Error.INVALID_GROUP_ID))
            return
        group = self._store.classic.get(request.group_id)
        left = tuple(
            MemberLeft(
                who, Error.UNKNOWN_MEMBER_ID if group is None else self._leave(group, who, step)
            )
            for who in request.members
        )
        step.answer(token, LeaveGroupAnswer(Error.NONE, left))
        if group is not None and any(one.error is Error.NONE for one in left):
            self._after_loss(group, step)

    def _leave(self, group: ClassicGroup, who: MemberIdentity, step: Step) -> Error:
        member_id = who.member_id
        if member_id == NO_MEMBER_ID:
            # An administrator removes whoever has this instance id now.
            member_id = group.static_members.get(who.group_instance_id or "", NO_MEMBER_ID)
            if member_id == NO_MEMBER_ID:
                return Error.UNKNOWN_MEMBER_ID
        elif member_id in group.pending_join:
            group.remove(member_id)
            self._timers.cancel(Timer(Kind.SESSION, group.group_id, member_id))
            return Error.NONE
        error = group.check_member(member_id, who.group_instance_id)
        if error is Error.NONE:
            self._remove(group, group.members[member_id], step)
        return error

    def _remove(self, group: ClassicGroup, member: ClassicMember, step: Step) -> None:
        self._let_go(member, Error.UNKNOWN_MEMBER_ID, NO_MEMBER_ID, step)
        self._timers.cancel(Timer(Kind.SESSION, group.group_id, member.member_id))
        group.remove(member.member_id)

    def _let_go(self, member: ClassicMember, error: Error, as_id: str, step: Step) -> None:
        """It waits no longer."""
        if member.join_token is not None:
            step.answer(member.join_token, JoinGroupAnswer(error, as_id))
            member.join_token = None
        if member.sync_token is not None:
            step.answer(member.sync_token, SyncGroupAnswer(error))
            member.sync_token = None

    def _after_loss(self, group: ClassicGroup, step: Step) -> None:
        """Somebody is gone, who may have been the one that the others waited for."""
        if group.state is ClassicState.PREPARING_REBALANCE:
            self._complete_if_ready(group, step)
        elif group.state is not ClassicState.EMPTY:
            self._prepare_rebalance(group, step)


def _rebalance_timeout_ms(request: JoinGroup) -> int:
    if request.rebalance_timeout_ms < 0:
        return request.session_timeout_ms
    return request.rebalance_timeout_ms


def _joined(group: ClassicGroup, member_id: str, with_members: bool) -> JoinGroupAnswer:
    return JoinGroupAnswer(
        Error.NONE,
        member_id,
        group.generation_id,
        group.protocol_type,
        group.protocol_name,
        group.leader_id or NO_MEMBER_ID,
        members=group.joined_members() if with_members else (),
    )


def _synced(group: ClassicGroup, assignment: bytes) -> SyncGroupAnswer:
    return SyncGroupAnswer(Error.NONE, group.protocol_type, group.protocol_name, assignment)


def _check_sync(request: SyncGroup, group: ClassicGroup | None) -> Error:
    if not request.group_id:
        return Error.INVALID_GROUP_ID
    if group is None:
        return Error.UNKNOWN_MEMBER_ID
    error = group.check_member(request.member_id, request.group_instance_id)
    if error is not Error.NONE:
        return error
    if request.generation_id != group.generation_id:
        return Error.ILLEGAL_GENERATION
    if request.protocol_type not in (None, group.protocol_type):
        return Error.INCONSISTENT_GROUP_PROTOCOL
    if request.protocol_name not in (None, group.protocol_name):
        return Error.INCONSISTENT_GROUP_PROTOCOL
    if group.state is ClassicState.PREPARING_REBALANCE:
        return Error.REBALANCE_IN_PROGRESS
    return Error.NONE
