"""The records of `__consumer_offsets`, against bytes worked out by hand from Kafka's schemas."""

from __future__ import annotations

import pytest
from group_host import GROUP, ORDERS_0, Host
from hypothesis import given
from hypothesis import strategies as st

from lossless.core.encoding import Malformed, Reader, Writer
from lossless.core.groups.records import (
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
    GroupMetadataKey,
    GroupMetadataMember,
    GroupMetadataValue,
    Key,
    MemberState,
    OffsetCommitKey,
    OffsetCommitValue,
    Value,
    decode_key,
    decode_value,
    encode_key,
    encode_value,
)
from lossless.log.batch import Record

UUID = bytes(15) + b"\xa1"
OTHER_UUID = b"\xff" * 16
MEMBER = GroupMetadataMember("m", "i", "c", "h", 3, 4, b"sub", b"as")

# Key, its bytes, value, its bytes.
WRITTEN: list[tuple[Key, bytes, Value, bytes]] = [
    (
        OffsetCommitKey("g", "t", 5),
        b"\0\1\0\1g\0\1t\0\0\0\5",
        OffsetCommitValue(9, 2, "m", 7),
        b"\0\3" + b"\0\0\0\0\0\0\0\x09" + b"\0\0\0\2" + b"\0\1m" + b"\0\0\0\0\0\0\0\7",
    ),
    (
        OffsetCommitKey("g", "t", 5),
        b"\0\1\0\1g\0\1t\0\0\0\5",
        OffsetCommitValue(9, -1, "m", 7, 8),
        b"\0\1" + b"\0\0\0\0\0\0\0\x09" + b"\0\1m" + b"\0\0\0\0\0\0\0\7" + b"\0\0\0\0\0\0\0\x08",
    ),
    (
        GroupMetadataKey("g"),
        b"\0\2\0\1g",
        GroupMetadataValue("t", 2, "p", "m", 7, (MEMBER,)),
        (
            b"\0\3\0\1t\0\0\0\2\0\1p\0\1m\0\0\0\0\0\0\0\7\0\0\0\1"
            b"\0\1m\0\1i\0\1c\0\1h\0\0\0\3\0\0\0\4\0\0\0\3sub\0\0\0\2as"
        ),
    ),
    (
        GroupMetadataKey("g"),
        b"\0\2\0\1g",
        GroupMetadataValue("", 2, None, None, -1, ()),
        b"\0\3\0\0\0\0\0\2\xff\xff\xff\xff" + b"\xff" * 8 + b"\0\0\0\0",
    ),
    (
        ConsumerGroupMetadataKey("g"),
        b"\0\3\0\1g",
        ConsumerGroupMetadataValue(3),
        b"\0\0\0\0\0\3\0",
    ),
    (
        ConsumerGroupMetadataKey("g"),
        b"\0\3\0\1g",
        ConsumerGroupMetadataValue(3, -2),
        b"\0\0\0\0\0\3\1\0\x08" + b"\xff" * 7 + b"\xfe",
    ),
    (
        ConsumerGroupMemberMetadataKey("g", "m"),
        b"\0\5\0\1g\0\1m",
        ConsumerGroupMemberMetadataValue("i", "r", "c", "h", ("a", "b"), "x", 9, "u"),
        b"\0\0\2i\2r\2c\2h\3\2a\2b\2x\0\0\0\x09\2u\0",
    ),
    (
        ConsumerGroupMemberMetadataKey("g", "m"),
        b"\0\5\0\1g\0\1m",
        ConsumerGroupMemberMetadataValue(None, None, "", "", (), None, -1, None),
        b"\0\0\0\0\1\1\1\0\xff\xff\xff\xff\0\0",
    ),
    (
        ConsumerGroupTargetAssignmentMetadataKey("g"),
        b"\0\6\0\1g",
        ConsumerGroupTargetAssignmentMetadataValue(4),
        b"\0\0\0\0\0\4\0",
    ),
    (
        ConsumerGroupTargetAssignmentMemberKey("g", "m"),
        b"\0\7\0\1g\0\1m",
        ConsumerGroupTargetAssignmentMemberValue(
            frozenset({(0xA1, 2), (0xA1, 0), ((1 << 128) - 1, 1)})
        ),
        b"\0\0\3" + (UUID + b"\3\0\0\0\0\0\0\0\2\0") + (OTHER_UUID + b"\2\0\0\0\1\0") + b"\0",
    ),
    (
        ConsumerGroupCurrentMemberAssignmentKey("g", "m"),
        b"\0\x08\0\1g\0\1m",
        ConsumerGroupCurrentMemberAssignmentValue(
            5, 4, MemberState.UNREVOKED_PARTITIONS, frozenset({(0xA1, 0)}), frozenset()
        ),
        b"\0\0\0\0\0\5\0\0\0\4\1\2" + UUID + b"\2\0\0\0\0\0\1\0",
    ),
    (
        ConsumerGroupRegularExpressionKey("g", "o.*"),
        b"\0\x10\0\1g\0\3o.*",
        ConsumerGroupRegularExpressionValue(("orders",), 3, 7),
        b"\0\0\2\7orders\0\0\0\0\0\0\0\3\0\0\0\0\0\0\0\7\0",
    ),
]


@pytest.mark.parametrize(("key", "key_bytes", "value", "value_bytes"), WRITTEN)
def test_records_are_written_and_read_as_kafka_does(
    key: Key, key_bytes: bytes, value: Value, value_bytes: bytes
) -> None:
    assert encode_key(key) == key_bytes
    assert decode_key(key_bytes) == key
    assert encode_value(value) == value_bytes
    assert decode_value(key, value_bytes) == value


# What older and newer brokers wrote


def test_the_key_of_an_offset_has_two_numbers() -> None:
    assert decode_key(b"\0\0\0\1g\0\1t\0\0\0\5") == OffsetCommitKey("g", "t", 5)


@pytest.mark.parametrize(
    ("data", "value"),
    [
        (b"\0\0" + bytes(7) + b"\x09\0\1m" + bytes(7) + b"\7", OffsetCommitValue(9, -1, "m", 7)),
        (b"\0\2" + bytes(7) + b"\x09\0\1m" + bytes(7) + b"\7", OffsetCommitValue(9, -1, "m", 7)),
        (
            b"\0\4" + bytes(7) + b"\x09\0\0\0\2\2m" + bytes(7) + b"\7\0",
            OffsetCommitValue(9, 2, "m", 7),
        ),
    ],
)
def test_offsets_are_read_in_every_version(data: bytes, value: OffsetCommitValue) -> None:
    assert decode_value(OffsetCommitKey("g", "t", 0), data) == value


@pytest.mark.parametrize(
    ("data", "timestamp", "instance", "rebalance"),
    [
        (b"\0\0\0\1t\0\0\0\2\0\1p\0\1m\0\0\0\1\0\1m\0\1c\0\1h", -1, None, -1),
        (
            b"\0\1\0\1t\0\0\0\2\0\1p\0\1m\0\0\0\1\0\1m\0\1c\0\1h\0\0\0\3",
            -1,
            None,
            3,
        ),
        (
            b"\0\2\0\1t\0\0\0\2\0\1p\0\1m" + bytes(7) + b"\7\0\0\0\1\0\1m\0\1c\0\1h\0\0\0\3",
            7,
            None,
            3,
        ),
    ],
)
def test_groups_are_read_in_every_version(
    data: bytes, timestamp: int, instance: str | None, rebalance: int
) -> None:
    data += b"\0\0\0\4\0\0\0\3sub\0\0\0\2as"
    member = MEMBER._replace(group_instance_id=instance, rebalance_timeout_ms=rebalance)
    assert decode_value(GroupMetadataKey("g"), data) == GroupMetadataValue(
        "t", 2, "p", "m", timestamp, (member,)
    )


def test_groups_are_read_in_the_flexible_version() -> None:
    member = b"\2m\2i\2c\2h\0\0\0\3\0\0\0\4\4sub\3as\1\7\1x"
    data = b"\0\4\2t\0\0\0\2\2p\2m" + bytes(7) + b"\7\2" + member + b"\0"
    assert decode_value(GroupMetadataKey("g"), data) == GroupMetadataValue(
        "t", 2, "p", "m", 7, (MEMBER,)
    )


def test_a_member_state_that_is_not_known_is_unknown() -> None:
    data = b"\0\0\0\0\0\5\0\0\0\4\x09\1\1\0"
    value = decode_value(ConsumerGroupCurrentMemberAssignmentKey("g", "m"), data)
    assert isinstance(value, ConsumerGroupCurrentMemberAssignmentValue)
    assert value.state is MemberState.UNKNOWN


def test_fields_that_are_not_known_are_skipped() -> None:
    data = b"\0\0\0\0\0\3\2\1\1x\x09\0"
    assert decode_value(ConsumerGroupMetadataKey("g"), data) == ConsumerGroupMetadataValue(3)


@pytest.mark.parametrize(
    "key",
    [
        b"",
        b"\0",
        b"\0\4\0\1g",  # the topics of a consumer group, until 4.0
        b"\0\x09\0\1g",
        b"\0\x0a\0\1g\0\1m",  # share groups
        b"\xff\xff\0\1g",
        b"\0\2",
        b"\0\2\0\5g",
        b"\0\2\xff\xff",
        b"\0\2\0\1\xff",
        b"\0\1\0\1g\0\1t\0\0",
    ],
)
def test_keys_that_are_not_known_are_skipped(host: Host, key: bytes) -> None:
    host.commit()
    assert decode_key(key) is None
    for value in (None, b"", b"\0\0"):
        host.shard.apply(Record(1, 0, key, value), None)
    host.shard.apply(Record(1, 0, None, b""), None)
    assert host.fetched() == 5


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (OffsetCommitKey(GROUP, *ORDERS_0), b"\0\5" + bytes(40)),
        (OffsetCommitKey(GROUP, *ORDERS_0), b"\xff\xff" + bytes(40)),
        (OffsetCommitKey(GROUP, *ORDERS_0), b"\0\3\0"),
        (OffsetCommitKey(GROUP, *ORDERS_0), b""),
        (GroupMetadataKey(GROUP), b"\0\5" + bytes(40)),
        (GroupMetadataKey(GROUP), b"\0\3\0\0\0\0\0\2" + bytes(12) + b"\x7f\0\0\0"),
        (ConsumerGroupMetadataKey(GROUP), b"\0\1\0\0\0\3\0"),
        (ConsumerGroupMetadataKey(GROUP), b"\0\0\0\0\0\3\1\0\1\0"),
        (ConsumerGroupTargetAssignmentMemberKey(GROUP, "m"), b"\0\0\xff\xff\xff\xff\x0f"),
    ],
)
def test_values_that_are_not_known_are_skipped(host: Host, key: Key, value: bytes) -> None:
    host.commit()
    assert decode_value(key, value) is None
    host.shard.apply(Record(1, 0, encode_key(key), value), None)
    assert host.fetched() == 5
    assert [group.type for group in host.groups()] == ["classic"]


@pytest.mark.parametrize("key", [key for key, _, _, _ in WRITTEN])
def test_a_tombstone_of_what_is_not_there_does_nothing(host: Host, key: Key) -> None:
    host.write(key, None)
    assert host.groups() == ()
    host.consume("a", group_id="g")
    if not isinstance(key, ConsumerGroupMetadataKey):
        host.write(key, None)
        assert host.state("g") is not None


# Numbers and texts


@given(st.integers(0, (1 << 63) - 1))
def test_a_number_of_variable_length_is_read_as_it_was_written(number: int) -> None:
    writer = Writer(flexible=True)
    writer.unsigned_varint(number)
    assert Reader(bytes(writer.data), flexible=True).unsigned_varint() == number


@given(st.text(max_size=300), st.binary(max_size=300), st.booleans())
def test_texts_and_bytes_are_read_as_they_were_written(
    text: str, data: bytes, flexible: bool
) -> None:
    writer = Writer(flexible)
    writer.string(text)
    writer.blob(data)
    writer.tagged(((3, data),))
    reader = Reader(bytes(writer.data), flexible)
    assert (reader.string(), reader.blob()) == (text, data)
    assert reader.tagged() == ({3: data} if flexible else {})


@given(st.binary(max_size=60), st.sampled_from([key for key, _, _, _ in WRITTEN]))
def test_any_bytes_can_be_read_without_harm(data: bytes, key: Key) -> None:
    decode_key(data)
    for version in (b"\0\0", b"\0\1", b"\0\3", b"\0\4"):
        decode_value(key, version + data)


def test_a_null_where_a_text_has_to_be_is_malformed() -> None:
    with pytest.raises(Malformed):
        Reader(b"\0", flexible=True).string()
