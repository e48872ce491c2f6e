"""Frames: a length, a header, a message.

    request    length 4 │ key 2 │ version 2 │ correlation id 4 │ client id │ tags? │ message
    response   length 4 │ correlation id 4 │ tags? │ message

Headers of newer (flexible) versions end in tagged fields, of which none are defined; the client id
stays a string of the old kind. Answers to ApiVersions never have them: whoever asks does not know
yet what it may expect.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from lossless.wire.bounds import TAGS_MAX
from lossless.wire.codec import request_class
from lossless.wire.versions import API_VERSIONS

LENGTH = struct.Struct(">i")
CORRELATION_AT, AFTER_CORRELATION = 4, 8  # in a request, without its length
_START = struct.Struct(">hhih")  # key, version, correlation id, length of the client id
_REQUEST = struct.Struct(">ihhih")  # the same, after the length of everything
_NAMED = struct.Struct(">hhi")
_CORRELATION = struct.Struct(">ii")
_NO_TAGS = b"\0"


class BadFrame(ValueError):
    """Bytes that are no request. There is nobody to answer: the connection is closed."""


class Header(NamedTuple):
    key: int
    version: int
    correlation_id: int
    client_id: str | None
    message_at: int


def peek(frame: bytes | memoryview) -> tuple[int, int, int]:
    """Key, version and correlation id of a request, whatever follows."""
    if len(frame) < _NAMED.size:
        raise BadFrame(f"a request of {len(frame)} bytes")
    key, version, correlation_id = _NAMED.unpack_from(frame)
    return key, version, correlation_id


def header_of(frame: bytes | memoryview, *, is_flexible: bool) -> Header:
    if len(frame) < _START.size:
        raise BadFrame(f"a request of {len(frame)} bytes")
    key, version, correlation_id, size = _START.unpack_from(frame)
    at = _START.size
    client_id = None
    if size >= 0:
        client_id = bytes(frame[at : at + size]).decode(errors="replace")
        at += size
    if is_flexible:
        at = _after_tags(frame, at)
    if at > len(frame):
        raise BadFrame("the header does not end")
    return Header(key, version, correlation_id, client_id, at)


def _after_tags(frame: bytes | memoryview, at: int) -> int:
    count, at = _varint(frame, at)
    if count > TAGS_MAX:
        raise BadFrame(f"{count} tagged fields in the header")
    for _ in range(count):
        _, at = _varint(frame, at)
        size, at = _varint(frame, at)
        at += size
    return at


def _varint(frame: bytes | memoryview, at: int) -> tuple[int, int]:
    value = shift = 0
    while at < len(frame) and shift < 35:
        byte = frame[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
    raise BadFrame("a number in the header does not end")


def has_tagged_answer(key: int, version: int) -> bool:
    return key != API_VERSIONS and bool(request_class(key, version).__flexible__)


def response(correlation_id: int, message: bytes, *, tagged: bool) -> bytes:
    tags = _NO_TAGS if tagged else b""
    size = 4 + len(tags) + len(message)
    return _CORRELATION.pack(size, correlation_id) + tags + message


def request(
    key: int, version: int, correlation_id: int, client_id: str, message: bytes, *, tagged: bool
) -> bytes:
    name = client_id.encode()
    tags = _NO_TAGS if tagged else b""
    size = _START.size + len(name) + len(tags) + len(message)
    return b"".join(
        (_REQUEST.pack(size, key, version, correlation_id, len(name)), name, tags, message)
    )
