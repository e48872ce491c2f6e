"""The records of `__consumer_offsets`, byte for byte as Kafka writes them.

A key begins with a number that says what it is the key of; a value begins with its own version.

    0, 1  an offset                       value 3, or 1 where the commit says when it expires
    2     a classic group                 value 3
    3     a consumer group                value 0, with the hash of its topics (KIP-1101)
    5     a member of one                 value 0
    6     … the epoch of its target       value 0
    7     … a member's target             value 0
    8     … what a member has             value 0
    16    … a regular expression          value 0

Values are read in every version that Kafka has had. What is not known here is skipped: a newer
broker may have written it, as Kafka's 4 (until 4.0, the topics themselves instead of their hash)
or the records of share groups.
"""

from __future__ import annotations

import enum
import struct
from typing import NamedTuple

from lossless.core.encoding import Malformed, Reader, Writer
from lossless.core.messages import UNKNOWN_EPOCH

NO_TIMESTAMP = -1
_VERSION_SIZE = 2
_HASH_TAG = 0
_HASH = struct.Struct(">q")
_NO_HASH = _HASH.pack(0)

Partitions = frozenset[tuple[int, int]]  # topic ids and partition numbers
NO_PARTITIONS: Partitions = frozenset()


class MemberState(enum.IntEnum):
    """Of a member of a consumer group."""

    STABLE = 0
    UNREVOKED_PARTITIONS = 1  # it has to give up partitions before it gets to the next epoch
    UNRELEASED_PARTITIONS = 2  # it waits for partitions that others have not given up yet
    UNKNOWN = 127  # written by a newer broker


# Keys


class OffsetCommitKey(NamedTuple):
    group: str
    topic: str
    partition: int


class GroupMetadataKey(NamedTuple):
    group: str


class ConsumerGroupMetadataKey(NamedTuple):
    group: str


class ConsumerGroupMemberMetadataKey(NamedTuple):
    group: str
    member_id: str


class ConsumerGroupTargetAssignmentMetadataKey(NamedTuple):
    group: str


class ConsumerGroupTargetAssignmentMemberKey(NamedTuple):
    group: str
    member_id: str


class ConsumerGroupCurrentMemberAssignmentKey(NamedTuple):
    group: str
    member_id: str


class ConsumerGroupRegularExpressionKey(NamedTuple):
    group: str
    regular_expression: str


Key = (
    OffsetCommitKey
    | GroupMetadataKey
    | ConsumerGroupMetadataKey
    | ConsumerGroupMemberMetadataKey
    | ConsumerGroupTargetAssignmentMetadataKey
    | ConsumerGroupTargetAssignmentMemberKey
    | ConsumerGroupCurrentMemberAssignmentKey
    | ConsumerGroupRegularExpressionKey
)
_WRITTEN_AS: dict[type[Key], int] = {
    OffsetCommitKey: 1,
    GroupMetadataKey: 2,
    ConsumerGroupMetadataKey: 3,
    ConsumerGroupMemberMetadataKey: 5,
    ConsumerGroupTargetAssignmentMetadataKey: 6,
    ConsumerGroupTargetAssignmentMemberKey: 7,
    ConsumerGroupCurrentMemberAssignmentKey: 8,
    ConsumerGroupRegularExpressionKey: 16,
}
_GROUP_KEYS: dict[int, type[Key]] = {
    2: GroupMetadataKey,
    3: ConsumerGroupMetadataKey,
    6: ConsumerGroupTargetAssignmentMetadataKey,
}
_PAIR_KEYS: dict[int, type[Key]] = {
    5: ConsumerGroupMemberMetadataKey,
    7: ConsumerGroupTargetAssignmentMemberKey,
    8: ConsumerGroupCurrentMemberAssignmentKey,
    16: ConsumerGroupRegularExpressionKey,
}


# Values


class OffsetCommitValue(NamedTuple):
    offset: int
    leader_epoch: int = UNKNOWN_EPOCH
    metadata: str = ""
    commit_timestamp_ms: int = NO_TIMESTAMP
    expire_timestamp_ms: int = NO_TIMESTAMP


class GroupMetadataMember(NamedTuple):
    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    subscription: bytes
    assignment: bytes


class GroupMetadataValue(NamedTuple):
    protocol_type: str
    generation: int
    protocol: str | None
    leader: str | None
    current_state_timestamp_ms: int
    members: tuple[GroupMetadataMember, ...]


class ConsumerGroupMetadataValue(NamedTuple):
    epoch: int
    metadata_hash: int = 0


class ConsumerGroupMemberMetadataValue(NamedTuple):
    instance_id: str | None
    rack_id: str | None
    client_id: str
    client_host: str
    subscribed_topic_names: tuple[str, ...]
    subscribed_topic_regex: str | None
    rebalance_timeout_ms: int
    server_assignor: str | None


class ConsumerGroupTargetAssignmentMetadataValue(NamedTuple):
    assignment_epoch: int


class ConsumerGroupTargetAssignmentMemberValue(NamedTuple):
    partitions: Partitions


class ConsumerGroupCurrentMemberAssignmentValue(NamedTuple):
    member_epoch: int
    previous_member_epoch: int
    state: MemberState
    assigned: Partitions
    pending_revocation: Partitions


class ConsumerGroupRegularExpressionValue(NamedTuple):
    topics: tuple[str, ...]
    version: int  # of the metadata that it was looked up in
    timestamp_ms: int


Value = (
    OffsetCommitValue
    | GroupMetadataValue
    | ConsumerGroupMetadataValue
    | ConsumerGroupMemberMetadataValue
    | ConsumerGroupTargetAssignmentMetadataValue
    | ConsumerGroupTargetAssignmentMemberValue
    | ConsumerGroupCurrentMemberAssignmentValue
    | ConsumerGroupRegularExpressionValue
)


def encoded(key: Key, value: Value | None) -> tuple[bytes, bytes | None]:
    """A record, as a log takes it. None forgets the key."""
    return encode_key(key), None if value is None else encode_value(value)


def encode_key(key: Key) -> bytes:
    writer = Writer(flexible=False)
    writer.int16(_WRITTEN_AS[type(key)])
    writer.string(key.group)
    if isinstance(key, OffsetCommitKey):
        writer.string(key.topic)
        writer.int32(key.partition)
    elif isinstance(key, ConsumerGroupRegularExpressionKey):
        writer.string(key.regular_expression)
    elif not isinstance(
        key,
        GroupMetadataKey | ConsumerGroupMetadataKey | ConsumerGroupTargetAssignmentMetadataKey,
    ):
        writer.string(key.member_id)
    return bytes(writer.data)


def decode_key(data: bytes) -> Key | None:
    """None for what is not known here."""
    reader = Reader(data, flexible=False)
    try:
        number = reader.int16()
        if number in (0, 1):
            return OffsetCommitKey(reader.string(), reader.string(), reader.int32())
        if number in _GROUP_KEYS:
            return _GROUP_KEYS[number](reader.string())  # type: ignore[call-arg]
        if number in _PAIR_KEYS:
            return _PAIR_KEYS[number](reader.string(), reader.string())  # type: ignore[call-arg]
    except Malformed:
        pass
    return None


def encode_value(value: Value) -> bytes:
    match value:
        case OffsetCommitValue():
            return _encode_offset(value)
        case GroupMetadataValue():
            return _encode_group(value)
    writer = Writer(flexible=True)
    writer.int16(0)
    tagged: tuple[tuple[int, bytes], ...] = ()
    match value:
        case ConsumerGroupMetadataValue():
            writer.int32(value.epoch)
            if value.metadata_hash:
                tagged = ((_HASH_TAG, _HASH.pack(value.metadata_hash)),)
        case ConsumerGroupMemberMetadataValue():
            writer.string(value.instance_id)
            writer.string(value.rack_id)
            writer.string(value.client_id)
            writer.string(value.client_host)
            _write_strings(writer, value.subscribed_topic_names)
            writer.string(value.subscribed_topic_regex)
            writer.int32(value.rebalance_timeout_ms)
            writer.string(value.server_assignor)
        case ConsumerGroupTargetAssignmentMetadataValue():
            writer.int32(value.assignment_epoch)
        case ConsumerGroupTargetAssignmentMemberValue():
            _write_partitions(writer, value.partitions)
        case ConsumerGroupCurrentMemberAssignmentValue():
            writer.int32(value.member_epoch)
            writer.int32(value.previous_member_epoch)
            writer.int8(value.state)
            _write_partitions(writer, value.assigned)
            _write_partitions(writer, value.pending_revocation)
        case _:
            _write_strings(writer, value.topics)
            writer.int64(value.version)
            writer.int64(value.timestamp_ms)
    writer.tagged(tagged)
    return bytes(writer.data)


def decode_value(key: Key, data: bytes) -> Value | None:
    """None for a version that is not known here."""
    try:
        version = Reader(data, flexible=False).int16()
        match key:
            case OffsetCommitKey():
                return _decode_offset(version, data) if 0 <= version <= 4 else None
            case GroupMetadataKey():
                return _decode_group(version, data) if 0 <= version <= 4 else None
        return _decode_consumer(key, data) if version == 0 else None
    except Malformed:
        return None


def _decode_consumer(key: Key, data: bytes) -> Value:
    reader = Reader(data, flexible=True, at=_VERSION_SIZE)
    match key:
        case ConsumerGroupMetadataKey():
            epoch = reader.int32()
            hashed = Reader(reader.tagged().get(_HASH_TAG, _NO_HASH), flexible=True)
            return ConsumerGroupMetadataValue(epoch, hashed.int64())
        case ConsumerGroupMemberMetadataKey():
            return ConsumerGroupMemberMetadataValue(
                reader.nullable_string(),
                reader.nullable_string(),
                reader.string(),
                reader.string(),
                _read_strings(reader),
                reader.nullable_string(),
                reader.int32(),
                reader.nullable_string(),
            )
        case ConsumerGroupTargetAssignmentMetadataKey():
            return ConsumerGroupTargetAssignmentMetadataValue(reader.int32())
        case ConsumerGroupTargetAssignmentMemberKey():
            return ConsumerGroupTargetAssignmentMemberValue(_read_partitions(reader))
        case ConsumerGroupCurrentMemberAssignmentKey():
            return ConsumerGroupCurrentMemberAssignmentValue(
                reader.int32(),
                reader.int32(),
                _member_state(reader.int8()),
                _read_partitions(reader),
                _read_partitions(reader),
            )
    return ConsumerGroupRegularExpressionValue(
        _read_strings(reader), reader.int64(), reader.int64()
    )


def _member_state(number: int) -> MemberState:
    known = number in {state.value for state in MemberState}
    return MemberState(number) if known else MemberState.UNKNOWN


# Offsets and classic groups, whose older versions are not flexible


def _encode_offset(value: OffsetCommitValue) -> bytes:
    writer = Writer(flexible=False)
    has_expiry = value.expire_timestamp_ms != NO_TIMESTAMP
    # Only version 1 can say when an offset expires, and it cannot say a leader epoch.
    writer.int16(1 if has_expiry else 3)
    writer.int64(value.offset)
    if not has_expiry:
        writer.int32(value.leader_epoch)
    writer.string(value.metadata)
    writer.int64(value.commit_timestamp_ms)
    if has_expiry:
        writer.int64(value.expire_timestamp_ms)
    return bytes(writer.data)


def _decode_offset(version: int, data: bytes) -> OffsetCommitValue:
    reader = Reader(data, flexible=version >= 4, at=_VERSION_SIZE)
    return OffsetCommitValue(
        reader.int64(),
        reader.int32() if version >= 3 else UNKNOWN_EPOCH,
        reader.string(),
        reader.int64(),
        reader.int64() if version == 1 else NO_TIMESTAMP,
    )


def _encode_group(value: GroupMetadataValue) -> bytes:
    writer = Writer(flexible=False)
    writer.int16(3)
    writer.string(value.protocol_type)
    writer.int32(value.generation)
    writer.string(value.protocol)
    writer.string(value.leader)
    writer.int64(value.current_state_timestamp_ms)
    writer.count(len(value.members))
    for member in value.members:
        writer.string(member.member_id)
        writer.string(member.group_instance_id)
        writer.string(member.client_id)
        writer.string(member.client_host)
        writer.int32(member.rebalance_timeout_ms)
        writer.int32(member.session_timeout_ms)
        writer.blob(member.subscription)
        writer.blob(member.assignment)
    return bytes(writer.data)


def _decode_group(version: int, data: bytes) -> GroupMetadataValue:
    reader = Reader(data, flexible=version >= 4, at=_VERSION_SIZE)
    return GroupMetadataValue(
        reader.string(),
        reader.int32(),
        reader.nullable_string(),
        reader.nullable_string(),
        reader.int64() if version >= 2 else NO_TIMESTAMP,
        tuple(_decode_member(reader, version) for _ in range(reader.count())),
    )


def _decode_member(reader: Reader, version: int) -> GroupMetadataMember:
    member_id = reader.string()
    group_instance_id = reader.nullable_string() if version >= 3 else None
    client_id, client_host = reader.string(), reader.string()
    rebalance_timeout_ms = reader.int32() if version >= 1 else -1
    session_timeout_ms = reader.int32()
    subscription, assignment = reader.blob(), reader.blob()
    reader.tagged()
    return GroupMetadataMember(
        member_id,
        group_instance_id,
        client_id,
        client_host,
        rebalance_timeout_ms,
        session_timeout_ms,
        subscription,
        assignment,
    )


# What several of them are made of


def _write_strings(writer: Writer, values: tuple[str, ...]) -> None:
    writer.count(len(values))
    for value in values:
        writer.string(value)


def _read_strings(reader: Reader) -> tuple[str, ...]:
    return tuple(reader.string() for _ in range(reader.count()))


def _write_partitions(writer: Writer, partitions: Partitions) -> None:
    topics = by_topic(partitions)
    writer.count(len(topics))
    for topic_id, numbers in topics:
        writer.uuid(topic_id)
        writer.count(len(numbers))
        for number in numbers:
            writer.int32(number)
        writer.tagged()


def _read_partitions(reader: Reader) -> Partitions:
    partitions = set()
    for _ in range(reader.count()):
        topic_id = reader.uuid()
        partitions |= {(topic_id, reader.int32()) for _ in range(reader.count())}
        reader.tagged()
    return frozenset(partitions)


def by_topic(partitions: Partitions) -> list[tuple[int, tuple[int, ...]]]:
    """Topic by topic, in order: equal sets become equal bytes."""
    topics: dict[int, list[int]] = {}
    for topic_id, number in sorted(partitions):
        topics.setdefault(topic_id, []).append(number)
    return [(topic_id, tuple(numbers)) for topic_id, numbers in topics.items()]
