"""Whether a batch holds the records that its header announces.

    length │ attributes 1 │ timestamp delta │ offset delta │ key │ value │ headers …
    numbers are varints; a key, a value and the parts of a header begin with their length, or -1

A consumer stops at the first record that it cannot read, so every record is checked before a batch
is stored: its length is that of its parts, its offset delta is its place in the batch, and nothing
follows the last one.

A Python loop over 600 records of 100 B costs more than storing them, so a batch is taken in runs.
Records whose lengths are all equal stand at equal distances, and a byte of their framing is the
same in all of them: a slice with a step compares it in the whole run at once. Records of one size
make two or three runs. All others are walked one by one.

A varint has to be as short as possible. Kafka accepts longer ones, which no client library writes.
"""

from __future__ import annotations

from itertools import count as numbers_from
from typing import NamedTuple

# Half a microsecond each if they are walked one by one, and a broker has one thread. Kafka has no
# such limit.
ELEMENTS_MAX = 500_000

_RECORD_BYTES_MIN = 7
_RUN_LENGTH_MIN = 8
_RUN_COLUMNS_MAX = 64  # bytes of framing; with more a run costs more than it saves
_WALK_LENGTH_MIN = 32  # records after a run that was too short; twice as many after the next one
_HIGH_BYTES = bytes(range(0x80, 0x100))

# An offset delta takes one byte below 64, two below 8,192 and then three. In every block of 8,192
# the first two bytes come again, and the third one is the same.
_BLOCK = 8192
_ONLY_BYTES = bytes(place << 1 for place in range(64))
_FIRST_BYTES = bytes(place << 1 & 0x7F | 0x80 for place in range(_BLOCK))
_LAST_OF_TWO = bytes(place >> 6 for place in range(_BLOCK))
_SECOND_OF_THREE = bytes(place >> 6 | 0x80 for place in range(_BLOCK))


class InvalidRecords(ValueError):
    """The records are not those that the header announces."""


class TooManyElements(InvalidRecords):
    """More records, or more headers, than a batch may have."""


def require_records(body: bytes, count: int, *, with_keys: bool = False) -> list[int]:
    """Raises InvalidRecords unless the body is `count` records with offset deltas from 0 on.

    Returns the places of the records without a key, if they should have one.
    """
    if count * _RECORD_BYTES_MIN > len(body):
        raise InvalidRecords(f"{len(body)} bytes are too few for {count} records")
    if count > ELEMENTS_MAX:
        raise TooManyElements(f"{count} records are more than {ELEMENTS_MAX}")
    records = _Records(body, with_keys)
    try:
        records.read(count)
    except IndexError:
        raise InvalidRecords(f"record {records.place} is cut off") from None
    if records.at != len(body):
        raise InvalidRecords(f"{len(body) - records.at} bytes follow the last of {count} records")
    return records.keyless


class _Unusual(Exception):
    """A record that the fast walk leaves to the exact one."""


class _Framing(NamedTuple):
    """The parts of a record that are not content, as distances from its first byte."""

    size: int  # of the whole record
    timestamp: range
    offset: range
    fixed: list[int]  # bytes that are equal in all records of this shape
    has_key: bool


def _offset_columns(place: int, end: int) -> tuple[bytes, ...]:
    """The bytes of the offset deltas from `place` on, one column for each byte of a delta: up to
    `end`, as far as one rule gives them."""
    if place < 64:
        return (_ONLY_BYTES[place:end],)
    first = place % _BLOCK
    last = min(end - place + first, _BLOCK)
    if place < _BLOCK:
        return _FIRST_BYTES[first:last], _LAST_OF_TWO[first:last]
    third = bytes((place // _BLOCK,)) * (last - first)
    return _FIRST_BYTES[first:last], _SECOND_OF_THREE[first:last], third


class _Records:
    """The records of a body, read up to `at`."""

    def __init__(self, body: bytes, with_keys: bool) -> None:
        self.body = body
        self.at = 0
        self.place = 0  # of the record at `at`
        self.keyless: list[int] = []
        self._with_keys = with_keys
        self._headers = 0

    def read(self, count: int) -> None:
        walk_length = _WALK_LENGTH_MIN
        while self.place < count:
            if count - self.place >= _RUN_LENGTH_MIN:
                framing = self._framing()
                length = self._run_length(framing, count)
                if length >= _RUN_LENGTH_MIN:
                    if self._with_keys and not framing.has_key:
                        self.keyless += range(self.place, self.place + length)
                    self.place += length
                    self.at += length * framing.size
                    continue
            walk_end = min(count, self.place + walk_length)
            while self.place < walk_end:
                self._walk(walk_end)
            walk_length *= 2

    # Records of one shape

    def _run_length(self, framing: _Framing, count: int) -> int:
        """How many records from here on have the shape of the first one, which is right. Zero if
        they are better walked."""
        body, at, size = self.body, self.at, framing.size
        if len(framing.fixed) > _RUN_COLUMNS_MAX or len(framing.timestamp) > 9:
            return 0
        offsets = _offset_columns(self.place, count)
        length = min(len(offsets[0]), (len(body) - at) // size)
        for number in framing.fixed:
            if length < _RUN_LENGTH_MIN:
                return 0
            column = body[at + number : at + length * size : size]
            length -= len(column.lstrip(column[:1]))
        for number, expected in zip(framing.offset, offsets, strict=True):
            if body[at + number : at + length * size : size] != expected[:length]:
                return 0
        for number in framing.timestamp:
            column = body[at + number : at + length * size : size]
            if number < framing.timestamp[-1]:  # all but the last byte of a varint are high
                if column.translate(None, _HIGH_BYTES):
                    length = next(n for n, byte in enumerate(column) if byte < 0x80)
            elif not column.isascii():
                length = next(n for n, byte in enumerate(column) if byte > 0x7F)
            elif number > framing.timestamp[0] and 0 in column:
                length = column.index(0)  # the varint could be shorter
        return length

    # One record after the other

    def _walk(self, end_place: int) -> None:
        """Up to `end_place`, as far as one rule gives the offset deltas. It is written out, because
        calls cost more than what they do."""
        body, at = self.body, self.at
        columns = _offset_columns(self.place, end_place)
        width = len(columns)
        places = zip(
            numbers_from(self.place), columns[0], columns[width > 1], columns[-1], strict=False
        )
        for place, first_byte, second_byte, third_byte in places:
            start = at
            try:
                byte = body[at]
                if byte < 0x80:
                    at += 1
                    end = at + (byte >> 1)
                else:
                    high = body[at + 1]
                    if not 0 < high < 0x80:
                        raise _Unusual
                    at += 2
                    end = at + ((high << 7 | byte & 0x7F) >> 1)
                if byte & 1:
                    raise _Unusual
                at += 1  # attributes, of which none are defined
                if body[at] > 0x7F:  # the timestamp, which may be anything
                    at += 1
                    while body[at] > 0x7F:
                        at += 1
                    if body[at] == 0 or at - start > 10:
                        raise _Unusual
                at += 1
                if body[at] != first_byte:
                    raise _Unusual
                at += 1
                if width > 1:
                    if body[at] != second_byte:
                        raise _Unusual
                    at += 1
                    if width > 2:
                        if body[at] != third_byte:
                            raise _Unusual
                        at += 1
                byte = body[at]  # the key
                if byte & 0x81:
                    if byte != 1 or self._with_keys:
                        raise _Unusual
                    at += 1
                else:
                    at += 1 + (byte >> 1)
                byte = body[at]  # the value
                if byte & 1:
                    if byte != 1:
                        raise _Unusual
                    at += 1
                elif byte < 0x80:
                    at += 1 + (byte >> 1)
                else:
                    high = body[at + 1]
                    if not 0 < high < 0x80:
                        raise _Unusual
                    at += 2 + ((high << 7 | byte & 0x7F) >> 1)
                byte = body[at]  # headers
                at += 1
                if byte:
                    if byte & 0x81:
                        raise _Unusual
                    self._count_headers(byte >> 1)
                    for _ in range(byte >> 1):
                        byte = body[at]
                        if byte & 0x81:
                            raise _Unusual
                        at += 1 + (byte >> 1)
                        byte = body[at]
                        if byte & 0x81:
                            if byte != 1:
                                raise _Unusual
                            at += 1
                        else:
                            at += 1 + (byte >> 1)
                if at != end:
                    raise _Unusual
            except (_Unusual, IndexError):
                self.at, self.place = start, place
                framing = self._framing()
                if self._with_keys and not framing.has_key:
                    self.keyless.append(place)
                at = start + framing.size
        self.at, self.place = at, place + 1

    # Exactly

    def _framing(self) -> _Framing:
        """Of the record at `at`. Raises InvalidRecords or IndexError if it is not right."""
        start = self.at
        size, at = self._varint(start)
        end = at + size
        fixed = [*range(at - start)]
        timestamp_at = at + 1
        _, offset_at = self._varint(timestamp_at)
        offset, key_at = self._varint(offset_at)
        if offset != self.place:
            raise InvalidRecords(f"record {self.place} has the offset delta {offset}")
        at = self._after_content(key_at, fixed, may_be_null=True)
        has_key = at != key_at + 1 or self.body[key_at] == 0
        at = self._after_content(at, fixed, may_be_null=True)
        headers, after = self._varint(at)
        if headers < 0:
            raise InvalidRecords(f"record {self.place} has {headers} headers")
        self._count_headers(headers)
        fixed += range(at - start, after - start)
        at = after
        for _ in range(headers):
            at = self._after_content(at, fixed, may_be_null=False)
            at = self._after_content(at, fixed, may_be_null=True)
        if at != end:
            raise InvalidRecords(
                f"record {self.place} should end after {end - start} bytes, not {at - start}"
            )
        timestamp = range(timestamp_at - start, offset_at - start)
        offset_range = range(offset_at - start, key_at - start)
        return _Framing(end - start, timestamp, offset_range, fixed, has_key)

    def _after_content(self, at: int, fixed: list[int], *, may_be_null: bool) -> int:
        size, after = self._varint(at)
        if size < (-1 if may_be_null else 0):
            raise InvalidRecords(f"a part of record {self.place} has a length of {size}")
        fixed.extend(range(at - self.at, after - self.at))
        end = after + max(size, 0)
        if end > len(self.body):
            raise IndexError
        return end

    def _varint(self, at: int) -> tuple[int, int]:
        """The number, and where it ends."""
        body = self.body
        value = body[at] & 0x7F
        shift = 7
        while body[at] > 0x7F:
            at += 1
            value |= (body[at] & 0x7F) << shift
            shift += 7
            if body[at] == 0 or value >> 64 or shift > 70:
                raise InvalidRecords(f"a number in record {self.place} is too long")
        return value >> 1 ^ -(value & 1), at + 1

    def _count_headers(self, count: int) -> None:
        self._headers += count
        if self._headers > ELEMENTS_MAX:
            raise TooManyElements(f"more than {ELEMENTS_MAX} headers")
