"""Indexes of a segment: where to begin to look for an offset or a time, and what was aborted.

They hold what the segment's own bytes say, so whoever doubts one builds it anew. Entries are as
Kafka writes them: (offset from the segment's first, position), (timestamp, offset from it) and
(version, producer id, first offset, last offset, last stable offset).

Where offsets and times are is written when the segment is flushed, and not before: what a crash
leaves unflushed is indexed anew in any case.
"""

from __future__ import annotations

import struct
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from itertools import islice, takewhile
from operator import lt
from typing import NamedTuple

from lossless.log.batch import NO_TIMESTAMP
from lossless.log.store import Store


def _entries(store: Store, name: str, entry: struct.Struct) -> bytes | None:
    """None: half of one is at the end, and nobody knows how many are missing."""
    data = store.read(name, 0, store.size(name))
    return None if len(data) % entry.size else data


def _columns(entry: struct.Struct, data: bytes) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Of the two that an entry has. An index has a hundred thousand entries: no loop of ours."""
    first, second = zip(*entry.iter_unpack(data), strict=True) if data else ((), ())
    return first, second


def _count_below(relative: Sequence[int], base_offset: int, end_offset: int | None) -> int | None:
    """Of the offsets that come before the first at or above `end_offset`; None: all."""
    if end_offset is None:
        return None
    return sum(1 for _ in takewhile((end_offset - base_offset).__gt__, relative))


def _rise(numbers: Sequence[int]) -> bool:
    return all(map(lt, numbers, islice(numbers, 1, None)))


class OffsetIndex:
    _entry = struct.Struct(">II")

    def __init__(self, store: Store, name: str, base_offset: int) -> None:
        self._store = store
        self._name = name
        self._base_offset = base_offset
        self._offsets = array("q")
        self._positions = array("q")
        self._unwritten = bytearray()

    def load(self, segment_size: int, end_offset: int | None = None) -> bool:
        """Entries below `end_offset`, if one is given: then the rest is dropped. False when it
        cannot be trusted: cut off, out of order, or beyond the segment."""
        data = _entries(self._store, self._name, self._entry)
        if data is None:
            return False
        relative, positions = _columns(self._entry, data)
        kept = _count_below(relative, self._base_offset, end_offset)
        relative, positions = relative[:kept], positions[:kept]
        if not (_rise(relative) and _rise(positions)):
            return False
        if positions and positions[-1] >= segment_size:
            return False
        self._offsets = array("q", map(self._base_offset.__add__, relative))
        self._positions = array("q", positions)
        if end_offset is not None:
            self.truncate(end_offset)
        return True

    @property
    def is_empty(self) -> bool:
        return not self._offsets

    def append(self, offset: int, position: int) -> None:
        self._unwritten += self._entry.pack(offset - self._base_offset, position)
        self._offsets.append(offset)
        self._positions.append(position)

    def floor(self, offset: int) -> int:
        """The position of the last entry at or below `offset`; the segment's start without one."""
        after = bisect_right(self._offsets, offset)
        return self._positions[after - 1] if after else 0

    def floor_position(self, position: int) -> int:
        """The last one at or below `position` where a batch is known to begin."""
        after = bisect_right(self._positions, position)
        return self._positions[after - 1] if after else 0

    @property
    def last_position(self) -> int:
        return self._positions[-1] if self._positions else 0

    def write(self) -> None:
        if self._unwritten:
            self._store.append(self._name, bytes(self._unwritten))
            self._unwritten.clear()

    def truncate(self, offset: int) -> None:
        """Drops the entries of `offset` and above."""
        self.write()
        kept = bisect_left(self._offsets, offset)
        self._store.truncate(self._name, kept * self._entry.size)
        del self._offsets[kept:]
        del self._positions[kept:]


class TimeIndex:
    """The largest timestamp so far, and the offset that has it."""

    _entry = struct.Struct(">qI")

    def __init__(self, store: Store, name: str, base_offset: int) -> None:
        self._store = store
        self._name = name
        self._base_offset = base_offset
        self._timestamps = array("q")
        self._offsets = array("q")
        self._unwritten = bytearray()

    def load(self, end_offset: int | None = None) -> bool:
        data = _entries(self._store, self._name, self._entry)
        if data is None:
            return False
        timestamps, relative = _columns(self._entry, data)
        kept = _count_below(relative, self._base_offset, end_offset)
        timestamps, relative = timestamps[:kept], relative[:kept]
        if not (_rise(timestamps) and _rise(relative)):
            return False
        self._timestamps = array("q", timestamps)
        self._offsets = array("q", map(self._base_offset.__add__, relative))
        if end_offset is not None:
            self.truncate(end_offset)
        return True

    @property
    def is_empty(self) -> bool:
        return not self._offsets

    def append(self, timestamp_ms: int, offset: int) -> None:
        """Only if it is later than all before: the first place with a time is what is asked for."""
        if self._timestamps and timestamp_ms <= self._timestamps[-1]:
            return
        self._unwritten += self._entry.pack(timestamp_ms, offset - self._base_offset)
        self._timestamps.append(timestamp_ms)
        self._offsets.append(offset)

    @property
    def last(self) -> tuple[int, int]:
        if not self._timestamps:
            return NO_TIMESTAMP, self._base_offset
        return self._timestamps[-1], self._offsets[-1]

    def floor(self, timestamp_ms: int) -> int:
        """An offset before which nothing is as late as `timestamp_ms`."""
        before = bisect_left(self._timestamps, timestamp_ms)
        return self._offsets[before - 1] if before else self._base_offset

    def write(self) -> None:
        if self._unwritten:
            self._store.append(self._name, bytes(self._unwritten))
            self._unwritten.clear()

    def truncate(self, offset: int) -> None:
        self.write()
        kept = bisect_left(self._offsets, offset)
        self._store.truncate(self._name, kept * self._entry.size)
        del self._timestamps[kept:]
        del self._offsets[kept:]


class AbortedTransaction(NamedTuple):
    """Whose records, in what range, a reader of committed records has to leave out."""

    producer_id: int
    first_offset: int
    last_offset: int  # of the marker
    last_stable_offset: int  # once this one was decided


class AbortedIndex:
    _entry = struct.Struct(">hqqqq")
    _version = 0

    def __init__(self, store: Store, name: str) -> None:
        self._store = store
        self._name = name
        self._entries: list[AbortedTransaction] = []

    def load(self, end_offset: int | None = None) -> bool:
        data = _entries(self._store, self._name, self._entry)
        if data is None:
            return False
        for version, *fields in self._entry.iter_unpack(data):
            entry = AbortedTransaction(*fields)
            if end_offset is not None and entry.last_offset >= end_offset:
                break
            if version != self._version or (
                self._entries and entry.last_offset <= self._entries[-1].last_offset
            ):
                return False
            self._entries.append(entry)
        if end_offset is not None:
            self.truncate(end_offset)
        return True

    def append(self, entry: AbortedTransaction) -> None:
        self._store.append(self._name, self._entry.pack(self._version, *entry))
        self._entries.append(entry)

    def between(self, start_offset: int, end_offset: int) -> list[AbortedTransaction]:
        """Those with records from `start_offset` to before `end_offset`."""
        return [
            entry
            for entry in self._entries
            if entry.last_offset >= start_offset and entry.first_offset < end_offset
        ]

    def truncate(self, offset: int) -> None:
        kept = bisect_left(self._entries, offset, key=lambda entry: entry.last_offset)
        self._store.truncate(self._name, kept * self._entry.size)
        del self._entries[kept:]
