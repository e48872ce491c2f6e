"""Records side by side: lanes within which order is kept, and workers that take the next of any.

    order        a lane is
    partition    a partition
    key          the records of one key in one partition; a record without a key stands alone
    none         every record

A lane is worked on by one worker at a time, in order. One whose record has to wait, because it
failed and is to be tried again, or because it is not due yet, stands aside; the others go on.

A partition that has its share of `buffered_max`, or of `buffered_bytes_max`, waiting is paused, and
resumed at half of it: one that stands still must not take the room of the others. With
`remember_finished` records also wait in front of the lanes (`held`) when what is finished out of
order might not fit the metadata of a commit.

Each assignment of a partition is an object of its own: who finishes a record of a partition that is
gone, or gone and back, changes nothing.
"""

from __future__ import annotations

import heapq
import threading
import time
from collections import deque
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field

from confluent_kafka import Message, TopicPartition

from lossless.client.consuming.interfaces import Place, offset_of, place_of, with_epoch
from lossless.client.consuming.progress import Progress
from lossless.client.consuming.settings import Order
from lossless.client.finished_runs import Run
from lossless.client.metrics import ConsumerMetrics


@dataclass(slots=True, eq=False)
class Partition:
    """One partition for as long as it is assigned."""

    place: Place
    progress: Progress | None  # None until the first record says where it begins
    finished_beyond: Sequence[Run] = ()
    lanes: dict[Hashable, Lane] = field(default_factory=dict)
    held: deque[Message] = field(default_factory=deque)
    epochs: deque[tuple[int, int]] = field(default_factory=deque)  # from offset, leader epoch
    end: int = -1  # where reading stands
    in_hand: int = 0
    buffered: int = 0
    bytes: int = 0  # of those records
    paused: bool = False
    changed: bool = False
    closing: bool = False  # nothing more is handed out
    gone: bool = False


@dataclass(slots=True, eq=False)
class Lane:
    partition: Partition
    key: Hashable
    records: deque[Message] = field(default_factory=deque)
    sizes: deque[int] = field(default_factory=deque)  # as read: a handler may replace values
    attempt: int = 1  # of the first record
    outages: int = 0  # how often a store was unreachable for it


class Lanes:
    def __init__(
        self,
        metrics: ConsumerMetrics,
        *,
        order: Order,
        buffered_max: int,
        buffered_bytes_max: int,
        remember_finished: bool,
        due_ms: Callable[[Message], int | None] | None = None,
    ) -> None:
        self._metrics = metrics
        self._order = order
        self._buffered_max = buffered_max
        self._buffered_bytes_max = buffered_bytes_max
        self._remember_finished = remember_finished
        self._due_ms = due_ms
        lock = threading.RLock()
        self._ready_changed = threading.Condition(lock)  # for workers
        self._changed = threading.Condition(lock)  # for the poll thread
        self._over = threading.Condition(lock)  # for whoever runs the workers
        self._partitions: dict[Place, Partition] = {}
        self._ready: deque[Lane] = deque()
        self._delayed: list[tuple[float, int, Lane]] = []  # monotonic time, number, lane
        self._number = 0
        self._finished = 0
        self._buffered = 0
        self._stopped = False
        self._is_asked_to_stop = False  # by the application; one request ends one run
        self._abandoned = False
        self._ended = False
        self._failure: BaseException | None = None

    # Asked by workers

    def take(self) -> Lane | None:
        """The next lane to work on: its first record is in hand now. None: it is over."""
        with self._ready_changed:
            while not self._stopped and not self._ended:
                self._wake_delayed()
                while self._ready:
                    lane = self._ready.popleft()
                    if lane.partition.closing or self._not_due(lane):
                        continue
                    lane.partition.in_hand += 1
                    if self._ready or self._delayed:  # somebody else has to look after those
                        self._ready_changed.notify()
                    return lane
                self._ready_changed.wait(self._until_next_delayed())
            return None

    def _wake_delayed(self) -> None:
        now = time.monotonic()
        while self._delayed and self._delayed[0][0] <= now:
            self._ready.append(heapq.heappop(self._delayed)[2])

    def _until_next_delayed(self) -> float | None:
        return max(0.0, self._delayed[0][0] - time.monotonic()) if self._delayed else None

    def _not_due(self, lane: Lane) -> bool:
        due_ms = self._due_ms(lane.records[0]) if self._due_ms is not None else None
        if due_ms is None:
            return False
        wait_s = due_ms / 1000 - time.time()
        if wait_s <= 0:
            return False
        self._delay(lane, wait_s)
        return True

    def _delay(self, lane: Lane, delay_s: float) -> None:
        self._number += 1
        heapq.heappush(self._delayed, (time.monotonic() + delay_s, self._number, lane))

    def finish(self, lane: Lane, processing_s: float) -> None:
        """Its first record is done: processed, or acknowledged where it was sent on to."""
        with self._changed:
            partition = lane.partition
            partition.in_hand -= 1
            self._metrics.processing_s += processing_s
            if partition.gone or partition.progress is None:
                self._changed.notify_all()
                return
            message = lane.records.popleft()
            partition.progress.finish(offset_of(message))
            partition.changed = True
            self._release(partition, lane.sizes.popleft())
            self._finished += 1
            self._metrics.finished += 1
            lane.attempt = 1
            lane.outages = 0
            if lane.records:
                self._ready.append(lane)
                self._ready_changed.notify()
            else:
                del partition.lanes[lane.key]
            if partition.held and not partition.closing:
                self._let_in(partition)
            self._changed.notify_all()

    def _release(self, partition: Partition, size: int) -> None:
        partition.buffered -= 1
        partition.bytes -= size
        self._buffered -= 1

    def again(self, lane: Lane, delay_s: float) -> None:
        """Its first record failed, and is tried again later; its lane waits with it."""
        with self._changed:
            lane.partition.in_hand -= 1
            lane.attempt += 1
            self._delay(lane, delay_s)
            self._ready_changed.notify()
            self._changed.notify_all()

    def wait_for_store(self, lane: Lane, delay_s: float) -> None:
        """Its first record is tried again later; the attempt does not count."""
        with self._changed:
            lane.attempt -= 1
            self.again(lane, delay_s)

    def leave(self, lane: Lane) -> None:
        """Its first record is neither done nor tried again: the worker gives up."""
        with self._changed:
            lane.partition.in_hand -= 1
            self._ready.appendleft(lane)
            self._changed.notify_all()

    # Asked by others

    def stop(self) -> None:
        """Ends the current run, or the next one if none is under way."""
        with self._ready_changed:
            self._is_asked_to_stop = True
            self.end_run()

    def end_run(self) -> None:
        with self._ready_changed:
            self._stopped = True
            self._ready_changed.notify_all()
            self._over.notify_all()

    def run_ended(self) -> None:
        """Workers have left: a request to stop from now on is for the next run."""
        with self._ready_changed:
            self._is_asked_to_stop = False

    def go_on(self) -> None:
        with self._ready_changed:
            self._stopped, self._abandoned = self._is_asked_to_stop, False

    @property
    def is_over(self) -> bool:
        """Whether no lane is handed out any more."""
        return self._stopped or self._ended

    def wait_until_over(self) -> None:
        with self._over:
            self._over.wait_for(lambda: self.is_over)

    def abandon(self) -> None:
        """Workers had their time: nobody waits for what is still in their hands again."""
        with self._changed:
            self._abandoned = True
            self._changed.notify_all()

    @property
    def failure(self) -> BaseException | None:
        return self._failure

    # Asked by the poll thread

    def wait_for_room(self, timeout_s: float) -> bool:
        """Partitions that have enough are paused; when all have, room comes with one that has not
        any more."""
        with self._changed:
            return self._changed.wait_for(self._has_room, timeout_s)

    def _has_room(self) -> bool:
        partitions = self._partitions.values()
        return not partitions or any(
            not known.paused or self._may_resume(known) for known in partitions
        )

    def _share(self, of: int) -> int:
        return max(1, of // max(1, len(self._partitions)))

    def _must_pause(self, partition: Partition) -> bool:
        return (
            bool(partition.held)
            or partition.buffered >= self._share(self._buffered_max)
            or partition.bytes >= self._share(self._buffered_bytes_max)
        )

    def _may_resume(self, partition: Partition) -> bool:
        return (
            not partition.held
            and partition.buffered <= self._share(self._buffered_max) // 2
            and partition.bytes <= self._share(self._buffered_bytes_max) // 2
        )

    def take_in(self, records: list[Message], ends: Mapping[Place, TopicPartition]) -> None:
        with self._changed:
            partition: Partition | None = None
            for message in records:
                place = place_of(message)
                if partition is None or partition.place != place:
                    partition = self._partitions.get(place)
                if partition is None or partition.closing:
                    continue
                partition.buffered += 1
                partition.bytes += len(message)
                self._buffered += 1
                if partition.held or not self._certain_to_fit(partition, message):
                    partition.held.append(message)
                else:
                    self._deliver(partition, message)
            for place, end in ends.items():
                known = self._partitions.get(place)
                if known is not None and not known.closing:
                    known.end = max(known.end, end.offset)
                    known.changed = True
            self._ready_changed.notify_all()

    def _certain_to_fit(self, partition: Partition, message: Message) -> bool:
        if not self._remember_finished or partition.progress is None:
            return True
        return partition.progress.certain_to_fit(offset_of(message))

    def _let_in(self, partition: Partition) -> None:
        while partition.held and self._certain_to_fit(partition, partition.held[0]):
            self._deliver(partition, partition.held.popleft())
        self._ready_changed.notify_all()

    def _deliver(self, partition: Partition, message: Message) -> None:
        offset = offset_of(message)
        if partition.progress is None:
            partition.progress = Progress(offset, partition.finished_beyond)
        epoch = message.leader_epoch()
        if epoch is not None and (not partition.epochs or partition.epochs[-1][1] != epoch):
            partition.epochs.append((offset, epoch))
        if not partition.progress.deliver(offset):
            partition.changed = True
            self._release(partition, len(message))
            return
        key = self._lane_key(message, offset)
        lane = partition.lanes.get(key)
        if lane is None:
            lane = partition.lanes[key] = Lane(partition, key)
            self._ready.append(lane)
        lane.records.append(message)
        lane.sizes.append(len(message))

    def _lane_key(self, message: Message, offset: int) -> Hashable:
        if self._order == "partition":
            return None
        if self._order == "key":
            key = message.key()
            if key is not None:
                return key
        return offset  # alone; keys are bytes, never the same as a number

    def begin(self, place: Place, next_offset: int, finished_beyond: Sequence[Run]) -> None:
        with self._changed:
            progress = Progress(next_offset, finished_beyond) if next_offset >= 0 else None
            self._partitions[place] = Partition(place, progress, finished_beyond)

    def hold(self, places: set[Place]) -> None:
        with self._changed:
            for place in places & set(self._partitions):
                self._partitions[place].closing = True

    def wait_for_hands(self, places: set[Place], timeout_s: float) -> bool:
        def free() -> bool:
            return all(
                self._partitions[place].in_hand == 0
                for place in places
                if place in self._partitions
            )

        with self._changed:
            self._changed.wait_for(lambda: self._abandoned or free(), timeout_s)
            return free()

    def forget(self, places: set[Place]) -> None:
        with self._changed:
            for place in places:
                partition = self._partitions.pop(place, None)
                if partition is not None:
                    partition.closing = partition.gone = True
                    self._buffered -= partition.buffered
            self._ready = deque(lane for lane in self._ready if not lane.partition.gone)
            self._delayed = [d for d in self._delayed if not d[2].partition.gone]
            heapq.heapify(self._delayed)

    def collect(self) -> dict[Place, TopicPartition]:
        with self._changed:
            return {
                place: self._position(partition, partition.progress)
                for place, partition in self._partitions.items()
                if partition.changed and partition.progress is not None
            }

    def _position(self, partition: Partition, progress: Progress) -> TopicPartition:
        partition.changed = False
        if not partition.held:
            progress.read_to(partition.end)
        offset = progress.committable
        while len(partition.epochs) > 1 and partition.epochs[1][0] < offset:
            partition.epochs.popleft()
        metadata = progress.metadata() if self._remember_finished else ""
        position = TopicPartition(*partition.place, offset, metadata=metadata)
        if partition.epochs and partition.epochs[0][0] < offset:
            return with_epoch(position, partition.epochs[0][1])
        return position

    def finished(self) -> int:
        return self._finished

    def buffered(self) -> int:
        return self._buffered

    def to_pause(self, assigned: set[Place]) -> set[Place]:
        with self._changed:
            for partition in self._partitions.values():
                if self._must_pause(partition):
                    partition.paused = True
                elif self._may_resume(partition):
                    partition.paused = False
            return {place for place in assigned & set(self._partitions) if self._is_paused(place)}

    def _is_paused(self, place: Place) -> bool:
        return self._partitions[place].paused

    def end(self, failure: BaseException | None) -> None:
        with self._changed:
            self._ended = True
            self._failure = self._failure or failure
            self._ready_changed.notify_all()
            self._over.notify_all()
            self._changed.notify_all()
