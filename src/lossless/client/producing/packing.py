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
    """Raises ValueError if the bytes are damaged."""
    headers: list[tuple[str, bytes | None]] = []
    place = 0
    while place < len(packed):
        name, place = _piece(packed, place)
        value, place = _piece(packed, place)
        if name is None:
            raise ValueError("a header without a name")
        headers.append((name.decode(), value))
    return headers


def _piece(packed: bytes, place: int) -> tuple[bytes | None, int]:
    if place + _LENGTH.size > len(packed):
        raise ValueError("a length is cut off")
    (length,) = _LENGTH.unpack_from(packed, place)
    place += _LENGTH.size
    if length == -1:
        return None, place
    if not 0 <= length <= len(packed) - place:
        raise ValueError(f"a length of {length} where {len(packed) - place} bytes are left")
    return packed[place : place + length], place + length
