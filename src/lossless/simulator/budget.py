"""How many faults strike at a time: which are not over yet, and whether one more may strike.

Of each kind at most as many as the settings allow strike at a time. Faults of brokers also count
together: at most the largest of their numbers. (Each of one crash and one power loss is survived by
settings that do not survive both at once.) A fault of a broker is over when the broker runs, can be
reached, and is in sync again for every partition that it has; a fault that is never undone counts
until the end. Losing the power of all brokers at once is a fault of its own, and counts alone.

`survivable` says how many at a time given settings are meant to survive, so that a counterexample
can say whether it is within that.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping

from lossless.contract.faults import FaultKind
from lossless.core.broker import Broker
from lossless.core.standing import Phase
from lossless.simulator.faults import Action, kind_of, victim_of
from lossless.simulator.settings import (
    BROKER_FAULTS,
    DEADLY_FAULTS,
    DESTRUCTIVE_FAULTS,
    Settings,
)
from lossless.simulator.world import FIRST_CONTROLLER, World

# A fault, its victim (0: all brokers), and when it struck: several actions may be one fault.
Instance = tuple[FaultKind, int, int]


class Budget:
    def __init__(self, world: World, settings: Settings) -> None:
        self._world = world
        self._allowed = dict(settings.faults)
        self._together = max((self._allowed.get(kind, 0) for kind in BROKER_FAULTS), default=0)
        self._active: set[Instance] = set()
        self._refused: set[Instance] = set()
        self.most: Counter[FaultKind] = Counter()  # of each kind, at a time
        self.most_dead = 0  # brokers that died at a time, at least one of them with a loss

    def allows(self, action: Action, at_ms: int) -> bool:
        """Also when nobody drew the fault: what a script does is always done."""
        kind = kind_of(action)
        if kind is None or kind not in self._allowed:
            return True
        instance = (kind, victim_of(self._world, action), at_ms)
        if instance in self._active:
            return True
        if instance in self._refused:
            return False
        self._forget_what_is_over()
        active = Counter(kind for kind, _, _ in self._active)
        together = {victim for kind, victim, _ in self._active if kind in BROKER_FAULTS}
        together.add(instance[1])
        is_allowed = active[kind] < self._allowed[kind] and (
            kind not in BROKER_FAULTS or len(together) <= self._together
        )
        if not is_allowed:
            self._refused.add(instance)
        return is_allowed

    def note(self, action: Action, victim: int, at_ms: int) -> None:
        """The fault has struck `victim`."""
        kind = kind_of(action)
        if kind is None:
            return
        self._forget_what_is_over()
        self._active.add((kind, victim, at_ms))
        active = Counter(kind for kind, _, _ in self._active)
        self.most[kind] = max(self.most[kind], active[kind])
        if any(active[destructive] for destructive in DESTRUCTIVE_FAULTS):
            dead = {victim for kind, victim, _ in self._active if kind in DEADLY_FAULTS}
            self.most_dead = max(self.most_dead, len(dead))

    def _forget_what_is_over(self) -> None:
        self._active = {
            instance for instance in self._active if not self._is_over(instance[0], instance[1])
        }

    def _is_over(self, kind: FaultKind, victim: int) -> bool:
        if kind is FaultKind.POWER_LOSS_EVERYWHERE:
            brokers = range(1, self._world.settings.brokers + 1)
            return all(self._has_recovered(broker) for broker in brokers)
        if victim < FIRST_CONTROLLER:
            return self._has_recovered(victim)
        return self._world.processes[victim].machine is not None

    def _has_recovered(self, broker: int) -> bool:
        process, controller = self._world.processes[broker], self._world.controller
        machine = process.machine
        if not isinstance(machine, Broker) or machine.phase is not Phase.RUNNING:
            return False
        if process.is_paused or any(broker in pair for pair in self._world.cut):
            return False
        if any(disk.has_failed or disk.capacity is not None for disk in process.disk.values()):
            return False
        return controller is not None and all(
            broker in state.isr
            for state in controller.image.partitions.values()
            if broker in state.replicas
        )


def survivable(settings: Settings) -> Mapping[FaultKind, int]:
    """How many of each kind at a time these settings are meant to survive without loss."""
    brokers = settings.brokers if settings.producer.acks == -1 and not settings.unclean else 0
    survived = dict.fromkeys(BROKER_FAULTS, brokers)
    survived |= dict.fromkeys(DESTRUCTIVE_FAULTS, min(brokers, _copies_to_lose(settings)))
    survived[FaultKind.POWER_LOSS_EVERYWHERE] = int(brokers > 0 and settings.flush_before_ack)
    return survived


def _copies_to_lose(settings: Settings) -> int:
    if settings.flush_before_ack:
        return settings.brokers
    return min(settings.min_isr, settings.replication_factor) - 1


def exceeded(
    settings: Settings, most: Mapping[FaultKind, int], most_dead: int = 0
) -> Iterator[str]:
    """What struck more often at a time than the settings are meant to survive.

    The controller takes every process that did not stop cleanly for one that has lost something
    (KIP-966). So while one broker has, the others that died count as well.
    """
    survived = survivable(settings)
    is_named = False
    for kind, count in most.items():
        limit = survived.get(kind, count)
        if count > limit:
            is_named |= kind in DESTRUCTIVE_FAULTS
            survived_text = f"at most {limit}" if limit else "none"
            yield f"{kind.value}, {count} at a time: these settings survive {survived_text}"
    limit = survived[DESTRUCTIVE_FAULTS[0]]
    if most_dead > limit and not is_named:
        yield (
            f"{most_dead} brokers died at a time, one of them without what it had not flushed: "
            f"these settings survive at most {limit}"
        )
