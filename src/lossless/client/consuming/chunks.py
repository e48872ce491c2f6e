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

Loops run in the main thread as a rule, where the exception of a signal handler may arrive after any
call. So nothing is changed before everything is computed, and what an exception leaves is completed
by the next call: a chunk is in hand before it leaves the queue, and one that is being cut keeps its
rest until that is in the queue. The lock is taken by itself, and loops wait without it:
`with condition` and `condition.wait()` are Python code, which may be left with the lock taken.

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
from lossless.client.consuming.one_thread import (
    BatchesOfOneThread,
    ChunksOfOneThread,
    of_one_thread,
)
from lossless.client.errors import ClientFailed, PartitionLost
from lossless.client.finished_runs import Run
from lossless.client.metrics import ConsumerMetrics
from lossless.errors import BadInput

FULL_S = 0.25  # partitions are paused when nobody took anything for this long: pausing is not free


class Chunk:
    __slots__ = ("ends", "records", "rest", "together", "waiting", "walked", "whole")

    def __init__(self, records: list[Message], ends: Mapping[Place, TopicPartition]) -> None:
        self.records = records
        self.ends = dict(ends)
        self.waiting: Iterator[Message] = iter(records)
        self.rest: list[Message] | None = None  # never handed out, once the iterator is exhausted
        self.walked = 0  # of its records are in what may be committed already
        self.whole = False  # handed over as a list: all of it is in hand
        self.together = False  # what was handed out is finished when the loop says so

    def handed_out(self) -> int:
        if self.whole:
            return len(self.records)
        rest = self.rest
        return len(self.records) - (length_hint(self.waiting) if rest is None else len(rest))

    def finished_for_certain(self) -> int:
        """The last one that was handed out may still be in hand."""
        if self.whole or self.together:
            return self.walked
        return max(0, self.handed_out() - 1)

    def exhaust(self) -> list[Message]:
        """Nothing more of it is handed out. Gives what never was."""
        if self.whole:
            return []
        if self.rest is None:
            self.rest = [*self.waiting]  # one step with the assignment: no call in between
        return self.rest


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
        self._lock = threading.RLock()
        self._changed = threading.Condition(self._lock)  # for the poll thread
        self._waiters: list[threading.Lock] = []  # of loops
        self._is_changing = False  # True outside the lock: a change was interrupted
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
        self._lock = threading.RLock()
        self._changed = threading.Condition(self._lock)
        self._waiters = []
        if self._current is not None:
            deque(self._current.waiting, maxlen=0)
            self._current = None
        self._queue.clear()
        self.end(forked())

    # Asked by the loop

    def messages(self) -> Iterator[Message]:
        return chain.from_iterable(ChunksOfOneThread(self._iterators(None)))

    def together(self, before_next: Callable[[], None]) -> Iterator[Message]:
        """Records that are finished several at a time: when `finish_handed_out` is called, and
        before more can be handed out, for which `before_next` is called first."""
        return chain.from_iterable(ChunksOfOneThread(self._iterators(before_next)))

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
        with self._lock:
            if self._current is not None:
                self._walk(self._current, self._current.handed_out() - but_last)
                self._notify()

    def wait_until_cut(self, timeout_s: float) -> bool:
        """For a loop that has nothing to do for a while, but must not keep anybody waiting."""
        cuts = self._cuts
        return self._wait_until(
            lambda: self._cuts != cuts or self._stopped or self._ended, timeout_s
        )

    def batches(self, records_max: int) -> Iterator[list[Message]]:
        return BatchesOfOneThread(self._batches(records_max))

    def _batches(self, records_max: int) -> Iterator[list[Message]]:
        loop = self._enter()
        try:
            while (chunk := self._next(loop, records_max)) is not None:
                yield list(chunk.records)
        finally:
            self._leave(loop)

    def _enter(self) -> int:
        with self._lock:
            self._refuse_other_thread()
            self._refuse_in_transaction()
            self._check_whole()
            self._put_back()
            self._loop += 1
            self._loop_thread = threading.get_ident()
            return self._loop

    def _next(self, loop: int, records_max: int | None, together: bool = False) -> Chunk | None:
        """The one before is finished: that is what asking for the next one means."""
        while True:
            with self._lock:
                if loop != self._loop:
                    return None
                self._refuse_in_transaction()
                self._check_whole()
                if self._current is not None:
                    if self._current.rest:
                        self._cut_current()  # an exception has interrupted it
                    self._finish_current(self._current)
                if self._failure is not None:
                    raise self._failure
                if self._ended or self._stopped:
                    self._stopped = False
                    return None
                if self._queue:
                    chunk = self._take(records_max)
                    chunk.together = together
                    self._given_at = time.perf_counter()
                    self._notify()
                    return chunk
                waiter = self._new_waiter()
            waiter.acquire()

    def _take(self, records_max: int | None) -> Chunk:
        chunk = self._queue[0]
        if records_max is None:
            self._is_changing = True
            self._current = chunk
            self._queue.popleft()
            self._is_changing = False
            return chunk
        taken, rest = chunk, None
        if len(chunk.records) > records_max:
            taken, rest = _halves(chunk, records_max)
        taken.whole = True
        self._is_changing = True
        self._current = taken
        if rest is None:
            self._queue.popleft()
        else:
            self._queue[0] = rest
        self._is_changing = False
        return taken

    def _finish_current(self, chunk: Chunk) -> None:
        self._done.update(chunk.ends)
        self._metrics.processing_s += time.perf_counter() - self._given_at
        self._count_finished(len(chunk.records) - chunk.walked)
        self._current = None
        self._notify()

    def _count_finished(self, records: int) -> None:
        self._finished += records
        self._buffered -= records
        self._metrics.finished += records

    def _leave(self, loop: int) -> None:
        with self._lock:
            if loop == self._loop:
                self._put_back()
                self._loop_thread = None
                self._notify()

    def _put_back(self) -> None:
        """A loop was left with a record in hand: by `break`, or because processing raised. Nobody
        knows whether it is done, so it is the first that the next loop gets."""
        chunk = self._current
        if chunk is None:
            return
        chunk.exhaust()
        ends = chunk.ends
        finished = chunk.finished_for_certain()
        unfinished = chunk.records[finished:]
        kept = [m for m in unfinished if place_of(m) in ends and place_of(m) not in self._held]
        self._walk(chunk, finished)
        back = Chunk(kept, {p: end for p, end in ends.items() if p not in self._held})
        dropped = len(unfinished) - len(kept)
        self._is_changing = True
        self._buffered -= dropped
        self._current = None
        if kept:
            self._queue.appendleft(back)
        self._is_changing = False
        self._notify()

    def _walk(self, chunk: Chunk, finished: int) -> None:
        for message in chunk.records[chunk.walked : finished]:
            place = place_of(message)
            if place in chunk.ends:  # not one that was lost meanwhile
                self._done[place] = after(message)
        self._count_finished(finished - chunk.walked)
        chunk.walked = finished

    def over(self, timeout_s: float) -> bool:
        """Whether the loop is to end, now or within the time. What was in hand comes again."""
        with self._lock:
            self._put_back()
        return self._wait_until(lambda: self._stopped or self._ended, timeout_s)

    def _wait_until(self, is_true: Callable[[], bool], timeout_s: float) -> bool:
        deadline = time.monotonic() + timeout_s
        while True:
            with self._lock:
                if is_true():
                    return True
                waiter = self._new_waiter()
            if not waiter.acquire(timeout=max(0.0, deadline - time.monotonic())):
                return is_true()

    def _new_waiter(self) -> threading.Lock:
        """It can be acquired after the next change."""
        waiter = threading.Lock()
        waiter.acquire()
        self._waiters.append(waiter)
        return waiter

    def _notify(self) -> None:
        self._changed.notify_all()
        while self._waiters:
            self._waiters.pop().release()

    def _check_whole(self) -> None:
        """Raises ClientFailed if an exception has interrupted a change all the same."""
        if self._is_changing:
            self._end_interrupted()
            if self._failure is not None:
                raise self._failure

    def _end_interrupted(self) -> None:
        self._current = None  # what was in hand, and what was not, is not known for certain
        self._queue.clear()
        self._is_changing = False
        self.end(_interrupted())

    def _refuse_other_thread(self) -> None:
        thread = self._loop_thread
        if thread in (None, threading.get_ident()) or self._ended:
            return
        if any(each.ident == thread for each in threading.enumerate()):
            raise of_one_thread()

    # Asked by others

    def stop(self) -> None:
        """The loop ends where it would get the next record."""
        with self._lock:
            self._stopped = True
            self._cut_current()
            self._notify()

    def _cut_current(self) -> None:
        self._cuts += 1
        chunk = self._current
        if chunk is None or not (rest := chunk.exhaust()):
            return
        kept, others = _halves(chunk, len(chunk.records) - len(rest))
        self._is_changing = True
        chunk.records, chunk.ends, chunk.rest = kept.records, kept.ends, []
        self._queue.appendleft(others)
        self._is_changing = False

    def abandon(self) -> None:
        """Called by whoever closes: a loop of the same thread will not ask again."""
        with self._lock:
            if self._loop_thread == threading.get_ident():
                self._put_back()

    def in_hand(self) -> dict[Place, TopicPartition]:
        """Where each partition stands once what is in hand is finished too."""
        with self._lock:
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
        with self._lock:
            self._refuse_in_transaction()
            self._check_whole()
            chunk = self._current
            if chunk is None:
                raise BadInput(
                    "a transaction of a consumer begins with a record or a batch in hand",
                    hint="begin it inside `for message in consumer` or `for batch in "
                    "consumer.batches()`; or in a handler with workers=1",
                )
            self._cut_current()
            self._walk(chunk, chunk.finished_for_certain())
            in_hand = {place_of(m) for m in chunk.records[chunk.walked :]}
            if gone := in_hand - set(chunk.ends):
                raise partition_lost(gone)
            transaction = Transaction(chunk, {**uncommitted, **self.in_hand()})
            # Asking for the next record does not finish these.
            chunk.together, self._transaction = True, transaction

    def transaction_positions(self) -> dict[Place, TopicPartition]:
        with self._lock:
            self._check_whole()
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
        with self._lock:
            transaction, self._transaction = self._transaction, None
            if transaction is None:
                return {}
            if not committed:
                self._put_back()
                return {}
            if transaction.chunk is self._current:
                self._walk(transaction.chunk, len(transaction.chunk.records))
                self._notify()
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
        with self._lock:
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
        with self._lock:
            if self._has_room():
                self._full_since = None
                return set()
            since = self._full_since
            return assigned if since and time.monotonic() - since >= FULL_S else set()

    def take_in(self, records: list[Message], ends: Mapping[Place, TopicPartition]) -> None:
        with self._lock:
            if self._held:  # fenced: still assigned, but no longer ours to process
                records = [m for m in records if place_of(m) not in self._held]
                ends = {p: end for p, end in ends.items() if p not in self._held}
            if not records:
                return
            self._queue.append(Chunk(records, ends))
            self._buffered += len(records)
            self._notify()

    def begin(self, place: Place, next_offset: int, finished_beyond: Sequence[Run]) -> None:
        del next_offset, finished_beyond  # one after the other: nothing is finished beyond
        with self._lock:
            self._held.discard(place)

    def hold(self, places: set[Place]) -> None:
        with self._lock:
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
            self._notify()

    def wait_for_hands(self, places: set[Place], timeout_s: float) -> bool:
        with self._lock:
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
        with self._lock:
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
        with self._lock:
            if self._is_changing:
                self._end_interrupted()
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
        with self._lock:
            self._ended = True
            self._failure = self._failure or failure
            self._cut_current()
            self._notify()


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


def _halves(chunk: Chunk, count: int) -> tuple[Chunk, Chunk]:
    """So many of its records, and the others."""
    others = Chunk(chunk.records[count:], chunk.ends)
    records = chunk.records[:count]
    ends = {p: end for p, end in _ends_of(records).items() if p in chunk.ends}
    return Chunk(records, ends), others


def _interrupted() -> ClientFailed:
    return ClientFailed(
        "an exception of a signal handler has interrupted the consumer while it handed records out",
        hint="close this consumer and make a new one: it resumes after what is committed",
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
