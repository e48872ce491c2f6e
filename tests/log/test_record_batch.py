"""Batches: what is written is read, by kio too, and nothing else is taken for a batch."""

from __future__ import annotations

import datetime
import io
import struct
from typing import Any

import cramjam
import kio.records.readers
import kio.records.schema
import kio.records.writers
import pytest
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st

from lossless.log.batch import (
    HEADER_SIZE,
    Batch,
    CorruptBatch,
    Marker,
    MarkerKind,
    Record,
    build,
    build_marker,
    parse,
    parse_all,
)
from lossless.log.compression import Compression

bytes_or_none = st.none() | st.binary(max_size=200)
headers = st.lists(st.tuples(st.text(max_size=10), bytes_or_none), max_size=3).map(tuple)
timestamps_ms = st.integers(0, 2**45)


@st.composite
def records(draw: st.DrawFn) -> list[Record]:
    offset = draw(st.integers(0, 2**60))
    found = []
    for _ in range(draw(st.integers(1, 5))):
        found.append(
            Record(
                offset,
                draw(timestamps_ms),
                draw(bytes_or_none),
                draw(bytes_or_none),
                draw(headers),
            )
        )
        offset += draw(st.integers(1, 1000))
    return found


@given(records(), st.sampled_from(Compression))
def test_what_is_written_is_read(written: list[Record], compression: Compression) -> None:
    batch = build(
        written,
        leader_epoch=3,
        producer_id=7,
        producer_epoch=1,
        base_sequence=2**31 - 1,
        compression=compression,
        transactional=True,
    )
    assert parse(batch.data) == batch
    assert list(batch.records()) == written
    assert (batch.base_offset, batch.last_offset) == (written[0].offset, written[-1].offset)
    assert batch.next_offset == written[-1].offset + 1
    assert batch.max_timestamp_ms == max(record.timestamp_ms for record in written)
    assert batch.compression is compression
    assert batch.is_transactional
    assert not batch.is_control
    assert batch.has_sequence
    assert batch.last_sequence == (2**31 - 1 + batch.last_offset_delta) % 2**31


@given(records())
def test_kio_reads_what_we_write(written: list[Record]) -> None:
    batch = build(written, leader_epoch=3, producer_id=7, producer_epoch=1, base_sequence=5)
    found, size = kio.records.readers.read_batch(batch.data, 0)
    assert size == len(batch.data)
    assert found.partition_leader_epoch == 3
    assert (found.producer_id, found.producer_epoch, found.base_sequence) == (7, 1, 5)
    assert [(r.offset, r.key, r.value) for r in found.records] == [
        (r.offset, r.key, r.value) for r in written
    ]
    assert [tuple((h.key, h.value) for h in r.headers) for r in found.records] == [
        tuple((name.encode(), value) for name, value in r.headers) for r in written
    ]


def test_we_read_what_kio_writes() -> None:
    primitive: Any = kio.records.schema
    moment = datetime.datetime(2026, 11, 15, 8, tzinfo=datetime.UTC)
    record = primitive.Record(
        attributes=0, timestamp=moment, offset=41, key=b"k", value=None, headers=()
    )
    buffer = io.BytesIO()
    kio.records.writers.write_new_batch(
        buffer,
        primitive.NewRecordBatch(
            producer_id=9, producer_epoch=2, base_sequence=0, records=(record,), attributes=0
        ),
    )
    [batch] = parse_all(buffer.getvalue())
    assert list(batch.records()) == [Record(41, int(moment.timestamp() * 1000), b"k", None)]
    assert (batch.producer_id, batch.producer_epoch) == (9, 2)


@given(records(), st.data())
def test_no_bit_that_the_checksum_covers_changes_unnoticed(
    written: list[Record], data: st.DataObject
) -> None:
    batch = build(written)
    changed = bytearray(batch.data)
    position = data.draw(st.integers(16, len(changed) - 1))  # what follows the place
    changed[position] ^= 1 << data.draw(st.integers(0, 7))
    with pytest.raises(CorruptBatch):
        parse(bytes(changed))


@given(records(), st.data())
def test_a_batch_that_is_cut_off_is_none(written: list[Record], data: st.DataObject) -> None:
    batch = build(written)
    kept = data.draw(st.integers(0, len(batch.data) - 1))
    with pytest.raises(CorruptBatch):
        parse(batch.data[:kept])


@given(st.lists(records(), max_size=4))
def test_batches_follow_each_other(several: list[list[Record]]) -> None:
    batches = [build(one) for one in several]
    assert parse_all(b"".join(batch.data for batch in batches)) == batches


def test_a_place_is_given_without_touching_the_rest() -> None:
    batch = build([Record(0, 5, None, b"v"), Record(1, 6, None, b"w")])
    placed = batch.placed(100, 4)
    assert parse(placed.data) == placed
    assert [record.offset for record in placed.records()] == [100, 101]
    assert placed.leader_epoch == 4
    assert placed.data[16:] == batch.data[16:]


def test_log_append_time_is_the_time_of_every_record() -> None:
    batch = build([Record(0, 5, None, b"v"), Record(1, 6, None, b"w")]).with_log_append_time(99)
    assert batch.has_log_append_time
    assert parse(batch.data) == batch
    assert [record.timestamp_ms for record in batch.records()] == [99, 99]


def test_a_compacted_batch_keeps_its_range() -> None:
    batch = build([Record(5, 1, b"k", b"v")], base_offset=3, last_offset=9)
    assert (batch.base_offset, batch.last_offset, batch.records_count) == (3, 9, 1)
    assert list(batch.records()) == [Record(5, 1, b"k", b"v")]
    empty = build([], base_offset=3, last_offset=9)
    assert list(empty.records()) == []
    with pytest.raises(ValueError, match="range of offsets"):
        build([])


@pytest.mark.parametrize("kind", MarkerKind)
def test_a_marker_says_how_a_transaction_ended(kind: MarkerKind) -> None:
    batch = build_marker(
        Marker(kind, 12), offset=8, timestamp_ms=1, producer_id=7, producer_epoch=1
    )
    assert batch.is_control
    assert batch.is_transactional
    assert not batch.has_sequence
    assert batch.marker() == Marker(kind, 12)


def control(key: bytes | None, value: bytes | None = b"") -> Batch:
    return build([Record(0, 0, key, value)], control=True)


def test_other_kinds_of_control_are_no_markers() -> None:
    leader_change = struct.pack(">hh", 0, 2)
    assert control(leader_change).marker() is None


@pytest.mark.parametrize(
    ("batch", "what"),
    [
        (control(None), "has no type"),
        (control(b"\0"), "has no type"),
        (control(struct.pack(">hh", 0, 1), None), "no coordinator epoch"),
        (control(struct.pack(">hh", 0, 1), b"\0"), "no coordinator epoch"),
    ],
)
def test_a_marker_that_says_nothing_is_corrupt(batch: Batch, what: str) -> None:
    with pytest.raises(CorruptBatch, match=what):
        batch.marker()


def resealed(batch: Batch, body: bytes, *, count: int | None = None) -> Batch:
    """The batch with another body, as a broken producer would send it: the checksum is right."""
    header = bytearray(batch.data[:HEADER_SIZE])
    struct.pack_into(">i", header, HEADER_SIZE - 4, batch.records_count if count is None else count)
    struct.pack_into(">i", header, 8, HEADER_SIZE - 12 + len(body))
    struct.pack_into(">I", header, 17, crc32c(bytes(header[21:]) + body))
    return parse(bytes(header) + body)


GOOD = build([Record(0, 0, b"k", b"v")])
BODY = GOOD.data[HEADER_SIZE:]


@pytest.mark.parametrize(
    ("batch", "what"),
    [
        (resealed(GOOD, BODY + b"\0"), "bytes after the last record"),
        (resealed(GOOD, BODY, count=2), "a number does not end"),
        (resealed(GOOD, b"\xff" * 20), "a number does not end"),
        (resealed(GOOD, BODY[:-2]), "does not end|cut off"),
        (resealed(GOOD, bytes([BODY[0] + 2]) + BODY[1:]), "does not end where it says"),
        (resealed(GOOD, b"\x12\0\0\0\x20k"), "a value is cut off"),
    ],
)
def test_records_that_are_not_what_they_say_are_corrupt(batch: Batch, what: str) -> None:
    with pytest.raises(CorruptBatch, match=what):
        list(batch.records())


def test_a_length_below_the_header_is_corrupt() -> None:
    data = bytearray(GOOD.data)
    struct.pack_into(">i", data, 8, 10)
    with pytest.raises(CorruptBatch, match="which are not there"):
        parse(bytes(data))


def test_other_versions_are_refused() -> None:
    data = bytearray(GOOD.data)
    data[16] = 1
    with pytest.raises(CorruptBatch, match="of version 1"):
        parse(bytes(data))


@pytest.mark.parametrize("kind", [kind for kind in Compression if kind])
def test_what_is_compressed_otherwise_than_it_says_is_corrupt(kind: Compression) -> None:
    batch = build([Record(0, 0, None, b"v")], compression=kind)
    with pytest.raises(CorruptBatch, match=f"not {kind.name.lower()}"):
        list(resealed(batch, b"nonsense").records())


def test_snappy_is_read_with_and_without_its_frame() -> None:
    values = [bytes([number]) * 30_000 for number in range(4)]  # more than one block
    batch = build(
        [Record(n, 0, None, value) for n, value in enumerate(values)],
        compression=Compression.SNAPPY,
    )
    assert [record.value for record in batch.records()] == values
    body = build([Record(n, 0, None, value) for n, value in enumerate(values)]).data[HEADER_SIZE:]
    bare = resealed(batch, bytes(cramjam.snappy.compress_raw(body)))
    assert [record.value for record in bare.records()] == values


def test_snappy_that_is_cut_off_is_corrupt() -> None:
    batch = build([Record(0, 0, None, b"v")], compression=Compression.SNAPPY)
    with pytest.raises(CorruptBatch, match="not snappy"):
        list(resealed(batch, batch.data[HEADER_SIZE:] + b"\0").records())


def test_a_compression_that_does_not_exist_is_corrupt() -> None:
    data = bytearray(GOOD.data)
    struct.pack_into(">h", data, 21, 5)
    struct.pack_into(">I", data, 17, crc32c(bytes(data[21:])))
    with pytest.raises(CorruptBatch, match="no known compression: 5"):
        list(parse(bytes(data)).records())


def test_a_snappy_block_without_bytes_is_corrupt() -> None:
    batch = build([Record(0, 0, None, b"v")], compression=Compression.SNAPPY)
    frame = batch.data[HEADER_SIZE:][:16]
    for size in (0, -8):
        with pytest.raises(CorruptBatch, match=f"a block of {size} bytes"):
            list(resealed(batch, frame + struct.pack(">i", size) + b"x").records())


def test_an_empty_control_batch_is_corrupt() -> None:
    with pytest.raises(CorruptBatch, match="is empty"):
        resealed(control(b""), b"", count=0).marker()


def test_a_header_that_is_no_utf_8_comes_out_as_it_went_in() -> None:
    # Length 9, then attributes, time, offset, no key, no value, one header: a name of one byte.
    batch = resealed(GOOD, bytes([18, 0, 0, 0, 1, 1, 2, 2, 0xFF, 1]))
    [record] = batch.records()
    again = build([record])
    assert again.data[HEADER_SIZE:] == batch.data[HEADER_SIZE:]


def test_a_header_without_a_name_is_corrupt() -> None:
    batch = resealed(GOOD, bytes([16, 0, 0, 0, 1, 1, 2, 1, 1]))
    with pytest.raises(CorruptBatch, match="has no name"):
        list(batch.records())
