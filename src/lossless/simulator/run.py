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
import traceback
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator
from dataclasses import replace
from pathlib import PurePath
from typing import ClassVar, NamedTuple

from lossless.contract.faults import FaultKind
from lossless.core.broker import Broker
from lossless.core.machine import Machine
from lossless.core.messages import (
    NO_LEADER,
    OFFSETS_TOPIC,
    TRANSACTIONS_TOPIC,
    TopicPartition,
)
from lossless.core.replica import Replica, Role
from lossless.core.standing import Phase
from lossless.core.transactions.state import IDLE
from lossless.errors import LosslessError
from lossless.simulator.budget import Budget
from lossless.simulator.clients.consumer import Consumer, Offsets
from lossless.simulator.clients.leaders import Leaders
from lossless.simulator.clients.member import Member
from lossless.simulator.clients.producer import Producer
from lossless.simulator.clients.transactional import TransactionalProducer
from lossless.simulator.clients.transforming import OutputProducer, Transformer
from lossless.simulator.cluster import Admin, build, topics
from lossless.simulator.coordinated import Decision, committed, led, written
from lossless.simulator.exercise import Exercised
from lossless.simulator.faults import LATENT_FAULTS, Action, Timed, kind_of, strike, victim_of
from lossless.simulator.faults import plan as draw_faults
from lossless.simulator.invariants import Invariants
from lossless.simulator.schedule import Kind, Schedule
from lossless.simulator.settings import ConsumerSettings, Settings
from lossless.simulator.stored import stored
from lossless.simulator.world import (
    ADMIN,
    FIRST_CONSUMER,
    FIRST_PRODUCER,
    OUTPUT_TOPIC,
    TOPIC,
    Label,
    Process,
    World,
    name_of,
)
from lossless.verifier.anomaly import Anomaly
from lossless.verifier.anomaly import Kind as AnomalyKind
from lossless.verifier.history import (
    Acknowledged,
    Committed,
    Consumed,
    FinalLog,
    Group,
    History,
    Partition,
    Processed,
    Read,
    Reset,
    Sent,
    TransactionEnded,
)
from lossless.verifier.verdict import judge

PREPARE_STEPS_MAX = 4_000
CHAOS_STEPS_MAX = 20_000
SETTLE_STEPS_MAX = 20_000  # without progress in the second half of them
SETTLE_ROUNDS_MAX = 100  # of so many steps
LOOK_EVERY = 16  # steps: whether everything is settled


class ScheduleFailed(LosslessError):
    """The simulation itself failed. This says nothing about the settings."""

    exit_code: ClassVar[int] = 70

    def __init__(self, seed: int, error: Exception) -> None:
        where = traceback.extract_tb(error.__traceback__)[-1]
        what = f"{type(error).__name__}: {error}".removesuffix(": ")
        place = f"{PurePath(where.filename).name}, line {where.lineno}"
        super().__init__(f"internal error in the schedule of seed {seed}: {what} ({place})")
        self.seed = seed


class Step(NamedTuple):
    at_ms: int
    label: Label
    late_ms: int = 0  # how long a message took, if it is late


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
        """To compare two plans by: a client that is absent makes a plan smaller."""
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
    exercised: Exercised = Exercised()
    at_a_time: tuple[tuple[FaultKind, int], ...] = ()  # the most faults of each kind
    most_dead: int = 0  # the most brokers that died at a time, one of them with a loss

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
        self._exercised = Exercised()
        self._invariants = Invariants(self.world, self._exercised)
        self._budget = Budget(self.world, settings)
        self._has_coordinators = bool(settings.internal_topics)
        self._watch = watch
        self._steps: list[Step] = []
        self._records = dict(plan.records) if plan else {}
        self._absent = plan.absent if plan else frozenset()
        self._members: dict[str, list[str]] = {}  # of each group, whoever was in it
        self._offsets: Offsets = {}  # committed, by group
        self.partitions = tuple(TopicPartition(TOPIC, n) for n in range(settings.partitions))
        self._all_partitions = tuple(
            TopicPartition(topic.topic, n)
            for topic in topics(settings)
            for n in range(topic.partitions)
        )
        self._outputs = tuple(one for one in self._all_partitions if one.topic == OUTPUT_TOPIC)
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
        if settings.transforms:
            world.add(FIRST_CONSUMER + settings.consumers, self._reader)

    def _leaders(self, process: Process, topic: str = TOPIC) -> Leaders:
        return Leaders(topic, self.settings.brokers, process.id)

    def _producer(self, process: Process) -> Machine:
        name = self._session(process)
        settings = replace(self.settings.producer, records=self._records[process.id])
        if settings.unit:
            return TransactionalProducer(
                name,
                name_of(process.id),
                settings,
                self.partitions,
                self._leaders(process),
                self._leaders(process, TRANSACTIONS_TOPIC),
                producer_id=self.world.next_producer_id(),
                tell=self.world.events.append,
            )
        return Producer(
            name,
            settings,
            self.partitions,
            self._leaders(process),
            producer_id=self.world.next_producer_id(),
            tell=self.world.events.append,
        )

    def _consumer(self, process: Process) -> Machine:
        settings = self.settings
        group = _group_of(process.id, settings)
        name = self._session(process)
        # What is expected to see everything: a group, or, if somebody thinks so, each consumer.
        seer = name_of(process.id) if settings.each_sees_all else group
        self._members.setdefault(seer, []).append(name)
        if settings.transforms:
            groups = self._leaders(process, OFFSETS_TOPIC)
            tell = self.world.events.append
            output = OutputProducer(
                name,
                name_of(process.id),
                settings.producer,
                self._leaders(process, OUTPUT_TOPIC),
                self._leaders(process, TRANSACTIONS_TOPIC),
                partitions=self._outputs,
                group=group,
                groups=groups,
                tell=tell,
            )
            return Transformer(
                name,
                group,
                settings.consumer,
                self.partitions,
                self._leaders(process),
                groups,
                near=self._follower,
                tell=tell,
                knows_epochs=settings.rules.fetch_checks_epoch,
                output=output,
            )
        if settings.groups:
            return Member(
                name,
                group,
                settings.consumer,
                self.partitions,
                self._leaders(process),
                self._leaders(process, OFFSETS_TOPIC),
                near=self._follower,
                tell=self.world.events.append,
                knows_epochs=settings.rules.fetch_checks_epoch,
            )
        return Consumer(
            name,
            group,
            settings.consumer,
            self.partitions,
            self._leaders(process),
            offsets=self._offsets,
            near=self._follower,
            tell=self.world.events.append,
            knows_epochs=settings.rules.fetch_checks_epoch,
        )

    def _reader(self, process: Process) -> Machine:
        """Of what the others have made."""
        name, group = self._session(process), name_of(process.id)
        self._members.setdefault(group, []).append(name)
        return Consumer(
            name,
            group,
            ConsumerSettings(isolation="read_committed"),
            self._outputs,
            self._leaders(process, OUTPUT_TOPIC),
            offsets=self._offsets,
            tell=self.world.events.append,
            knows_epochs=self.settings.rules.fetch_checks_epoch,
        )

    def _follower(self, partition: TopicPartition, leader: int) -> int:
        """The last replica that does not lead; the leader while the controller is unreachable."""
        state = self.world.agreed(partition)
        replicas = () if state is None else state.replicas
        return max((broker for broker in replicas if broker != leader), default=leader)

    def _session(self, process: Process) -> str:
        """A client that starts again is another, and no promise about order ties it to the first:
        what that one sent before it died may still be on its way."""
        name = name_of(process.id)
        return name if process.life == 1 else f"{name}.{process.life}"

    # Phases

    def run(self) -> Result:
        """Raises ScheduleFailed if the simulation fails: an exception is not a verdict."""
        try:
            return self._run()
        except Exception as error:
            raise ScheduleFailed(self.seed, error) from error

    def _run(self) -> Result:
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
        self._schedule.leave_out_faults()
        world.cut.clear()
        world.late.clear()
        for number, process in world.processes.items():
            if process.is_paused:
                world.resume(number)
            if any(store.has_failed for store in process.disk.values()):
                world.crash(number)  # what it believes to have written may not be there
            process.mend()
        return self._settles()

    def _settles(self) -> bool:
        """A large cluster takes longer: it is given time as long as clients make progress."""
        for _ in range(SETTLE_ROUNDS_MAX):
            if self._drive(SETTLE_STEPS_MAX // 2, self._is_settled):
                return True
            seen = len(self.world.events)
            if self._drive(SETTLE_STEPS_MAX // 2, self._is_settled):
                return True
            if len(self.world.events) == seen:
                break
        return False

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
        at_ms, label, late_ms = step
        world.now_ms = max(world.now_ms, at_ms)
        done = self._strike(label.at) if label.kind == "fault" else world.execute(label)
        self._schedule.take_planned()
        if done:
            self._steps.append(step)
            self._exercised.late_messages += late_ms > 0
            if label.kind != "fault":
                if world.delivered is not None:
                    self._invariants.check_fetch(acting(label), world.delivered)
                self._invariants.check(acting(label))
                if self._has_coordinators:
                    self._invariants.check_coordinator(acting(label), world.delivered)
                if world.answered is not None:
                    self._invariants.check_answer(*world.answered)
            if self._watch is not None:
                self._watch(world, step)

    def _strike(self, action: Action) -> bool:
        world = self.world
        if not self._budget.allows(action, world.now_ms):
            return False
        if action.verb == "crash":
            self._note_death(action.target)
        victim = victim_of(world, action)
        has_struck = strike(world, action)
        kind = kind_of(action)
        if has_struck and kind is not None:
            self._budget.note(action, victim, world.now_ms)
            if kind not in LATENT_FAULTS:
                world.struck.add((kind, victim, world.now_ms))
        return has_struck

    def _note_death(self, number: int) -> None:
        """A producer's successor sends what is left; what was under way is undecided."""
        process = self.world.processes.get(number)
        if process is not None and isinstance(process.machine, Producer | TransactionalProducer):
            self._records[number] = process.machine.left
            process.machine.on_crash(self.world.now_ms)
        elif process is not None and isinstance(process.machine, Transformer):
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
            len(broker.image.partitions) == len(self._all_partitions) for broker in brokers
        ) and all(self.leader(partition) is not None for partition in self._all_partitions)

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
        for partition in self._all_partitions:
            leader = self.leader(partition)
            if leader is None or not self._is_replicated(leader):
                return False
        for process in self.world.processes.values():
            machine = process.machine
            if isinstance(machine, Producer | TransactionalProducer) and not machine.is_done:
                return False
            if isinstance(machine, Consumer) and not self._has_finished(machine):
                return False
        return self._groups_are_shared_out() and not self._open_transactions()

    def _groups_are_shared_out(self) -> bool:
        """Every partition has its reader, in each group that has readers."""
        has: dict[str, set[TopicPartition]] = {}
        for process in self.world.processes.values():
            machine = process.machine
            if isinstance(machine, Member) and not machine.is_stopped:
                has.setdefault(machine.group, set()).update(machine.positions)
        return all(partitions == set(self.partitions) for partitions in has.values())

    def _open_transactions(self) -> bool:
        """That their coordinators will end, because they have to or because it took too long."""
        last = {
            one.transactional_id: one.transaction.state
            for broker in self._brokers()
            for replica in led(broker)
            if replica.partition.topic == TRANSACTIONS_TOPIC
            for one in written(replica, 0)
            if isinstance(one, Decision)
        }
        return any(state not in IDLE for state in last.values())

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
        if isinstance(consumer, Member) and not consumer.is_calm:
            return False
        return all(
            (leader := self.leader(partition)) is not None
            and position.offset is not None
            and position.unprocessed == 0
            and self._is_at_end(position.offset, leader, consumer)
            for partition, position in consumer.positions.items()
        )

    def _is_at_end(self, offset: int, leader: Replica, consumer: Consumer) -> bool:
        """Of what is to be read. An election that was not clean may open a transaction again that a
        reader has left behind."""
        if consumer.reads_committed:
            return offset >= leader.last_stable_offset
        return offset == leader.readable_end(False)

    # What is found

    def _result(self, plan: Plan, is_settled: bool) -> Result:
        world = self.world
        final = tuple(
            log
            for partition in (*self.partitions, *self._outputs)
            if (log := self._final(partition)) is not None
        )
        groups = tuple(
            Group(name, tuple(members), self._starts(name, final))
            for name, members in sorted(self._members.items())
        )
        events = (*world.events, *self._last_commits())
        history = History(events, final, groups, settled=is_settled)
        judged = judge(history)
        anomalies = tuple(a for a in judged if a.kind is not AnomalyKind.REPEATED)
        self._exercised.repeated = len(judged) - len(anomalies)
        anomalies += tuple(self._hanging(final, anomalies)) if is_settled else (self._unsettled(),)
        return Result(
            self.settings,
            self.seed,
            plan,
            tuple(self._steps),
            history,
            anomalies,
            tuple(dict.fromkeys(world.broken)),
            self._count(history),
            tuple(sorted(self._budget.most.items())),
            self._budget.most_dead,
        )

    def _starts(self, group: str, final: tuple[FinalLog, ...]) -> dict[Partition, int]:
        is_reader = group == name_of(FIRST_CONSUMER + self.settings.consumers)
        read = self._outputs if is_reader else self.partitions
        return {log.partition: log.start_offset for log in final if log.partition in read}

    def _count(self, history: History) -> Exercised:
        """What can be counted at the end; the rest was, step by step."""
        done, world = self._exercised, self.world
        done.simulated_ms = world.now_ms
        done.attempted = len(history.of(Sent))
        done.acknowledged = len(history.of(Acknowledged))
        done.stored = sum(len(log.records) for log in history.final)
        done.read = len(history.of(Read))
        done.processed = len(history.of(Processed))
        done.kept = sum(
            (one.partition, one.value) not in history.not_committed
            for one in history.of(Acknowledged)
        )
        done.in_order = _in_a_row((one.producer, one.partition) for one in history.of(Sent))
        done.in_order += _in_a_row((one.consumer, one.partition) for one in history.of(Read))
        with_offsets = {one.transaction for one in history.of(Consumed)}
        done.units = sum(
            (len(sent) > 1 or name in with_offsets) and history.outcomes.get(name, True)
            for name, sent in history.transactions.items()
        )
        reader = {name: group.name for group in history.groups for name in group.members}
        done.takeovers = _in_a_row(
            (reader.get(one.consumer), one.partition) for one in history.of(Reset)
        )
        done.commits = len(history.of(Committed))
        outcomes = [ended.committed for ended in history.of(TransactionEnded)]
        done.transactions_committed = outcomes.count(True)
        done.transactions_aborted = outcomes.count(False)
        done.faults = Counter(kind.value for kind, _, _ in world.struck)
        if history.final:
            done.end_min = min(log.end_offset for log in history.final)
            done.end_max = max(log.end_offset for log in history.final)
        return done

    def _unsettled(self) -> Anomaly:
        what = f"nothing is broken any more, and after {self.world.now_ms} ms it does not settle"
        return Anomaly(AnomalyKind.STUCK, self.partitions[0], None, None, what)

    def _hanging(
        self, final: tuple[FinalLog, ...], known: tuple[Anomaly, ...]
    ) -> Iterator[Anomaly]:
        """Transactions that no coordinator knows of, and that nobody will ever end."""
        for log in final:
            stable, end = log.last_stable_offset, log.end_offset
            is_known = any(
                one.kind is AnomalyKind.STUCK and one.partition == log.partition for one in known
            )
            if stable is not None and stable < end and not is_known:
                what = (
                    f"the last stable offset of {log.partition} is {stable} at the end, below the "
                    f"high watermark {end}, and no coordinator has a transaction open"
                )
                yield Anomaly(AnomalyKind.STUCK, log.partition, None, stable, what)

    def _last_commits(self) -> Iterator[Committed]:
        """Where groups are, if not where a client was told: an answer may have been lost."""
        told = {
            (event.group, event.partition): event.offset
            for event in self.world.events
            if isinstance(event, Committed)
        }
        last = {
            key: offset
            for broker in (self._brokers() if self.settings.groups else ())
            for replica in led(broker)
            if replica.partition.topic == OFFSETS_TOPIC
            for key, offset in committed(replica).items()
        }
        for (group, partition), offset in last.items():
            if offset is not None and told.get((group, partition)) != offset:
                yield Committed(self.world.now_ms, group, partition, offset)

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


def _in_a_row(keys: Iterable[Hashable]) -> int:
    """How many keys there had been before."""
    return sum(count - 1 for count in Counter(keys).values())


def _group_of(number: int, settings: Settings) -> str:
    if not settings.groups:
        return name_of(number)
    return f"g{1 + (number - FIRST_CONSUMER) % settings.groups}"


def acting(label: Label) -> int:
    """The process in which a step takes place."""
    if label.kind in ("wake", "flush"):
        return int(label.at)
    return int(label.at.target if label.kind == "deliver" else label.at.source)
