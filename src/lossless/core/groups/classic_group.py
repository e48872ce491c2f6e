"""A classic group: who is in it, and where it stands in a rebalance.

    empty ── somebody joins ──▶ preparing rebalance ── all have joined, or enough time has passed
                                  ▲        │                        │
                                  │        └─ nobody is left ─▶ empty
      a member comes, goes or has ┤                                 ▼
      something else to say       ├───────────────────── completing rebalance
                                  │                                 │
                                  └── stable ◀── the leader's assignment is written down

Invariants
- A generation begins when a rebalance completes. Whoever acts for an earlier one is refused.
- The group's protocol is one that every member knows.
- What is written down (`stored`) is the last generation that got its assignment, or that the group
  is empty. A rebalance in progress is not written down: after a failover the members of the stored
  generation go on, and whoever was on the way joins again.
"""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from lossless.core.encoding import Malformed, Reader
from lossless.core.groups.messages import JoinGroupMember
from lossless.core.groups.records import (
    NO_TIMESTAMP,
    GroupMetadataKey,
    GroupMetadataMember,
    GroupMetadataValue,
    Key,
)
from lossless.core.machine import Token
from lossless.core.messages import Error

CONSUMER_PROTOCOL_TYPE = "consumer"


class ClassicState(enum.Enum):
    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"  # what is said of a group that does not exist


@dataclass(slots=True)
class ClassicMember:
    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    protocols: tuple[tuple[str, bytes], ...]
    assignment: bytes = b""
    is_new: bool = False  # it has not been in a generation yet
    join_token: Token | None = None  # of the JoinGroup that waits
    sync_token: Token | None = None  # of the SyncGroup that waits

    @property
    def is_heard_of(self) -> bool:
        """Who waits for an answer cannot send heartbeats, and is not expected to. A new member is:
        its client may have gone, and nobody would notice."""
        return not self.is_new and (self.join_token is not None or self.sync_token is not None)

    def metadata(self, protocol_name: str | None) -> bytes:
        return dict(self.protocols).get(protocol_name or "", b"")


@dataclass(slots=True)
class ClassicGroup:
    group_id: str
    state: ClassicState = ClassicState.EMPTY
    generation_id: int = 0
    protocol_type: str | None = None
    protocol_name: str | None = None
    leader_id: str | None = None
    state_timestamp_ms: int = NO_TIMESTAMP  # since when the group is in its state
    members: dict[str, ClassicMember] = field(default_factory=dict)
    static_members: dict[str, str] = field(default_factory=dict)  # member ids by instance ids
    pending_join: dict[str, None] = field(default_factory=dict)  # have an id, have not joined
    pending_sync: dict[str, None] = field(default_factory=dict)  # have joined, have not synced
    # The first rebalance of a group that was empty waits for more members.
    is_initial: bool = False
    is_new_member_added: bool = False
    initial_delay_ms: int = 0
    initial_remaining_ms: int = 0
    stored: GroupMetadataValue | None = None  # what the log says

    @property
    def is_empty(self) -> bool:
        return self.state is ClassicState.EMPTY

    @property
    def is_for_consumers(self) -> bool:
        return self.protocol_type == CONSUMER_PROTOCOL_TYPE

    @property
    def rebalance_timeout_ms(self) -> int:
        return max((member.rebalance_timeout_ms for member in self.members.values()), default=0)

    @property
    def joined_count(self) -> int:
        return sum(member.join_token is not None for member in self.members.values())

    @property
    def has_everybody_joined(self) -> bool:
        return self.joined_count == len(self.members) and not self.pending_join

    # Members

    def check_member(self, member_id: str, group_instance_id: str | None) -> Error:
        if group_instance_id is not None:
            known = self.static_members.get(group_instance_id)
            if known is None:
                return Error.UNKNOWN_MEMBER_ID
            if known != member_id:
                return Error.FENCED_INSTANCE_ID
        return Error.NONE if member_id in self.members else Error.UNKNOWN_MEMBER_ID

    def add(self, member: ClassicMember, protocol_type: str) -> None:
        if member.group_instance_id is not None:
            self.static_members[member.group_instance_id] = member.member_id
        if not self.members:
            self.protocol_type = protocol_type
        if self.leader_id is None:
            self.leader_id = member.member_id
        self.members[member.member_id] = member
        self.pending_join.pop(member.member_id, None)

    def remove(self, member_id: str) -> None:
        member = self.members.pop(member_id, None)
        if member is not None and member.group_instance_id is not None:
            del self.static_members[member.group_instance_id]
        if self.leader_id == member_id:
            self.leader_id = next(iter(self.members), None)
        self.pending_join.pop(member_id, None)
        self.pending_sync.pop(member_id, None)

    def rename(self, group_instance_id: str, new_id: str) -> ClassicMember:
        """A static member is back under another id, and takes its old place."""
        old_id = self.static_members[group_instance_id]
        member = self.members[old_id]
        member.member_id = new_id
        members = list(self.members.values())
        self.members = {member.member_id: member for member in members}
        self.static_members[group_instance_id] = new_id
        if self.leader_id == old_id:
            self.leader_id = new_id
        if old_id in self.pending_sync:
            del self.pending_sync[old_id]
            self.pending_sync[new_id] = None
        return member

    def elect_joined_leader(self) -> bool:
        """The leader has to be somebody who has joined. False: nobody has."""
        leader = self.members.get(self.leader_id or "")
        if leader is None:
            return False
        if leader.join_token is None:
            joined = (member for member in self.members.values() if member.join_token is not None)
            leader = next(joined, None)
        if leader is None:
            return False
        self.leader_id = leader.member_id
        return True

    # Protocols

    def supports(self, protocol_type: str, names: Iterable[str]) -> bool:
        if self.is_empty:
            return bool(protocol_type) and any(True for _ in names)
        if self.protocol_type != protocol_type:
            return False
        common = self._common_protocols()
        return any(common is None or name in common for name in names)

    def select_protocol(self) -> str:
        """Everybody votes for the first of its own protocols that all of them know."""
        common = self._common_protocols() or set()
        votes = Counter(
            next((name for name, _ in member.protocols if name in common), "")
            for member in self.members.values()
        )
        return votes.most_common(1)[0][0]

    def _common_protocols(self) -> set[str] | None:
        """None: any, because there are no members."""
        common: set[str] | None = None
        for member in self.members.values():
            names = {name for name, _ in member.protocols}
            common = names if common is None else common & names
        return common

    def subscribed_topics(self) -> frozenset[str] | None:
        """None: nobody here understands what the members say to each other."""
        if not self.is_for_consumers:
            return None
        if self.members and self.protocol_name is None:
            return None
        topics: set[str] = set()
        try:
            for member in self.members.values():
                # Every version of a subscription begins as version 0 does: with the topics.
                reader = Reader(member.metadata(self.protocol_name), flexible=False)
                reader.int16()
                topics |= {reader.string() for _ in range(reader.count())}
        except Malformed:
            return None
        return frozenset(topics)

    def is_subscribed_to(self, topic: str) -> bool:
        topics = self.subscribed_topics()
        return self.is_for_consumers if topics is None else topic in topics

    # Generations

    def move_to(self, state: ClassicState, now_ms: int) -> None:
        self.state = state
        self.state_timestamp_ms = now_ms

    def begin_generation(self, now_ms: int) -> None:
        self.generation_id += 1
        self.is_initial = False
        if self.members:
            self.protocol_name = self.select_protocol()
            self.move_to(ClassicState.COMPLETING_REBALANCE, now_ms)
        else:
            self.protocol_name = None
            self.move_to(ClassicState.EMPTY, now_ms)
        self.pending_sync.clear()

    def joined_members(self) -> tuple[JoinGroupMember, ...]:
        return tuple(
            JoinGroupMember(
                member.member_id, member.group_instance_id, member.metadata(self.protocol_name)
            )
            for member in self.members.values()
        )

    # What is written down

    def record_keys(self) -> list[Key]:
        """Of all its records."""
        return [GroupMetadataKey(self.group_id)]

    def to_store(self, assignments: dict[str, bytes]) -> GroupMetadataValue:
        return GroupMetadataValue(
            self.protocol_type or "",
            self.generation_id,
            self.protocol_name,
            self.leader_id,
            self.state_timestamp_ms,
            tuple(
                GroupMetadataMember(
                    member.member_id,
                    member.group_instance_id,
                    member.client_id,
                    member.client_host,
                    member.rebalance_timeout_ms,
                    member.session_timeout_ms,
                    member.metadata(self.protocol_name),
                    assignments[member.member_id],
                )
                for member in self.members.values()
            ),
        )

    def on_stored(self, value: GroupMetadataValue) -> None:
        """The log has a generation, written here just now or by another broker: the group is what
        it says. Who waits, and what else a member can do, stays as it is."""
        before = self.members
        self.stored = value
        self.generation_id = value.generation
        self.protocol_type = value.protocol_type or None
        self.protocol_name = value.protocol
        self.leader_id = value.leader
        self.state_timestamp_ms = value.current_state_timestamp_ms
        self.members = {}
        self.static_members = {}
        for stored in value.members:
            member = _loaded(stored, value.protocol or "", before.get(stored.member_id))
            self.members[member.member_id] = member
            if member.group_instance_id is not None:
                self.static_members[member.group_instance_id] = member.member_id
        self.state = ClassicState.STABLE if self.members else ClassicState.EMPTY


def _loaded(
    stored: GroupMetadataMember, protocol: str, before: ClassicMember | None
) -> ClassicMember:
    loaded = ClassicMember(
        stored.member_id,
        stored.group_instance_id,
        stored.client_id,
        stored.client_host,
        # Before version 1 of the record there was but one timeout.
        stored.session_timeout_ms
        if stored.rebalance_timeout_ms < 0
        else stored.rebalance_timeout_ms,
        stored.session_timeout_ms,
        ((protocol, stored.subscription),),
        stored.assignment,
    )
    if before is not None:
        loaded.join_token, loaded.sync_token = before.join_token, before.sync_token
        if (protocol, stored.subscription) in before.protocols:
            loaded.protocols = before.protocols
    return loaded
