"""Messages: what is written is read again, whatever is in them; what cannot be true is refused."""

from __future__ import annotations

import struct
import time
import uuid
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kafka_messages import every_version, fields_of, plain
from lossless.wire import bounds
from lossless.wire.bounds import ELEMENTS_MAX, TAGS_MAX, BadMessage, within_bounds
from lossless.wire.codec import UnknownField, make, read, request_class, response_class, write
from lossless.wire.encoding import array, string, varint

VERSIONS = list(every_version())
METADATA, FETCH, PRODUCE, HEARTBEAT, DESCRIBE_TOPICS = 3, 1, 0, 12, 75
BRIEFLY = settings(
    max_examples=200, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)


def _same(written: Any, fields: Any) -> None:
    """What was given is there; kio has one value for an id of zeroes and none."""
    if isinstance(fields, dict):
        for name, value in fields.items():
            _same(written[name], value)
    elif isinstance(fields, list):
        assert len(written) == len(fields)
        for one, value in zip(written, fields, strict=True):
            _same(one, value)
    else:
        assert written == fields


@BRIEFLY
@given(st.data())
def test_a_message_is_read_as_it_was_written(data: st.DataObject) -> None:
    api, version = data.draw(st.sampled_from(VERSIONS))
    kind = data.draw(st.sampled_from([request_class, response_class]))
    entity = kind(api.key, version)
    fields = data.draw(fields_of(entity))
    message = make(entity, fields)
    _same(plain(message), fields)
    before, behind = data.draw(st.tuples(st.binary(max_size=3), st.binary(max_size=3)))
    assert read(entity, before + write(message) + behind, len(before)) == message


@pytest.mark.parametrize(("api", "version"), VERSIONS, ids=lambda part: getattr(part, "name", part))
def test_the_message_of_which_nobody_says_anything_is_read_as_it_was_written(
    api: Any, version: int
) -> None:
    for kind in (request_class, response_class):
        entity = kind(api.key, version)
        message = make(entity, {})
        assert read(entity, write(message), 0) == message


@BRIEFLY
@given(st.data())
def test_a_message_that_is_cut_off_is_refused(data: st.DataObject) -> None:
    api, version = data.draw(st.sampled_from(VERSIONS))
    entity = request_class(api.key, version)
    whole = write(make(entity, data.draw(fields_of(entity))))
    cut = data.draw(st.integers(0, max(0, len(whole) - 1)))
    if whole:
        with pytest.raises(BadMessage):
            read(entity, whole[:cut], 0)


@BRIEFLY
@given(st.data())
def test_any_bytes_are_a_message_or_refused(data: st.DataObject) -> None:
    api, version = data.draw(st.sampled_from(VERSIONS))
    entity = request_class(api.key, version)
    garbage = data.draw(st.binary(max_size=60) | st.binary(max_size=4).map(lambda b: b * 20))
    try:
        message = read(entity, garbage, 0)
    except BadMessage:
        return
    assert type(message) is entity


# Fields by name


def test_a_field_that_no_version_has_is_refused() -> None:
    with pytest.raises(UnknownField, match="MetadataRequest has no topcis"):
        make(request_class(METADATA, 12), {"topcis": []})
    with pytest.raises(UnknownField, match="nmae"):
        make(request_class(METADATA, 12), {"topics": [{"nmae": "a"}]})


def test_a_field_that_only_another_version_has_is_left_out() -> None:
    fields = {"group_id": "g", "generation_id": 1, "member_id": "m", "group_instance_id": "i"}
    assert not hasattr(make(request_class(HEARTBEAT, 0), fields), "group_instance_id")
    assert make(request_class(HEARTBEAT, 4), fields).group_instance_id == "i"


def test_what_nobody_says_has_the_protocols_default_or_is_nothing() -> None:
    fetch = make(request_class(FETCH, 17), {"topics": [{"partitions": [{}]}]})
    assert fetch.replica_state.replica_id == -1
    assert fetch.max_bytes == 0x7FFFFFFF
    assert fetch.session_epoch == -1
    assert fetch.topics[0].partitions[0].current_leader_epoch == -1
    assert fetch.forgotten_topics_data == ()
    assert fetch.rack_id == ""


# What cannot be true


@pytest.mark.parametrize(
    ("key", "version", "data"),
    [
        (METADATA, 12, varint(0xFFFFFFFF)),
        (METADATA, 12, varint(0x80000000) + b"\0" * 100),
        (METADATA, 12, varint(1000) + b"\0" * 100),
        (METADATA, 12, b"\xff" * 5),
        (METADATA, 1, struct.pack(">i", 0x7FFFFFFF) + b"\0" * 100),
        (METADATA, 1, struct.pack(">i", -2)),
        (METADATA, 0, struct.pack(">i", -1)),  # only from version 1 on may it be missing
        (FETCH, 7, struct.pack(">iiiibiii", 0, 0, 0, 0, 0, 0, 0, 0x7FFFFFFF)),
        (74, 1, varint(0x7FFFFFFF)),  # an array of numbers
        (74, 1, varint(20) + b"\0" * 5),
        (METADATA, 12, b"\1\0\0" + varint(0x7FFFFFFF) + b"\0" * 10),
        (METADATA, 12, b"\1\0\0\1\0\x7fabc"),
    ],
)
def test_counts_that_cannot_be_true_are_refused_before_kio_believes_them(
    key: int, version: int, data: bytes
) -> None:
    with pytest.raises(BadMessage):
        within_bounds(request_class(key, version), data, 0)


def test_a_message_has_at_most_so_many_elements_in_all_its_lists_together(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    entity = request_class(METADATA, 1)

    def asked(count: int) -> bytes:
        return array(count, False) + string("a", False) * count

    assert len(read(entity, asked(ELEMENTS_MAX), 0).topics) == ELEMENTS_MAX
    with pytest.raises(BadMessage, match="elements"):
        read(entity, asked(ELEMENTS_MAX + 1), 0)
    # Lists within lists are counted together.
    inner = {"topics": [{"topic": "t", "partitions": [{}] * 60}] * 60, "replica_id": -1}
    nested = request_class(FETCH, 4)
    data = write(make(nested, inner))
    assert read(nested, data, 0).topics[59].partitions[59].partition == 0
    monkeypatch.setattr(bounds, "ELEMENTS_MAX", 60 * 60 + 59)
    with pytest.raises(BadMessage, match="elements"):
        read(nested, data, 0)


def test_a_text_is_as_long_as_kafka_allows() -> None:
    entity = request_class(METADATA, 12)

    def asked(size: int) -> bytes:
        return write(make(entity, {"topics": [{"name": "x" * size}]}))

    assert len(read(entity, asked(0x7FFF), 0).topics[0].name) == 0x7FFF
    with pytest.raises(BadMessage, match="a text of 32768 bytes"):
        read(entity, asked(0x8000), 0)


# Tagged fields


@pytest.mark.parametrize(
    "data",
    [
        b"\1\0\0" + varint(0x7FFFFFFF) + b"\0" * 20_000_000,  # behind the body
        b"\1\0\0" + varint(TAGS_MAX + 1) + b"\0" * 2 * (TAGS_MAX + 1),
        # In each of many elements, no more than there may be in each.
        varint(2001) + (b"\0" * 16 + b"\2a" + varint(TAGS_MAX) + b"\x70\0" * TAGS_MAX) * 2000,
    ],
    ids=["two billion", "one too many", "many sets"],
)
def test_more_tagged_fields_than_there_may_be_are_refused_at_once(data: bytes) -> None:
    started = time.process_time()
    with pytest.raises(BadMessage):
        read(request_class(METADATA, 12), data, 0)
    assert time.process_time() - started < 0.5


def test_tagged_fields_that_nobody_knows_are_ignored_and_the_others_are_read() -> None:
    entity = request_class(FETCH, 17)
    message = make(
        entity, {"cluster_id": "abc", "replica_state": {"replica_id": 3, "replica_epoch": 4}}
    )
    data = write(message)
    known = b"\2\0\4\4abc\1\r" + struct.pack(">iq", 3, 4) + b"\0"
    assert data.endswith(known)
    # One more behind them, and one within the state of the replica.
    unknown = b"\x7f\3xyz"
    state = struct.pack(">iq", 3, 4) + b"\1" + unknown
    more = b"\3\0\4\4abc\1" + varint(len(state)) + state + unknown
    assert read(entity, data[: -len(known)] + more + b"behind", 0) == message


def test_tagged_fields_within_elements_are_ignored_too() -> None:
    entity = request_class(METADATA, 12)
    topic = b"\0" * 16 + string("a", True) + b"\1\x0a\2hi"
    data = array(2, True) + topic + topic + b"\1\0" + b"\2\x05\0\x06\1!"
    message = read(entity, data, 0)
    assert [topic.name for topic in message.topics] == ["a", "a"]
    assert message.allow_auto_topic_creation is True


def test_a_tagged_field_that_does_not_end_where_it_says_is_refused() -> None:
    entity = request_class(FETCH, 17)
    data = write(make(entity, {"cluster_id": "abc"}))
    assert data.endswith(b"\1\0\4\4abc")
    with pytest.raises(BadMessage, match="does not end where it says"):
        read(entity, data[:-7] + b"\1\0\5\4abcd", 0)


def test_a_message_that_may_be_missing_is_walked_over() -> None:
    entity = request_class(DESCRIBE_TOPICS, 0)
    for cursor in (None, {"topic_name": "t", "partition_index": 7}):
        message = make(entity, {"topics": [{"name": "t"}], "cursor": cursor})
        assert read(entity, write(message), 0) == message


def test_an_answer_may_be_as_long_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is of another node of ours."""
    monkeypatch.setattr(bounds, "ELEMENTS_MAX", 10)
    entity = response_class(METADATA, 12)
    topics = [{"name": "t", "topic_id": uuid.UUID(int=1)}] * 11
    assert len(read(entity, write(make(entity, {"topics": topics})), 0).topics) == 11
