"""Record batches, version 2: what a producer sends, a log stores and a consumer fetches.

    base offset 8 │ length 4 │ leader epoch 4 │ magic 1 │ crc 4 ┃ attributes 2 │ last offset delta 4
    │ base timestamp 8 │ max timestamp 8 │ producer id 8 │ producer epoch 2 │ base sequence 4
    │ count 4 │ records …                                        ┃ = what the CRC-32C covers

A broker gives a batch its place without touching what the checksum covers: base offset and leader
epoch come before it. A log therefore keeps the bytes of a batch as they came, and looks into the
records only to compact them or to read a transaction marker.

kio reads and writes batches too, and is what the tests compare this with. It is not used here
because it cuts timestamps to whole seconds and parses every record of a batch to reach its header.
"""

from __future__ import annotations

import enum
import struct
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from crc32c import crc32c

from lossless.log.compression import (
    CannotDecompress,
    Compression,
    DecompressesToTooMuch,
    compressed,
    decompressed,
)

MAGIC = 2
NO_PRODUCER_ID = -1
NO_PRODUCER_EPOCH = -1
NO_SEQUENCE = -1
SEQUENCE_MAX = 0x7FFFFFFF
NO_TIMESTAMP = -1

_HEADER = struct.Struct(">qiibIhiqqqhii")
HEADER_SIZE = _HEADER.size
LENGTH_END = 12  # where the length ends, and what it counts begins
_LENGTH = struct.Struct(">i")
_PLACE = struct.Struct(">qii")  # base offset, length, leader epoch
_CHECKED_PLACE = struct.Struct(">qiibIhi")  # the same, version, checksum, …, last offset delta
_CHECKED_FROM = 21
_CHECKED_HEADER = struct.Struct(">hiqqqhii")
_CHECKSUM_AT = 17
_CHECKSUM = struct.Struct(">I")
_ATTRIBUTES_AT = _CHECKED_FROM
_MAX_TIMESTAMP_AT = 35
_PRODUCER_AT = 43
_PRODUCER = struct.Struct(">qhi")  # id, epoch, base sequence

_COMPRESSION = 0x07
_LAST_COMPRESSION = max(Compression)
_LOG_APPEND_TIME = 0x08
TRANSACTIONAL = 0x10
CONTROL = 0x20
_DELETE_HORIZON = 0x40

_MARKER_KEY = struct.Struct(">hh")  # version, type
_MARKER_VALUE = struct.Struct(">hi")  # version, coordinator epoch


Data = bytes | memoryview  # of batches: as they came, or a part of what came


class CorruptBatch(ValueError):
    """The bytes are not a batch: cut off, or changed since they were written."""


class NoBatch(CorruptBatch):
    """Too few bytes for a batch, or one of another version."""


class OversizedBatch(CorruptBatch):
    """The records decompress to more than a broker looks at."""


class MarkerKind(enum.IntEnum):
    ABORT = 0
    COMMIT = 1


class Marker(NamedTuple):
    """The end of a transaction, as its coordinator writes it to every partition."""

    kind: MarkerKind
    coordinator_epoch: int


class Record(NamedTuple):
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()


class Batch(NamedTuple):
    """A batch whose header was read. `data` is all of it, header included: a view, if it came
    with others. Batches are large, and most of them only pass through."""

    base_offset: int
    length: int
    leader_epoch: int
    magic: int
    checksum: int
    attributes: int
    last_offset_delta: int
    base_timestamp_ms: int
    max_timestamp_ms: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    records_count: int
    data: Data

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        return self.base_offset + self.last_offset_delta + 1

    @property
    def last_sequence(self) -> int:
        """Sequences count up to 2^31 - 1 and begin again at 0."""
        return (self.base_sequence + self.last_offset_delta) & SEQUENCE_MAX

    @property
    def compression(self) -> Compression:
        kind = self.attributes & _COMPRESSION
        if kind > _LAST_COMPRESSION:
            raise CorruptBatch(f"batch {self.base_offset} has no known compression: {kind}")
        return Compression(kind)

    @property
    def has_log_append_time(self) -> bool:
        return bool(self.attributes & _LOG_APPEND_TIME)

    @property
    def is_transactional(self) -> bool:
        return bool(self.attributes & TRANSACTIONAL)

    @property
    def is_control(self) -> bool:
        return bool(self.attributes & CONTROL)

    @property
    def delete_horizon_ms(self) -> int | None:
        """When compaction may drop the batch's tombstones; it takes the first timestamp's place,
        and what is counted from that counts from this."""
        return self.base_timestamp_ms if self.attributes & _DELETE_HORIZON else None

    @property
    def has_producer(self) -> bool:
        """Whether it is of a producer with an id: idempotent, or in a transaction. So are markers,
        which only end what others have written."""
        return self.producer_id > NO_PRODUCER_ID and not self.attributes & CONTROL

    @property
    def has_sequence(self) -> bool:
        """Whether an idempotent producer sent it. What a coordinator writes in the name of one, a
        group's offsets, has none."""
        return self.has_producer and self.base_sequence > NO_SEQUENCE

    @property
    def may_be_sent(self) -> bool:
        """Whether a client may write this batch. Only brokers write markers; every offset of a
        batch has a record, and there is at least one; and a batch with a producer id needs a
        sequence. Without an id the sequence means nothing, as in Kafka: some clients leave it at
        0."""
        return (
            not self.attributes & CONTROL
            and self.records_count == self.last_offset_delta + 1 > 0
            and (self.producer_id <= NO_PRODUCER_ID or self.base_sequence > NO_SEQUENCE)
        )

    def placed(self, base_offset: int, leader_epoch: int) -> Batch:
        """The same batch at another place. The checksum does not cover the place."""
        place = _PLACE.pack(base_offset, self.length, leader_epoch)
        data = b"".join((place, memoryview(self.data)[_PLACE.size :]))  # copied once
        return new(Batch, (base_offset, self.length, leader_epoch, *self[3:-1], data))

    def with_log_append_time(self, now_ms: int) -> Batch:
        """The same batch as of now. Consumers give every record the batch's own time."""
        changed = bytearray(self.data)
        attributes = self.attributes | _LOG_APPEND_TIME
        struct.pack_into(">h", changed, _ATTRIBUTES_AT, attributes)
        struct.pack_into(">q", changed, _MAX_TIMESTAMP_AT, now_ms)
        _CHECKSUM.pack_into(
            changed, _CHECKSUM_AT, crc32c(memoryview(changed)[_CHECKED_FROM:].toreadonly())
        )
        return parse(bytes(changed))

    def body(self) -> bytes:
        """The records as bytes, decompressed."""
        body = bytes(self.data[HEADER_SIZE:])
        if not self.attributes & _COMPRESSION:
            return body
        try:
            return decompressed(self.compression, body)
        except DecompressesToTooMuch as error:
            raise OversizedBatch(f"batch {self.base_offset}: {error}") from error
        except CannotDecompress as error:
            raise CorruptBatch(f"batch {self.base_offset}: {error}") from error

    def records(self) -> Iterator[Record]:
        body = self.body()
        reader = _Reader(body)
        for _ in range(self.records_count):
            end = reader.varint() + reader.position
            reader.position += 1  # attributes of a record: none are defined
            timestamp_ms = self.base_timestamp_ms + reader.varint()
            offset = self.base_offset + reader.varint()
            key, value = reader.bytes_or_none(), reader.bytes_or_none()
            headers = tuple((reader.name(), reader.bytes_or_none()) for _ in range(reader.varint()))
            if reader.position != end:
                raise CorruptBatch(f"record at offset {offset} does not end where it says")
            if self.has_log_append_time:
                timestamp_ms = self.max_timestamp_ms
            yield Record(offset, timestamp_ms, key, value, headers)
        if reader.position != len(body):
            raise CorruptBatch(f"bytes after the last record of batch {self.base_offset}")

    def readable_records(self) -> list[Record]:
        """None of a batch whose records make no sense. Its checksum is right, so that is how a
        client sent it: no damage, and nothing that a search or a compaction could use."""
        try:
            return list(self.records())
        except CorruptBatch:
            return []

    def marker(self) -> Marker | None:
        """What a control batch says of a transaction; None for other kinds of control."""
        record = next(self.records(), None)
        if record is None:
            raise CorruptBatch(f"control batch {self.base_offset} is empty")
        if record.key is None or len(record.key) < _MARKER_KEY.size:
            raise CorruptBatch(f"control record at offset {record.offset} has no type")
        _, kind = _MARKER_KEY.unpack_from(record.key)
        if kind not in (MarkerKind.ABORT, MarkerKind.COMMIT):
            return None
        if record.value is None or len(record.value) < _MARKER_VALUE.size:
            raise CorruptBatch(f"marker at offset {record.offset} has no coordinator epoch")
        _, coordinator_epoch = _MARKER_VALUE.unpack_from(record.value)
        return Marker(MarkerKind(kind), coordinator_epoch)


# A NamedTuple from all of its fields, for what is made for every batch: its own constructor is a
# function in Python, which takes twice the time.
new = tuple.__new__


def parse(data: Data, position: int = 0) -> Batch:
    """The batch at `position`, its checksum compared. CorruptBatch if there is none."""
    size = len(data)
    if size - position < HEADER_SIZE:
        raise NoBatch(f"{size - position} bytes are less than a header")
    fields: tuple[Any, ...] = _HEADER.unpack_from(data, position)
    length, magic, checksum = fields[1], fields[3], fields[4]
    end = position + LENGTH_END + length
    if length < HEADER_SIZE - LENGTH_END or end > size:
        raise NoBatch(f"batch {fields[0]} says {length} bytes, which are not there")
    if magic != MAGIC:
        raise NoBatch(f"batch {fields[0]} is of version {magic}, not {MAGIC}")
    view = memoryview(data)
    if crc32c(view[position + _CHECKED_FROM : end]) != checksum:
        raise CorruptBatch(f"the checksum of batch {fields[0]} is wrong")
    whole = data if position == 0 and end == size else view[position:end]
    return new(Batch, (*fields, whole))


def require_whole(data: bytes) -> None:
    """That these are batches as they were written, one after the other, their offsets too: no
    checksum covers those. CorruptBatch if not."""
    view = memoryview(data)
    position, size, next_offset = 0, len(data), 0
    while position < size:
        if size - position < HEADER_SIZE:
            raise CorruptBatch(f"{size - position} bytes are less than a header")
        base_offset, length, _, magic, checksum, _, delta = _CHECKED_PLACE.unpack_from(
            data, position
        )
        end = position + LENGTH_END + length
        if length < HEADER_SIZE - LENGTH_END or end > size or magic != MAGIC:
            raise CorruptBatch(f"batch {base_offset} says {length} bytes of version {magic}")
        if crc32c(view[position + _CHECKED_FROM : end]) != checksum:
            raise CorruptBatch(f"the checksum of batch {base_offset} is wrong")
        if base_offset < next_offset:
            raise CorruptBatch(f"batch {base_offset} comes where {next_offset} should")
        position, next_offset = end, base_offset + delta + 1


def transactional_producer(data: Data) -> tuple[int, int, int] | None:
    """Producer id, epoch and first sequence of a batch that belongs to a transaction, without a
    look at the rest. None for any other batch."""
    if len(data) < HEADER_SIZE or not data[_ATTRIBUTES_AT + 1] & TRANSACTIONAL:
        return None
    return _PRODUCER.unpack_from(data, _PRODUCER_AT)


def parse_all(data: Data) -> list[Batch]:
    """Batches one after the other, as a request or a fetch carries them."""
    found = []
    position, end = 0, len(data)
    while position < end:
        batch = parse(data, position)
        found.append(batch)
        position += LENGTH_END + batch.length
    return found


def size_at(data: bytes, position: int) -> int:
    """How many bytes the batch at `position` says it has, without looking at the rest."""
    return LENGTH_END + int(_LENGTH.unpack_from(data, position + 8)[0])


def build(
    records: Iterable[Record],
    *,
    leader_epoch: int = -1,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = NO_PRODUCER_EPOCH,
    base_sequence: int = NO_SEQUENCE,
    compression: Compression = Compression.NONE,
    transactional: bool = False,
    control: bool = False,
    base_offset: int | None = None,
    last_offset: int | None = None,
    log_append_time_ms: int | None = None,
    delete_horizon_ms: int | None = None,
) -> Batch:
    """A batch of records with rising offsets.

    The last four are for compaction, which keeps the range of offsets that a batch had and the time
    that it was given.
    """
    kept = list(records)
    if not kept and (base_offset is None or last_offset is None):
        raise ValueError("a batch without records needs a range of offsets")
    first = kept[0].offset if base_offset is None else base_offset
    last = kept[-1].offset if last_offset is None else last_offset
    base_timestamp_ms = kept[0].timestamp_ms if kept else NO_TIMESTAMP
    max_timestamp_ms = max((record.timestamp_ms for record in kept), default=NO_TIMESTAMP)
    attributes: int = compression
    if transactional:
        attributes |= TRANSACTIONAL
    if control:
        attributes |= CONTROL
    if log_append_time_ms is not None:
        attributes |= _LOG_APPEND_TIME
        max_timestamp_ms = log_append_time_ms
    if delete_horizon_ms is not None:
        attributes |= _DELETE_HORIZON
        base_timestamp_ms = delete_horizon_ms
    body = bytearray()
    for record in kept:
        encoded = _encoded(record, first, base_timestamp_ms)
        _write_varint(body, len(encoded))
        body += encoded
    header = _CHECKED_HEADER.pack(
        attributes,
        last - first,
        base_timestamp_ms,
        max_timestamp_ms,
        producer_id,
        producer_epoch,
        base_sequence,
        len(kept),
    )
    checked = header + compressed(compression, bytes(body))
    place = _PLACE.pack(first, len(checked) + _CHECKED_FROM - LENGTH_END, leader_epoch)
    return parse(place + struct.pack(">bI", MAGIC, crc32c(checked)) + checked)


def recompressed(batch: Batch, body: bytes, kind: Compression) -> Batch:
    """The same records, compressed in another way."""
    attributes = batch.attributes & ~_COMPRESSION | kind
    checked = (
        struct.pack(">h", attributes)
        + batch.data[_ATTRIBUTES_AT + 2 : HEADER_SIZE]
        + compressed(kind, body)
    )
    length = len(checked) + _CHECKED_FROM - LENGTH_END
    place = _PLACE.pack(batch.base_offset, length, batch.leader_epoch)
    return parse(place + struct.pack(">bI", MAGIC, crc32c(checked)) + checked)


def build_marker(
    marker: Marker, *, offset: int, timestamp_ms: int, producer_id: int, producer_epoch: int
) -> Batch:
    record = Record(
        offset,
        timestamp_ms,
        _MARKER_KEY.pack(0, marker.kind),
        _MARKER_VALUE.pack(0, marker.coordinator_epoch),
    )
    return build(
        [record],
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        transactional=True,
        control=True,
    )


# Records


def _encoded(record: Record, base_offset: int, base_timestamp_ms: int) -> bytearray:
    encoded = bytearray(b"\0")
    _write_varint(encoded, record.timestamp_ms - base_timestamp_ms)
    _write_varint(encoded, record.offset - base_offset)
    _write_bytes(encoded, record.key)
    _write_bytes(encoded, record.value)
    _write_varint(encoded, len(record.headers))
    for name, value in record.headers:
        _write_bytes(encoded, name.encode(errors="surrogateescape"))
        _write_bytes(encoded, value)
    return encoded


def _write_bytes(target: bytearray, value: bytes | None) -> None:
    if value is None:
        _write_varint(target, -1)
    else:
        _write_varint(target, len(value))
        target += value


def _write_varint(target: bytearray, value: int) -> None:
    """Zigzag: small numbers of either sign take one byte."""
    rest = value << 1 if value >= 0 else (-value << 1) - 1
    while rest > 0x7F:
        target.append(rest & 0x7F | 0x80)
        rest >>= 7
    target.append(rest)


class _Reader:
    def __init__(self, data: bytes) -> None:
        self._data = data
        self.position = 0

    def varint(self) -> int:
        result = shift = 0
        while True:
            if self.position >= len(self._data) or shift > 63:
                raise CorruptBatch("a number does not end")
            byte = self._data[self.position]
            self.position += 1
            result |= (byte & 0x7F) << shift
            if byte < 0x80:
                return result >> 1 if not result & 1 else -(result >> 1) - 1
            shift += 7

    def bytes_or_none(self) -> bytes | None:
        size = self.varint()
        if size < 0:
            return None
        start, self.position = self.position, self.position + size
        if self.position > len(self._data):
            raise CorruptBatch("a value is cut off")
        return bytes(self._data[start : self.position])

    def name(self) -> str:
        """Of a header. Bytes that are no UTF-8 survive, and come out as they went in."""
        name = self.bytes_or_none()
        if name is None:
            raise CorruptBatch("a header has no name")
        return name.decode(errors="surrogateescape")
