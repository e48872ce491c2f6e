"""Many runs with different seeds, until one breaks the promise."""

from __future__ import annotations

import gc
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import NamedTuple

from lossless.simulator.exercise import Exercised, without_opportunity
from lossless.simulator.options import FOUND
from lossless.simulator.run import Plan, Result, Run
from lossless.simulator.settings import Settings
from lossless.verifier.verdict import Verdict

RUNS_BETWEEN_COLLECTIONS = 100


class Occurred(NamedTuple):
    """In how many schedules a kind of anomaly occurred, and the first seed that shows it."""

    schedules: int
    seed: int


class Exploration(NamedTuple):
    schedules: int
    steps: int
    found: Result | None  # the one that shows it, or the only one
    verdict: Verdict
    unsettled: int = 0  # schedules that did not settle, whose end is therefore not known
    exercised: Exercised = Exercised()  # in all schedules together
    occurred: Mapping[str, Occurred] = {}  # every kind, looked for or not
    missing: Mapping[str, str] = {}  # kinds that had no opportunity, and why


def judged(result: Result, wanted: Iterable[str]) -> Verdict:
    """Of one run. What does not settle is stuck; for all other kinds it is not known."""
    if set(wanted) & set(result.kinds):
        return Verdict.INVALID
    return Verdict.UNREFUTED if result.history.settled else Verdict.UNKNOWN


def explore_one(settings: Settings, seed: int, looked_for: Collection[str]) -> Exploration:
    """One schedule, found or not."""
    wanted = frozenset(looked_for)
    result = Run(settings, seed).run()
    occurred = {kind: Occurred(1, seed) for kind in result.kinds}
    verdict = judged(result, wanted)
    missing = without_opportunity(looked_for, settings, result.exercised)
    if verdict is Verdict.UNREFUTED and missing:
        verdict = Verdict.UNKNOWN
    unsettled = int(not result.history.settled)
    steps = len(result.steps)
    return Exploration(1, steps, result, verdict, unsettled, result.exercised, occurred, missing)


def explore(
    settings: Settings,
    seeds: Iterable[int],
    looked_for: Collection[str] = FOUND,
    progress: Callable[[int, int], None] | None = None,
    plan: Plan | None = None,
) -> Exploration:
    """Runs one schedule for each seed, until one breaks the promise.

    `progress` is called after every run with the number of runs and of steps so far. With a plan,
    that is what happens in every run, and only how long messages take is left to chance.
    """
    wanted = frozenset(looked_for)
    schedules = steps = unsettled = 0
    exercised = Exercised()
    occurred: dict[str, Occurred] = {}
    for seed in _collecting_seldom(seeds):
        result = Run(settings, seed, plan, is_jittered=plan is not None).run()
        schedules += 1
        steps += len(result.steps)
        exercised.add(result.exercised)
        for kind in result.kinds:
            count, first = occurred.get(kind, Occurred(0, seed))
            occurred[kind] = Occurred(count + 1, first)
        if progress is not None:
            progress(schedules, steps)
        verdict = judged(result, wanted)
        if verdict is Verdict.INVALID:
            return Exploration(schedules, steps, result, verdict, unsettled, exercised, occurred)
        unsettled += verdict is Verdict.UNKNOWN
    missing = without_opportunity(looked_for, settings, exercised)
    verdict = Verdict.UNKNOWN if unsettled or missing else Verdict.UNREFUTED
    return Exploration(schedules, steps, None, verdict, unsettled, exercised, occurred, missing)


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
