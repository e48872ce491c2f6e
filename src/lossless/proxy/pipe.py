"""One direction of a connection: what comes from the source goes to the target, as slow as told.

Bytes are neither reordered nor lost, but by a fault that says so. Memory is bounded: the source is
not read while the target does not take what it has, or while too much waits for its time.
"""

from __future__ import annotations

import asyncio
import collections
from collections.abc import Callable
from typing import NamedTuple

from lossless.proxy.conditions import Conditions
from lossless.proxy.counters import Tally
from lossless.proxy.streams import Buffer

QUEUE_BYTES_MAX = 4 * 1024 * 1024  # that wait for their time; then the source has to
_SLICE_S = 0.02  # a throttled direction moves in steps of this length


class _Chunk(NamedTuple):
    arrived: float
    lateness: float  # its part of the jitter, from 0 to 1
    data: Buffer


class Pipe:
    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        tally: Tally,
        *,
        draw: Callable[[], float],
        on_delivered: Callable[[int], None],
    ) -> None:
        self._loop = loop
        self._tally = tally
        self._draw = draw
        self._on_delivered = on_delivered
        self._conditions = Conditions()
        self._queue: collections.deque[_Chunk] = collections.deque()
        self._queued_bytes = 0
        self._free_at = 0.0  # when a throttled target takes the next bytes
        self._timer: asyncio.TimerHandle | None = None
        self._when_empty: Callable[[], None] | None = None
        self._is_choked = False  # the target does not take what it has
        self._is_full = False  # someone else says that it is enough
        self._is_paused = False
        self._is_closed = False
        self.is_swallowing = False
        self.has_swallowed = False
        self.source: asyncio.Transport | None = None
        self.target: asyncio.Transport | None = None

    def set_conditions(self, conditions: Conditions, *, is_swallowing: bool) -> None:
        self._conditions = conditions
        self._free_at = 0.0
        self.is_swallowing = is_swallowing
        if is_swallowing:
            self._swallow(self._queued_bytes)
            self._queue.clear()
            self._queued_bytes = 0
        self._pump()

    def send(self, buffers: list[Buffer]) -> None:
        if self.is_swallowing:
            self._swallow(sum(map(len, buffers)))
            return
        if self._is_closed:
            return  # the one who is gone hears nothing more
        if not self._queue and not self._conditions.is_slow and self.target is not None:
            for data in buffers:
                self._deliver(data)
            return
        now = self._loop.time()
        for data in buffers:
            self._queue.append(_Chunk(now, self._draw(), data))
            self._queued_bytes += len(data)
        if self._conditions.delay_ms or self._conditions.jitter_ms:
            self._tally.chunks_delayed += len(buffers)
        self._pump()

    def finish(self, when_empty: Callable[[], None]) -> None:
        """No more will come; called once all has been delivered."""
        self._when_empty = when_empty
        self._pump()

    def close(self) -> None:
        self._is_closed = True
        self.source = self.target = None
        self._queue.clear()
        self._queued_bytes = 0
        self._when_empty = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def choke(self, *, is_choked: bool) -> None:
        self._is_choked = is_choked
        self._pump()

    def fill(self, *, is_full: bool) -> None:
        if is_full != self._is_full:
            self._is_full = is_full
            self._pump()

    # Inside

    def _pump(self) -> None:
        """Delivers what is due, and comes back for the rest."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        while self._queue and not self._is_choked and self.target is not None:
            chunk = self._queue[0]
            now = self._loop.time()
            due = max(chunk.arrived + self._wait_s(chunk), self._free_at)
            if now < due:
                self._timer = self._loop.call_at(due, self._pump)
                break
            self._release(chunk, now)
        self._regulate()
        if not self._queue and self._when_empty is not None:
            when_empty, self._when_empty = self._when_empty, None
            when_empty()

    def _wait_s(self, chunk: _Chunk) -> float:
        conditions = self._conditions
        return (conditions.delay_ms + chunk.lateness * conditions.jitter_ms) / 1000

    def _release(self, chunk: _Chunk, now: float) -> None:
        self._queue.popleft()
        data, rate = chunk.data, self._conditions.bytes_per_second
        if rate is not None:
            size = max(1, int(rate * _SLICE_S))
            self._tally.chunks_throttled += 1
            if size < len(data):
                self._queue.appendleft(chunk._replace(data=memoryview(data)[size:]))
                data = memoryview(data)[:size]
            self._free_at = max(now, self._free_at) + len(data) / rate
        self._queued_bytes -= len(data)
        self._deliver(data)

    def _deliver(self, data: Buffer) -> None:
        if self.target is not None and not self.target.is_closing():
            self.target.write(data)
            self._on_delivered(len(data))

    def _swallow(self, size: int) -> None:
        if size:
            self.has_swallowed = True
            self._tally.bytes_swallowed += size

    def _regulate(self) -> None:
        is_enough = self._is_choked or self._is_full or self._queued_bytes > QUEUE_BYTES_MAX
        if self.source is None or self.source.is_closing():
            return
        if is_enough and not self._is_paused:
            self._is_paused = True
            self.source.pause_reading()
        elif self._is_paused and not is_enough:
            self._is_paused = False
            self.source.resume_reading()
