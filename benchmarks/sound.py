"""`python -m benchmarks.sound [SEEDS]`: sound settings within their budgets, seed after seed.

Each of the settings runs through SEEDS schedules, beginning where the last run ended, and the
simulated hours add up in build/sound.json. A finding ends it with exit code 1 and the command that
shows it.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import TypedDict

from benchmarks.measure import console
from lossless.simulator.exploring import Exploration, explore
from lossless.simulator.options import changed, pairs_of
from lossless.simulator.settings import RECOMMENDED, Settings
from lossless.verifier.verdict import Verdict

RECORD = Path("build/sound.json")
LOOKED_FOR = (
    "lost",
    "unseen",
    "unprocessed",
    "duplicate",
    "inconsistent offset",
    "precommitted read",
    "reordered",
    "stuck",
)
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


def looked_for(settings: Settings) -> tuple[str, ...]:
    of_transactions = ("aborted read", "torn transaction") if settings.is_transactional else ()
    return LOOKED_FOR + of_transactions


def run(name: str, first: int, seeds: int) -> Exploration:
    settings = sound_settings(name)
    return explore(settings, range(first, first + seeds), looked_for(settings))


def main() -> None:
    seeds = int(sys.argv[1]) if len(sys.argv) > 1 else 5_000
    recorded: Recorded = {"next_seed": 1, "simulated_hours": 0.0, "cpu_hours": 0.0}
    if RECORD.exists():
        recorded = json.loads(RECORD.read_text())
    first = recorded["next_seed"]
    began = time.process_time()
    for name in SOUND:
        exploration = run(name, first, seeds)
        done = exploration.exercised
        hours = done.simulated_ms / 3_600_000
        console.print(
            f"  {name}: {exploration.verdict}, seeds {first} to {first + exploration.schedules - 1}"
            f", {hours:.2f} simulated hours, {done.acknowledged} records acknowledged, "
            f"{done.faults.total()} faults, {done.elections.total()} elections"
        )
        if exploration.verdict is not Verdict.UNREFUTED:
            found = exploration.found
            what = "" if found is None else f": {', '.join(found.kinds)} in seed {found.seed}"
            console.print(f"  {SOUND[name] or 'nothing changed'}{what}")
            sys.exit(exploration.verdict.exit_code)
        recorded["simulated_hours"] += hours
    recorded["cpu_hours"] += (time.process_time() - began) / 3_600
    recorded["next_seed"] = first + seeds
    RECORD.parent.mkdir(exist_ok=True)
    RECORD.write_text(json.dumps(recorded, indent=2) + "\n")
    console.print(
        f"{recorded['simulated_hours']:.1f} simulated hours in {recorded['cpu_hours']:.2f} hours "
        f"of one core so far, seeds 1 to {first + seeds - 1}, without a finding"
    )


if __name__ == "__main__":
    main()
