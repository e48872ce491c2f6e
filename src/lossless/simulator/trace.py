"""A run as people can follow it: who did what, what changed by it, and where a record went.

Only steps after which something is different are told: an empty fetch is not. A replica is shown
with its log, `│` where the high watermark stands, and, if it leads, who is in sync.
"""

from __future__ import annotations

from typing import NamedTuple

from lossless.core.broker import Broker
from lossless.core.groups.messages import HeartbeatAnswer, OffsetCommitAnswer, SyncGroupAnswer
from lossless.core.messages import (
    NO_LEADER,
    Error,
    ListOffsetsAnswer,
    ProduceAnswer,
    TopicPartition,
    WriteTxnMarkerAnswer,
)
from lossless.core.metadata import PartitionState
from lossless.core.replica import Replica, Role
from lossless.core.transactions.messages import (
    AddPartitionsToTxnAnswer,
    EndTxnAnswer,
    InitProducerIdAnswer,
)
from lossless.simulator.clients.consumer import Consumer
from lossless.simulator.coordinated import led, written
from lossless.simulator.exercise import election
from lossless.simulator.faults import Action
from lossless.simulator.run import Plan, Result, Run, Step
from lossless.simulator.settings import Settings
from lossless.simulator.stored import stored
from lossless.simulator.world import CLIENT_TOPICS, Label, World, name_of
from lossless.verifier.history import (
    Acknowledged,
    Committed,
    Consumed,
    Event,
    Failed,
    Processed,
    Read,
    Reset,
    Sent,
    TransactionEnded,
)


class ReplicaView(NamedTuple):
    broker: int
    partition: TopicPartition
    role: str  # leader, follower, offline, down
    leader_epoch: int
    values: tuple[tuple[int, str], ...]  # and the ends of transactions
    high_watermark: int
    in_sync: tuple[int, ...]  # as this leader sees it

    def drawn(self) -> str:
        """The log on one line."""
        parts = []
        for offset, value in self.values:
            if offset == self.high_watermark:
                parts.append("│")
            parts.append(value)
        if not self.values or self.high_watermark > self.values[-1][0]:
            parts.append("│")
        return " ".join(parts)


class Moment(NamedTuple):
    """A step after which something is different, or an action."""

    at_ms: int
    source: str
    target: str | None  # None: something within `source`
    message: str  # the kind of message, or what is done
    action: Action | None  # that was done to the cluster, and not by it
    notes: tuple[str, ...]
    replicas: tuple[ReplicaView, ...]


class Trace(NamedTuple):
    settings: Settings
    plan: Plan
    result: Result
    moments: tuple[Moment, ...]
    mended_ms: int  # from here on nothing is broken any more
    fates: tuple[str, ...]  # of the records that something happened to


def trace(settings: Settings, seed: int, plan: Plan | None) -> Trace:
    """The run again, watched."""
    watcher = _Watcher()
    run = Run(settings, seed, plan, watch=watcher.on_step)
    result = run.run()
    wrong = dict.fromkeys(
        anomaly.value for anomaly in result.anomalies if anomaly.value is not None
    )
    return Trace(
        settings,
        result.plan,
        result,
        tuple(watcher.moments),
        result.plan.end_ms,
        tuple(watcher.fate(value) for value in wrong),
    )


class _Watcher:
    def __init__(self) -> None:
        self.moments: list[Moment] = []
        self._views: dict[tuple[int, TopicPartition], ReplicaView] = {}
        self._states: dict[TopicPartition, PartitionState] = {}
        self._of_controller: dict[tuple[int, TopicPartition], PartitionState] = {}
        self._active: dict[int, bool] = {}
        self._events = 0
        self._written: dict[TopicPartition, int] = {}  # how much of what coordinators decided
        self._stopped: set[int] = set()
        self._story: dict[str, list[str]] = {}

    def on_step(self, world: World, step: Step) -> None:
        notes = self._client_notes(world.events[self._events :])
        self._events = len(world.events)
        notes += _refusal_notes(world)
        notes += self._stopped_notes(world)
        notes += self._controller_notes(world)
        notes += self._coordinator_notes(world)
        notes += self._replica_notes(world)
        label = step.label
        action = label.at if label.kind == "fault" else None
        if notes or action is not None:
            source, target, message = _told(label)
            message += f" (late: {step.late_ms} ms)" if step.late_ms else ""
            self.moments.append(
                Moment(
                    world.now_ms,
                    source,
                    target,
                    message,
                    action,
                    tuple(notes),
                    tuple(view for _, view in sorted(self._views.items())),
                )
            )

    # Clients

    def _client_notes(self, events: list[Event]) -> list[str]:
        notes = []
        for event in events:
            note = _event_note(event)
            notes.append(note)
            if isinstance(event, Sent | Acknowledged | Failed | Read):
                self._add(event.value, f"{note} ({event.time_ms} ms)")
        return notes

    def _stopped_notes(self, world: World) -> list[str]:
        notes = []
        for process in world.processes.values():
            machine = process.machine
            is_stopped = isinstance(machine, Consumer) and machine.is_stopped
            if is_stopped and process.id not in self._stopped:
                self._stopped.add(process.id)
                notes.append(
                    f"{name_of(process.id)} stops: its position is gone, and the application "
                    "must decide"
                )
        return notes

    def _add(self, value: str, note: str) -> None:
        self._story.setdefault(value, []).append(note)

    def fate(self, value: str) -> str:
        return f"{value}: " + "; ".join(self._story.get(value, ["never seen"]))

    # Controllers

    def _controller_notes(self, world: World) -> list[str]:
        notes: list[str] = []
        if world.controller is None:
            return notes
        image = world.controller.image
        for number, broker in image.brokers.items():
            before = self._active.get(number)
            if before is not None and before != broker.is_active:
                what = "trusts" if broker.is_active else "fences"
                notes.append(f"the controller {what} broker {number}")
            self._active[number] = broker.is_active
        for partition, state in image.partitions.items():
            if partition.topic in CLIENT_TOPICS and self._states.get(partition) != state:
                self._states[partition] = state
                by = (world.controller.node, partition)
                notes.append(_state_note(partition, self._of_controller.get(by), state))
                self._of_controller[by] = state
        return notes

    # Coordinators

    def _coordinator_notes(self, world: World) -> list[str]:
        notes: list[str] = []
        for process in world.processes.values() if world.settings.internal_topics else ():
            if not isinstance(process.machine, Broker):
                continue
            for replica in led(process.machine):
                state = world.agreed(replica.partition)
                if state is None or state.leader != process.id:
                    continue  # it does not know yet that it does not lead
                seen = self._written.get(replica.partition, 0)
                notes += [f"coordinator: {one.told()}" for one in written(replica, seen)]
                self._written[replica.partition] = replica.log.log_end_offset
        return notes

    # Brokers

    def _replica_notes(self, world: World) -> list[str]:
        notes: list[str] = []
        for number in range(1, world.settings.brokers + 1):
            machine = world.processes[number].machine
            if not isinstance(machine, Broker):
                for key in [key for key in self._views if key[0] == number]:
                    self._views[key] = self._views[key]._replace(role="down", in_sync=())
                continue
            for partition, replica in machine.replicas.items():
                if partition.topic not in CLIENT_TOPICS:
                    continue
                view = _view(number, replica)
                before = self._views.get((number, partition))
                self._views[number, partition] = view
                notes += self._differences(world.now_ms, before, view)
        return notes

    def _differences(
        self, now_ms: int, before: ReplicaView | None, after: ReplicaView
    ) -> list[str]:
        notes = []
        who = f"broker {after.broker}"
        old = dict(before.values) if before is not None else {}
        new = dict(after.values)
        gone = [value for offset, value in old.items() if new.get(offset) != value]
        come = [(offset, value) for offset, value in new.items() if old.get(offset) != value]
        if gone:
            notes.append(f"{who} no longer has {', '.join(gone)}")
        if come and before is not None:
            stored = ", ".join(f"{value} at {offset}" for offset, value in come)
            notes.append(f"{who} has {stored}")
        for value in gone:
            self._add(value, f"{who} loses it ({now_ms} ms)")
        for offset, value in come:
            self._add(value, f"{who} has it at {offset} ({now_ms} ms)")
        if before is None:
            return notes
        if (before.role, before.leader_epoch) != (after.role, after.leader_epoch):
            verb = {"leader": "leads", "follower": "follows"}.get(after.role, "has no leader")
            notes.append(f"{who} {verb} in epoch {after.leader_epoch}")
        if before.high_watermark != after.high_watermark:
            notes.append(f"{who}: high watermark {after.high_watermark}")
        if after.role == "leader" and before.in_sync != after.in_sync:
            notes.append(f"{who}: in sync {_names(after.in_sync)}")
        return notes


_WITH_AN_ERROR = (
    ListOffsetsAnswer,
    InitProducerIdAnswer,
    EndTxnAnswer,
    WriteTxnMarkerAnswer,
    HeartbeatAnswer,
    SyncGroupAnswer,
)


def _refusal_notes(world: World) -> list[str]:
    """What a client is told and does not tell the application: it will try again."""
    if world.answered is None:
        return []
    answer = world.answered[1]
    errors = []
    if isinstance(answer, ProduceAnswer):
        errors = [produced.error for produced in answer.partitions]
    elif isinstance(answer, AddPartitionsToTxnAnswer):
        errors = [error for _, error in answer.partitions]
    elif isinstance(answer, OffsetCommitAnswer):
        errors = [one.error for one in answer.partitions]
    elif isinstance(answer, _WITH_AN_ERROR):
        errors = [answer.error]
    errors = list(dict.fromkeys(errors))
    return [f"the answer is {error.name}" for error in errors if error is not Error.NONE]


def _view(broker: int, replica: Replica) -> ReplicaView:
    is_leader = replica.role is Role.LEADER
    return ReplicaView(
        broker,
        replica.partition,
        replica.role.value,
        replica.leader_epoch,
        tuple(
            sorted([(record.offset, record.value) for record in stored(replica)] + _ends(replica))
        ),
        replica.high_watermark,
        replica.in_sync.isr if is_leader else (),
    )


def _ends(replica: Replica) -> list[tuple[int, str]]:
    """Of transactions, as a reader of the log finds them."""
    return [
        (batch.base_offset, f"[{marker.kind.name.lower()}]")
        for batch in replica.log.batches(replica.log.log_start_offset)
        if batch.is_control and (marker := batch.marker()) is not None
    ]


def _told(label: Label) -> tuple[str, str | None, str]:
    kind, at = label
    if kind == "fault":
        action: Action = at
        return name_of(action.target) if action.target > 0 else "", None, action.told()
    if kind in ("wake", "flush"):
        return name_of(at), None, "timer" if kind == "wake" else "on disk"
    source, target = name_of(at.source), name_of(at.target)
    if kind == "deliver":
        return source, target, at.channel
    if kind == "answer":
        return target, source, f"answer to {at.channel}"
    return source, None, f"gives up: no answer to {at.channel} from {target}"


def _event_note(event: Event) -> str:
    match event:
        case Sent(transaction=None):
            return f"{event.producer} sends {event.value}"
        case Sent():
            return f"{event.producer} sends {event.value} in {event.transaction}"
        case Acknowledged(offset=None):
            return f"{event.producer} takes {event.value} as sent"
        case Acknowledged():
            return f"{event.producer} is told: {event.value} is stored at {event.offset}"
        case Failed():
            return f"{event.producer} is told: {event.value} failed ({event.reason})"
        case Read():
            return f"{event.consumer} reads {event.value} at {event.offset}"
        case Processed():
            return f"{event.consumer} has processed {event.value}"
        case Committed():
            return f"group {event.group} commits {event.offset}"
        case TransactionEnded():
            how = "committed" if event.committed else "aborted"
            return f"{event.producer} is told: {event.transaction} is {how}"
        case Consumed():
            return f"{event.producer} consumes {event.value} in {event.transaction}"
        case Reset():
            return f"{event.consumer} goes to {event.new_offset} ({event.reason})"
        case _:
            return str(event)


def _state_note(
    partition: TopicPartition, before: PartitionState | None, state: PartitionState
) -> str:
    leader = "nobody leads" if state.leader == NO_LEADER else f"broker {state.leader} leads"
    note = f"controller: {leader} {partition} in epoch {state.leader_epoch}"
    kind = election(before, state)
    note += f" ({kind.value})" if kind is not None else ""
    note += f", in sync {_names(state.isr)}"
    return note + (f", eligible {_names(state.elr)}" if state.elr else "")


def _names(brokers: tuple[int, ...]) -> str:
    return ", ".join(map(str, brokers)) or "nobody"


# As text


def as_text(traced: Trace) -> str:
    lines = []
    is_mended = False
    begin_ms = start_ms(traced)
    for moment in traced.moments:
        if moment.at_ms < begin_ms:
            continue
        if moment.at_ms > traced.mended_ms and not is_mended:
            is_mended = True
            lines.append("          everything is mended")
        lines.append(f"{moment.at_ms:6d} ms {_headline(moment)}")
        lines += [f"            {note}" for note in moment.notes]
    lines += ["at the end", *_last_replicas(traced)]
    lines += [f"  {fate}" for fate in traced.fates]
    lines += [f"  {anomaly.kind}: {anomaly.what}" for anomaly in traced.result.anomalies]
    lines += [f"  broken: {broken}" for broken in traced.result.broken]
    return "\n".join(lines)


def start_ms(traced: Trace) -> int:
    """Clients start when the cluster is up; how it came up is nothing new."""
    times = [event.time_ms for event in traced.result.history.events]
    times += [timed.at_ms for timed in traced.plan.faults]
    return min(times, default=0)


def _headline(moment: Moment) -> str:
    if moment.action is not None:
        return f"{moment.action.sign} {moment.message}"
    if moment.target is None:
        return f"{moment.source}: {moment.message}"
    return f"{moment.source} → {moment.target}: {moment.message}"


def _last_replicas(traced: Trace) -> list[str]:
    if not traced.moments:
        return []
    lines = []
    views = traced.moments[-1].replicas
    has_several = len({view.partition for view in views}) > 1
    for view in views:
        in_sync = f", in sync {_names(view.in_sync)}" if view.in_sync else ""
        role = f"{view.role} of {view.partition}" if has_several else view.role
        lines.append(
            f"  broker {view.broker}, {role} in epoch {view.leader_epoch}{in_sync}: {view.drawn()}"
        )
    return lines
