"""Which step comes next: chance decides how long everything takes, and the earliest comes first.

calm         every message takes a millisecond: for what comes before and after the faults
walk         every message takes as long as it happens to; of each kind of message, rare or
             frequent, one of the first few is a straggler that takes very long
priority     connections are fast or slow, and at a few moments change places: finds what needs
             one of them to be late for long, and all others not (as probabilistic concurrency
             testing does with threads)

Late messages are a fault: unless the settings allow them, every message arrives within a few
milliseconds, and none takes longer than they allow.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Mapping
from enum import StrEnum

from lossless.simulator.settings import LATE_MS_MAX, REQUEST_TIMEOUT_MS, SESSION_MS
from lossless.simulator.world import Connection, Label, World

CALM_MS = 1
PROMPT_MS_MAX = 6  # a message that takes longer is late
CHANGE_POINTS = 3  # of priorities in a run
STRAGGLER_AMONG = 6  # the first so many messages of a kind
SLOW_ONE_IN = 4  # connections


class Kind(StrEnum):
    CALM = "calm"
    WALK = "walk"
    PRIORITY = "priority"


Delays = Mapping[tuple[Label, int], int]  # of the nth message of a connection, if it is not 1 ms


class Schedule:
    """Draws how long messages take, and remembers; or, told of `delays`, takes those."""

    def __init__(self, world: World, chance: random.Random, delays: Delays | None = None) -> None:
        self._world = world
        self._chance = chance
        self._told = delays
        self._counts: dict[Label, int] = {}
        self.drawn: dict[tuple[Label, int], int] = {}
        self._heap: list[tuple[int, int, Label, int]] = []
        self._late_ms = min(world.settings.late_ms_max, LATE_MS_MAX)
        self._count = 0
        self._last_ms: dict[Label, int] = {}
        self._slow_ms: dict[Connection, int] = {}
        self._change_ms: list[int] = []
        self._until_straggler: dict[tuple[str, str], int] = {}
        self.kind = Kind.CALM

    def begin(self, kind: Kind, span_ms: int) -> None:
        self.kind = kind
        now_ms = self._world.now_ms
        self._change_ms = (
            sorted(now_ms + self._chance.randrange(span_ms) for _ in range(CHANGE_POINTS))
            if kind is Kind.PRIORITY
            else []
        )
        self._slow_ms = {}
        self._until_straggler = {}

    def put(self, at_ms: int, label: Label, late_ms: int = 0) -> None:
        self._count += 1
        heapq.heappush(self._heap, (at_ms, self._count, label, late_ms))

    def take_planned(self) -> None:
        world = self._world
        if not world.planned:
            return
        for label, after_ms in world.planned:
            at_ms = world.now_ms + (self._takes_ms(label) if after_ms is None else after_ms)
            late_ms = 0
            if label.kind in ("deliver", "answer"):
                # What was sent on one connection stays in order.
                at_ms = max(at_ms, self._last_ms.get(label, 0))
                self._last_ms[label] = at_ms
                took_ms = at_ms - world.now_ms
                late_ms = took_ms if took_ms > PROMPT_MS_MAX else 0
            self.put(at_ms, label, late_ms)
        world.planned.clear()

    def leave_out_faults(self) -> None:
        """No fault strikes any more, also none that was put."""
        self._heap = [entry for entry in self._heap if entry[2].kind != "fault"]
        heapq.heapify(self._heap)

    def next(self) -> tuple[int, Label, int] | None:
        """When, what, and how many milliseconds it took if it is a message that is late."""
        if not self._heap:
            return None
        at_ms, _, label, late_ms = heapq.heappop(self._heap)
        return max(at_ms, self._world.now_ms), label, late_ms

    def _takes_ms(self, label: Label) -> int:
        if label.kind == "lose":
            return REQUEST_TIMEOUT_MS
        if label.kind == "deliver":
            late_ms = self._world.late.get(label.at[:3])
            if late_ms is not None:
                return late_ms
        if self.kind is Kind.CALM:
            return CALM_MS
        count = self._counts[label] = self._counts.get(label, 0) + 1
        if self._told is not None:
            return self._told.get((label, count), CALM_MS)
        if label.kind == "flush":
            takes_ms = self._chance.randrange(1, 4)
        elif self.kind is Kind.WALK:
            takes_ms = self._walk_ms(label)
        else:
            takes_ms = self._priority_ms(label)
        if takes_ms != CALM_MS:
            self.drawn[label, count] = takes_ms
        return takes_ms

    def _walk_ms(self, label: Label) -> int:
        if not self._late_ms:
            return self._chance.randrange(CALM_MS, PROMPT_MS_MAX + 1)
        kind = (label.kind, label.at.channel)
        left = self._until_straggler.get(kind)
        if left is None:
            left = self._chance.randrange(STRAGGLER_AMONG)
        self._until_straggler[kind] = left - 1
        if left == 0:
            return self._late(SESSION_MS // 3, LATE_MS_MAX)
        drawn = self._chance.random()
        return 1 + int(drawn * PROMPT_MS_MAX) if drawn < 0.95 else self._late(10, 120)

    def _late(self, least_ms: int, most_ms: int) -> int:
        return min(self._late_ms, self._chance.randrange(least_ms, most_ms))

    def _priority_ms(self, label: Label) -> int:
        while self._change_ms and self._change_ms[0] <= self._world.now_ms:
            self._change_ms.pop(0)
            self._slow_ms = {}
        slow_ms = self._slow_ms.get(label.at)
        if slow_ms is None:
            is_slow = self._chance.randrange(SLOW_ONE_IN) == 0
            slow_ms = self._slow() if is_slow else CALM_MS
            self._slow_ms[label.at] = slow_ms
        return slow_ms

    def _slow(self) -> int:
        if not self._late_ms:
            return self._chance.randrange(CALM_MS, PROMPT_MS_MAX + 1)
        return self._late(20, LATE_MS_MAX)
