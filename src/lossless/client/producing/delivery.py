"""What `send` gives back: one record on its way, and what became of it.

Made for every record, so it is small: no lock, no event, no time. Waiting, awaiting and callbacks
make what they need when somebody asks. The outcome is written once, by the thread that happens to
hear of it; callbacks run in the one that serves the producer, unless the outcome was known before
they were added. They must be short: while one runs, no other is called.

A delivery that failed and that nobody looked at (`result`, `error`, `await`, a callback) is not
forgotten: `flush` and `close` raise it.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, Any, NamedTuple

from lossless.client.errors import ClientError, NotDelivered
from lossless.client.producing.callbacks import called_well
from lossless.client.producing.checking import check_time
from lossless.client.producing.standing import is_held_here
from lossless.client.record import Headers, Record

if TYPE_CHECKING:
    from confluent_kafka import KafkaError, Message

    from lossless.client.producing.deliveries import Deliveries

# librdkafka answers for up to 100,000 records at a time. They are counted while they are in the
# processor's cache, and before the garbage collector has to look at them.
COUNTED_AT_ONCE = 500

_adding = threading.RLock()  # one for all: callbacks are added rarely, and in no time


def _renew_lock() -> None:
    """In a forked child: the thread that held it, if any, has stayed with the parent."""
    global _adding
    _adding = threading.RLock()


os.register_at_fork(after_in_child=_renew_lock)


def is_adding_here() -> bool:
    """Whether a signal handler asks that interrupted its thread in adding a callback."""
    return is_held_here(_adding)


class Acknowledged(NamedTuple):
    """Where a record is. Without an offset no broker has vouched for it itself: acks=0, or its
    answer was lost and librdkafka concludes from what was taken after it that it is there."""

    topic: str
    partition: int
    offset: int | None
    timestamp_ms: int


class Delivery:
    """One record on its way. It is made by `Producer.send`, never by anybody else."""

    # What every record needs has a slot, which `Producer.send` fills: a call that does nothing else
    # would cost a tenth of sending. The rest is there when it is needed.
    __slots__ = ("__dict__", "__weakref__", "deliveries", "number", "outcome")

    number: int  # in the order of sending
    deliveries: Deliveries
    outcome: Message | Acknowledged | ClientError | None

    partition: int | None = None  # the one asked for; None: by the key
    headers: Headers | None = None  # which librdkafka's answer lacks; None: those of every record
    record: Record | None = None  # kept only where it may be needed again
    parked: bool = False  # on disk, and to be sent again by this producer or by the next one
    _error: ClientError | None = None
    _callbacks: list[Callable[[Delivery], object]] | None = None
    _looked_at: bool = False

    def __repr__(self) -> str:
        if self.outcome is None:
            return f"<Delivery {self.number}, {'parked' if self.parked else 'on its way'}>"
        return f"<Delivery {self.number}, {'failed' if self._error else 'acknowledged'}>"

    @property
    def done(self) -> bool:
        """Whether it is acknowledged or has failed. What is parked is neither yet."""
        return self.outcome is not None

    @property
    def error(self) -> ClientError | None:
        """Why it was given up, if it was: also of a record that a dead letter topic has now."""
        self._looked_at = True
        return self._error

    def result(self, timeout_s: float | None = None) -> Acknowledged:
        """Waits until it is acknowledged, by its topic or as a dead letter; raises what failed.

        What is parked is waited for as well: until it has been sent again and acknowledged.
        """
        check_time("result", "timeout_s", timeout_s)
        if self.outcome is None:
            self.deliveries.check_may_wait("result()")
            waiting = threading.Event()
            self._when_done(_Waker(waiting.set))
            if not waiting.wait(timeout_s):
                where = "is parked" if self.parked else "is still on its way"
                raise NotDelivered(
                    f"after {timeout_s:g} s record {self.number} {where}",
                    hint="it was not given up: wait on, or look at it later",
                )
        self._looked_at = True
        return self._settled()

    def add_callback(self, callback: Callable[[Delivery], object]) -> None:
        """Calls `callback(delivery)` when it is acknowledged or has failed; at once if it is."""
        self._looked_at = True
        self._when_done(callback)

    def __await__(self) -> Generator[Any, None, Acknowledged]:
        self._looked_at = True
        if self.outcome is None:
            self.deliveries.check_may_wait("await")
            loop = asyncio.get_running_loop()
            waiting: asyncio.Future[None] = loop.create_future()

            def wake() -> None:
                try:
                    loop.call_soon_threadsafe(_set_unless_done, waiting)
                except RuntimeError:  # the loop ended without waiting for this
                    self._looked_at = False

            self._when_done(_Waker(wake))
            yield from waiting
        return self._settled()

    # Of the producer

    def __call__(self, error: KafkaError | None, message: Message) -> None:
        """librdkafka's answer, in any thread. Ctrl-C may come between any two of these steps: the
        delivery is outstanding until the others are done. Being called itself, and not a method of
        it, spares every record an object that the garbage collector would have to look at."""
        deliveries = self.deliveries
        if error is None:
            self.outcome = message
            acknowledged = deliveries.acknowledged
            acknowledged.append(message)
            if self._callbacks is not None:
                deliveries.settled(self)
            del deliveries.outstanding[self.number]
            if len(acknowledged) >= COUNTED_AT_ONCE:
                deliveries.count()
        else:
            deliveries.failures.append((self, error, message))
            del deliveries.outstanding[self.number]

    def acknowledge(self, outcome: Message | Acknowledged) -> None:
        self.outcome = outcome
        self.call()

    def give_up(self, error: ClientError) -> None:
        """It was given up, but something may still become of it: a dead letter."""
        self._error = error

    def fail(self, error: ClientError, *, handled: bool = False) -> None:
        """It is lost to this producer. Handled: a policy was told, so that nobody else need be."""
        self._error = error
        self.outcome = error
        self._looked_at = self._looked_at or handled
        self.call()

    @property
    def is_looked_at(self) -> bool:
        return self._looked_at

    @property
    def is_watched(self) -> bool:
        """Whether somebody is to be called when it is done."""
        return bool(self._callbacks)

    def _settled(self) -> Acknowledged:
        outcome = self.outcome
        if isinstance(outcome, Acknowledged):
            return outcome
        if isinstance(outcome, ClientError):
            raise outcome
        if outcome is None:
            raise AssertionError("a delivery that was waited for has an outcome")
        self.outcome = acknowledged = acknowledged_by(outcome)
        return acknowledged

    def _when_done(self, callback: Callable[[Delivery], object]) -> None:
        with _adding:
            if self._callbacks is None:
                self._callbacks = []
            self._callbacks.append(callback)
        if self.parked:
            self.deliveries.watched[self.number] = self
        # The outcome is written before callbacks are looked for, here it is the other way round:
        # one of the two finds the other.
        if self.outcome is not None:
            self.call()

    def call(self, *, wakers_only: bool = False) -> bool:
        """Calls whom there is to call; whether somebody is left, in the thread for wakers only."""
        while self._callbacks:
            with _adding:
                place = 0
                while wakers_only and place < len(self._callbacks):
                    if isinstance(self._callbacks[place], _Waker):
                        break
                    place += 1
                if place >= len(self._callbacks):
                    return bool(self._callbacks)
                callback = self._callbacks.pop(place)
            called_well(callback, self, name=f"a callback of {self!r}")
        return False


class _Waker:
    """Wakes whoever waits: safe and short, so in any thread."""

    __slots__ = ("_wake",)

    def __init__(self, wake: Callable[[], object]) -> None:
        self._wake = wake

    def __call__(self, _: Delivery) -> None:
        self._wake()


def acknowledged_by(message: Message) -> Acknowledged:
    topic, partition = message.topic(), message.partition()
    if topic is None or partition is None:
        raise AssertionError("an acknowledged record has a topic and a partition")
    return Acknowledged(topic, partition, message.offset(), message.timestamp()[1])


def _set_unless_done(waiting: asyncio.Future[None]) -> None:
    if not waiting.done():  # cancelled, perhaps
        waiting.set_result(None)
