"""One run: a cluster comes up, clients work, faults strike, everything is mended, and we look.

    prepare    calm: brokers register, the topic is created, clients start
    chaos      faults strike, messages take their time: every step is written down
    settle     calm: whatever is broken is mended; everybody gets the time to finish

The same settings and the same seed are the same run, step by step. What chance has decided is
written down as a plan; the same run can be had from its plan, and a shorter one from a shorter plan
(see shrinking.py).
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable, Hashable
from dataclasses import replace
from typing import NamedTuple

from lossless.core.broker import Broker, Phase
from lossless.core.machine import Machine
from lossless.core.messages import NO_LEADER, TopicPartition
from lossless.core.replica import Replica, Role
from lossless.simulator.clients.consumer import Consumer, Offsets
from lossless.simulator.clients.leaders import Leaders
from lossless.simulator.clients.producer import Producer
from lossless.simulator.cluster import Admin, build
from lossless.simulator.faults import Action, Timed, strike
from lossless.simulator.faults import plan as draw_faults
from lossless.simulator.invariants import Invariants
from lossless.simulator.schedule import Kind, Schedule
from lossless.simulator.settings import Settings
from lossless.simulator.stored import stored
from lossless.simulator.world import (
    ADMIN,
    FIRST_CONSUMER,
    FIRST_PRODUCER,
    TOPIC,
    Label,
    Process,
    World,
    name_of,
)
from lossless.verifier.anomaly import Anomaly
from lossless.verifier.anomaly import Kind as AnomalyKind
from lossless.verifier.history import FinalLog, Group, History
from lossless.verifier.verdict import judge

PREPARE_STEPS_MAX = 4_000
CHAOS_STEPS_MAX = 20_000
SETTLE_STEPS_MAX = 20_000
LOOK_EVERY = 16  # steps: whether everything is settled


class Step(NamedTuple):
    at_ms: int
    label: Label


class Plan(NamedTuple):
    """Everything that happens to a cluster which otherwise would go its way."""

    kind: Kind
    faults: tuple[Timed, ...] = ()
    delays: tuple[tuple[tuple[Label, int], int], ...] = ()  # messages that do not take 1 ms
    records: tuple[tuple[int, int], ...] = ()  # what each producer sends, by its process
    absent: frozenset[int] = frozenset()  # clients that never start
    end_ms: int = 0  # how long it goes on

    @property
    def size(self) -> int:
        """To compare two plans by: whoever takes no part makes it smaller."""
        records = sum(count for _, count in self.records)
        return len(self.faults) + len(self.delays) + records - len(self.absent)


class Result(NamedTuple):
    settings: Settings
    seed: int
    plan: Plan
    steps: tuple[Step, ...]
    history: History
    anomalies: tuple[Anomaly, ...]
    broken: tuple[str, ...]  # invariants

    @property
    def kinds(self) -> tuple[str, ...]:
        """What was found, by name."""
        named = [anomaly.kind.value for anomaly in self.anomalies]
        named += [broken.split(":")[0] for broken in self.broken]
        return tuple(dict.fromkeys(named))

    @property
    def trace_hash(self) -> str:
        digest = hashlib.sha256()
        for step in self.steps:
            digest.update(repr(step).encode())
        for event in self.history.events:
            digest.update(repr(event).encode())
        digest.update(repr(self.history.final).encode())
        return digest.hexdigest()[:16]


class Run:
    def __init__(
        self,
        settings: Settings,
        seed: int,
        plan: Plan | None = None,
        *,
        is_jittered: bool = False,
        watch: Callable[[World, Step], None] | None = None,
    ) -> None:
        self.settings = settings
        self.seed = seed
        self.kind = plan.kind if plan else Kind.WALK if seed % 2 else Kind.PRIORITY
        self.world = build(settings, seed)
        self._told = plan
        self._chance = random.Random(f"{seed}/chance")
        # A plan says which messages are late; jittered, only what is done, and chance the rest.
        delays = None if plan is None or is_jittered else dict(plan.delays)
        self._schedule = Schedule(self.world, self._chance, delays)
        self._invariants = Invariants(self.world)
        self._watch = watch
        self._steps: list[Step] = []
        self._records = dict(plan.records) if plan else {}
        self._absent = plan.absent if plan else frozenset()
        self._members: dict[int, list[str]] = {}
        self._offsets: Offsets = {}  # committed, by group
        self.partitions = tuple(TopicPartition(TOPIC, n) for n in range(settings.partitions))
        self._add_clients()

    # Clients

    def _add_clients(self) -> None:
        world, settings = self.world, self.settings
        world.add(ADMIN, lambda _: Admin(settings))
        for number in range(settings.producers):
            world.add(FIRST_PRODUCER + number, self._producer)
            self._records.setdefault(FIRST_PRODUCER + number, settings.producer.records)
        for number in range(settings.consumers):
            world.add(FIRST_CONSUMER + number, self._consumer)

    def _producer(self, process: Process) -> Machine:
        return Producer(
            self._session(process),
            replace(self.settings.producer, records=self._records[process.id]),
            self.partitions,
            Leaders(TOPIC, self.settings.brokers, process.id),
            producer_id=self.world.next_producer_id(),
            tell=self.world.events.append,
        )

    def _consumer(self, process: Process) -> Machine:
        group = name_of(process.id)
        member = self._session(process)
        self._members.setdefault(process.id, []).append(member)
        return Consumer(
            member,
            group,
            self.settings.consumer,
            self.partitions,
            Leaders(TOPIC, self.settings.brokers, process.id),
            offsets=self._offsets,
            tell=self.world.events.append,
            knows_epochs=self.settings.rules.fetch_checks_epoch,
        )

    def _session(self, process: Process) -> str:
        """A client that starts again is another, and no promise about order ties it to the first:
        what that one sent before it died may still be on its way."""
        name = name_of(process.id)
        return name if process.life == 1 else f"{name}.{process.life}"

    # Phases

    def run(self) -> Result:
        self.prepare()
        plan = self._plan()
        self._chaos(plan)
        is_settled = self.settle()
        if self._told is None:
            plan = plan._replace(delays=tuple(self._schedule.drawn.items()))
        return self._result(plan, is_settled)

    def prepare(self) -> None:
        world = self.world
        for number in world.processes:
            if number < FIRST_PRODUCER:
                world.start(number)
        self._drive(PREPARE_STEPS_MAX, self._brokers_run)
        world.start(ADMIN)
        self._drive(PREPARE_STEPS_MAX, self._has_leaders)
        world.crash(ADMIN)
        for number in world.processes:
            if FIRST_PRODUCER <= number < ADMIN and number not in self._absent:
                world.start(number)
        self._schedule.take_planned()

    def _plan(self) -> Plan:
        if self._told is not None:
            return self._told
        start_ms, chaos_ms = self.world.now_ms, self.settings.chaos_ms
        faults = draw_faults(self.settings, self._chance, start_ms)
        end_ms = max([start_ms + chaos_ms, *(timed.at_ms for timed in faults)])
        return Plan(self.kind, tuple(faults), records=tuple(self._records.items()), end_ms=end_ms)

    def _chaos(self, plan: Plan) -> None:
        schedule = self._schedule
        schedule.begin(plan.kind, self.settings.chaos_ms)
        for timed in plan.faults:
            schedule.put(timed.at_ms, Label("fault", timed.action))
        for _ in range(CHAOS_STEPS_MAX):
            following = schedule.next()
            if following is None or following[0] > plan.end_ms:
                if following is not None:
                    schedule.put(*following)
                break
            self._step(Step(*following))

    def settle(self) -> bool:
        world = self.world
        self._schedule.begin(Kind.CALM, 1)
        world.cut.clear()
        world.late.clear()
        for number, process in world.processes.items():
            if process.is_paused:
                world.resume(number)
            if any(store.has_failed for store in process.disk.values()):
                world.crash(number)  # what it believes to have written may not be there
            process.mend()
        return self._drive(SETTLE_STEPS_MAX, self._is_settled)

    def _drive(self, steps_max: int, is_done: Callable[[], bool]) -> bool:
        self._schedule.take_planned()
        for count in range(steps_max):
            if count % LOOK_EVERY == 0 and is_done():
                return True
            following = self._schedule.next()
            if following is None:
                break
            self._step(Step(*following))
        return is_done()

    def _step(self, step: Step) -> None:
        world = self.world
        at_ms, label = step
        world.now_ms = max(world.now_ms, at_ms)
        done = self._strike(label.at) if label.kind == "fault" else world.execute(label)
        self._schedule.take_planned()
        if done:
            self._steps.append(step)
            if label.kind != "fault":
                if world.delivered is not None:
                    self._invariants.check_fetch(acting(label), world.delivered)
                self._invariants.check(acting(label))
                if world.answered is not None:
                    self._invariants.check_answer(*world.answered)
            if self._watch is not None:
                self._watch(world, step)

    def _strike(self, action: Action) -> bool:
        if action.verb == "crash":
            self._note_death(action.target)
        return strike(self.world, action)

    def _note_death(self, number: int) -> None:
        """A producer's successor sends what is left; what was under way is undecided."""
        process = self.world.processes.get(number)
        if process is not None and isinstance(process.machine, Producer):
            self._records[number] = process.machine.left
            process.machine.on_crash(self.world.now_ms)

    # What is waited for

    def _brokers(self) -> list[Broker]:
        machines = (self.world.processes[n].machine for n in range(1, self.settings.brokers + 1))
        return [machine for machine in machines if isinstance(machine, Broker)]

    def _brokers_run(self) -> bool:
        brokers = self._brokers()
        return len(brokers) == self.settings.brokers and all(
            broker.phase is Phase.RUNNING for broker in brokers
        )

    def _has_leaders(self) -> bool:
        brokers = self._brokers()
        return all(
            len(broker.image.partitions) == self.settings.partitions for broker in brokers
        ) and all(self.leader(partition) is not None for partition in self.partitions)

    def leader(self, partition: TopicPartition) -> Replica | None:
        """Who leads by the controller's word and knows it."""
        state = self.world.agreed(partition)
        if state is None or state.leader == NO_LEADER:
            return None
        machine = self.world.processes[state.leader].machine
        replica = machine.replicas.get(partition) if isinstance(machine, Broker) else None
        if replica is None or replica.role is not Role.LEADER:
            return None
        return replica if replica.leader_epoch == state.leader_epoch else None

    def _is_settled(self) -> bool:
        for number, process in self.world.processes.items():
            # Also who was on its way down when the mending began.
            if process.machine is None and number != ADMIN and number not in self._absent:
                self.world.start(number)
        self._schedule.take_planned()
        if not self._brokers_run():
            return False
        for partition in self.partitions:
            leader = self.leader(partition)
            if leader is None or not self._is_replicated(leader):
                return False
        for process in self.world.processes.values():
            machine = process.machine
            if isinstance(machine, Producer) and not machine.is_done:
                return False
            if isinstance(machine, Consumer) and not self._has_finished(machine):
                return False
        return True

    def _is_replicated(self, leader: Replica) -> bool:
        end = leader.log.log_end_offset
        if leader.high_watermark != end or len(leader.in_sync.isr) != len(leader.progress) + 1:
            return False
        return all(
            replica.log.log_end_offset == end and replica.high_watermark == end
            for broker in self._brokers()
            if (replica := broker.replicas.get(leader.partition)) is not None
        )

    def _has_finished(self, consumer: Consumer) -> bool:
        if consumer.is_stopped:
            return True
        return all(
            (leader := self.leader(partition)) is not None
            and position.offset == leader.high_watermark
            and position.unprocessed == 0
            for partition, position in consumer.positions.items()
        )

    # What is found

    def _result(self, plan: Plan, is_settled: bool) -> Result:
        world = self.world
        final = tuple(
            log for partition in self.partitions if (log := self._final(partition)) is not None
        )
        earliest = {log.partition: log.start_offset for log in final}
        groups = tuple(
            Group(name_of(number), tuple(members), earliest)
            for number, members in sorted(self._members.items())
        )
        history = History(tuple(world.events), final, groups, settled=is_settled)
        anomalies = tuple(a for a in judge(history) if a.kind is not AnomalyKind.REPEATED)
        if not is_settled:
            anomalies += (self._unsettled(),)
        return Result(
            self.settings,
            self.seed,
            plan,
            tuple(self._steps),
            history,
            anomalies,
            tuple(dict.fromkeys(world.broken)),
        )

    def _unsettled(self) -> Anomaly:
        what = f"nothing is broken any more, and after {self.world.now_ms} ms it does not settle"
        return Anomaly(AnomalyKind.STUCK, self.partitions[0], None, None, what)

    def _final(self, partition: TopicPartition) -> FinalLog | None:
        leader = self.leader(partition)
        if leader is None:
            return None
        replicas: dict[Hashable, tuple[tuple[int, str], ...]] = {
            broker.broker: _records(replica)
            for broker in self._brokers()
            if (replica := broker.replicas.get(partition)) is not None
        }
        return FinalLog(
            partition,
            leader.log.log_start_offset,
            leader.high_watermark,
            _records(leader),
            replicas,
            leader.last_stable_offset,
            leader.high_watermark,
        )


def _records(replica: Replica) -> tuple[tuple[int, str], ...]:
    return tuple(
        (record.offset, record.value)
        for record in stored(replica)
        if replica.log.log_start_offset <= record.offset < replica.high_watermark
    )


def acting(label: Label) -> int:
    """The process in which a step takes place."""
    if label.kind in ("wake", "flush"):
        return int(label.at)
    return int(label.at.target if label.kind == "deliver" else label.at.source)
