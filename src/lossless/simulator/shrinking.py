"""Makes a failing run as small as it gets: until nothing can be left out of its plan.

A plan is what happens to a cluster that otherwise goes its way: faults, late messages, records that
are sent, clients that take part. Whatever is not needed for the anomaly is left out, largest pieces
first, until every fault, every late message, every record and every client that is left is needed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from lossless.simulator.run import Plan, Result, Run
from lossless.simulator.world import FIRST_CONSUMER, FIRST_PRODUCER

T = TypeVar("T")


class Shrinking:
    """`best` is the smallest so far."""

    def __init__(
        self,
        found: Result,
        looked_for: Iterable[str],
        progress: Callable[[int], None] | None = None,
    ) -> None:
        """`progress` is told how many faults and late messages are left."""
        self.best = found
        self._looked_for = frozenset(looked_for) & set(found.kinds)
        self._progress = progress

    def shrink(self) -> Result:
        while True:
            before = self.best.plan.size
            self._leave_out_clients()
            self._leave_out_records()
            self._shorten(lambda plan: plan.faults, lambda plan, left: plan._replace(faults=left))
            self._shorten(lambda plan: plan.delays, lambda plan, left: plan._replace(delays=left))
            if self.best.plan.size == before:
                self._end_sooner()
                return self.best

    def _leave_out_clients(self) -> None:
        settings = self.best.settings
        clients = [FIRST_CONSUMER + n for n in reversed(range(settings.consumers))]
        clients += [FIRST_PRODUCER + n for n in reversed(range(settings.producers))]
        for client in clients:
            plan = self.best.plan
            if client not in plan.absent:
                records = tuple((p, 0 if p == client else n) for p, n in plan.records)
                self._try(plan._replace(absent=plan.absent | {client}, records=records))

    def _leave_out_records(self) -> None:
        """The last ones: records are numbered."""
        for producer, _ in self.best.plan.records:
            count = 0
            while count < dict(self.best.plan.records)[producer]:
                records = {**dict(self.best.plan.records), producer: count}
                if self._try(self.best.plan._replace(records=tuple(records.items()))):
                    break
                count += 1

    def _shorten(
        self,
        part: Callable[[Plan], tuple[T, ...]],
        with_part: Callable[[Plan, tuple[T, ...]], Plan],
    ) -> None:
        size = len(part(self.best.plan))
        while size:
            end = len(part(self.best.plan))
            while end > 0:
                start = max(0, end - size)
                whole = part(self.best.plan)
                self._try(with_part(self.best.plan, _without(whole, start, end)))
                end = start
            size //= 2

    def _end_sooner(self) -> None:
        plan = self.best.plan
        end_ms = max((timed.at_ms for timed in plan.faults), default=0) + 1
        if end_ms < plan.end_ms:
            self._try(plan._replace(end_ms=end_ms), is_smaller=True)

    def _try(self, plan: Plan, *, is_smaller: bool = False) -> bool:
        if plan.size >= self.best.plan.size and not is_smaller:
            return False
        result = Run(self.best.settings, self.best.seed, plan).run()
        if not self._looked_for & set(result.kinds):
            return False
        self.best = result
        if self._progress is not None:
            self._progress(len(plan.faults) + len(plan.delays))
        return True


def _without(whole: Sequence[T], start: int, end: int) -> tuple[T, ...]:
    return (*whole[:start], *whole[end:])
