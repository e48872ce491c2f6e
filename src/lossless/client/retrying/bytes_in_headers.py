"""What stands in the headers of a record, and how Java writes numbers there.

Spring Kafka writes big-endian binary, Connect, Streams and share groups write text. Where Spring
writes a number text is read too: a binary one made of digits only would be a partition above 800
million, or a time after the year 3600.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import cast

from confluent_kafka import TIMESTAMP_NOT_AVAILABLE, Message

_DIGITS_MAX = 19  # of a number of 64 bits


def placed(message: Message) -> tuple[str, int, int]:
    topic, partition, offset = message.topic(), message.partition(), message.offset()
    assert topic is not None
    assert partition is not None
    assert offset is not None
    return topic, partition, offset


def timestamp_of(message: Message) -> tuple[bool, int]:
    kind, timestamp_ms = message.timestamp()
    known = kind != TIMESTAMP_NOT_AVAILABLE
    return known, timestamp_ms if known else -1


def headers_of(message: Message) -> list[tuple[str, bytes | None]]:
    found = cast("list[tuple[str, bytes | str | None]]", message.headers() or [])
    return [(name, bytes_of(value)) for name, value in found]


def by_name(message: Message) -> dict[str, list[bytes | None]]:
    found: dict[str, list[bytes | None]] = {}
    for name, value in headers_of(message):
        found.setdefault(name, []).append(value)
    return found


def first(headers: Mapping[str, Sequence[bytes | None]], name: str) -> bytes | None:
    """Spring may append where a record was last, behind where it was first."""
    return headers[name][0] if name in headers else None


def last(headers: Mapping[str, Sequence[bytes | None]], name: str) -> bytes | None:
    return headers[name][-1] if name in headers else None


def text_of(value: bytes | None) -> str | None:
    return None if value is None else value.decode(errors="replace")


def number_of(value: bytes | None) -> int | None:
    if not value:
        return None
    if 1 < len(value) <= _DIGITS_MAX and value.isdigit():
        return int(value)
    return int.from_bytes(value, "big", signed=len(value) > 1) if len(value) <= 8 else None


def decimal_of(value: bytes | None) -> int | None:
    try:
        return None if value is None else int(value)
    except ValueError:
        return None


def bytes_of(value: bytes | str | None) -> bytes | None:
    return value.encode() if isinstance(value, str) else value


def big_integer(number: int) -> bytes:
    """As few bytes as hold it with its sign: what Java's BigInteger.toByteArray gives."""
    length = (number if number >= 0 else ~number).bit_length() // 8 + 1
    return number.to_bytes(length, "big", signed=True)
