"""Every run of a small scope: all orders of all steps, each state looked at once.

The scope is one partition: its replicas are the core's, on their logs, and the controller's
decisions are the core's too. Time is left out: whatever time could bring about (a session ends, a
follower lags) may happen at any moment. Breadth first, so that what is found first is shortest.

    append      a producer sends to a broker that believes it leads, with acks=all
    fetch       a follower asks its leader, which answers at once; the answer is on its way
    answer      … and arrives
    lag         a leader finds that a follower has not caught up for too long
    alter       a leader's change of the in-sync set reaches the controller
    confirm     … and its answer the leader
    learn       a broker hears what the controller has decided
    fence       the controller has not heard of a broker for too long
    crash       a broker dies; what it has written stays
    start       … and comes back, registers, and is trusted again

`AcknowledgedIsKept`: whoever leads by the controller's word, and knows it, has every record that
was acknowledged.
"""

from __future__ import annotations

import pickle
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields, replace
from typing import Any, NamedTuple

from lossless.core.controller import Controller
from lossless.core.in_sync import Proposal
from lossless.core.messages import (
    AlterPartition,
    AlterPartitionAnswer,
    BrokerHeartbeat,
    BrokerRegistration,
    Error,
    Fetched,
    FetchPartition,
    TopicPartition,
)
from lossless.core.metadata import (
    MIN_ISR,
    ConfigChanged,
    Image,
    MetadataRecord,
    PartitionChanged,
    PartitionState,
)
from lossless.core.replica import ALL, LONG_AGO_MS, Replica, Role
from lossless.errors import BadInput
from lossless.log.batch import Record, build
from lossless.log.log import Log
from lossless.log.memory import MemoryStore
from lossless.log.rules import RULES, Rules
from lossless.simulator.options import RULE_NAMES, pairs_of, whole_number
from lossless.simulator.stored import stored
from lossless.verifier.verdict import Verdict

PARTITION = TopicPartition("orders", 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """How much may happen in one run."""

    brokers: int
    min_isr: int
    records: int
    crashes: int = 0
    fences: int = 0
    lags: int = 0
    answers_at_once: bool = False  # a fetch and its answer are one step
    rules: Rules = RULES

    def __str__(self) -> str:
        names = ("brokers", "min_isr", "records", "crashes", "fences", "lags")
        told = ", ".join(f"{name} {getattr(self, name)}" for name in names)
        return told + (", fetches answered at once" if self.answers_at_once else "")


class Event(NamedTuple):
    name: str
    broker: int = 0
    other: int = 0

    def __str__(self) -> str:
        return {
            "append": f"a record is sent to broker {self.broker}",
            "fetch": f"broker {self.broker} fetches from broker {self.other}",
            "answer": f"the answer reaches broker {self.broker}",
            "lag": f"broker {self.broker} finds that broker {self.other} lags",
            "alter": f"the controller hears of broker {self.broker}'s in-sync set",
            "confirm": f"broker {self.broker} hears what came of it",
            "learn": f"broker {self.broker} learns who leads and who is in sync",
            "fence": f"the controller gives broker {self.broker} up",
            "crash": f"broker {self.broker} dies",
            "start": f"broker {self.broker} is back",
        }[self.name]


class _Node:
    """A broker, as far as one partition needs it."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.store = MemoryStore()
        self.replica: Replica | None = None
        self.checkpoint = 0  # of the high watermark
        self.epoch = -1
        self.life = 0
        self.seen = -1  # the partition epoch that it has learnt
        self.answer: tuple[int, FetchPartition, Fetched] | None = None
        self.proposal: tuple[int, Proposal] | None = None  # with the leader epoch
        self.confirmation: tuple[Proposal, AlterPartitionAnswer] | None = None


class World:
    def __init__(self, scope: Scope) -> None:
        self.scope = scope
        self.image = Image()
        self.nodes = {number: _Node(number) for number in range(1, scope.brokers + 1)}
        self.sent = 0
        self.waiting: list[tuple[int, int, int, str]] = []  # broker, epoch, end offset, value
        self.acknowledged: list[str] = []
        self.crashes, self.fences, self.lags = scope.crashes, scope.fences, scope.lags
        replicas = tuple(self.nodes)
        self._apply(ConfigChanged("orders", MIN_ISR, str(scope.min_isr)))
        for node in self.nodes.values():
            self._register(node)
        self._apply(PartitionChanged("orders", 0, PartitionState(replicas, replicas, 1)))
        for node in self.nodes.values():
            self._learn(node)

    # Controller

    @property
    def _controller(self) -> Controller:
        return Controller(self.image, self.scope.rules)

    @property
    def state(self) -> PartitionState:
        return self.image.partitions[PARTITION]

    def _apply(self, *records: MetadataRecord) -> None:
        for record in records:
            self.image.apply(record, self.image.end_offset)

    def _register(self, node: _Node) -> None:
        node.life += 1
        request = BrokerRegistration(node.number, node.life)
        decision = self._controller.on_registration(request, False, self.image.end_offset)
        self._apply(*decision.records)
        node.epoch = self.image.brokers[node.number].epoch
        heartbeat = BrokerHeartbeat(node.number, node.epoch, self.image.end_offset)
        self._apply(*self._controller.on_heartbeat(heartbeat).records)

    # Steps

    def possible(self) -> Iterator[Event]:
        for number, node in self.nodes.items():
            replica = node.replica
            if replica is None:
                yield Event("start", number)
                continue
            if node.seen != self.state.partition_epoch:
                yield Event("learn", number)
            if node.answer is not None:
                yield Event("answer", number)
            elif replica.role is Role.FOLLOWER and self.nodes[replica.leader].replica is not None:
                yield Event("fetch", number, replica.leader)
            if node.proposal is not None:
                yield Event("alter", number)
            if node.confirmation is not None:
                yield Event("confirm", number)
            if replica.role is Role.LEADER:
                if self.sent < self.scope.records:
                    yield Event("append", number)
                if self.lags:
                    for other in replica.in_sync.isr:
                        if other != number and replica.in_sync.pending == replica.in_sync.isr:
                            yield Event("lag", number, other)
            if self.crashes:
                yield Event("crash", number)
            if self.fences and not self.image.brokers[number].fenced:
                yield Event("fence", number)

    def execute(self, event: Event) -> None:
        node = self.nodes[event.broker]
        handler: Callable[[_Node, int], None] = getattr(self, f"_{event.name}")
        handler(node, event.other)
        for other in self.nodes.values():
            self._collect(other)

    def _collect(self, node: _Node) -> None:
        """Proposals are on their way, and whoever has waited long enough is told."""
        replica = node.replica
        if replica is None:
            return
        if replica.proposal is not None:
            node.proposal = (replica.leader_epoch, replica.proposal)
            replica.proposal = None
        for waiting in [w for w in self.waiting if w[0] == node.number]:
            error = replica.acknowledged(waiting[2], waiting[1])
            if error is not None:
                self.waiting.remove(waiting)
                if error is Error.NONE:
                    self.acknowledged.append(waiting[3])

    def _append(self, node: _Node, _other: int) -> None:
        assert node.replica is not None
        self.sent += 1
        value = f"r{self.sent}"
        data = build([Record(0, 0, None, value.encode())]).data
        produced, end_offset = node.replica.append(data, ALL, 0)
        if produced.error is Error.NONE:
            self.waiting.append((node.number, node.replica.leader_epoch, end_offset, value))

    def _fetch(self, node: _Node, other: int) -> None:
        leader = self.nodes[other].replica
        assert node.replica is not None
        assert leader is not None
        asked = node.replica.next_fetch()
        node.answer = (
            other,
            asked,
            leader.on_follower_fetch(node.number, node.epoch, asked, 0),
        )
        if self.scope.answers_at_once:
            self._answer(node, other)

    def _answer(self, node: _Node, _other: int) -> None:
        assert node.answer is not None
        assert node.replica is not None
        leader, asked, fetched = node.answer
        node.answer = None
        if node.replica.leader == leader:
            node.replica.on_fetched(asked, fetched)

    def _lag(self, node: _Node, other: int) -> None:
        self.lags -= 1
        replica = node.replica
        assert replica is not None
        replica.progress[other].last_caught_up_ms = LONG_AGO_MS
        replica.progress[other].last_fetch_ms = LONG_AGO_MS
        # Who stands at the very end is caught up, however long ago it asked.
        replica.on_tick(0)

    def _alter(self, node: _Node, _other: int) -> None:
        assert node.proposal is not None
        leader_epoch, proposal = node.proposal
        node.proposal = None
        decision = self._controller.on_alter_partition(
            AlterPartition(
                node.number,
                node.epoch,
                PARTITION,
                leader_epoch,
                proposal.partition_epoch,
                proposal.isr,
            )
        )
        self._apply(*decision.records)
        assert isinstance(decision.answer, AlterPartitionAnswer)
        node.confirmation = (proposal, decision.answer)

    def _confirm(self, node: _Node, _other: int) -> None:
        assert node.confirmation is not None
        assert node.replica is not None
        proposal, answer = node.confirmation
        node.confirmation = None
        if answer.error is Error.NONE and answer.leader_epoch == node.replica.leader_epoch:
            node.replica.on_isr_changed(answer.isr, answer.partition_epoch, 0)
        elif answer.error is Error.INELIGIBLE_REPLICA:
            node.replica.on_isr_refused(proposal.partition_epoch)

    def _learn(self, node: _Node, _other: int = 0) -> None:
        if node.replica is None:
            node.replica = Replica(
                PARTITION,
                node.number,
                Log(node.store, None, self.scope.rules),
                high_watermark=node.checkpoint,
                rules=self.scope.rules,
                is_eligible=self._is_eligible,
            )
        node.seen = self.state.partition_epoch
        if node.replica.on_partition_state(self.state, self.image.min_isr(PARTITION), 0):
            node.proposal = node.confirmation = None

    def _is_eligible(self, broker: int, epoch: int) -> bool:
        known = self.image.brokers[broker]
        return known.is_active and epoch in (-1, known.epoch)

    def _fence(self, node: _Node, _other: int) -> None:
        self.fences -= 1
        self._apply(*self._controller.fence(node.number))

    def _crash(self, node: _Node, _other: int) -> None:
        self.crashes -= 1
        assert node.replica is not None
        node.checkpoint = node.replica.high_watermark
        node.replica = None
        node.answer = node.proposal = node.confirmation = None
        self.waiting = [w for w in self.waiting if w[0] != node.number]
        for other in self.nodes.values():
            if other.answer is not None and other.answer[0] == node.number:
                other.answer = None

    def _start(self, node: _Node, _other: int) -> None:
        self._register(node)
        self._learn(node)

    # What must hold, and what a state is

    @property
    def _leading(self) -> Replica | None:
        """The leader by the controller's word, if its broker acts as leader by now."""
        node = self.nodes.get(self.state.leader)
        replica = None if node is None else node.replica
        if replica is None or replica.role is not Role.LEADER:
            return None
        return replica if replica.leader_epoch == self.state.leader_epoch else None

    @property
    def is_exposed(self) -> bool:
        """Whether an elected leader, one of several replicas, has to have acknowledged records."""
        is_elected = self.state.leader_epoch > 0 and len(self.nodes) > 1
        return bool(self.acknowledged) and is_elected and self._leading is not None

    def broken(self) -> str | None:
        replica = self._leading
        if replica is None:
            return None
        kept = {record.value for record in stored(replica)}
        lost = [value for value in self.acknowledged if value not in kept]
        if not lost:
            return None
        return f"AcknowledgedIsKept: broker {self.state.leader} leads without {', '.join(lost)}"

    def fingerprint(self) -> tuple[Any, ...]:
        brokers = tuple((b.epoch, b.fenced) for b in self.image.brokers.values())
        nodes = tuple(_of_node(node) for node in self.nodes.values())
        return (
            self.state,
            brokers,
            nodes,
            self.sent,
            tuple(self.waiting),
            tuple(self.acknowledged),
            self.crashes,
            self.fences,
            self.lags,
        )


def _of_node(node: _Node) -> tuple[Any, ...]:
    replica = node.replica
    if replica is None:
        log = node.store.read(f"{0:020d}.log", 0, 1 << 20)
        return (node.checkpoint, node.life, log)
    in_sync, progress = replica.in_sync, replica.progress
    return (
        node.seen,
        node.answer,
        node.proposal,
        node.confirmation,
        replica.role,
        replica.leader,
        replica.leader_epoch,
        replica.high_watermark,
        tuple(stored(replica)),
        replica.epoch_start_offset if replica.role is Role.LEADER else None,
        (in_sync.isr, in_sync.partition_epoch, in_sync.phase, in_sync.pending)
        if replica.role is Role.LEADER
        else None,
        tuple(
            (b, p.log_end_offset, p.last_caught_up_ms, p.broker_epoch) for b, p in progress.items()
        )
        if replica.role is Role.LEADER
        else None,
    )


class Exhausted(NamedTuple):
    states: int
    found: str | None
    path: tuple[Event, ...]  # to what was found
    acknowledged: int = 0  # the most records in any state
    elections: int = 0  # the most leaders after the first
    exposed: int = 0  # states in which an elected leader could have lacked what was acknowledged

    @property
    def verdict(self) -> Verdict:
        """VALID needs a scope in which the invariant could have been broken."""
        if self.found is not None:
            return Verdict.INVALID
        return Verdict.VALID if self.exposed else Verdict.UNKNOWN


def search(scope: Scope, states_max: int = 5_000_000) -> Exhausted:
    """Every reachable state, unless one is broken. With more than `states_max` it gives up."""
    first = World(scope)
    parents: dict[int, tuple[int, Event] | None] = {hash(first.fingerprint()): None}
    acknowledged = elections = exposed = 0
    frontier = deque([(hash(first.fingerprint()), pickle.dumps(first, -1))])
    while frontier:
        parent, stored = frontier.popleft()
        events = list(pickle.loads(stored).possible())
        for event in events:
            world: World = pickle.loads(stored)
            world.execute(event)
            key = hash(world.fingerprint())
            if key in parents:
                continue
            parents[key] = (parent, event)
            acknowledged = max(acknowledged, len(world.acknowledged))
            elections = max(elections, world.state.leader_epoch)
            exposed += world.is_exposed
            if len(parents) > states_max:
                raise BadInput(f"more than {states_max} states, which is too many: {scope}")
            broken = world.broken()
            if broken is not None:
                path = _path(parents, key)
                return Exhausted(len(parents), broken, path, acknowledged, elections, exposed)
            frontier.append((key, pickle.dumps(world, -1)))
    return Exhausted(len(parents), None, (), acknowledged, elections, exposed)


def _path(parents: dict[int, tuple[int, Event] | None], key: int) -> tuple[Event, ...]:
    path: list[Event] = []
    step = parents[key]
    while step is not None:
        path.append(step[1])
        step = parents[step[0]]
    return tuple(reversed(path))


# In scenario files

_NUMBERS = {
    "brokers": (1, 9),
    "min-isr": (1, 9),
    "records": (0, 9),
    "crashes": (0, 9),
    "fences": (0, 9),
    "lags": (0, 9),
}


def scope_of(text: str, where: str) -> Scope:
    """brokers=3 min-isr=1 records=1 fences=2 at-once=true off=truncate_by_epoch"""
    numbers = dict.fromkeys(_NUMBERS, 0) | {"brokers": 3, "min-isr": 1, "records": 1}
    off: tuple[str, ...] = ()
    at_once = False
    for name, value in pairs_of(text, where):
        limits = _NUMBERS.get(name)
        number = None if limits is None else whole_number(value, *limits)
        if number is not None:
            numbers[name] = number
        elif name == "off" and value in RULE_NAMES:
            off = (value,)
        elif name == "at-once" and value in ("true", "false"):
            at_once = value == "true"
        else:
            accepted = ", ".join((*_NUMBERS, "at-once", "off"))
            raise BadInput(
                f"{where}: {name}={value} is not part of a scope; known: {accepted}; numbers are "
                "at most 9, brokers and min-isr at least 1"
            )
    changes: dict[str, Any] = dict.fromkeys(off, False)
    return Scope(
        brokers=numbers["brokers"],
        min_isr=numbers["min-isr"],
        records=numbers["records"],
        crashes=numbers["crashes"],
        fences=numbers["fences"],
        lags=numbers["lags"],
        answers_at_once=at_once,
        rules=replace(RULES, **changes),
    )


def exhausted(scope: Scope) -> tuple[str, tuple[str, ...]]:
    """The shortest way to break it without the rule, and none with it; and what is not so."""
    complaints = []
    lines = [f"scope: {scope}"]
    off = [rule.name for rule in fields(Rules) if not getattr(scope.rules, rule.name)]
    if off:
        without = search(scope)
        if without.verdict is not Verdict.INVALID:
            complaints.append(f"nothing is found without {', '.join(off)}")
        lines += [f"without {', '.join(off)}: {_told(without)}"]
        lines += [f"  {number}. {event}" for number, event in enumerate(without.path, 1)]
    with_rules = search(replace(scope, rules=RULES))
    if with_rules.verdict is not Verdict.VALID:
        complaints.append(f"with all rules the scope is {with_rules.verdict.value}, not VALID")
    lines.append(f"with all rules: {_told(with_rules)}")
    return "\n".join(lines), tuple(complaints)


def _told(result: Exhausted) -> str:
    if result.found is not None:
        return f"INVALID after {len(result.path)} steps ({result.found})"
    counts = f"{result.acknowledged} acknowledged and {result.elections} elections at most"
    return f"{result.verdict.value}, all {result.states} states ({counts})"
