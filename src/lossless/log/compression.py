"""How the records of a batch are compressed, as Kafka's clients do it.

A log keeps batches as they came. A leader comes here to check the records of a batch before it is
stored; after that only compaction and the search for a time within a batch do.

A few bytes may stand for gigabytes, in zstd for 32,000 times as many. Nobody looks at more than
`BODY_BYTES_MAX`, whatever a batch says that it is.
"""

from __future__ import annotations

import enum
import struct
from collections.abc import Callable, Iterator
from typing import Any

import cramjam

ZSTD_LEVEL = 3  # Kafka's default
BODY_BYTES_MAX = 64 << 20

# Java's snappy library cuts its input into blocks, each with its length before it.
_XERIAL = b"\x82SNAPPY\0" + struct.pack(">ii", 1, 1)  # version, compatible version
_BLOCK_LENGTH = struct.Struct(">i")
_BLOCK_BYTES = 32 * 1024

# Java's clients read LZ4 frames of independent blocks only, and cramjam's own depend on each other:
# version 1, independent blocks of at most 64 KiB, and the checksum of these two bytes.
_LZ4_INDEPENDENT, _LZ4_BLOCK_CHECKSUM, _LZ4_SIZE, _LZ4_CHECKSUM = 0x20, 0x10, 0x08, 0x04
_LZ4_FLAGS_AT, _LZ4_HEADER_SIZE = 4, 7
_LZ4_FRAME = bytes.fromhex("04224d18 60 40 82")
_LZ4_BLOCK_BYTES = 64 * 1024
_LZ4_LENGTH = struct.Struct("<I")
_LZ4_STORED = 0x80000000  # the block is as it was

_FIRST_BYTES = 64 * 1024
_IS_FULL = "failed to write whole buffer"  # as cramjam says it


class Compression(enum.IntEnum):
    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


class CannotDecompress(ValueError):
    """The bytes are not what they are said to be."""


class DecompressesToTooMuch(CannotDecompress):
    """More than BODY_BYTES_MAX."""


def compressed(kind: Compression, body: bytes) -> bytes:
    match kind:
        case Compression.NONE:
            return body
        case Compression.GZIP:
            return bytes(cramjam.gzip.compress(body))
        case Compression.SNAPPY:
            return b"".join(_snappy_blocks(body))
        case Compression.LZ4:
            return b"".join(_lz4_frame(body))
        case _:
            return bytes(cramjam.zstd.compress(body, level=ZSTD_LEVEL))


def decompressed(kind: Compression, body: bytes) -> bytes:
    try:
        match kind:
            case Compression.NONE:
                return body
            case Compression.GZIP:
                return _bounded(cramjam.gzip.decompress_into, body)
            case Compression.SNAPPY:
                return _from_snappy(body)
            case Compression.LZ4:
                found = _bounded(cramjam.lz4.decompress_into, body)
                _require_one_lz4_frame(body)
                return found
            case _:
                return _bounded(cramjam.zstd.decompress_into, body)
    except (cramjam.DecompressionError, struct.error) as error:
        raise CannotDecompress(f"not {kind.name.lower()}: {error}") from error


def _bounded(decompress_into: Callable[[bytes, bytearray], Any], body: bytes) -> bytes:
    """Into a space that grows until all of it fits, or is too much."""
    size = min(max(_FIRST_BYTES, 8 * len(body)), BODY_BYTES_MAX)
    while True:
        space = bytearray(size)
        try:
            written = decompress_into(body, space)
        except cramjam.DecompressionError as error:
            if _IS_FULL not in str(error):
                raise
            if size == BODY_BYTES_MAX:
                raise DecompressesToTooMuch(f"more than {BODY_BYTES_MAX} bytes") from error
            size = min(4 * size, BODY_BYTES_MAX)
        else:
            return bytes(memoryview(space)[:written])


def _snappy_block(block: bytes) -> bytes:
    """A block says in front how much it is."""
    size = cramjam.snappy.decompress_raw_len(block)
    if size > BODY_BYTES_MAX:
        raise DecompressesToTooMuch(f"{size} bytes are more than {BODY_BYTES_MAX}")
    return bytes(cramjam.snappy.decompress_raw(block))


def _snappy_blocks(body: bytes) -> Iterator[bytes]:
    yield _XERIAL
    for start in range(0, len(body), _BLOCK_BYTES):
        block = bytes(cramjam.snappy.compress_raw(body[start : start + _BLOCK_BYTES]))
        yield _BLOCK_LENGTH.pack(len(block))
        yield block


def _lz4_frame(body: bytes) -> Iterator[bytes]:
    yield _LZ4_FRAME
    for start in range(0, len(body), _LZ4_BLOCK_BYTES):
        plain = body[start : start + _LZ4_BLOCK_BYTES]
        block = bytes(cramjam.lz4.compress_block(plain, store_size=False))
        if len(block) < len(plain):
            yield _LZ4_LENGTH.pack(len(block)) + block
        else:
            yield _LZ4_LENGTH.pack(len(plain) | _LZ4_STORED) + plain
    yield _LZ4_LENGTH.pack(0)


def _require_one_lz4_frame(body: bytes) -> None:
    """Java's clients read no blocks that depend on each other, and no second frame."""
    flags = body[_LZ4_FLAGS_AT]
    if not flags & _LZ4_INDEPENDENT:
        raise CannotDecompress("not lz4 as Kafka has it: its blocks depend on each other")
    at = _LZ4_HEADER_SIZE + (8 if flags & _LZ4_SIZE else 0)
    checksum = 4 if flags & _LZ4_BLOCK_CHECKSUM else 0
    while size := _LZ4_LENGTH.unpack_from(body, at)[0]:
        at += _LZ4_LENGTH.size + (size & ~_LZ4_STORED) + checksum
    at += _LZ4_LENGTH.size + (4 if flags & _LZ4_CHECKSUM else 0)
    if at != len(body):
        raise CannotDecompress(f"not lz4 as Kafka has it: {len(body) - at} bytes after the frame")


def _from_snappy(body: bytes) -> bytes:
    """Blocks as Java's clients write them, or a single one without a frame, as librdkafka does."""
    if not body.startswith(_XERIAL[:8]):
        return _snappy_block(body)
    position = len(_XERIAL)
    blocks: list[bytes] = []
    unpacked = 0
    while position < len(body):
        (size,) = _BLOCK_LENGTH.unpack_from(body, position)
        if size <= 0:
            raise CannotDecompress(f"not snappy: a block of {size} bytes")
        position += _BLOCK_LENGTH.size
        blocks.append(_snappy_block(body[position : position + size]))
        unpacked += len(blocks[-1])
        if unpacked > BODY_BYTES_MAX:
            raise DecompressesToTooMuch(f"more than {BODY_BYTES_MAX} bytes")
        position += size
    return b"".join(blocks)
