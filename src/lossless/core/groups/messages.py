"""What is asked of a group coordinator, and what it answers. Kafka's names, without the bytes.

Every request is about one group: a request of Kafka's that names several is cut up by the host and
its answers are put together again. `ListGroups` and `TopicsDeleted` are about no group; they go to
every shard.
"""

from __future__ import annotations

from typing import NamedTuple

from lossless.core.messages import UNKNOWN_EPOCH, Error, Producer, TopicPartition

NO_MEMBER_ID = ""  # of whoever has none yet
NO_GENERATION = -1
NO_OFFSET = -1
LEAVE_EPOCH = -1  # as member epoch: leaves
LEAVE_STATIC_EPOCH = -2  # as member epoch: a static member leaves, and will be back
NO_RETENTION = -1

# The classic protocol


class JoinGroup(NamedTuple):
    group_id: str
    member_id: str
    session_timeout_ms: int
    rebalance_timeout_ms: int  # below 0: as long as the session
    protocol_type: str
    protocols: tuple[tuple[str, bytes], ...]  # names and what the member says with each
    group_instance_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    api_version: int = 9


class JoinGroupMember(NamedTuple):
    member_id: str
    group_instance_id: str | None
    metadata: bytes


class JoinGroupAnswer(NamedTuple):
    error: Error
    member_id: str = NO_MEMBER_ID
    generation_id: int = NO_GENERATION
    protocol_type: str | None = None
    protocol_name: str | None = None
    leader: str = NO_MEMBER_ID
    skip_assignment: bool = False
    members: tuple[JoinGroupMember, ...] = ()  # for the leader only


class SyncGroup(NamedTuple):
    group_id: str
    generation_id: int
    member_id: str
    group_instance_id: str | None = None
    protocol_type: str | None = None
    protocol_name: str | None = None
    assignments: tuple[tuple[str, bytes], ...] = ()  # by member id, from the leader only


class SyncGroupAnswer(NamedTuple):
    error: Error
    protocol_type: str | None = None
    protocol_name: str | None = None
    assignment: bytes = b""


class Heartbeat(NamedTuple):
    group_id: str
    generation_id: int
    member_id: str
    group_instance_id: str | None = None


class HeartbeatAnswer(NamedTuple):
    error: Error


class MemberIdentity(NamedTuple):
    member_id: str = NO_MEMBER_ID  # none: whoever has the instance id
    group_instance_id: str | None = None


class LeaveGroup(NamedTuple):
    group_id: str
    members: tuple[MemberIdentity, ...]


class MemberLeft(NamedTuple):
    member: MemberIdentity
    error: Error


class LeaveGroupAnswer(NamedTuple):
    error: Error
    members: tuple[MemberLeft, ...] = ()


# The consumer protocol (KIP-848)


class TopicPartitions(NamedTuple):
    topic_id: int
    partitions: tuple[int, ...]


class ConsumerGroupHeartbeat(NamedTuple):
    """None: as before."""

    group_id: str
    member_id: str
    member_epoch: int  # 0: joins
    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: int = -1
    subscribed_topic_names: tuple[str, ...] | None = None
    subscribed_topic_regex: str | None = None
    server_assignor: str | None = None
    topic_partitions: tuple[TopicPartitions, ...] | None = None  # that the member has
    client_id: str = ""
    client_host: str = ""
    api_version: int = 1


class ConsumerGroupHeartbeatAnswer(NamedTuple):
    error: Error
    error_message: str | None = None
    member_id: str | None = None
    member_epoch: int = 0
    heartbeat_interval_ms: int = 0
    assignment: tuple[TopicPartitions, ...] | None = None  # None: as before


class ConsumerGroupDescribe(NamedTuple):
    group_id: str


class DescribedConsumer(NamedTuple):
    member_id: str
    instance_id: str | None
    rack_id: str | None
    member_epoch: int
    client_id: str
    client_host: str
    subscribed_topic_names: tuple[str, ...]
    subscribed_topic_regex: str | None
    # Without the topics that no longer exist: their names are not known.
    assignment: tuple[tuple[str, TopicPartitions], ...]
    target_assignment: tuple[tuple[str, TopicPartitions], ...]


class ConsumerGroupDescribeAnswer(NamedTuple):
    error: Error
    group_id: str
    error_message: str | None = None
    state: str = ""
    group_epoch: int = 0
    assignment_epoch: int = 0
    assignor_name: str = ""
    members: tuple[DescribedConsumer, ...] = ()


# Offsets


class OffsetToCommit(NamedTuple):
    partition: TopicPartition
    offset: int
    leader_epoch: int = UNKNOWN_EPOCH
    metadata: str = ""


class OffsetCommit(NamedTuple):
    group_id: str
    offsets: tuple[OffsetToCommit, ...]
    generation_id_or_member_epoch: int = NO_GENERATION
    member_id: str = NO_MEMBER_ID
    group_instance_id: str | None = None
    retention_time_ms: int = NO_RETENTION  # of versions 2 to 4
    api_version: int = 9


class TxnOffsetCommit(NamedTuple):
    group_id: str
    offsets: tuple[OffsetToCommit, ...]
    producer: Producer
    generation_id: int = NO_GENERATION
    member_id: str = NO_MEMBER_ID
    group_instance_id: str | None = None


class PartitionError(NamedTuple):
    partition: TopicPartition
    error: Error


class OffsetCommitAnswer(NamedTuple):
    """To OffsetCommit and to TxnOffsetCommit."""

    partitions: tuple[PartitionError, ...]


class OffsetFetch(NamedTuple):
    group_id: str
    partitions: tuple[TopicPartition, ...] | None = None  # None: all that there are
    require_stable: bool = False
    member_id: str | None = None
    member_epoch: int = -1


class OffsetFetched(NamedTuple):
    partition: TopicPartition
    error: Error = Error.NONE
    offset: int = NO_OFFSET
    leader_epoch: int = UNKNOWN_EPOCH
    metadata: str = ""


class OffsetFetchAnswer(NamedTuple):
    error: Error
    group_id: str
    partitions: tuple[OffsetFetched, ...] = ()


class OffsetDelete(NamedTuple):
    group_id: str
    partitions: tuple[TopicPartition, ...]


class OffsetDeleteAnswer(NamedTuple):
    error: Error
    partitions: tuple[PartitionError, ...] = ()


class TopicsDeleted(NamedTuple):
    """The host to every shard: these topics are gone, and what was committed for them goes too."""

    topics: tuple[str, ...]


class TopicsDeletedAnswer(NamedTuple):
    error: Error


# Administrators


class ListGroups(NamedTuple):
    states: tuple[str, ...] = ()  # empty: all
    types: tuple[str, ...] = ()


class ListedGroup(NamedTuple):
    group_id: str
    protocol_type: str
    state: str
    type: str


class ListGroupsAnswer(NamedTuple):
    error: Error
    groups: tuple[ListedGroup, ...] = ()


class DescribeGroup(NamedTuple):
    """One of those that a DescribeGroups names."""

    group_id: str
    api_version: int = 6


class DescribedMember(NamedTuple):
    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    metadata: bytes
    assignment: bytes


class DescribeGroupAnswer(NamedTuple):
    error: Error
    group_id: str
    error_message: str | None = None
    state: str = ""
    protocol_type: str = ""
    protocol_data: str = ""
    members: tuple[DescribedMember, ...] = ()


class DeleteGroup(NamedTuple):
    """One of those that a DeleteGroups names."""

    group_id: str


class DeleteGroupAnswer(NamedTuple):
    error: Error
    group_id: str


GroupRequest = (
    JoinGroup
    | SyncGroup
    | Heartbeat
    | LeaveGroup
    | ConsumerGroupHeartbeat
    | ConsumerGroupDescribe
    | OffsetCommit
    | TxnOffsetCommit
    | OffsetFetch
    | OffsetDelete
    | DescribeGroup
    | DeleteGroup
)
Request = GroupRequest | ListGroups | TopicsDeleted


def key_of(request: GroupRequest) -> str:
    """What says which partition of `__consumer_offsets`, and so which shard, is responsible."""
    return request.group_id
