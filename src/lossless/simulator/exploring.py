"""Many runs with different seeds, until one breaks the promise."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

from lossless.simulator.options import FOUND
from lossless.simulator.run import Result, Run
from lossless.simulator.settings import Settings
from lossless.verifier.verdict import Verdict


class Exploration(NamedTuple):
    schedules: int
    steps: int
    found: Result | None

    @property
    def verdict(self) -> Verdict:
        return Verdict.UNREFUTED if self.found is None else Verdict.INVALID


def explore(
    settings: Settings,
    seeds: Iterable[int],
    looked_for: Iterable[str] = FOUND,
    progress: Callable[[int, int], None] | None = None,
) -> Exploration:
    """`progress` is told after every run: how many, and how many steps in all."""
    wanted = frozenset(looked_for)
    schedules = steps = 0
    for seed in seeds:
        result = Run(settings, seed).run()
        schedules += 1
        steps += len(result.steps)
        if progress is not None:
            progress(schedules, steps)
        if wanted & set(result.kinds):
            return Exploration(schedules, steps, result)
    return Exploration(schedules, steps, None)
