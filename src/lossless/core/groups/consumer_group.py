"""A consumer group (KIP-848): members, what each is to have, and what each has.

    group epoch         bumped when who is in the group, what they subscribe to, or those topics
                        change
    assignment epoch    of the target: what every member is to have. Behind the group epoch: the
                        target has to be worked out again
    member epoch        how far a member has come on its way to the target

    empty        nobody is in the group
    assigning    the target is behind
    reconciling  somebody has not reached the target
    stable       everybody has

Invariants
- A partition is in what one member has at most: what is assigned to it, or what it has to give up
  and has not.
- Everything here is in the log, and changes in `apply` alone.
"""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import NamedTuple

from lossless.core.encoding import Writer
from lossless.core.groups.config import TopicView
from lossless.core.groups.messages import LEAVE_EPOCH
from lossless.core.groups.records import (
    NO_PARTITIONS,
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMemberMetadataValue,
    ConsumerGroupMetadataKey,
    ConsumerGroupMetadataValue,
    ConsumerGroupRegularExpressionKey,
    ConsumerGroupRegularExpressionValue,
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupTargetAssignmentMemberValue,
    ConsumerGroupTargetAssignmentMetadataKey,
    ConsumerGroupTargetAssignmentMetadataValue,
    Key,
    MemberState,
    Partitions,
    Value,
)


class ConsumerState(enum.Enum):
    EMPTY = "Empty"
    ASSIGNING = "Assigning"
    RECONCILING = "Reconciling"
    STABLE = "Stable"


class ConsumerMember(NamedTuple):
    member_id: str
    member_epoch: int = 0
    previous_member_epoch: int = 0
    state: MemberState = MemberState.STABLE
    assigned: Partitions = NO_PARTITIONS
    pending_revocation: Partitions = NO_PARTITIONS
    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: int = -1
    client_id: str = ""
    client_host: str = ""
    subscribed_topic_names: tuple[str, ...] = ()
    subscribed_topic_regex: str | None = None
    server_assignor: str | None = None

    def has_reached(self, assignment_epoch: int) -> bool:
        return self.state is MemberState.STABLE and self.member_epoch == assignment_epoch

    def at_epoch(self, member_epoch: int) -> ConsumerMember:
        return self._replace(member_epoch=member_epoch, previous_member_epoch=self.member_epoch)

    def metadata(self) -> ConsumerGroupMemberMetadataValue:
        return ConsumerGroupMemberMetadataValue(
            self.instance_id,
            self.rack_id,
            self.client_id,
            self.client_host,
            self.subscribed_topic_names,
            self.subscribed_topic_regex,
            self.rebalance_timeout_ms,
            self.server_assignor,
        )

    def current_assignment(self) -> ConsumerGroupCurrentMemberAssignmentValue:
        return ConsumerGroupCurrentMemberAssignmentValue(
            self.member_epoch,
            self.previous_member_epoch,
            self.state,
            self.assigned,
            self.pending_revocation,
        )


Regexes = Mapping[str, frozenset[str]]  # the topics that a regular expression stands for


@dataclass(slots=True)
class ConsumerGroup:
    group_id: str
    group_epoch: int = 0
    metadata_hash: int = 0  # of the topics that the group subscribes to
    assignment_epoch: int = 0
    members: dict[str, ConsumerMember] = field(default_factory=dict)
    targets: dict[str, Partitions] = field(default_factory=dict)  # by member id
    regexes: dict[str, frozenset[str]] = field(default_factory=dict)

    @property
    def is_empty(self) -> bool:
        return not self.members

    @property
    def state(self) -> ConsumerState:
        if not self.members:
            return ConsumerState.EMPTY
        if self.group_epoch > self.assignment_epoch:
            return ConsumerState.ASSIGNING
        if all(member.has_reached(self.assignment_epoch) for member in self.members.values()):
            return ConsumerState.STABLE
        return ConsumerState.RECONCILING

    def static_member(self, instance_id: str) -> ConsumerMember | None:
        members = self.members.values()
        return next((member for member in members if member.instance_id == instance_id), None)

    def is_subscribed_to(self, topic: str) -> bool:
        members = self.members.values()
        return any(topic in topics_of(member, self.regexes) for member in members)

    def record_keys(self) -> list[Key]:
        """Of all its records, in the order in which they are to be forgotten."""
        return [
            *(ConsumerGroupCurrentMemberAssignmentKey(self.group_id, one) for one in self.members),
            *(ConsumerGroupTargetAssignmentMemberKey(self.group_id, one) for one in self.targets),
            ConsumerGroupTargetAssignmentMetadataKey(self.group_id),
            *(ConsumerGroupMemberMetadataKey(self.group_id, one) for one in self.members),
            *(ConsumerGroupRegularExpressionKey(self.group_id, one) for one in self.regexes),
            ConsumerGroupMetadataKey(self.group_id),
        ]

    # What the log says

    def apply(self, key: Key, value: Value | None) -> bool:
        """False: the group is gone."""
        match key, value:
            case ConsumerGroupMetadataKey(), ConsumerGroupMetadataValue():
                self.group_epoch, self.metadata_hash = value
            case ConsumerGroupMetadataKey(), _:
                return False
            case ConsumerGroupMemberMetadataKey(), ConsumerGroupMemberMetadataValue():
                self._update(key.member_id, **value._asdict())
            case ConsumerGroupMemberMetadataKey(), _:
                self.members.pop(key.member_id, None)
            case (
                ConsumerGroupTargetAssignmentMetadataKey(),
                ConsumerGroupTargetAssignmentMetadataValue(),
            ):
                self.assignment_epoch = value.assignment_epoch
            case (
                ConsumerGroupTargetAssignmentMemberKey(),
                ConsumerGroupTargetAssignmentMemberValue(),
            ):
                self.targets[key.member_id] = value.partitions
            case ConsumerGroupTargetAssignmentMemberKey(), _:
                self.targets.pop(key.member_id, None)
            case (
                ConsumerGroupCurrentMemberAssignmentKey(),
                ConsumerGroupCurrentMemberAssignmentValue(),
            ):
                self._update(key.member_id, **value._asdict())
            case ConsumerGroupCurrentMemberAssignmentKey(), _:
                # The rest of the member is forgotten with its own record, which comes next.
                if key.member_id in self.members:
                    gone = ConsumerGroupCurrentMemberAssignmentValue(
                        LEAVE_EPOCH, LEAVE_EPOCH, MemberState.STABLE, NO_PARTITIONS, NO_PARTITIONS
                    )
                    self._update(key.member_id, **gone._asdict())
            case ConsumerGroupRegularExpressionKey(), ConsumerGroupRegularExpressionValue():
                self.regexes[key.regular_expression] = frozenset(value.topics)
            case ConsumerGroupRegularExpressionKey(), _:
                self.regexes.pop(key.regular_expression, None)
            case _:
                self.assignment_epoch = -1  # the epoch of the target is forgotten
        return True

    def _update(self, member_id: str, **fields: object) -> None:
        member = self.members.get(member_id, ConsumerMember(member_id))
        self.members[member_id] = member._replace(**fields)  # type: ignore[arg-type]


def topics_of(member: ConsumerMember, regexes: Regexes) -> frozenset[str]:
    """What a member subscribes to, by name or by a regular expression."""
    return frozenset(member.subscribed_topic_names) | regexes.get(
        member.subscribed_topic_regex or "", frozenset()
    )


def preferred_assignor(members: Iterable[ConsumerMember], default: str) -> str:
    """The one that most members ask for."""
    asked = Counter(
        member.server_assignor for member in members if member.server_assignor is not None
    )
    return asked.most_common(1)[0][0] if asked else default


def metadata_hash(names: Iterable[str], topics: Mapping[str, TopicView]) -> int:
    """Another number when one of these topics is another than before: created, deleted, created
    again, with more partitions or on other racks. 0 when there are none."""
    writer = Writer(flexible=True)
    for name in sorted(name for name in set(names) if name in topics):
        topic = topics[name]
        writer.string(name)
        writer.uuid(topic.id)
        writer.int32(topic.partitions)
        for racks in topic.racks:
            writer.count(len(racks))
            for rack in sorted(racks):
                writer.string(rack)
    if not writer.data:
        return 0
    digest = blake2b(bytes(writer.data), digest_size=8).digest()
    return int.from_bytes(digest, "big", signed=True)
