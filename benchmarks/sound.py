"""`python -m benchmarks.sound [SEEDS]`: sound settings within their budgets, seed after seed.

Each of the settings runs through SEEDS schedules, beginning where the last run ended. After every
100 of them the record in build/sound.json is brought up to date, so that simulated hours add up
from run to run, also when one is interrupted. A finding ends it with exit code 1 and the command
that shows it.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import NoReturn, TypedDict

from benchmarks.measure import console
from lossless.simulator.exercise import Exercised, promised, without_opportunity
from lossless.simulator.exploring import Exploration, explore
from lossless.simulator.options import changed, pairs_of
from lossless.simulator.run import Result
from lossless.simulator.settings import RECOMMENDED, Settings
from lossless.verifier.verdict import Verdict

RECORD = Path("build/sound.json")
SEEDS_AT_A_TIME = 100
# What is changed of what `lossless init` recommends, and what of its faults.
SOUND = {
    "as recommended": "",
    "one broker, at any moment": "faults=broker-crash,leader-crash,broker-pause,late-messages",
    "one power loss": "faults=power-loss,broker-crash,late-messages",
    "one disk": "client=java faults=disk-failure,disk-full,late-messages",
    "power lost everywhere, flushed": (
        "flush-before-ack=true faults=power-loss-everywhere,broker-pause,late-messages"
    ),
    "a network, a controller, a client": (
        "faults=network-partition,controller-crash,client-disconnect,late-messages"
    ),
    "two replicas, one of them crashes": (
        "rf=2 min-isr=1 controllers=1 client=java "
        "faults=broker-crash,broker-pause,network-partition,late-messages"
    ),
    "five replicas, two lose power": (
        "brokers=5 rf=5 min-isr=3 controllers=1 client=java "
        "faults=power-loss=2,broker-crash=2,late-messages"
    ),
    "groups": (
        "groups=2 partitions=2 controllers=1 "
        "faults=broker-crash,consumer-crash,broker-stop,late-messages"
    ),
    "transactions": (
        "client=java transactions=true isolation=read_committed partitions=2 groups=1 "
        "controllers=1 faults=broker-crash,producer-crash,consumer-crash,power-loss,late-messages"
    ),
    "copies and offsets in one transaction": (
        "client=java transactions=true isolation=read_committed groups=1 transform=true "
        "commit=transaction producers=1 records=6 controllers=1 "
        "faults=broker-crash,producer-crash,consumer-crash,power-loss,late-messages"
    ),
    "reading from followers": (
        "from-follower=true brokers=4 rf=2 min-isr=1 controllers=1 "
        "faults=leader-crash,broker-stop,late-messages"
    ),
    "every fault, without regard to how many": (
        "flush-before-ack=true client=java faults=broker-crash=3,leader-crash=3,"
        "controller-crash=3,broker-pause=3,broker-stop=3,rolling-restart=3,power-loss=3,"
        "power-loss-everywhere,network-partition=3,disk-full=3,disk-failure=3,client-disconnect=9,"
        "producer-crash=2,consumer-crash=2,late-messages"
    ),
}


class Recorded(TypedDict):
    next_seed: int
    simulated_hours: float
    cpu_hours: float


def sound_settings(name: str) -> Settings:
    return changed(RECOMMENDED, pairs_of(SOUND[name], name), name)


def run(name: str, first: int, seeds: int) -> Exploration:
    settings = sound_settings(name)
    return explore(settings, range(first, first + seeds), promised(settings))


def main() -> None:
    seeds = int(sys.argv[1]) if len(sys.argv) > 1 else 5_000
    recorded: Recorded = {"next_seed": 1, "simulated_hours": 0.0, "cpu_hours": 0.0}
    if RECORD.exists():
        recorded = json.loads(RECORD.read_text())
    end = recorded["next_seed"] + seeds
    totals = {name: Exercised() for name in SOUND}
    while recorded["next_seed"] < end:
        first = recorded["next_seed"]
        count = min(SEEDS_AT_A_TIME, end - first)
        began = time.process_time()
        for name, total in totals.items():
            exploration = run(name, first, count)
            if exploration.found is not None:
                _end(name, exploration.found)
            total.add(exploration.exercised)
            recorded["simulated_hours"] += exploration.exercised.simulated_ms / 3_600_000
        recorded["cpu_hours"] += (time.process_time() - began) / 3_600
        recorded["next_seed"] = first + count
        RECORD.parent.mkdir(exist_ok=True)
        RECORD.write_text(json.dumps(recorded, indent=2) + "\n")
    for name, total in totals.items():
        console.print(
            f"  {name}: {total.simulated_ms / 3_600_000:.2f} simulated hours, "
            f"{total.acknowledged} records acknowledged, {total.faults.total()} faults, "
            f"{total.elections.total()} elections"
        )
        settings = sound_settings(name)
        for kind, why in without_opportunity(promised(settings), settings, total).items():
            console.print(f"{name}: UNKNOWN, {kind} had no opportunity, because {why}")
            sys.exit(Verdict.UNKNOWN.exit_code)
    console.print(
        f"{recorded['simulated_hours']:.1f} simulated hours in {recorded['cpu_hours']:.2f} hours "
        f"of one core so far, seeds 1 to {recorded['next_seed'] - 1}, without a finding"
    )


def _end(name: str, found: Result) -> NoReturn:
    changes = " ".join(f"--set {change}" for change in SOUND[name].split())
    kinds = ",".join(promised(sound_settings(name)))
    console.print(f"{name}: INVALID, {', '.join(found.kinds)} in seed {found.seed}")
    console.print(f"lossless prove {changes} --look-for '{kinds}' --seed {found.seed}")
    sys.exit(Verdict.INVALID.exit_code)


if __name__ == "__main__":
    main()
