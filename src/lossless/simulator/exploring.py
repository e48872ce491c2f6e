"""Many runs with different seeds, until one breaks the promise."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from lossless.simulator.options import FOUND
from lossless.simulator.run import Plan, Result, Run
from lossless.simulator.settings import Settings
from lossless.verifier.verdict import Verdict

RUNS_BETWEEN_COLLECTIONS = 100


class Exploration(NamedTuple):
    schedules: int
    steps: int
    found: Result | None  # the one that shows it, or the only one
    verdict: Verdict
    unsettled: int = 0  # schedules of which nobody can say how they would have ended


def judged(result: Result, wanted: Iterable[str]) -> Verdict:
    """Of one run. What does not settle is stuck; who looks for something else cannot tell."""
    if set(wanted) & set(result.kinds):
        return Verdict.INVALID
    return Verdict.UNREFUTED if result.history.settled else Verdict.UNKNOWN


def explore(
    settings: Settings,
    seeds: Iterable[int],
    looked_for: Iterable[str] = FOUND,
    progress: Callable[[int, int], None] | None = None,
    plan: Plan | None = None,
) -> Exploration:
    """`progress` is told after every run: how many, and how many steps in all. With a plan, that is
    what happens in every run, and only how long messages take is left to chance."""
    wanted = frozenset(looked_for)
    schedules = steps = unsettled = 0
    for seed in _collecting_seldom(seeds):
        result = Run(settings, seed, plan, is_jittered=plan is not None).run()
        schedules += 1
        steps += len(result.steps)
        if progress is not None:
            progress(schedules, steps)
        verdict = judged(result, wanted)
        if verdict is Verdict.INVALID:
            return Exploration(schedules, steps, result, verdict, unsettled)
        unsettled += verdict is Verdict.UNKNOWN
    verdict = Verdict.UNKNOWN if unsettled else Verdict.UNREFUTED
    return Exploration(schedules, steps, None, verdict, unsettled)


def _collecting_seldom(seeds: Iterable[int]) -> Iterator[int]:
    """A run is dropped as a whole. Looking for garbage all the time takes a tenth of the time."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        for count, seed in enumerate(seeds, 1):
            yield seed
            if count % RUNS_BETWEEN_COLLECTIONS == 0:
                gc.collect()
    finally:
        if was_enabled:
            gc.enable()
