"""Deadlines by name. What is set again replaces what was set before.

None of them outlives the process: whoever loads a shard sets them anew, from the full time.
"""

from __future__ import annotations

import enum
import heapq
from collections.abc import Iterator
from typing import NamedTuple

_STALE_MAX = 64


class Kind(enum.Enum):
    SESSION = "a member has not been heard of for too long"
    JOIN = "a classic group has waited long enough for its members to join"
    SYNC = "a classic group has waited long enough for its members to ask for their assignment"
    REVOKE = "a member of a consumer group has had long enough to give up partitions"
    RETENTION = "offsets may be too old"


class Timer(NamedTuple):
    kind: Kind
    group_id: str = ""
    member_id: str = ""


class Timers:
    def __init__(self) -> None:
        self._deadlines: dict[Timer, tuple[int, int]] = {}
        self._heap: list[tuple[int, int, Timer]] = []
        self._count = 0

    @property
    def wake_ms(self) -> int | None:
        self._drop_stale()
        return self._heap[0][0] if self._heap else None

    def set(self, timer: Timer, at_ms: int) -> None:
        self._count += 1
        self._deadlines[timer] = (at_ms, self._count)
        if len(self._heap) > 2 * len(self._deadlines) + _STALE_MAX:
            # Sessions are set again with every heartbeat: what they were before would pile up.
            self._heap = [(at, count, timer) for timer, (at, count) in self._deadlines.items()]
            heapq.heapify(self._heap)
        else:
            heapq.heappush(self._heap, (at_ms, self._count, timer))

    def cancel(self, timer: Timer) -> None:
        self._deadlines.pop(timer, None)

    def take_due(self, now_ms: int) -> Iterator[Timer]:
        """Those whose time has come, the earliest first. They are set no more. Each is looked for
        when the one before has been dealt with, which may have cancelled it or set it anew."""
        self._drop_stale()
        while self._heap and self._heap[0][0] <= now_ms:
            _, _, timer = heapq.heappop(self._heap)
            del self._deadlines[timer]
            yield timer
            self._drop_stale()

    def _drop_stale(self) -> None:
        while self._heap:
            at_ms, count, timer = self._heap[0]
            if self._deadlines.get(timer) == (at_ms, count):
                return
            heapq.heappop(self._heap)
