"""A partition's log: segments, the epochs of its leaders, what it knows of its producers.

    append      by a leader, which gives offsets, or by a follower, which takes the leader's
    read        whole batches between two offsets
    truncate    what a new leader does not have
    retain      deletes old segments by time and size
    compact     keeps the last record of every key (compaction.py)
    flush       what is written becomes what a loss of power cannot take

A segment that is closed, and every 192 MB, is flushed beside the work (Store.flush_later): so a log
that was killed has little to read when it is opened, however large it is. Flushing every 16 MB made
that less, and producing as slow as the disk. Kafka flushes what it closes, reads the last segment
as a whole, and leaves the rest to the system.

Beside the segments stand small files (checkpoints.py): epochs, start, recovery point, producers.

Damage
What was flushed and is not what was written is found when it is read from a closed segment, before
anybody gets it, or when a log is opened and has to read it. (To read all of it at every start would
take minutes.) Then the log is marked, and DamagedLog says so. Whoever has a log that others have
too sets it aside before the next start (Store.set_aside) and fetches it anew.

Invariants
- Offsets rise from batch to batch; segments follow each other without a gap that a crash made.
- The recovery point is never beyond the log's end, and moves up only after a flush (KAFKA-10101:
  without that, recovery would trust what was never on disk).
- Whatever a crash or a loss of power leaves, opening the log accepts: a prefix of what was written,
  with everything that was flushed.
- After StoreFailed a log is not to be used any more, as Kafka takes a folder that fails offline.
  Opened again it recovers.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from collections.abc import Set as AbstractSet
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

from lossless.log.batch import (
    LENGTH_END,
    NO_TIMESTAMP,
    Batch,
    CorruptBatch,
    Data,
    Marker,
    Record,
    build_marker,
)
from lossless.log.checkpoints import RECOVERY_POINT, Checkpoints, snapshot_name
from lossless.log.compaction import Compaction
from lossless.log.index import AbortedTransaction
from lossless.log.leader_epochs import EpochEnd, LeaderEpochs
from lossless.log.producers import CompletedTransaction, Duplicate, Producers, Refusal
from lossless.log.rules import RULES, Rules
from lossless.log.segment import LOG_SUFFIX, OFFSETS_MAX, Segment
from lossless.log.store import Store

RECALLED_BYTES = 8 << 20  # five of the largest batches that clients send unless told otherwise
UNFLUSHED_BYTES_MAX = 192 << 20  # then a flush begins; a log that was killed reads about as much


@dataclass(frozen=True, slots=True, kw_only=True)
class LogConfig:
    """By Kafka's names, with Kafka's defaults."""

    segment_bytes: int = 1 << 30
    segment_ms: int = 7 * 24 * 3_600_000
    index_interval_bytes: int = 4096
    retention_ms: int | None = 7 * 24 * 3_600_000
    retention_bytes: int | None = None
    delete_retention_ms: int = 24 * 3_600_000
    producer_id_expiration_ms: int = 24 * 3_600_000
    log_append_time: bool = False  # message.timestamp.type


class Appended(NamedTuple):
    base_offset: int
    last_offset: int


class OffsetOutOfRange(LookupError):
    """Before the log's start, or beyond its end."""

    def __init__(self, offset: int, log_start_offset: int, log_end_offset: int) -> None:
        super().__init__(f"offset {offset} is not within {log_start_offset} to {log_end_offset}")


class UnexpectedOffset(ValueError):
    """A leader's batch does not follow what this log has. Nothing was written."""


class DamagedLog(CorruptBatch):
    """What was flushed is not what was written: nothing of this log is to be served any more."""


class Log:
    """Opening recovers: whatever a crash left in the store, this makes a log of it. DamagedLog
    if what was flushed is damaged: such a replica is to be fetched anew, not shortened."""

    def __init__(self, store: Store, config: LogConfig | None = None, rules: Rules = RULES) -> None:
        self._store = store
        self._checkpoints = Checkpoints(store)
        self._rules = rules
        self.config = config or LogConfig()
        self.producers = Producers()
        self._undecided: list[CompletedTransaction] = []  # markers above the high watermark
        self._segments: list[Segment] = []
        self._compacted_to = 0
        self._unflushed_bytes = 0
        self._flushing_to: int | None = None
        self._is_recovery_point_written = False
        self._passing_snapshots: list[str] = []  # of a flush: the next one replaces them
        with self._watched():
            self._open()

    # What there is

    @property
    def log_end_offset(self) -> int:
        """The next offset that will be given."""
        return self._segments[-1].next_offset

    @property
    def size(self) -> int:
        return sum(segment.size for segment in self._segments)

    @property
    def max_timestamp_ms(self) -> int:
        """Of all records; NO_TIMESTAMP if there are none."""
        return max(segment.max_timestamp_ms for segment in self._segments)

    @property
    def segment_base_offsets(self) -> list[int]:
        return [segment.base_offset for segment in self._segments]

    @property
    def latest_epoch(self) -> int | None:
        return self._epochs.latest

    def end_of_epoch(self, epoch: int) -> EpochEnd | None:
        return self._epochs.end_of(epoch, self.log_end_offset)

    def epoch_at(self, offset: int) -> int | None:
        return self._epochs.epoch_at(offset)

    def last_stable_offset(self, high_watermark: int) -> int:
        """Up to where nothing is undecided: no transaction is open, and no marker uncommitted."""
        first = self.producers.first_open_offset()
        if self._undecided:
            self._undecided = [t for t in self._undecided if t.last_offset >= high_watermark]
            offsets = [transaction.first_offset for transaction in self._undecided]
            first = min(offsets if first is None else [first, *offsets], default=None)
        if first is None or first >= high_watermark:
            return high_watermark
        # Of a transaction the first records may have been deleted.
        return min(max(first, self._start), high_watermark)

    # Appending

    def append(
        self, batch: Batch, *, leader_epoch: int, now_ms: int
    ) -> Appended | Duplicate | Refusal:
        """As the leader: the batch gets the next offsets, unless it is here already."""
        if batch.has_sequence:
            refused = self.producers.check(batch)
            if refused is not None:
                return refused
        if self.config.log_append_time:
            batch = batch.with_log_append_time(now_ms)
        placed = batch.placed(self.log_end_offset, leader_epoch)
        self._write(placed)
        return Appended(placed.base_offset, placed.last_offset)

    def append_decided(self, batch: Batch, *, leader_epoch: int) -> None:
        """As the leader, what its own coordinator wrote: nothing about it is in doubt."""
        self._write(batch.placed(self.log_end_offset, leader_epoch))

    def append_marker(
        self,
        marker: Marker,
        *,
        producer_id: int,
        producer_epoch: int,
        leader_epoch: int,
        now_ms: int,
    ) -> Appended | Refusal:
        """As the leader, at the request of a transaction's coordinator."""
        refused = self.producers.check_marker(producer_id, producer_epoch, marker)
        if refused is not None:
            return refused
        batch = build_marker(
            marker,
            offset=self.log_end_offset,
            timestamp_ms=now_ms,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
        ).placed(self.log_end_offset, leader_epoch)
        self._write(batch)
        return Appended(batch.base_offset, batch.last_offset)

    def append_from_leader(self, batches: Sequence[Batch], data: Data | None = None) -> None:
        """As a follower: what the leader has decided is not questioned, but for its place. `data`
        is all of them in one piece, if that is how they came."""
        active = self._segments[-1]
        end, size, latest_ms = active.next_offset, 0, NO_TIMESTAMP
        is_of_latest_epoch, epoch = True, self._epochs.latest
        for batch in batches:
            if batch.base_offset < end:
                raise UnexpectedOffset(f"batch {batch.base_offset} came where {end} should")
            if batch.last_offset_delta < 0:
                raise UnexpectedOffset(
                    f"batch {batch.base_offset} ends before it begins, at {batch.last_offset}"
                )
            end = batch.base_offset + batch.last_offset_delta + 1
            size += LENGTH_END + batch.length
            if batch.max_timestamp_ms > latest_ms:
                latest_ms = batch.max_timestamp_ms
            if batch.leader_epoch != epoch:
                is_of_latest_epoch = False
        # The first batch of a segment decides how old it is.
        if is_of_latest_epoch and active.size and not self._is_roll_due(size, end - 1, latest_ms):
            self._write_to(active, batches, data)
        else:
            for batch in batches:
                self._write(batch)

    def _write(self, batch: Batch) -> None:
        size = LENGTH_END + batch.length
        if self._is_roll_due(size, batch.last_offset, batch.max_timestamp_ms):
            # A leader's compaction leaves gaps between batches; between segments they would look as
            # if a crash had made them.
            self._roll(self.log_end_offset)
        if batch.leader_epoch != self._epochs.latest:
            self._epochs.assign(batch.leader_epoch, batch.base_offset)
            self._checkpoints.write_epochs(self._epochs)
        self._write_to(self._segments[-1], (batch,))

    def _write_to(
        self, active: Segment, batches: Sequence[Batch], data: Data | None = None
    ) -> None:
        """For which it has room."""
        before, apply = active.size, self.producers.apply
        active.append(batches, data)
        for batch in batches:
            completed = apply(batch)
            if completed is not None:
                self._on_completed(completed, batch, active)
        self._unflushed_bytes += active.size - before
        if self._unflushed_bytes >= UNFLUSHED_BYTES_MAX:
            self._flush_later()

    def _on_completed(
        self, completed: CompletedTransaction, batch: Batch, segment: Segment | None
    ) -> None:
        """By a marker. What was aborted goes into the segment's index, if one is given."""
        self._undecided.append(completed)
        if completed.aborted and segment is not None:
            first_open = self.producers.first_open_offset()
            segment.aborted.append(
                AbortedTransaction(
                    completed.producer_id,
                    completed.first_offset,
                    completed.last_offset,
                    batch.next_offset if first_open is None else first_open,
                )
            )

    def _is_roll_due(self, size: int, last_offset: int, timestamp_ms: int) -> bool:
        """For so many bytes more, up to an offset and a time."""
        active, config = self._segments[-1], self.config
        if not active.size:
            return False
        # By the records' own times, as in Kafka: what is old already is not cut to pieces.
        began_ms = active.first_timestamp_ms
        return (
            active.size + size > config.segment_bytes
            or last_offset - active.base_offset > OFFSETS_MAX
            or (timestamp_ms - began_ms > config.segment_ms and began_ms != NO_TIMESTAMP)
        )

    def _roll(self, base_offset: int) -> None:
        # First: without one, a second segment does not show that the first has lost its end.
        self._write_recovery_point()
        self._checkpoints.write_snapshot(self.log_end_offset, self.producers)
        self._segments[-1].complete()
        self._segments.append(self._segment(base_offset))
        self._unflushed_bytes = UNFLUSHED_BYTES_MAX  # what is closed is flushed at the next chance

    # Reading

    def read(self, offset: int, *, end_offset: int, bytes_max: int) -> bytes:
        """Whole batches from the one with `offset`, none beyond `end_offset`, from one segment; at
        least one if there is one, even if it is larger than `bytes_max`."""
        if not self.log_start_offset <= offset <= self.log_end_offset:
            raise OffsetOutOfRange(offset, self.log_start_offset, self.log_end_offset)
        active = self._segments[-1]
        try:
            for segment in (
                (active,) if offset >= active.base_offset else self._segments_from(offset)
            ):
                is_closed = segment is not active
                if found := segment.read(offset, end_offset, bytes_max, is_checked=is_closed):
                    return found
        except CorruptBatch as error:
            raise self._damaged(error) from error
        return b""

    def batches(self, offset: int = 0) -> Iterator[Batch]:
        with self._watched():
            for segment in self._segments_from(offset):
                yield from segment.batches(offset)

    def aborted_between(self, start_offset: int, end_offset: int) -> list[AbortedTransaction]:
        """Aborted transactions with records in the range. Their markers may lie beyond it."""
        return [
            entry
            for segment in self._segments_from(start_offset)
            for entry in segment.aborted.between(start_offset, end_offset)
        ]

    def first_at_or_after(self, timestamp_ms: int) -> Record | None:
        """The first record in the log that is at least so late."""
        with self._watched():
            for segment in self._segments:
                for batch in segment.at_or_after(timestamp_ms):
                    for record in batch.readable_records():
                        if record.timestamp_ms >= timestamp_ms and record.offset >= self._start:
                            return record
        return None

    def _segments_from(self, offset: int) -> list[Segment]:
        """Those that may have `offset` or what follows."""
        return [segment for segment in self._segments if segment.next_offset > offset]

    # Becoming shorter

    @property
    def log_start_offset(self) -> int:
        return self._start

    def truncate(self, offset: int) -> None:
        """Drops everything from `offset` on; batches that reach beyond it go as a whole."""
        if offset >= self.log_end_offset:
            is_empty = self.log_end_offset == self._start
            if is_empty and self.latest_epoch is not None and self._rules.empty_epochs_forgotten:
                # Its epoch would make every comparison with the leader end like this one.
                self.start_anew(self._start)
            return
        if offset < self._start:
            self.start_anew(offset)
            return
        while len(self._segments) > 1 and self._segments[-1].base_offset >= offset:
            self._segments.pop().remove()
        with self._watched():
            self._segments[-1].truncate(offset)
        end = self.log_end_offset
        if end < self._start:  # the batch that went had records before the start
            self.start_anew(self._start)
            return
        if self._epochs.truncate_from_end(end):
            self._checkpoints.write_epochs(self._epochs)
        self._set_recovery_point(min(self.recovery_point, end))
        self._checkpoints.remove_snapshots(above=end)
        with self._watched():
            self._replay(self._load_snapshot(end))

    def start_anew(self, offset: int) -> None:
        """Drops everything and begins at `offset`: a follower whose leader has nothing older."""
        for segment in self._segments:
            segment.remove()
        self._move_start(offset)
        self._segments = [self._segment(offset)]
        self._epochs = self._no_epochs()
        self._checkpoints.write_epochs(self._epochs)
        self._set_recovery_point(offset)
        self._checkpoints.remove_snapshots(above=-1)
        self.producers = Producers()
        self._undecided = []

    def delete_before(self, offset: int) -> None:
        """Records below `offset` are no longer to be read; whole segments of them are removed."""
        if not self._start <= offset <= self.log_end_offset:
            raise OffsetOutOfRange(offset, self._start, self.log_end_offset)
        if offset == self._start:
            return
        # First the promise, then the files: a crash in between leaves too much, never too little.
        self._move_start(offset)
        self._epochs.truncate_from_start(offset)  # an emptied log keeps its last epoch
        self._checkpoints.write_epochs(self._epochs)
        while len(self._segments) > 1 and self._segments[0].next_offset <= offset:
            self._segments.pop(0).remove()
        self._checkpoints.remove_snapshots(below=self._segments[0].base_offset)

    def retain(self, *, now_ms: int, high_watermark: int) -> None:
        """Deletes segments that are too old or too much. Nothing uncommitted is deleted."""
        size = self.size
        start = self._start
        for segment in self._segments:
            size -= segment.size
            may_go = segment.size > 0 and segment.next_offset <= high_watermark
            if not (may_go and (self._is_old(segment, now_ms) or self._is_enough(size))):
                break
            start = segment.next_offset
        if start > self._start:
            if start == self.log_end_offset:
                self._roll(start)
            self.delete_before(start)
        self.producers.remove_expired(now_ms, self.config.producer_id_expiration_ms)

    @property
    def has_more_to_compact(self) -> bool:
        """Whether a segment was closed since the last time."""
        return len(self._segments) > 1 and self._segments[-1].base_offset > self._compacted_to

    def compact(self, *, now_ms: int, high_watermark: int) -> None:
        """Of every key the last record stays, in all that is closed, decided and flushed."""
        end = min(self.last_stable_offset(high_watermark), self.recovery_point)
        closed = [
            segment
            for segment, following in pairwise(self._segments)
            if following.base_offset <= end
        ]
        compaction = Compaction.of(
            self._batches_of(closed),
            self.aborted_between(self._start, end),
            self.producers,
            now_ms=now_ms,
            delete_retention_ms=self.config.delete_retention_ms,
        )
        self._compacted_to = self._segments[-1].base_offset
        self._move_start(self._start)  # the first segment may go, and says where the log starts
        for segment in closed:
            with self._watched():
                batches = list(segment.batches(self._start))
            left = [batch for batch in map(compaction.apply, batches) if batch is not None]
            if not left:
                self._segments.remove(segment)
                segment.remove()
            elif left != batches:
                segment.rewrite(left)

    def _batches_of(self, segments: list[Segment]) -> Iterator[Batch]:
        with self._watched():
            for segment in segments:
                yield from segment.batches(self._start)

    def _is_old(self, segment: Segment, now_ms: int) -> bool:
        retention_ms = self.config.retention_ms
        return retention_ms is not None and _is_older(
            segment.max_timestamp_ms, now_ms, retention_ms
        )

    def _is_enough(self, size: int) -> bool:
        return self.config.retention_bytes is not None and size >= self.config.retention_bytes

    # Durability

    def flush(self) -> None:
        """Everything written so far survives a loss of power when this returns."""
        for segment in self._segments_from(self.recovery_point):
            segment.flush()
        self._set_recovery_point(self.log_end_offset)

    @property
    def recovery_point(self) -> int:
        """Everything below was flushed."""
        if self._flushing_to is not None and self._store.has_flushed():
            self._recovery_point, self._flushing_to = self._flushing_to, None
        return self._recovery_point

    def _flush_later(self) -> None:
        """Everything written so far, with the producers as of here, beside the work. While one such
        flush is under way there is no other; the first append after it asks again."""
        if not self._store.has_flushed():
            return
        end = self.log_end_offset
        snapshot = snapshot_name(end)
        then: dict[str, bytes | None] = {
            snapshot: self.producers.encode(),
            RECOVERY_POINT: str(end).encode(),
        }
        then.update((name, None) for name in self._passing_snapshots if name != snapshot)
        segments = self._segments_from(self.recovery_point)
        self._segments[-1].complete()
        self._store.flush_later([name for one in segments for name in one.names], then)
        self._flushing_to, self._unflushed_bytes = end, 0
        self._is_recovery_point_written = True
        self._passing_snapshots = [snapshot]

    def close(self) -> None:
        if not self._store.names():  # never written
            return
        self.flush()
        self._segments[-1].complete()
        self._checkpoints.write_snapshot(self.log_end_offset, self.producers)
        self._checkpoints.write_clean()

    def destroy(self) -> None:
        """The partition is gone, or no longer kept here."""
        self._store.destroy()

    def _set_recovery_point(self, offset: int) -> None:
        if offset != self._recovery_point or self._flushing_to is not None:
            self._is_recovery_point_written = False
        self._recovery_point = offset
        self._flushing_to = None
        self._unflushed_bytes = 0
        self._write_recovery_point()

    def _write_recovery_point(self) -> None:
        if not self._is_recovery_point_written:
            self._checkpoints.write_recovery_point(self._recovery_point)
            self._is_recovery_point_written = True

    def _move_start(self, offset: int) -> None:
        self._start = offset
        self._checkpoints.write_log_start(offset)

    @contextmanager
    def _watched(self) -> Iterator[None]:
        """Around whatever reads: damage is marked before anybody hears of it."""
        try:
            yield
        except DamagedLog:
            raise
        except CorruptBatch as error:
            raise self._damaged(error) from error

    def _damaged(self, error: CorruptBatch) -> DamagedLog:
        self._checkpoints.write_damage(str(error))
        return DamagedLog(f"{self._store}: {error}")

    # Opening

    def _open(self) -> None:
        checkpoints, names = self._checkpoints, self._store.names()
        if not names:  # a new log is not written before it has records: there may be thousands
            self._start = self._recovery_point = 0
            self._epochs, self._segments = self._no_epochs(), [self._segment(0)]
            return
        damage = checkpoints.damage()
        if damage is not None:
            raise DamagedLog(f"{self._store}: {damage}")
        is_clean = checkpoints.take_clean()
        epochs = checkpoints.epochs(forgets_empty=self._rules.empty_epochs_forgotten)
        self._epochs = epochs or self._no_epochs()
        bases = [int(name.removesuffix(LOG_SUFFIX)) for name in names if name.endswith(LOG_SUFFIX)]
        start, flushed = checkpoints.log_start(), checkpoints.recovery_point()
        self._start = start if start is not None else bases[0] if bases else 0
        self._recovery_point = flushed or 0
        self._is_recovery_point_written = flushed is not None
        # Who does not know what was flushed cannot tell a gap of compaction from one of a crash.
        recovered = self._open_segments(
            bases, frozenset(names), is_clean=is_clean, may_gap=flushed is None
        )
        while len(self._segments) > 1 and self._segments[0].next_offset <= self._start:
            self._segments.pop(0).remove()
        if not self._segments or self.log_end_offset < self._start:
            self.start_anew(self._start)
            return
        end = self.log_end_offset
        if epochs is None and end > self._start:
            for batch in self.batches():
                self._assign(batch)
            self._checkpoints.write_epochs(self._epochs)
        self._epochs.truncate_from_start(self._start)
        # Only a log that was emptied keeps an epoch at its end.
        self._epochs.truncate_from_end(end if end > self._start else end + 1)
        is_flushed_to = self.recovery_point if self._rules.recovery_point_after_flush else end
        self._set_recovery_point(min(is_flushed_to, end))
        self._checkpoints.remove_snapshots(above=end)
        starts = self.segment_base_offsets
        self._passing_snapshots = [
            snapshot_name(offset) for offset in checkpoints.snapshots() if offset not in starts
        ]
        # Up to there the indexes of aborted transactions are whole.
        indexed = min((recovered[s] for s in self._segments if s in recovered), default=end)
        self._replay(self._load_snapshot(indexed), recovered)
        self._unflushed_bytes = sum(
            s.size for s in self._segments_from(self.recovery_point) if s in recovered
        )

    def _open_segments(
        self, bases: list[int], names: AbstractSet[str], *, is_clean: bool, may_gap: bool
    ) -> dict[Segment, int]:
        """Opens or recovers each; what follows a segment that lost its end is removed. Those whose
        indexes are new, and from which offset on."""
        recovered = {}
        for number, base_offset in enumerate(bases):
            segment = self._segment(base_offset)
            self._segments.append(segment)
            following = bases[number + 1] if number + 1 < len(bases) else None
            is_whole = is_clean or (following is not None and following <= self.recovery_point)
            if is_whole and segment.load(names):
                continue
            if is_whole:
                segment.rebuild()
                recovered[segment] = base_offset
                continue
            cut, recovered[segment] = segment.recover(
                self._assign,
                names,
                flushed_to=self.recovery_point,
                flush=self._rules.recovery_point_after_flush,
            )
            has_gap = following not in (None, segment.next_offset)
            if cut or (has_gap and not may_gap):
                for lost in bases[number + 1 :]:
                    self._segment(lost).remove()
                break
        return recovered

    def _no_epochs(self) -> LeaderEpochs:
        return LeaderEpochs(forgets_empty=self._rules.empty_epochs_forgotten)

    def _assign(self, batch: Batch) -> None:
        self._epochs.assign(batch.leader_epoch, batch.base_offset)

    def _replay(self, start: int, indexed: dict[Segment, int] | None = None) -> None:
        """Tells the producers everything from `start` on; segments in `indexed` lost their index
        of aborted transactions from an offset on."""
        self._undecided = []
        for segment in self._segments_from(start):
            index_from = (indexed or {}).get(segment)
            for batch in segment.batches(start):
                is_new = index_from is not None and batch.base_offset >= index_from
                completed = self.producers.apply(batch)
                if completed is not None:
                    self._on_completed(completed, batch, segment if is_new else None)

    def _load_snapshot(self, offset_max: int) -> int:
        """The newest snapshot up to an offset that can be trusted: where to go on from."""
        found = self._checkpoints.newest_snapshot(offset_max)
        if found is not None:
            offset, self.producers = found
            self._recall(offset)
            return offset
        self.producers = Producers()
        return self._segments[0].base_offset

    def _recall(self, offset: int) -> None:
        """A snapshot has the last batch of each producer, and a producer may have five under way:
        what lies before the snapshot fills in the others. Kafka does without, and takes what is
        sent again after a restart for out of order."""
        if not self._rules.batches_recalled:
            return
        recent: list[list[Batch]] = []
        left = RECALLED_BYTES
        for segment in reversed(self._segments):
            if left > 0 and segment.base_offset < offset:
                recent.append(list(segment.tail(left, before=offset)))
                left -= sum(len(batch.data) for batch in recent[-1])
        self.producers.recall(batch for batches in reversed(recent) for batch in batches)

    def _segment(self, base_offset: int) -> Segment:
        return Segment(self._store, base_offset, self.config.index_interval_bytes)


def _is_older(timestamp_ms: int, now_ms: int, age_ms: int) -> bool:
    """What has no time has no age."""
    return timestamp_ms != NO_TIMESTAMP and now_ms - timestamp_ms > age_ms
