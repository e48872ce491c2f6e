"""Faults: what is done to the world, and when it is undone.

A plan is drawn before a run begins: a few faults, each a pair of actions, so that whatever breaks
is mended in the end. An action is data, and executing it twice, or too late, does no harm.
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


class Action(NamedTuple):
    """What is done, to whom; `other` is a second process, or how much."""

    verb: str
    target: int
    other: int = 0
    channel: str = ""  # of messages that are late
    late_ms: int = 0

    @property
    def sign(self) -> str:
        """Not every action breaks something: some undo others, some are what people ask for."""
        if self.verb in ("start", "resume", "heal"):
            return "✓"
        return "▸" if self.verb in ("send", "prefer", "delete") else "✗"

    def told(self) -> str:
        several = {LEADER: "the leader", EVERY_BROKER: "every broker"}
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
    if settings.faults:
        victim = chance.randint(1, settings.brokers)
        is_fair = chance.random() < 0.5
        for _ in range(chance.randint(1, settings.faults_max)):
            kind = settings.faults[chance.randrange(len(settings.faults))]
            broker = victim
            if is_fair or chance.random() < 0.2:
                broker = chance.randint(1, settings.brokers)
            at_ms = start_ms + chance.randrange(settings.chaos_ms)
            for _ in range(chance.choice((1, 1, 2, 3))):
                # Often shorter than a session, often longer.
                until_ms = at_ms + chance.randrange(5, 3 * SESSION_MS)
                timed += _PLANS[kind](settings, chance, broker, Span(at_ms, until_ms))
                at_ms = until_ms + chance.randrange(5, SESSION_MS)
    return sorted(timed)


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
    target = EVERY_BROKER if chance.random() < 0.25 else broker
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
    return _disk(Action("fill", broker, chance.randrange(60)), span)


def _disk_failure(_s: Settings, _chance: random.Random, broker: int, span: Span) -> list[Timed]:
    return _disk(Action("fail", broker), span)


def _disk(action: Action, span: Span) -> list[Timed]:
    """Whoever writes to it dies; after a while there is a good one."""
    return [
        Timed(span.at_ms, action),
        Timed(span.until_ms, Action("crash", action.target)),
        Timed(span.until_ms + 5, Action("start", action.target)),
    ]


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
    FaultKind.POWER_LOSS: _power_loss,
    FaultKind.NETWORK_PARTITION: _partition,
    FaultKind.DISK_FULL: _disk_full,
    FaultKind.DISK_FAILURE: _disk_failure,
    FaultKind.CLIENT_DISCONNECT: _client_disconnect,
    FaultKind.PRODUCER_CRASH: _producer_crash,
    FaultKind.CONSUMER_CRASH: _consumer_crash,
}


# Striking


def strike(world: World, action: Action) -> bool:
    """Whether it had any effect."""
    if action.target == EVERY_BROKER:
        brokers = range(1, world.settings.brokers + 1)
        return sum(_VERBS[action.verb](world, broker, action.other) for broker in brokers) > 0
    if action.verb == "late":
        world.late[action.target, action.other, action.channel] = action.late_ms
        return True
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
    for _, store in sorted(process.disk.items()):
        store.capacity = sum(store.size(name) for name in store.names()) + room
    return True


def _fail(world: World, target: int, _other: int) -> bool:
    process = world.processes[target]
    if process.machine is None:
        return False
    for store in process.disk.values():
        store.fail()
    return True


def _cut(world: World, source: int, target: int) -> bool:
    is_new = (source, target) not in world.cut
    world.cut.add((source, target))
    return is_new


def _heal(world: World, source: int, target: int) -> bool:
    was_cut = (source, target) in world.cut
    world.cut.discard((source, target))
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
    "cut": _cut,
    "heal": _heal,
    "disconnect": _disconnect,
    "fill": _fill,
    "fail": _fail,
    "send": _send,
    "prefer": _prefer,
    "delete": _delete,
    "skew": _skew,
}
