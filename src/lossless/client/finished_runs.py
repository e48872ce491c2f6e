"""Runs of finished offsets beyond a position, as they stand in the metadata of its commit.

    position 5, finished: 7 8 10        runs: 7 to 9, 10 to 11        lengths: 2 2 1 1

The *lengths* are, in turn, how many offsets are not finished and how many are, from the position
on, each a varint. Replays of dead letters always deflate them (retrying/replayed.py). Consumers
take whatever is shortest (`encode`): the lengths, deflated or not, or a bit for each offset.

What was committed by one release is read by the next: neither form may change. Pure.
"""

from __future__ import annotations

import base64
import binascii
import zlib
from collections.abc import Iterable

METADATA_BYTES_MAX = 4_096  # offset.metadata.max.bytes of a broker
_PREFIX = "lossless1:"  # whatever else stands in metadata is somebody else's, and left alone
ENCODED_BYTES_MAX = (METADATA_BYTES_MAX - len(_PREFIX)) // 4 * 3 - 1  # one byte names the coding
_BITS = b"b"
_RUNS = b"r"
_DEFLATED_RUNS = b"z"

Run = tuple[int, int]  # half open: the first offset, and the one after the last


def encode(next_offset: int, runs: list[Run]) -> str | None:
    """None when it does not fit. Runs are in order, apart, and above `next_offset`."""
    if not runs:
        return ""
    lengths = lengths_of(next_offset, runs)
    shortest = _RUNS + lengths
    if len(lengths) > 64:  # below that deflating only adds
        shortest = min(shortest, _DEFLATED_RUNS + zlib.compress(lengths, 9), key=len)
    span = runs[-1][1] - next_offset
    if span // 8 + 2 < len(shortest):
        bits = 0
        for first, end in runs:
            bits |= ((1 << (end - first)) - 1) << (first - next_offset)
        shortest = min(shortest, _BITS + bits.to_bytes((span + 7) // 8, "little"), key=len)
    text = _PREFIX + base64.b64encode(shortest).decode()
    return text if len(text) <= METADATA_BYTES_MAX else None


def decode(next_offset: int, metadata: str | None) -> list[Run]:
    """The runs that were committed with `next_offset`. Nothing where the metadata is not ours."""
    if not metadata or not metadata.startswith(_PREFIX):
        return []
    try:
        data = base64.b64decode(metadata[len(_PREFIX) :], validate=True)
        if data[:1] == _BITS:
            return _runs_of_bits(next_offset, int.from_bytes(data[1:], "little"))
        lengths = zlib.decompress(data[1:]) if data[:1] == _DEFLATED_RUNS else data[1:]
    except (binascii.Error, zlib.error):
        return []  # repeating is safe, guessing is not
    return runs_of(next_offset, lengths)


def lengths_of(next_offset: int, runs: Iterable[Run]) -> bytes:
    lengths = bytearray()
    at = next_offset
    for first, end in runs:
        lengths += _varint(first - at) + _varint(end - first)
        at = end
    return bytes(lengths)


def runs_of(next_offset: int, lengths: bytes) -> list[Run]:
    numbers = _varints(lengths)
    runs = []
    at = next_offset
    for gap, length in zip(numbers[::2], numbers[1::2], strict=False):
        runs.append((at + gap, at + gap + length))
        at += gap + length
    return runs


def _runs_of_bits(next_offset: int, bits: int) -> list[Run]:
    runs = []
    at = next_offset
    while bits:
        gap = (bits & -bits).bit_length() - 1
        bits >>= gap
        length = (~bits & (bits + 1)).bit_length() - 1
        bits >>= length
        runs.append((at + gap, at + gap + length))
        at += gap + length
    return runs


def _varint(number: int) -> bytes:
    encoded = bytearray()
    while number > 127:
        encoded.append(number & 127 | 128)
        number >>= 7
    encoded.append(number)
    return bytes(encoded)


def _varints(data: bytes) -> list[int]:
    numbers = []
    number = shift = 0
    for byte in data:
        number |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            numbers.append(number)
            number = shift = 0
    return numbers
