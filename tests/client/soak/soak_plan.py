"""What a seed makes of a soak: faults, when they come, and how long they last."""

from __future__ import annotations

import random
from dataclasses import dataclass
from enum import StrEnum

PAUSE_S = (1.0, 5.0)  # between two faults
LASTS_S = (0.5, 4.0)
QUIET_AT_THE_END_S = 5.0


class SoakFault(StrEnum):
    LEADER_KILL = "leader kill"
    BROKER_PAUSE = "broker pause"
    CONTROLLER_KILL = "controller kill"
    ALL_BROKERS_KILL = "all brokers killed"
    CONSUMER_KILL = "consumer kill -9"
    CONSUMER_STOP = "consumer SIGSTOP, SIGCONT"
    PRODUCER_KILL = "producer kill -9"
    DATABASE_RESTART = "database restart"


@dataclass(frozen=True, slots=True)
class Planned:
    at_s: float  # since the beginning
    fault: SoakFault
    lasts_s: float
    target: int  # which of those that there are: a partition, a consumer, a producer


def plan_of(seed: int, duration_s: float) -> list[Planned]:
    """The same for the same seed and duration. Every kind comes once before any comes again."""
    chance = random.Random(seed)
    planned: list[Planned] = []
    waiting: list[SoakFault] = []
    at_s = chance.uniform(*PAUSE_S)
    while at_s < duration_s - QUIET_AT_THE_END_S:
        if not waiting:
            waiting = list(SoakFault)
            chance.shuffle(waiting)
        lasts_s = chance.uniform(*LASTS_S)
        planned.append(Planned(at_s, waiting.pop(), lasts_s, chance.randrange(1_000_000)))
        at_s += lasts_s + chance.uniform(*PAUSE_S)
    return planned
