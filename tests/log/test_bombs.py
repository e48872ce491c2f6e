"""What is small and unpacks to too much is refused before it has taken the memory."""

from __future__ import annotations

import struct
from collections.abc import Callable

import cramjam
import pytest

from lossless.log import compression
from lossless.log.compression import CannotDecompress, Compression, compressed, decompressed

MOST = 1 << 20


@pytest.fixture(autouse=True)
def small_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compression, "BODY_BYTES_MAX", MOST)


@pytest.mark.parametrize("kind", [kind for kind in Compression if kind])
def test_what_unpacks_to_more_than_a_body_may_have_is_refused(kind: Compression) -> None:
    assert decompressed(kind, compressed(kind, bytes(MOST))) == bytes(MOST)
    with pytest.raises(CannotDecompress):
        decompressed(kind, compressed(kind, bytes(MOST + 40_000)))


def one_block(body: bytes) -> bytes:
    return bytes(cramjam.snappy.compress_raw(body))


def many_blocks(body: bytes) -> bytes:
    block = one_block(body[: MOST // 2 + 1])
    framed = struct.pack(">i", len(block)) + block
    return b"\x82SNAPPY\0" + struct.pack(">ii", 1, 1) + framed * 2


@pytest.mark.parametrize("packed", [one_block, many_blocks])
def test_snappy_says_in_front_how_much_it_is(packed: Callable[[bytes], bytes]) -> None:
    with pytest.raises(CannotDecompress, match="more than"):
        decompressed(Compression.SNAPPY, packed(bytes(MOST + 1)))


@pytest.mark.parametrize("kind", Compression)
def test_what_was_compressed_is_decompressed_to_the_same_bytes(kind: Compression) -> None:
    body = b"order 17" * 1000
    assert decompressed(kind, compressed(kind, body)) == body
