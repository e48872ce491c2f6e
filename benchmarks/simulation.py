"""How fast the simulator is, and how soon it finds what it should."""

from __future__ import annotations

import heapq
import statistics
import time
from dataclasses import dataclass, replace

from benchmarks.measure import Result, console
from lossless.simulator.exploring import explore
from lossless.simulator.options import FOUND, changed, pairs_of
from lossless.simulator.run import Run
from lossless.simulator.settings import RECOMMENDED, UNLIMITED, Settings

# One workload and one mix of faults for everything that is looked for.
SAFE = Settings(faults=UNLIMITED, flush_before_ack=True)
# Short schedules: 3 brokers, replication factor 3, 2 producers, 2 consumers.
SHORT = replace(SAFE, producer=replace(SAFE.producer, records=1), chaos_ms=100, faults_max=1)
STEPS = 500  # in a schedule, for who counts schedules
SEARCHES = 10
SEARCH_S_MAX = 60
PENDING = 40  # events in the heap, as in a run
FAR_APART = 1_000_000  # between the seeds of two searches


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """What is changed, and what that should bring about."""

    name: str
    change: str
    looked_for: tuple[str, ...]


CASES = (
    Case(name="R6", change="acks=1", looked_for=("lost",)),
    Case(name="R13", change="off=shrink_when_confirmed", looked_for=("lost", "StrongIsr")),
    Case(
        name="R14",
        change="off=truncate_by_epoch",
        looked_for=("lost", "inconsistent offset", "StrongIsr"),
    ),
    Case(name="R15", change="flush-before-ack=false", looked_for=("lost",)),
    Case(
        name="R16",
        change="flush-before-ack=false off=eligible_leader_replicas",
        looked_for=("lost",),
    ),
    Case(name="B3", change="unclean=true", looked_for=("lost",)),
    Case(name="C3", change="commit=before", looked_for=("unprocessed",)),
    Case(name="P4", change="idempotent=false", looked_for=("duplicate",)),
    Case(
        name="KIP-320",
        change="off=fetch_checks_epoch",
        looked_for=("lost", "StrongIsr", "SameEpoch"),
    ),
    Case(
        name="KIP-903",
        change="flush-before-ack=false off=broker_epoch_in_isr",
        looked_for=("StrongIsr", "SameProcess"),
    ),
    Case(name="KIP-841", change="off=fenced_stay_out", looked_for=("ActiveIsr",)),
)


def speed(runs: int) -> list[Result]:
    """Steps and schedules in a second, beside a loop that only takes the next of a heap."""
    ours, bare = [], []
    for number in range(-2, runs):
        seeds = range(1 + 1000 * (number + 2), 101 + 1000 * (number + 2))
        began = time.perf_counter()
        steps = explore(SHORT, seeds, ()).steps
        took = time.perf_counter() - began
        began = time.perf_counter()
        _heap_loop(steps)
        bare_took = time.perf_counter() - began
        if number >= 0:
            ours.append(steps / took)
            bare.append(steps / bare_took)
            console.print(f"  run {number + 1} of {runs}: {ours[-1]:,.0f} steps/s")
    value, against = statistics.median(ours), statistics.median(bare)
    schedules = value / STEPS
    return [
        _simulated_hours(runs),
        Result(
            name="simulated steps",
            value=round(value),
            unit="steps/s",
            against="bare heap-queue loop",
            against_value=round(against),
            ratio=round(value / against, 4),
        ),
        Result(
            name=f"schedules of {STEPS} steps",
            value=round(schedules, 1),
            unit="schedules/s",
            against="the aim",
            against_value=60,
            ratio=round(schedules / 60, 2),
            bar=1.0,
            holds=schedules >= 60,
        ),
    ]


def _simulated_hours(runs: int) -> Result:
    """Of the recommended settings and faults, in an hour of one core. Nothing is skipped: clocks
    advance from one event to the next."""
    values = []
    for number in range(runs):
        began = time.process_time()
        done = explore(RECOMMENDED, range(1 + 100 * number, 51 + 100 * number), ()).exercised
        values.append(done.simulated_ms / 1_000 / (time.process_time() - began))
    value = statistics.median(values)
    console.print(f"  {value:.1f} simulated hours per hour of one core")
    return Result(
        name="simulated hours, recommended settings and faults",
        value=round(value, 1),
        unit="per hour of one core",
        against="the clock",
        against_value=1,
        ratio=round(value, 1),
    )


def _heap_loop(steps: int) -> None:
    """Nothing but the order of events: what no simulator in Python can do without."""
    heap = [(0, number, "event") for number in range(PENDING)]
    for count in range(PENDING, PENDING + steps):
        at_ms, _, label = heapq.heappop(heap)
        heapq.heappush(heap, (at_ms + 1, count, label))


def detection(seconds: int) -> list[Result]:
    """Ten searches for each, from seeds far apart; each may take a minute."""
    results = []
    most = 0
    for case in CASES:
        settings = changed(SAFE, pairs_of(case.change, case.name), case.name)
        found, times = 0, []
        for search in range(1, SEARCHES + 1):
            began = time.perf_counter()
            schedules = _search(settings, case, search, began + seconds)
            took = time.perf_counter() - began
            times.append(took)
            found += schedules is not None
            most = max(most, schedules or 0)
        told = f"{found} of {SEARCHES}, median {statistics.median(times):.1f} s"
        console.print(f"  {case.name} ({case.change}): {told}")
        results.append(
            Result(
                name=f"{case.name} found, {case.change}",
                value=found,
                unit=f"of {SEARCHES}, median {statistics.median(times):.1f} s",
                against="searches",
                against_value=SEARCHES,
                ratio=found / SEARCHES,
                bar=0.9,
                holds=found >= 0.9 * SEARCHES,
            )
        )
    exploration = explore(SAFE, range(1, most + 1), FOUND)
    results.append(
        Result(
            name="schedules with all rules on",
            value=exploration.schedules,
            unit="schedules",
            against="until something is found",
            against_value=0 if exploration.found is None else 1,
            bar=0,
            holds=exploration.found is None,
        )
    )
    return results


def _search(settings: Settings, case: Case, search: int, until: float) -> int | None:
    """How many schedules it took; None: not found in time."""
    wanted = set(case.looked_for)
    count = 0
    while time.perf_counter() < until:
        count += 1
        if wanted & set(Run(settings, search * FAR_APART + count).run().kinds):
            return count
    return None
