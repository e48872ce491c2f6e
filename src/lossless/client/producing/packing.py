"""Headers as bytes, for the spool: as Kafka packs them, lengths first, -1 for no value."""

from __future__ import annotations

import struct

from lossless.client.record import Headers

_LENGTH = struct.Struct(">i")


def pack_headers(headers: Headers) -> bytes:
    parts: list[bytes] = []
    for name, value in headers:
        encoded = name.encode()
        parts += [_LENGTH.pack(len(encoded)), encoded]
        parts += [_LENGTH.pack(-1)] if value is None else [_LENGTH.pack(len(value)), value]
    return b"".join(parts)


def unpack_headers(packed: bytes) -> list[tuple[str, bytes | None]]:
    headers: list[tuple[str, bytes | None]] = []
    place = 0
    while place < len(packed):
        name, place = _piece(packed, place)
        value, place = _piece(packed, place)
        headers.append(((name or b"").decode(), value))
    return headers


def _piece(packed: bytes, place: int) -> tuple[bytes | None, int]:
    (length,) = _LENGTH.unpack_from(packed, place)
    place += _LENGTH.size
    if length < 0:
        return None, place
    return packed[place : place + length], place + length
