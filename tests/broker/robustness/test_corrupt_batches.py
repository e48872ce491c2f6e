"""Records that are not what they say: Kafka's error, and nothing is stored."""

from __future__ import annotations

import struct
import zlib

import psutil
import pytest
from crc32c import crc32c
from victim import TOPIC, Victim

from lossless.log.batch import Marker, MarkerKind, Record, build, build_marker
from lossless.log.compression import (
    BODY_BYTES_MAX,
    CannotDecompress,
    Compression,
    compressed,
    decompressed,
)

CORRUPT_MESSAGE, MESSAGE_TOO_LARGE, INVALID_RECORD = 2, 10, 87
NOT_AUTHORIZED = 53  # TRANSACTIONAL_ID_AUTHORIZATION_FAILED
LENGTH_AT, MAGIC_AT, CRC_AT, ATTRIBUTES_AT, LAST_DELTA_AT, COUNT_AT = 8, 16, 17, 21, 23, 57
HEADER_SIZE = 61

GOOD = build([Record(0, 1, b"key", b"value")]).data


def _with(at: int, form: str, value: int, *, data: bytes = GOOD, checked: bool = True) -> bytes:
    """A batch with one field changed, and the checksum that goes with it."""
    changed = bytearray(data)
    struct.pack_into(form, changed, at, value)
    if checked:
        struct.pack_into(">I", changed, CRC_AT, crc32c(bytes(changed[ATTRIBUTES_AT:])))
    return bytes(changed)


def _compressed(kind: Compression, body: bytes, count: int = 1) -> bytes:
    """A batch that says that its body is compressed."""
    data = bytearray(GOOD[:HEADER_SIZE] + body)
    struct.pack_into(">i", data, LENGTH_AT, len(data) - 12)
    struct.pack_into(">h", data, ATTRIBUTES_AT, kind)
    struct.pack_into(">i", data, LAST_DELTA_AT, count - 1)
    struct.pack_into(">i", data, COUNT_AT, count)
    struct.pack_into(">I", data, CRC_AT, crc32c(bytes(data[ATTRIBUTES_AT:])))
    return bytes(data)


def _gzip_bomb(size: int) -> bytes:
    packer = zlib.compressobj(9, zlib.DEFLATED, 31)
    block = b"\0" * (1 << 20)
    parts = [packer.compress(block) for _ in range(size >> 20)]
    return b"".join((*parts, packer.flush()))


CORRUPT = {
    "nothing": (b"", {INVALID_RECORD}),
    "less than a header": (GOOD[:20], {CORRUPT_MESSAGE, INVALID_RECORD}),
    "a wrong checksum": (_with(CRC_AT, ">I", 1, checked=False), {CORRUPT_MESSAGE}),
    "a changed value": (GOOD[:-2] + b"?" + GOOD[-1:], {CORRUPT_MESSAGE}),
    "magic 0": (_with(MAGIC_AT, ">b", 0), {CORRUPT_MESSAGE, INVALID_RECORD}),
    "magic 1": (_with(MAGIC_AT, ">b", 1), {CORRUPT_MESSAGE, INVALID_RECORD}),
    "magic 3": (_with(MAGIC_AT, ">b", 3), {CORRUPT_MESSAGE, INVALID_RECORD}),
    "magic below zero": (_with(MAGIC_AT, ">b", -1), {CORRUPT_MESSAGE, INVALID_RECORD}),
    "a length below zero": (_with(LENGTH_AT, ">i", -1), {CORRUPT_MESSAGE, INVALID_RECORD}),
    "no length": (_with(LENGTH_AT, ">i", 0), {CORRUPT_MESSAGE, INVALID_RECORD}),
    "more than there is": (_with(LENGTH_AT, ">i", 1 << 30), {CORRUPT_MESSAGE, INVALID_RECORD}),
    "less than there is": (
        _with(LENGTH_AT, ">i", len(GOOD) - 12 - 3),
        {CORRUPT_MESSAGE, INVALID_RECORD},
    ),
    "two batches": (GOOD + GOOD, {INVALID_RECORD}),
    "a batch and a half": (GOOD + GOOD[:40], {CORRUPT_MESSAGE, INVALID_RECORD}),
    "a marker": (
        build_marker(
            Marker(MarkerKind.COMMIT, 0), offset=0, timestamp_ms=1, producer_id=1, producer_epoch=0
        ).data,
        {INVALID_RECORD, NOT_AUTHORIZED},  # it is transactional, and nobody's transaction
    ),
    "a producer that does not count": (
        build([Record(0, 1, None, b"v")], producer_id=5, producer_epoch=0).data,
        {INVALID_RECORD},
    ),
    "more records than offsets": (_with(COUNT_AT, ">i", 1000), {INVALID_RECORD}),
    "two billion records": (
        _with(COUNT_AT, ">i", 0x7FFFFFFF, data=_with(LAST_DELTA_AT, ">i", 0x7FFFFFFE)),
        {CORRUPT_MESSAGE, INVALID_RECORD},
    ),
    "records below zero": (
        _with(COUNT_AT, ">i", -5, data=_with(LAST_DELTA_AT, ">i", -6)),
        {INVALID_RECORD, CORRUPT_MESSAGE},
    ),
    "no records": (
        _with(COUNT_AT, ">i", 0, data=_with(LAST_DELTA_AT, ">i", -1)),
        {INVALID_RECORD, CORRUPT_MESSAGE},
    ),
    "a compression that is none": (_with(ATTRIBUTES_AT, ">h", 7), {INVALID_RECORD}),
    **{
        f"no {kind.name.lower()}": (
            _compressed(kind, b"\xff\x82SNAPPY\0 garbage" * 10),
            {INVALID_RECORD},
        )
        for kind in Compression
    },
    **{
        f"five records that hold one, {kind.name.lower()}": (
            _compressed(kind, compressed(kind, GOOD[HEADER_SIZE:]), 5),
            {INVALID_RECORD},
        )
        for kind in Compression
    },
    "a record of another length": (_with(HEADER_SIZE, ">b", 30), {INVALID_RECORD}),
}


@pytest.fixture(scope="module")
def compacted(one_broker: Victim) -> str:
    """Of a topic that is compacted every record has to have a key."""
    one_broker.create_topic("compacted", cleanup_policy="compact")
    return "compacted"


@pytest.mark.parametrize(("records", "errors"), CORRUPT.values(), ids=CORRUPT)
def test_records_that_are_not_what_they_say_are_not_stored(
    victim: Victim, compacted: str, records: bytes, errors: set[int]
) -> None:
    with victim.client() as client:
        for topic in (TOPIC, compacted):
            before = victim.end_offset(client, topic)
            produced = victim.produce(client, topic, records)
            assert produced.error_code.value in errors
            assert produced.base_offset == -1
            assert victim.end_offset(client, topic) == before
            assert victim.produce(client, topic, GOOD).base_offset == before


def test_a_record_without_a_key_is_not_stored_where_it_needs_one(
    victim: Victim, compacted: str
) -> None:
    """The refusal names it: the producer may send the others again."""
    keys = [b"k", None, b"k"]
    with victim.client() as client:
        before = victim.end_offset(client, compacted)
        records = build([Record(n, 1, key, b"v") for n, key in enumerate(keys)]).data
        produced = victim.produce(client, compacted, records)
        assert produced.error_code.value == INVALID_RECORD
        assert [error.batch_index for error in produced.record_errors] == [1]
        assert produced.error_message
        assert victim.end_offset(client, compacted) == before


BOMBS = {
    "gzip": _compressed(Compression.GZIP, _gzip_bomb(700 << 20)),
    # A frame of zstd: blocks of 128 KiB that repeat one byte, four bytes each.
    "zstd": _compressed(
        Compression.ZSTD,
        bytes.fromhex("28b52ffd 00 58") + b"\x02\x00\x10\x00" * 100_000 + b"\x03\x00\x10\x00",
    ),
    # Snappy says in front how much it is.
    "snappy": _compressed(Compression.SNAPPY, b"\xff\xff\xff\xff\x0f" + b"\0" * 1000),
}


@pytest.mark.parametrize("bomb", BOMBS.values(), ids=BOMBS)
def test_records_that_unpack_to_gigabytes_are_not_unpacked(
    victim: Victim, compacted: str, bomb: bytes
) -> None:
    with victim.client() as client:
        for topic in (TOPIC, compacted):
            before = victim.end_offset(client, topic)
            memory = _peak(victim.process)
            assert victim.produce(client, topic, bomb).error_code.value == MESSAGE_TOO_LARGE
            assert _peak(victim.process) - memory < 200 << 20
            assert victim.end_offset(client, topic) == before


def _peak(process: psutil.Process) -> int:
    """The most memory that a process has had."""
    with open(f"/proc/{process.pid}/status") as status:
        line = next(line for line in status if line.startswith("VmHWM:"))
    return int(line.split()[1]) * 1024


@pytest.mark.parametrize("kind", [kind for kind in Compression if kind is not Compression.NONE])
def test_nobody_unpacks_more_than_so_much(kind: Compression) -> None:
    fits, too_much = b"\0" * (8 << 20), b"\0" * (BODY_BYTES_MAX + 1)
    assert decompressed(kind, compressed(kind, fits)) == fits
    with pytest.raises(CannotDecompress):
        decompressed(kind, compressed(kind, too_much))
