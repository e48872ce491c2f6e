"""A segment: some of a log's batches in one file, with the indexes that belong to it.

    00000000000000004711.log          batches, one after the other; the name is the first offset
    00000000000000004711.index        offset to position, every few kilobytes
    00000000000000004711.timeindex    time to offset
    00000000000000004711.txnindex     aborted transactions

The batches are the truth. After an unclean stop those that were not flushed are read up to the
first that is not whole, the file is cut there, and the indexes are written anew from there. Damage
in what was flushed is no crash's doing: then nothing is cut, and the log does not open.

A segment that is flushed has all its files, empty or not: of one that is missing nobody could tell
what it said.
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from itertools import chain, dropwhile, islice, takewhile
from typing import NamedTuple

from lossless.log.batch import (
    HEADER_SIZE,
    LENGTH_END,
    NO_TIMESTAMP,
    Batch,
    CorruptBatch,
    Data,
    new,
    parse,
    require_whole,
    size_at,
)
from lossless.log.index import AbortedIndex, OffsetIndex, TimeIndex
from lossless.log.store import Store

CHUNK_BYTES = 64 * 1024
SCAN_BYTES = 1 << 20
RECENT = 32  # batches whose places are kept in memory: followers ask for the last few
LAST_BYTES_MAX = 512 * 1024  # that are kept at hand, once they were read
OFFSETS_MAX = 0x7FFFFFFF  # in one segment: the indexes count from its first
LOG_SUFFIX = ".log"
INDEX_SUFFIXES = (".index", ".timeindex", ".txnindex")

_PLACE = struct.Struct(">qi11xi")  # base offset, length, …, last offset delta


class Recovered(NamedTuple):
    cut_bytes: int
    indexed_to: int  # from there on, what was aborted is to be told anew


class Place(NamedTuple):
    """Where a batch lies in its segment."""

    position: int
    size: int
    last_offset: int


def file_name(offset: int, suffix: str) -> str:
    return f"{offset:020d}{suffix}"


class Segment:
    def __init__(self, store: Store, base_offset: int, index_interval_bytes: int) -> None:
        self._store = store
        self._index_interval_bytes = index_interval_bytes
        self._name = file_name(base_offset, LOG_SUFFIX)
        self._offsets = OffsetIndex(store, file_name(base_offset, ".index"), base_offset)
        self._times = TimeIndex(store, file_name(base_offset, ".timeindex"), base_offset)
        self._unindexed_bytes = 0
        self._recent: deque[Place] = deque(maxlen=RECENT)
        # What was last written or, of the end, read, and where: every follower asks for it.
        self._last, self._last_at = b"", -1
        self.aborted = AbortedIndex(store, file_name(base_offset, ".txnindex"))
        self.base_offset = base_offset
        self.next_offset = base_offset
        self.size = 0
        self.first_timestamp_ms = NO_TIMESTAMP
        self.max_timestamp_ms = NO_TIMESTAMP
        self._max_timestamp_offset = base_offset  # the last of the batch that has it

    # Opening

    def load(self, names: AbstractSet[str]) -> bool:
        """After a clean stop, or of a segment that was flushed since it was last written. False
        when an index is not among the store's `names` or cannot be trusted: then `rebuild` it."""
        self.size = self._store.size(self._name)
        if not (
            self._has_indexes(names)
            and self._offsets.load(self.size)
            and self._times.load()
            and self.aborted.load()
            and self._times.is_empty == self._offsets.is_empty
        ):
            return False
        self._read_end()
        return True

    def rebuild(self) -> None:
        """The indexes of a segment that was flushed, anew. CorruptBatch if it is not whole."""
        self._start_over()
        if self._scan():
            raise CorruptBatch(f"{self._name} is damaged at {self.size}, though it was flushed")
        self.complete()

    def recover(
        self,
        visit: Callable[[Batch], None],
        names: AbstractSet[str],
        *,
        flushed_to: int = 0,
        flush: bool = True,
    ) -> Recovered:
        """Keeps what is whole, flushed from now on, and indexes it. What was flushed, with its
        indexes, is not read again; CorruptBatch if it is not whole. `visit` sees every batch that
        was not, in order, and perhaps some before.
        """
        indexed_to = flushed_to
        cut = self._scan(visit) if self._resume(flushed_to, names) else None
        if cut is None or (cut and self.next_offset < flushed_to):  # the indexes may be wrong
            indexed_to = self.base_offset
            self._start_over()
            cut = self._scan(visit)
        if flush and cut and self.next_offset < flushed_to:
            raise CorruptBatch(f"{self._name} is damaged at {self.size}, though it was flushed")
        if flush or cut:
            self._store.truncate(self._name, self.size)
        self._write_indexes()
        return Recovered(cut, indexed_to)

    def _resume(self, offset: int, names: AbstractSet[str]) -> bool:
        """To go on from the last entry of the index below an offset. False: that cannot be."""
        size = self._store.size(self._name)
        if not (
            offset > self.base_offset
            and self._has_indexes(names)
            and self._offsets.load(size, offset)
            and self._times.load(offset)
            and self.aborted.load(offset)
            and self._times.is_empty == self._offsets.is_empty
        ):
            return False
        self.size = size
        self._read_first()
        self.size = self._offsets.last_position
        self.max_timestamp_ms, self._max_timestamp_offset = self._times.last
        return True

    def _has_indexes(self, names: AbstractSet[str]) -> bool:
        return names >= {file_name(self.base_offset, suffix) for suffix in INDEX_SUFFIXES}

    def _start_over(self) -> None:
        self.aborted.truncate(self.base_offset)
        self._drop_indexes()
        self._forget()

    def _scan(self, visit: Callable[[Batch], None] | None = None) -> int:
        """Reads the batches from here on and indexes them; how many bytes are none at the end."""
        size = self._store.size(self._name)
        chunk, start = b"", self.size
        while self.size < size:
            try:
                batch = parse(chunk, self.size - start)
            except CorruptBatch:  # it may only be that the chunk ends
                head = self._store.read(self._name, self.size, LENGTH_END)
                wanted = size_at(head, 0) if len(head) == LENGTH_END else 0
                chunk, start = (
                    self._store.read(self._name, self.size, max(wanted, SCAN_BYTES)),
                    self.size,
                )
                try:
                    batch = parse(chunk)
                except CorruptBatch:
                    break
            if batch.base_offset < self.next_offset:
                break
            self._note(batch)
            if visit is not None:
                visit(batch)
        return size - self.size

    def _drop_indexes(self) -> None:
        self._offsets.truncate(self.base_offset)
        self._times.truncate(self.base_offset)

    # Writing

    def append(self, batches: Sequence[Batch], data: Data | None = None) -> None:
        """All in one piece, a system call costs more than a batch does: in `data`, if they came as
        one."""
        if data is None:
            data = batches[0].data if len(batches) == 1 else b"".join([b.data for b in batches])
        self._store.append(self._name, data)
        if isinstance(data, bytes):  # a view would keep all of what it is a part of
            self._last, self._last_at = data, self.size
        for batch in batches:
            self._note(batch)

    def _note(self, batch: Batch) -> None:
        """Takes note of a batch at the end of the file, in the indexes too where one is due."""
        position, size = self.size, LENGTH_END + batch.length
        last_offset = batch.base_offset + batch.last_offset_delta
        timestamp_ms = batch.max_timestamp_ms
        if timestamp_ms > self.max_timestamp_ms:
            self.max_timestamp_ms, self._max_timestamp_offset = timestamp_ms, last_offset
            if self.first_timestamp_ms == NO_TIMESTAMP:
                self.first_timestamp_ms = timestamp_ms
        if self._unindexed_bytes > self._index_interval_bytes:
            self._offsets.append(last_offset, position)
            self._times.append(self.max_timestamp_ms, self._max_timestamp_offset)
            self._unindexed_bytes = 0
        self._unindexed_bytes += size
        self._recent.append(new(Place, (position, size, last_offset)))
        self.size = position + size
        self.next_offset = last_offset + 1

    @property
    def names(self) -> list[str]:
        """Of its files."""
        return [file_name(self.base_offset, suffix) for suffix in (LOG_SUFFIX, *INDEX_SUFFIXES)]

    def flush(self) -> None:
        self._write_indexes()
        for name in self.names:
            self._store.flush(name)

    def complete(self) -> None:
        """Whatever has no entry yet is a file all the same. What was written last need not be at
        hand any more: of what is closed the file is read, and checked."""
        self._last, self._last_at = b"", -1
        self._write_indexes()
        for suffix in INDEX_SUFFIXES:
            self._store.append(file_name(self.base_offset, suffix), b"")

    def _write_indexes(self) -> None:
        self._offsets.write()
        self._times.write()

    def truncate(self, offset: int) -> None:
        """Keeps the batches that end before `offset`."""
        place = next(self._places_from(offset), None)
        if place is None:
            return
        self._offsets.truncate(offset)
        self._times.truncate(offset)
        self.aborted.truncate(offset)
        self._store.truncate(self._name, place.position)
        self._forget()
        self.size = place.position
        self._read_end()

    def rewrite(self, batches: Iterable[Batch]) -> None:
        """Other batches with the same offsets, or fewer. A crash leaves the old ones or the new.

        The indexes go first, because they fit only the old; without them readers begin at the
        start. What was aborted stays known as long as the old batches may be there.
        """
        left = list(batches)
        self._drop_indexes()
        self._store.replace(self._name, b"".join(batch.data for batch in left))
        self._forget()
        for batch in left:
            self._note(batch)
        self._write_indexes()

    def remove(self) -> None:
        for name in self.names:
            self._store.remove(name)

    # Reading

    def read(
        self, offset: int, end_offset: int, bytes_max: int, *, is_checked: bool = False
    ) -> bytes:
        """Whole batches from the one with `offset` up to `end_offset`; one even if it is larger
        than `bytes_max`. If they are to be checked, CorruptBatch says what is wrong with them."""
        start: int | None = None
        end = 0
        for place in self._places_from(offset):
            after = place.position + place.size
            if place.last_offset >= end_offset:
                break
            if start is None:
                start = place.position
            elif after - start > bytes_max:
                break
            end = after
        if start is None:
            return b""
        if start == self._last_at and end == start + len(self._last):
            return self._last
        found = self._store.read(self._name, start, end - start)
        if len(found) < end - start:
            raise CorruptBatch(f"{self._name} ends at {start + len(found)}, before it should")
        if is_checked:
            require_whole(found)
        elif end == self.size and len(found) <= LAST_BYTES_MAX:
            self._last, self._last_at = found, start
        return found

    def batches(self, offset: int) -> Iterator[Batch]:
        """Every batch that does not end before `offset`."""
        place = next(self._places_from(offset), None)
        if place is not None:
            yield from self._batches_at(place.position)

    def _batches_at(self, position: int) -> Iterator[Batch]:
        while position < self.size:
            chunk = self._store.read(self._name, position, SCAN_BYTES)
            at = 0
            while len(chunk) - at >= HEADER_SIZE:
                size = size_at(chunk, at)
                if at + size > len(chunk) and not at:  # larger than a chunk
                    chunk = self._store.read(self._name, position, size)
                elif at + size > len(chunk):
                    break
                batch = parse(chunk, at)
                yield batch
                at += LENGTH_END + batch.length
            if not at:
                raise CorruptBatch(f"{self._name} ends at {position}, before it should")
            position += at

    def tail(self, bytes_max: int, *, before: int) -> Iterator[Batch]:
        """The last batches before an offset, as far back as an entry of the index allows."""
        end = self.size if before >= self.next_offset else self._offsets.floor(before)
        start = self._offsets.floor_position(end - bytes_max)
        return takewhile(lambda batch: batch.last_offset < before, self._batches_at(start))

    def at_or_after(self, timestamp_ms: int) -> Iterator[Batch]:
        """The batches with a record that late, in the order of the log."""
        if self.max_timestamp_ms >= timestamp_ms:
            for batch in self.batches(self._times.floor(timestamp_ms)):
                if batch.max_timestamp_ms >= timestamp_ms:
                    yield batch

    def _places_from(self, offset: int) -> Iterator[Place]:
        """From the first batch that does not end before `offset`."""
        recent = self._recent
        if recent and recent[0].last_offset < offset:
            number = len(recent)
            while recent[number - 1].last_offset >= offset:
                number -= 1
            return islice(recent, number, None)
        start = self._offsets.floor(offset)
        places = self._places(start)
        if start:
            first = next(places)
            if first.last_offset > offset:  # it would pass over what is asked for
                raise CorruptBatch(f"the index of {self._name} is wrong about {start}")
            places = chain((first,), places)
        return dropwhile(lambda place: place.last_offset < offset, places)

    def _places(self, position: int) -> Iterator[Place]:
        while position < self.size:
            chunk = self._store.read(self._name, position, CHUNK_BYTES)
            at = 0
            while len(chunk) - at >= HEADER_SIZE:
                base_offset, length, delta = _PLACE.unpack_from(chunk, at)
                size = LENGTH_END + length
                if size < HEADER_SIZE:
                    raise CorruptBatch(f"{self._name} is damaged at {position + at}")
                yield Place(position + at, size, base_offset + delta)
                at += size
            if not at:
                raise CorruptBatch(f"{self._name} ends at {position}, before it should")
            position += at

    def _read_end(self) -> None:
        """What the last batches say, from the last entry of the index on."""
        start = self._offsets.last_position
        self.next_offset = self.base_offset
        self._unindexed_bytes = self.size - start
        self.max_timestamp_ms, self._max_timestamp_offset = self._times.last
        for place in self._places(start):
            batch = parse(self._store.read(self._name, place.position, place.size))
            self.next_offset = batch.next_offset
            if batch.max_timestamp_ms > self.max_timestamp_ms:
                self.max_timestamp_ms = batch.max_timestamp_ms
                self._max_timestamp_offset = batch.last_offset
        self._read_first()

    def _read_first(self) -> None:
        first = next(self._places(0), None)
        if first is not None:
            batch = parse(self._store.read(self._name, 0, first.size))
            self.first_timestamp_ms = batch.max_timestamp_ms

    def _forget(self) -> None:
        self._recent.clear()
        self._last, self._last_at = b"", -1
        self.size = self._unindexed_bytes = 0
        self.next_offset = self.base_offset
        self.first_timestamp_ms = self.max_timestamp_ms = NO_TIMESTAMP
        self._max_timestamp_offset = self.base_offset
