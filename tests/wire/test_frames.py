"""Frames: headers as Kafka writes them, and bytes that are none."""

from __future__ import annotations

import struct
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lossless.wire.codec import make, request_class, write
from lossless.wire.encoding import varint
from lossless.wire.frames import (
    LENGTH,
    BadFrame,
    has_tagged_answer,
    header_of,
    peek,
    request,
    response,
)

API_VERSIONS = 18
_numbers = st.integers(-0x8000, 0x7FFF)


@given(
    _numbers, _numbers, st.integers(-(1 << 31), (1 << 31) - 1), st.text(max_size=20), st.booleans()
)
def test_a_request_has_the_header_that_it_was_given(
    key: int, version: int, correlation_id: int, client_id: str, tagged: bool
) -> None:
    frame = request(key, version, correlation_id, client_id, b"message", tagged=tagged)
    (length,) = LENGTH.unpack_from(frame)
    body = frame[LENGTH.size :]
    assert length == len(body)
    assert peek(body) == (key, version, correlation_id)
    header = header_of(body, is_flexible=tagged)
    assert header[:4] == (key, version, correlation_id, client_id)
    assert body[header.message_at :] == b"message"


@given(st.binary(max_size=40), st.booleans())
def test_any_bytes_have_a_header_or_are_refused(data: bytes, is_flexible: bool) -> None:
    try:
        header = header_of(data, is_flexible=is_flexible)
    except BadFrame:
        return
    assert 10 <= header.message_at <= len(data)


@pytest.mark.parametrize("size", range(10))
def test_less_than_a_header_is_refused(size: int) -> None:
    with pytest.raises(BadFrame):
        header_of(b"\0" * size, is_flexible=False)


@pytest.mark.parametrize("size", range(8))
def test_whoever_cannot_be_answered_is_refused(size: int) -> None:
    with pytest.raises(BadFrame):
        peek(b"\0" * size)


def _body(client_id: bytes, rest: bytes) -> bytes:
    return struct.pack(">hhi", 3, 12, 7) + client_id + rest


@pytest.mark.parametrize("length", [-1, -2, -0x8000])
def test_a_client_id_below_zero_bytes_is_none(length: int) -> None:
    header = header_of(_body(struct.pack(">h", length), b"rest"), is_flexible=False)
    assert header.client_id is None
    assert header.message_at == 10


def test_a_client_id_that_is_no_text_is_read_as_far_as_it_is_one() -> None:
    header = header_of(_body(b"\0\3a\xffb", b""), is_flexible=False)
    assert header.client_id == "a�b"


@pytest.mark.parametrize(
    "rest",
    [
        b"",  # tags are missing
        varint(0x7FFFFFFF),
        varint(0xFFFFFFFF) + b"\0\0" * 100,
        b"\xff" * 9,
        b"\1\0\x7fabc",
        b"\1\0" + varint(0x7FFFFFFF),
    ],
)
def test_tags_that_do_not_end_are_refused(rest: bytes) -> None:
    with pytest.raises(BadFrame):
        header_of(_body(b"\0\1a", rest), is_flexible=True)


def test_tags_of_a_header_are_skipped() -> None:
    body = _body(b"\0\1a", b"\2\0\3abc\x05\0" + b"message")
    assert body[header_of(body, is_flexible=True).message_at :] == b"message"


def test_answers_to_api_versions_have_no_tags_whatever_the_version() -> None:
    assert [has_tagged_answer(API_VERSIONS, version) for version in range(5)] == [False] * 5
    assert not has_tagged_answer(3, 8)
    assert has_tagged_answer(3, 9)


def test_an_answer_has_its_length_and_whom_it_answers() -> None:
    assert response(7, b"message", tagged=False) == struct.pack(">ii", 11, 7) + b"message"
    assert response(-1, b"message", tagged=True) == struct.pack(">ii", 12, -1) + b"\0message"


def test_the_messages_of_a_client_are_framed_as_kafka_frames_them() -> None:
    """As Kafka's protocol guide lays out a request: ApiVersions 3 of a client `ab`."""
    entity = request_class(API_VERSIONS, 3)
    fields = {"client_software_name": "n", "client_software_version": "v"}
    frame = request(API_VERSIONS, 3, 5, "ab", write(make(entity, fields)), tagged=True)
    assert frame.hex(" ") == "00 00 00 12 00 12 00 03 00 00 00 05 00 02 61 62 00 02 6e 02 76 00"


def test_more_tags_in_a_header_than_there_may_be_are_refused_at_once() -> None:
    data = struct.pack(">hhih", 3, 12, 7, 0) + varint(0x7FFFFFFF) + b"\0" * 20_000_000
    started = time.process_time()
    with pytest.raises(BadFrame, match="2147483647 tagged fields"):
        header_of(data, is_flexible=True)
    assert time.process_time() - started < 0.5
