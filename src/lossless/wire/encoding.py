"""The few pieces of Kafka's encoding that the hot answers are put together from by hand.

kio writes every other answer. Produce and Fetch are written here when nothing went wrong, because
that takes a fiftieth of the time.
"""

from __future__ import annotations

import functools
import struct

INT16 = struct.Struct(">h")
INT32 = struct.Struct(">i")
INT64 = struct.Struct(">q")


@functools.lru_cache(4096)
def varint(value: int) -> bytes:
    """Unsigned, seven bits in a byte, the lowest first."""
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


@functools.lru_cache(4096)
def string(text: str, flexible: bool) -> bytes:
    data = text.encode()
    return (varint(len(data) + 1) if flexible else INT16.pack(len(data))) + data


def array(count: int, flexible: bool) -> bytes:
    return varint(count + 1) if flexible else INT32.pack(count)
