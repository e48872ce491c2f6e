"""Faults: what is done to the world, and when it is undone.

A plan is drawn before a run begins: a few faults, each a pair of actions, so that whatever breaks
is repaired in the end. An action is data, and executing it twice, or too late, does no harm. When
the time of a fault has come, the budget decides whether it may strike (budget.py).
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import NamedTuple

from lossless.contract.faults import FaultKind
from lossless.core.broker import Broker
from lossless.core.messages import NO_LEADER, DeleteRecords, ElectLeader, TopicPartition
from lossless.simulator.clients.producer import Producer
from lossless.simulator.clients.transactional import TransactionalProducer
from lossless.simulator.settings import SESSION_MS, Settings
from lossless.simulator.world import (
    ADMIN,
    FIRST_CONSUMER,
    FIRST_CONTROLLER,
    FIRST_PRODUCER,
    TOPIC,
    World,
    name_of,
)

LEADER = -1  # as a target: whoever leads the first partition by then
EVERY_BROKER = -2
EVERYBODY = -3  # every broker and every controller


class Action(NamedTuple):
    """What is done, to whom; `other` is a second process, or how much."""

    verb: str
    target: int
    other: int = 0
    channel: str = ""  # of messages that are late
    late_ms: int = 0
    fault: FaultKind | None = None  # that was drawn; a script names none
    broker: int = 0  # which of two processes has the fault, if it is a broker

    @property
    def sign(self) -> str:
        """Not every action breaks something: some undo others, some are what people ask for."""
        if self.verb in ("start", "resume", "heal", "replace disk", "free disk"):
            return "✓"
        return "▸" if self.verb in ("send", "prefer", "delete") else "✗"

    def told(self) -> str:
        several = {
            LEADER: "the leader",
            EVERY_BROKER: "every broker",
            EVERYBODY: "every broker and controller",
        }
        who = several.get(self.target) or name_of(self.target)
        has_other = self.verb in ("cut", "heal", "disconnect", "late")
        other = name_of(self.other) if has_other else ""
        return {
            "crash": f"{who} dies (kill -9)",
            "start": f"{who} starts",
            "lose power": f"{who} loses power: what was not flushed is gone",
            "pause": f"{who} stands still (SIGSTOP)",
            "resume": f"{who} goes on",
            "stop": f"{who} is asked to stop",
            "cut": f"nothing passes from {who} to {other}",
            "heal": f"messages pass from {who} to {other} again",
            "disconnect": f"the connections between {who} and {other} break",
            "fill": f"the disk of {who} is full",
            "fail": f"the disk of {who} fails",
            "free disk": f"there is room on the disk of {who} again",
            "replace disk": f"the disk of {who} is replaced: it has what had been flushed",
            "send": f"{who} has {self.other} to send",
            "late": f"{self.channel} from {who} to {other} takes {self.late_ms} ms from now on",
            "prefer": "an administrator asks for the preferred leader",
            "delete": f"records before {self.other} are deleted",
            "skew": f"the clock of {who} is {self.other} ms ahead",
        }[self.verb]


class Timed(NamedTuple):
    at_ms: int
    action: Action


class Span(NamedTuple):
    at_ms: int
    until_ms: int


def plan(settings: Settings, chance: random.Random, start_ms: int) -> list[Timed]:
    """Whoever has one problem often has more: half of the time one broker gets most of them, and
    what fails once often fails again."""
    timed: list[Timed] = []
    kinds = [kind for kind, _ in settings.faults if kind in _PLANS]
    if kinds:
        victim = chance.randint(1, settings.brokers)
        is_fair = chance.random() < 0.5
        for _ in range(chance.randint(1, settings.faults_max)):
            kind = kinds[chance.randrange(len(kinds))]
            broker = victim
            if is_fair or chance.random() < 0.2:
                broker = chance.randint(1, settings.brokers)
            at_ms = start_ms + chance.randrange(settings.chaos_ms)
            for _ in range(chance.choice((1, 1, 2, 3))):
                # Often shorter than a session, often longer.
                until_ms = at_ms + chance.randrange(5, 3 * SESSION_MS)
                drawn = _PLANS[kind](settings, chance, broker, Span(at_ms, until_ms))
                timed += [_named(one, kind, broker) for one in drawn]
                at_ms = until_ms + chance.randrange(5, SESSION_MS)
    return sorted(timed)


def _named(timed: Timed, kind: FaultKind, broker: int) -> Timed:
    action = timed.action
    if action.sign != "✗":
        return timed
    return timed._replace(action=action._replace(fault=kind, broker=broker))


def _crash(target: int, span: Span, verb: str = "crash") -> list[Timed]:
    return [
        Timed(span.at_ms, Action(verb, target)),
        Timed(span.until_ms, Action("start", target)),
    ]


def _broker_crash(_s: Settings, _chance: random.Random, broker: int, span: Span) -> list[Timed]:
    return _crash(broker, span)


def _leader_crash(_s: Settings, _chance: random.Random, _broker: int, span: Span) -> list[Timed]:
    return _crash(LEADER, span)


def _controller_crash(s: Settings, chance: random.Random, _broker: int, span: Span) -> list[Timed]:
    return _crash(FIRST_CONTROLLER + chance.randrange(s.controllers), span)


def _power_loss(_s: Settings, chance: random.Random, broker: int, span: Span) -> list[Timed]:
    return _lose_power_of(broker, chance, span)


def _power_loss_everywhere(
    _s: Settings, chance: random.Random, _broker: int, span: Span
) -> list[Timed]:
    return _lose_power_of(EVERYBODY, chance, span)


def _lose_power_of(target: int, chance: random.Random, span: Span) -> list[Timed]:
    survives = chance.choice((0, 0, 50, 100))
    return [
        Timed(span.at_ms, Action("lose power", target, survives)),
        Timed(span.until_ms, Action("start", target)),
    ]


def _pause(_s: Settings, _chance: random.Random, broker: int, span: Span) -> list[Timed]:
    return [
        Timed(span.at_ms, Action("pause", broker)),
        Timed(span.until_ms, Action("resume", broker)),
    ]


def _stop(_s: Settings, chance: random.Random, broker: int, span: Span) -> list[Timed]:
    """Whoever takes a broker down on purpose often has it lead again afterwards."""
    again = Timed(span.until_ms + chance.randrange(20, SESSION_MS), Action("prefer", ADMIN))
    return [*_crash(broker, span, "stop"), *([again] if chance.random() < 0.5 else [])]


def _rolling_restart(s: Settings, chance: random.Random, broker: int, span: Span) -> list[Timed]:
    """Every broker in turn. One that is to stop before the last is in sync again stays."""
    timed = []
    at_ms = span.at_ms
    for turn in range(s.brokers):
        down_ms = chance.randrange(5, SESSION_MS)
        target = 1 + (broker - 1 + turn) % s.brokers
        timed += _crash(target, Span(at_ms, at_ms + down_ms), "stop")
        at_ms += down_ms + chance.randrange(SESSION_MS // 2, 2 * SESSION_MS)
    return timed


def _partition(s: Settings, chance: random.Random, broker: int, span: Span) -> list[Timed]:
    """A broker from another, from the controllers, from all, or from a client; both ways or one."""
    brokers = [other for other in range(1, s.brokers + 1) if other != broker]
    controllers = list(range(FIRST_CONTROLLER, FIRST_CONTROLLER + s.controllers))
    clients = _clients(s)
    others = [*brokers, *controllers]
    which = chance.randrange(4)
    if which == 0 and brokers:
        others = [chance.choice(brokers)]
    elif which == 1:
        others = controllers
    elif which == 2 and clients:
        others = [chance.choice(clients)]
    directions = chance.choice((("out",), ("in",), ("out", "in"), ("out", "in")))
    pairs = [
        (broker, other) if direction == "out" else (other, broker)
        for other in others
        for direction in directions
    ]
    return [Timed(span.at_ms, Action("cut", *pair)) for pair in pairs] + [
        Timed(span.until_ms, Action("heal", *pair)) for pair in pairs
    ]


def _disk_full(_s: Settings, chance: random.Random, broker: int, span: Span) -> list[Timed]:
    return _disk(Action("fill", broker, chance.randrange(60)), "free disk", span)


def _disk_failure(_s: Settings, _chance: random.Random, broker: int, span: Span) -> list[Timed]:
    return _disk(Action("fail", broker), "replace disk", span)


def _disk(action: Action, repair: str, span: Span) -> list[Timed]:
    """A broker that writes to it dies. Its repair ends the process too, if it is still alive."""
    return [Timed(span.at_ms, action), Timed(span.until_ms, Action(repair, action.target))]


def _client_disconnect(s: Settings, chance: random.Random, broker: int, span: Span) -> list[Timed]:
    clients = _clients(s)
    if not clients:
        return []
    return [Timed(span.at_ms, Action("disconnect", chance.choice(clients), broker))]


def _clients(s: Settings) -> list[int]:
    producers = [FIRST_PRODUCER + n for n in range(s.producers)]
    return producers + [FIRST_CONSUMER + n for n in range(s.consumers)]


def _producer_crash(s: Settings, chance: random.Random, _broker: int, span: Span) -> list[Timed]:
    return _crash(FIRST_PRODUCER + chance.randrange(s.producers), span) if s.producers else []


def _consumer_crash(s: Settings, chance: random.Random, _broker: int, span: Span) -> list[Timed]:
    return _crash(FIRST_CONSUMER + chance.randrange(s.consumers), span) if s.consumers else []


_PLANS: dict[FaultKind, Callable[[Settings, random.Random, int, Span], list[Timed]]] = {
    FaultKind.BROKER_CRASH: _broker_crash,
    FaultKind.LEADER_CRASH: _leader_crash,
    FaultKind.CONTROLLER_CRASH: _controller_crash,
    FaultKind.BROKER_PAUSE: _pause,
    FaultKind.BROKER_STOP: _stop,
    FaultKind.ROLLING_RESTART: _rolling_restart,
    FaultKind.POWER_LOSS: _power_loss,
    FaultKind.POWER_LOSS_EVERYWHERE: _power_loss_everywhere,
    FaultKind.NETWORK_PARTITION: _partition,
    FaultKind.DISK_FULL: _disk_full,
    FaultKind.DISK_FAILURE: _disk_failure,
    FaultKind.CLIENT_DISCONNECT: _client_disconnect,
    FaultKind.PRODUCER_CRASH: _producer_crash,
    FaultKind.CONSUMER_CRASH: _consumer_crash,
}


# Striking


def kind_of(action: Action) -> FaultKind | None:
    """The fault that an action is, by the name of the vocabulary; None if it breaks nothing."""
    if action.fault is not None:
        return action.fault
    target = action.target
    if action.verb == "crash":
        if target == LEADER:
            return FaultKind.LEADER_CRASH
        if target < FIRST_CONTROLLER:
            return FaultKind.BROKER_CRASH
        if target < FIRST_PRODUCER:
            return FaultKind.CONTROLLER_CRASH
        return FaultKind.PRODUCER_CRASH if target < FIRST_CONSUMER else FaultKind.CONSUMER_CRASH
    if action.verb == "lose power" and target in (EVERY_BROKER, EVERYBODY):
        return FaultKind.POWER_LOSS_EVERYWHERE
    return _KINDS.get(action.verb)


_KINDS = {
    "lose power": FaultKind.POWER_LOSS,
    "pause": FaultKind.BROKER_PAUSE,
    "stop": FaultKind.BROKER_STOP,
    "cut": FaultKind.NETWORK_PARTITION,
    "disconnect": FaultKind.CLIENT_DISCONNECT,
    "fill": FaultKind.DISK_FULL,
    "fail": FaultKind.DISK_FAILURE,
}
# When these strike it is not known yet whether they will have an effect; the world notes it.
LATENT_FAULTS = (FaultKind.NETWORK_PARTITION, FaultKind.DISK_FULL, FaultKind.DISK_FAILURE)


def victim_of(world: World, action: Action) -> int:
    """The process that has the fault; 0: all brokers, or none."""
    if action.target == LEADER:
        return max(0, leader_of_first_partition(world))
    if action.verb == "cut":
        return action.broker or min(action.target, action.other)
    return max(0, action.target)


def strike(world: World, action: Action) -> bool:
    """Whether it had any effect."""
    if action.target in (EVERY_BROKER, EVERYBODY):
        numbers = list(range(1, world.settings.brokers + 1))
        if action.target == EVERYBODY:
            numbers += [FIRST_CONTROLLER + n for n in range(world.settings.controllers)]
        return sum(_VERBS[action.verb](world, number, action.other) for number in numbers) > 0
    if action.verb == "late":
        world.late[action.target, action.other, action.channel] = action.late_ms
        return True
    if action.verb == "cut":
        return _cut(world, action)
    target = action.target
    if target == LEADER:
        if action.verb == "start":
            down = [n for n, p in world.processes.items() if p.machine is None]
            return sum(world.start(number) for number in down if number < FIRST_CONTROLLER) > 0
        target = leader_of_first_partition(world)
        if target == NO_LEADER:
            return False
    return _VERBS[action.verb](world, target, action.other)


def leader_of_first_partition(world: World) -> int:
    """As the controller has it."""
    state = world.agreed(TopicPartition(TOPIC, 0))
    return NO_LEADER if state is None else state.leader


def _lose_power(world: World, target: int, percent: int) -> bool:
    return world.lose_power(target, lambda tail: tail * percent // 100)


def _ask_to_stop(world: World, target: int, _other: int) -> bool:
    process = world.processes[target]
    if not isinstance(process.machine, Broker) or process.is_paused:
        return False
    world.run(process, process.machine.stop(world.now_ms))
    return True


def _fill(world: World, target: int, room: int) -> bool:
    process = world.processes[target]
    if process.machine is None:
        return False
    process.disk_struck_ms = world.now_ms
    for _, store in sorted(process.disk.items()):
        store.capacity = sum(store.size(name) for name in store.names()) + room
    return True


def _fail(world: World, target: int, _other: int) -> bool:
    process = world.processes[target]
    if process.machine is None:
        return False
    process.disk_struck_ms = world.now_ms
    for store in process.disk.values():
        store.fail()
    return True


def _repair_disk(world: World, target: int, _other: int) -> bool:
    process = world.processes[target]
    was_broken = any(disk.has_failed or disk.capacity is not None for disk in process.disk.values())
    if was_broken:
        world.crash(target)  # what it believes to have written may not be there
    return world.start(target) or was_broken


def _cut(world: World, action: Action) -> bool:
    pair = (action.target, action.other)
    is_new = pair not in world.cut
    world.cut.setdefault(pair, (victim_of(world, action), world.now_ms))
    return is_new


def _heal(world: World, source: int, target: int) -> bool:
    was_cut = (source, target) in world.cut
    world.cut.pop((source, target), None)
    return was_cut


def _disconnect(world: World, one: int, other: int) -> bool:
    broken = [
        world.disconnect(connection)
        for connection in world.connections
        if {connection.source, connection.target} == {one, other}
    ]
    return any(broken)


def _send(world: World, target: int, count: int) -> bool:
    process = world.processes[target]
    if not isinstance(process.machine, Producer | TransactionalProducer):
        return False
    world.run(process, process.machine.allow(count, world.now_ms))
    return True


def _prefer(world: World, _target: int, _other: int) -> bool:
    controller = world.controller
    if controller is None:
        return False
    for partition in controller.image.partitions:
        world.ask(ADMIN, controller.node, ElectLeader(partition))
    return True


def _delete(world: World, _target: int, offset: int) -> bool:
    if not world.settings.deletes:
        return False
    leader = leader_of_first_partition(world)
    if leader == NO_LEADER:
        return False
    world.ask(ADMIN, leader, DeleteRecords(TopicPartition(TOPIC, 0), offset))
    return True


def _skew(world: World, target: int, ahead_ms: int) -> bool:
    world.processes[target].skew_ms = ahead_ms
    return True


_VERBS: dict[str, Callable[[World, int, int], bool]] = {
    "crash": lambda world, target, _: world.crash(target),
    "start": lambda world, target, _: world.start(target),
    "lose power": _lose_power,
    "pause": lambda world, target, _: world.pause(target),
    "resume": lambda world, target, _: world.resume(target),
    "stop": _ask_to_stop,
    "heal": _heal,
    "disconnect": _disconnect,
    "fill": _fill,
    "fail": _fail,
    "send": _send,
    "prefer": _prefer,
    "delete": _delete,
    "free disk": _repair_disk,
    "replace disk": _repair_disk,
    "skew": _skew,
}
