"""Records one after the other, for a `for` loop: handed over in chunks, without a step for each.

What `consume` gave is a chunk. The loop walks over its list by the list's own iterator, so that
handing a record out executes no line of Python; at the end it comes back here. A record is finished
when the loop asks for the next one.

    records   a b c d e f g h          handed out: a b c; in hand: c; finished: a b
    waiting         ^ the iterator

Cutting: to hand out nothing more (a revocation, a stop, a failure), the iterator is exhausted with
`list(waiting)`. That is one step for other threads. It gives the records that were never handed
out, and the loop's next question ends up here, behind the lock.

Besides the chunk in hand, one waits. Each is at most what librdkafka's queue held, so that the
bytes of both are bounded with it (settings.py). More than one would also cost time: the garbage
collector examines every record that outlives the next 700.

What a finished chunk commits is where the consumer stood right after reading it, markers of
transactions and other gaps included. Only of a chunk that was cut, or takes longer than the time
between two commits, records are looked at one by one.
"""

from __future__ import annotations

import os
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from operator import length_hint

from confluent_kafka import Message, TopicPartition

from lossless.client.consuming.interfaces import Place, after, place_of, shown
from lossless.client.errors import ClientFailed, PartitionLost
from lossless.client.finished_runs import Run
from lossless.client.metrics import ConsumerMetrics
from lossless.errors import BadInput

FULL_S = 0.25  # partitions are paused when nobody took anything for this long: pausing is not free


class Chunk:
    __slots__ = ("ends", "records", "together", "waiting", "walked", "whole")

    def __init__(self, records: list[Message], ends: Mapping[Place, TopicPartition]) -> None:
        self.records = records
        self.ends = dict(ends)
        self.waiting: Iterator[Message] = iter(records)
        self.walked = 0  # of its records are in what may be committed already
        self.whole = False  # handed over as a list: all of it is in hand
        self.together = False  # what was handed out is finished when the loop says so

    def handed_out(self) -> int:
        return len(self.records) - (0 if self.whole else length_hint(self.waiting))

    def finished_for_certain(self) -> int:
        """The last one that was handed out may still be in hand."""
        if self.whole or self.together:
            return self.walked
        return max(0, self.handed_out() - 1)

    def cut(self) -> Chunk | None:
        """Nothing more of it is handed out. Gives what never was, and keeps the rest."""
        rest = [] if self.whole else list(self.waiting)
        return self.split(len(self.records) - len(rest)) if rest else None

    def split(self, count: int) -> Chunk:
        """Keeps so many records, and gives the others. The iterator starts anew."""
        others = Chunk(self.records[count:], self.ends)
        self.records = self.records[:count]
        self.ends = {p: end for p, end in _ends_of(self.records).items() if p in others.ends}
        return others


@dataclass(slots=True, eq=False)
class Transaction:
    """What a producer's transaction commits: fixed when it begins."""

    chunk: Chunk  # all of it that was handed out is in hand
    positions: dict[Place, TopicPartition]
    gone: set[Place] = field(default_factory=set)  # of those, revoked or lost since


class Chunks:
    """The work of a loop. One loop at a time."""

    def __init__(self, metrics: ConsumerMetrics, *, buffered_max: int) -> None:
        self._metrics = metrics
        self._buffered_max = buffered_max
        self._changed = threading.Condition()
        self._queue: deque[Chunk] = deque()
        self._current: Chunk | None = None
        self._done: dict[Place, TopicPartition] = {}
        self._held: set[Place] = set()
        self._finished = 0
        self._buffered = 0
        self._cuts = 0
        self._given_at = 0.0
        self._full_since: float | None = None
        self._loop = 0  # who left a loop and asks again later is told that it is over
        self._loop_thread: int | None = None
        self._transaction: Transaction | None = None
        self._stopped = False
        self._ended = False
        self._failure: BaseException | None = None
        _chunks.add(self)

    def on_fork(self) -> None:
        """In a forked child: the record in hand was the last one there.

        The others are the parent's to process. No other thread exists here, and one that held the
        lock will never release it.
        """
        self._changed = threading.Condition()
        if self._current is not None:
            deque(self._current.waiting, maxlen=0)
            self._current = None
        self._queue.clear()
        self.end(forked())

    # Asked by the loop

    def messages(self) -> Iterator[Message]:
        return chain.from_iterable(self._iterators(None))

    def together(self, before_next: Callable[[], None]) -> Iterator[Message]:
        """Records that are finished several at a time: when `finish_handed_out` is called, and
        before more can be handed out, for which `before_next` is called first."""
        return chain.from_iterable(self._iterators(before_next))

    def _iterators(self, before_next: Callable[[], None] | None) -> Iterator[Iterator[Message]]:
        loop = self._enter()
        try:
            while (chunk := self._next(loop, None, before_next is not None)) is not None:
                waiting = chunk.waiting
                del chunk  # its records are freed before the next ones are read
                yield waiting
                if before_next is not None:
                    before_next()
        finally:
            self._leave(loop)

    def finish_handed_out(self, *, but_last: bool = False) -> None:
        with self._changed:
            if self._current is not None:
                self._walk(self._current, self._current.handed_out() - but_last)
                self._changed.notify_all()

    def wait_until_cut(self, timeout_s: float) -> bool:
        """For a loop that has nothing to do for a while, but must not keep anybody waiting."""
        with self._changed:
            cuts = self._cuts
            return self._changed.wait_for(
                lambda: self._cuts != cuts or self._stopped or self._ended, timeout_s
            )

    def batches(self, records_max: int) -> Iterator[list[Message]]:
        loop = self._enter()
        try:
            while (chunk := self._next(loop, records_max)) is not None:
                yield list(chunk.records)
        finally:
            self._leave(loop)

    def _enter(self) -> int:
        with self._changed:
            self._refuse_in_transaction()
            self._put_back()
            self._loop += 1
            self._loop_thread = threading.get_ident()
            return self._loop

    def _next(self, loop: int, records_max: int | None, together: bool = False) -> Chunk | None:
        """The one before is finished: that is what asking for the next one means."""
        with self._changed:
            if loop != self._loop:
                return None
            self._refuse_in_transaction()
            self._finish_current()
            while not self._queue and not self._ended and not self._stopped:
                self._changed.wait()
            if self._failure is not None:
                raise self._failure
            if self._ended or self._stopped:
                self._stopped = False
                return None
            chunk = self._queue.popleft()
            if records_max is not None:
                if len(chunk.records) > records_max:
                    self._queue.appendleft(chunk.split(records_max))
                chunk.whole = True
            chunk.together = together
            self._current = chunk
            self._given_at = time.perf_counter()
            self._changed.notify_all()
            return chunk

    def _finish_current(self) -> None:
        chunk = self._current
        if chunk is None:
            return
        self._current = None
        self._done.update(chunk.ends)
        self._count_finished(len(chunk.records) - chunk.walked)
        self._metrics.processing_s += time.perf_counter() - self._given_at
        self._changed.notify_all()

    def _count_finished(self, records: int) -> None:
        self._finished += records
        self._buffered -= records
        self._metrics.finished += records

    def _leave(self, loop: int) -> None:
        with self._changed:
            if loop == self._loop:
                self._put_back()
                self._loop_thread = None

    def _put_back(self) -> None:
        """A loop was left with a record in hand: by `break`, or because processing raised. Nobody
        knows whether it is done, so it is the first that the next loop gets."""
        chunk = self._current
        if chunk is None:
            return
        ends = chunk.ends
        rest = chunk.cut()
        finished = chunk.finished_for_certain()
        unfinished = chunk.records[finished:] + (rest.records if rest is not None else [])
        kept = [m for m in unfinished if place_of(m) in ends and place_of(m) not in self._held]
        self._buffered -= len(unfinished) - len(kept)
        self._walk(chunk, finished)
        self._current = None
        if kept:
            kept_ends = {p: end for p, end in ends.items() if p not in self._held}
            self._queue.appendleft(Chunk(kept, kept_ends))
        self._changed.notify_all()

    def _walk(self, chunk: Chunk, finished: int) -> None:
        for message in chunk.records[chunk.walked : finished]:
            place = place_of(message)
            if place in chunk.ends:  # not one that was lost meanwhile
                self._done[place] = after(message)
        self._count_finished(finished - chunk.walked)
        chunk.walked = finished

    def over(self, timeout_s: float) -> bool:
        """Whether the loop is to end, now or within the time. What was in hand comes again."""
        with self._changed:
            self._put_back()
            return self._changed.wait_for(lambda: self._stopped or self._ended, timeout_s)

    # Asked by others

    def stop(self) -> None:
        """The loop ends where it would get the next record."""
        with self._changed:
            self._stopped = True
            self._cut_current()
            self._changed.notify_all()

    def _cut_current(self) -> None:
        self._cuts += 1
        rest = self._current.cut() if self._current is not None else None
        if rest is not None:
            self._queue.appendleft(rest)

    def abandon(self) -> None:
        """Called by whoever closes: a loop of the same thread will not ask again."""
        with self._changed:
            if self._loop_thread == threading.get_ident():
                self._put_back()

    def in_hand(self) -> dict[Place, TopicPartition]:
        """Where each partition stands once what is in hand is finished too."""
        with self._changed:
            positions = dict(self._done)
            chunk = self._current
            if chunk is not None:
                handed_out = chunk.handed_out()
                if handed_out == len(chunk.records):
                    positions.update(chunk.ends)
                else:
                    positions.update(_ends_of(chunk.records[:handed_out]))
            return positions

    # Asked by a transaction, in the thread of the loop

    def begin_transaction(self, uncommitted: Mapping[Place, TopicPartition]) -> None:
        """What was handed out and not finished belongs to it, and nothing more is handed out until
        it ends. `uncommitted`: positions of earlier records, which it commits as well."""
        with self._changed:
            self._refuse_in_transaction()
            chunk = self._current
            if chunk is None:
                raise BadInput(
                    "a transaction of a consumer begins with a record or a batch in hand",
                    hint="begin it inside `for message in consumer` or `for batch in "
                    "consumer.batches()`; or in a handler with workers=1",
                )
            self._cut_current()
            self._walk(chunk, chunk.finished_for_certain())
            chunk.together = True  # asking for the next record does not finish these
            in_hand = {place_of(m) for m in chunk.records[chunk.walked :]}
            if gone := in_hand - set(chunk.ends):
                raise partition_lost(gone)
            self._transaction = Transaction(chunk, {**uncommitted, **self.in_hand()})

    def transaction_positions(self) -> dict[Place, TopicPartition]:
        with self._changed:
            transaction = self._transaction
            if transaction is None or transaction.chunk is not self._current:
                raise BadInput(
                    "the loop was left before the transaction ended, so its records are handed "
                    "out again",
                    hint="end the transaction inside the loop",
                )
            if transaction.gone:
                raise partition_lost(transaction.gone)
            return transaction.positions

    def end_transaction(self, *, committed: bool) -> dict[Place, TopicPartition]:
        """Gives what Kafka has committed now and is still assigned.

        Records of a committed transaction are finished, even if the loop never asks for another
        one. Those of an aborted one are handed out again.
        """
        with self._changed:
            transaction, self._transaction = self._transaction, None
            if transaction is None:
                return {}
            if not committed:
                self._put_back()
                return {}
            if transaction.chunk is self._current:
                self._walk(transaction.chunk, len(transaction.chunk.records))
                self._changed.notify_all()
            elif not self._ended:
                self._queue.clear()
                self.end(_left_while_committed())
            positions = transaction.positions
            return {p: at for p, at in positions.items() if p not in transaction.gone}

    def _refuse_in_transaction(self) -> None:
        if self._transaction is not None:
            raise BadInput(
                "the loop asks for more records, or another transaction begins, while a "
                "transaction of this consumer is open",
                hint="end the transaction first; for several records in one transaction read "
                "them with consumer.batches()",
            )

    # Asked by the poll thread

    def wait_for_room(self, timeout_s: float) -> bool:
        with self._changed:
            if self._has_room():
                self._full_since = None
                return True
            if self._full_since is None:
                self._full_since = time.monotonic()
            self._changed.wait_for(self._has_room, timeout_s)
            return self._has_room()

    def _has_room(self) -> bool:
        return not self._queue and self._buffered < self._buffered_max

    def to_pause(self, assigned: set[Place]) -> set[Place]:
        with self._changed:
            if self._has_room():
                self._full_since = None
                return set()
            since = self._full_since
            return assigned if since and time.monotonic() - since >= FULL_S else set()

    def take_in(self, records: list[Message], ends: Mapping[Place, TopicPartition]) -> None:
        with self._changed:
            if self._held:  # fenced: still assigned, but no longer ours to process
                records = [m for m in records if place_of(m) not in self._held]
                ends = {p: end for p, end in ends.items() if p not in self._held}
            if not records:
                return
            self._queue.append(Chunk(records, ends))
            self._buffered += len(records)
            self._changed.notify_all()

    def begin(self, place: Place, next_offset: int, finished_beyond: Sequence[Run]) -> None:
        del next_offset, finished_beyond  # one after the other: nothing is finished beyond
        with self._changed:
            self._held.discard(place)

    def hold(self, places: set[Place]) -> None:
        with self._changed:
            self._cut_current()
            self._held |= places
            kept = []
            for chunk in self._queue:
                records = [m for m in chunk.records if place_of(m) not in places]
                self._buffered -= len(chunk.records) - len(records)
                ends = {p: end for p, end in chunk.ends.items() if p not in places}
                if records:
                    kept.append(Chunk(records, ends))
            self._queue = deque(kept)
            self._changed.notify_all()

    def wait_for_hands(self, places: set[Place], timeout_s: float) -> bool:
        with self._changed:
            free = self._changed.wait_for(lambda: not self._holds(places), timeout_s)
            if not free and self._current is not None:
                self._walk(self._current, self._current.finished_for_certain())
            return free

    def _holds(self, places: set[Place]) -> bool:
        """Whether a record of these is in hand; the one of another partition need not be done."""
        if self._current is None:
            return False
        chunk = self._current
        finished = chunk.finished_for_certain()
        if any(place_of(m) in places for m in chunk.records[finished : chunk.handed_out()]):
            return True
        self._walk(chunk, finished)
        return False

    def forget(self, places: set[Place]) -> None:
        with self._changed:
            self._cut_current()
            self._held -= places
            if self._transaction is not None:
                self._transaction.gone |= places & set(self._transaction.positions)
            if self._current is not None:
                for place in places:
                    self._current.ends.pop(place, None)
            for place in places:
                self._done.pop(place, None)

    def collect(self) -> dict[Place, TopicPartition]:
        with self._changed:
            if self._current is not None:
                self._walk(self._current, self._current.finished_for_certain())
            done, self._done = self._done, {}
            return done

    def finished(self) -> int:
        current = self._current
        return self._finished + (current.finished_for_certain() - current.walked if current else 0)

    def buffered(self) -> int:
        return self._buffered

    def end(self, failure: BaseException | None) -> None:
        with self._changed:
            self._ended = True
            self._failure = self._failure or failure
            self._cut_current()
            self._changed.notify_all()


def partition_lost(places: set[Place]) -> PartitionLost:
    lost = PartitionLost(
        f"{shown(places)} was revoked or lost before the transaction was committed: nothing of the "
        "transaction is stored",
        hint="continue with the loop: records of these partitions are handed out again here or to "
        "another member",
    )
    lost.partitions = sorted(places)
    return lost


def _left_while_committed() -> ClientFailed:
    return ClientFailed(
        "the loop was left while a transaction was being committed, so that its records waited to "
        "be handed out again, and the transaction is stored",
        hint="close this consumer and make a new one: it resumes after what is stored",
    )


def _ends_of(records: list[Message]) -> dict[Place, TopicPartition]:
    last = {place_of(message): message for message in records}
    return {place: after(message) for place, message in last.items()}


def forked() -> BadInput:
    return BadInput(
        "the consumer was made before this process was forked",
        hint="make it in the process that uses it",
    )


_chunks: weakref.WeakSet[Chunks] = weakref.WeakSet()


def _on_fork() -> None:
    for each in list(_chunks):
        each.on_fork()


os.register_at_fork(after_in_child=_on_fork)
