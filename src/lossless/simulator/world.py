"""The world: processes, their disks, the connections between them, and one step after the other.

A step is named by a label that means the same in every run: the next message on a connection, the
timer of a process, a fault. Who chooses the steps is somebody else (schedule.py): this executes
one, and says which became possible.

    deliver, connection     the next request arrives at the other side
    answer, connection      the next answer arrives back
    lose, connection        the oldest unanswered request is given up: nobody knows what came of it
    wake, process           its timer
    flush, process          what it asked to have on disk is on disk
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from lossless.contract.faults import FaultKind
from lossless.core.broker import Broker
from lossless.core.controller_node import ControllerNode
from lossless.core.coordination import TransactionalCommit
from lossless.core.machine import Effects, Machine
from lossless.core.messages import Produce, TopicPartition
from lossless.core.metadata import PartitionState
from lossless.core.quorum import METADATA
from lossless.core.standing import Phase
from lossless.log.batch import CorruptBatch
from lossless.log.memory import MemoryStore
from lossless.log.store import StoreFailed
from lossless.simulator.settings import Settings
from lossless.verifier.history import Event

FIRST_CONTROLLER = 101
FIRST_PRODUCER = 201
FIRST_CONSUMER = 301
ADMIN = 401
TOPIC = "orders"
OUTPUT_TOPIC = "copies"  # that consumers write to, if they transform what they read
CLIENT_TOPICS = (TOPIC, OUTPUT_TOPIC)
PAUSED_MS = 50  # how often a process that stands still is looked after


def name_of(number: int) -> str:
    """Of a process, as people are told of it."""
    for first, letter in ((FIRST_CONSUMER, "c"), (FIRST_PRODUCER, "p")):
        if ADMIN > number >= first:
            return f"{letter}{number - first + 1}"
    if number == ADMIN:
        return "admin"
    if number >= FIRST_CONTROLLER:
        return f"controller {number - FIRST_CONTROLLER + 1}"
    return f"broker {number}"


class Connection(NamedTuple):
    """From one process to another. Each kind of request has its own, as in Kafka: what was sent on
    one of them stays in order, and on two of them does not. A process that starts again opens new
    ones, and may overtake what was sent before it died."""

    source: int
    target: int
    channel: str
    life: int  # of the source


class OnConnection(NamedTuple):
    """A request on a connection of its own: who waits no longer closes the one before, and what was
    sent on that one may still arrive, later than this."""

    request: Any
    number: int


class Label(NamedTuple):
    kind: str
    at: Any  # a connection, a process, a fault


@dataclass(slots=True)
class Link:
    requests: deque[int] = field(default_factory=deque)
    answers: deque[tuple[int, Any]] = field(default_factory=deque)
    unanswered: deque[int] = field(default_factory=deque)


class Asked(NamedTuple):
    connection: Connection
    request: Any


class Process:
    """A name, a disk, and, while it lives, a machine."""

    __slots__ = (
        "disk",
        "disk_struck_ms",
        "id",
        "is_paused",
        "life",
        "machine",
        "make",
        "scheduled_ms",
        "skew_ms",
        "wake_ms",
    )

    def __init__(self, number: int, make: Callable[[Process], Machine]) -> None:
        self.id = number
        self.make = make
        self.machine: Machine | None = None
        self.disk: dict[str, MemoryStore] = {}
        self.disk_struck_ms = 0  # when it became full or failed
        self.life = 0
        self.is_paused = False
        self.skew_ms = 0
        self.wake_ms: int | None = None
        self.scheduled_ms: int | None = None

    def store(self, name: str) -> MemoryStore:
        return self.disk.setdefault(name, MemoryStore())

    def mend(self) -> None:
        for store in self.disk.values():
            store.mend()


class Planned(NamedTuple):
    """A step that has become possible. `after_ms` is None where chance decides when."""

    label: Label
    after_ms: int | None


class World:
    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.now_ms = 0
        self.processes: dict[int, Process] = {}
        self.events: list[Event] = []  # what clients saw
        self.planned: list[Planned] = []  # since somebody last looked
        # Where nothing passes, by whose fault, and since when.
        self.cut: dict[tuple[int, int], tuple[int, int]] = {}
        # Faults that took effect: which, on which process (0: all brokers), and when.
        self.struck: set[tuple[FaultKind, int, int]] = set()
        self.late: dict[tuple[int, int, str], int] = {}  # how long everything takes from, to, as
        self.delivered: Any = None  # the request, if a step delivered one
        self.answered: tuple[Any, Any] | None = None  # request and answer, if it was an answer
        self.broken: list[str] = []  # invariants
        self._links: dict[Connection, Link] = {}
        self._asked: dict[int, Asked] = {}
        self._asked_count = 0
        self._producer_ids = 0

    # Processes

    def add(self, number: int, make: Callable[[Process], Machine]) -> Process:
        process = self.processes[number] = Process(number, make)
        return process

    def start(self, number: int) -> bool:
        """False if it runs, or if its disk is beyond recovery."""
        process = self.processes[number]
        if process.machine is not None:
            return False
        process.life += 1
        process.is_paused = False
        process.mend()
        try:
            process.machine = process.make(process)
        except CorruptBatch as error:
            self.broken.append(f"RecoverableLog: {name_of(number)} cannot open its log: {error}")
            return False
        self.run(process, self._guarded(process, lambda machine, now: machine.on_start(now)))
        return True

    def crash(self, number: int) -> bool:
        """What the process has sent is out of its hands, and arrives."""
        process = self.processes[number]
        if process.machine is None:
            return False
        process.machine = None
        process.wake_ms = process.scheduled_ms = None
        for connection, link in self._links.items():
            if connection.source == number:
                link.unanswered.clear()
            if connection.target == number:  # brokers also ask themselves
                self.disconnect(connection)
        return True

    def lose_power(self, number: int, survives: Callable[[int], int]) -> bool:
        died = self.crash(number)
        for _, store in sorted(self.processes[number].disk.items()):
            store.lose_power(survives)
        return died

    def pause(self, number: int) -> bool:
        process = self.processes[number]
        if process.machine is None or process.is_paused:
            return False
        process.is_paused = True
        for connection, link in self._links.items():
            if connection.target == number:
                for _ in link.unanswered:
                    self.planned.append(Planned(Label("lose", connection), None))
        return True

    def resume(self, number: int) -> bool:
        process = self.processes[number]
        if not process.is_paused:
            return False
        process.is_paused = False
        self._plan_wake(process)
        for connection, link in self._links.items():
            if connection.target == number:
                self._plan_again("deliver", connection, len(link.requests))
            if connection.source == number:
                self._plan_again("answer", connection, len(link.answers))
        return True

    def _plan_again(self, kind: str, connection: Connection, times: int) -> None:
        self.planned += [Planned(Label(kind, connection), None)] * times

    def _time(self, process: Process) -> int:
        return self.now_ms + process.skew_ms

    def next_producer_id(self) -> int:
        self._producer_ids += 1
        return self._producer_ids

    # Steps

    def execute(self, label: Label) -> bool:
        """Whether anything happened: a step that is not possible is passed over."""
        kind, at = label
        self.delivered = self.answered = None
        if kind == "deliver":
            return self._deliver(at)
        if kind == "answer":
            return self._answer(at)
        if kind == "wake":
            return self._wake(at)
        if kind == "flush":
            return self._flush(at)
        return self._lose(at)

    def _deliver(self, connection: Connection) -> bool:
        link = self._links.get(connection)
        process = self.processes[connection.target]
        if link is None or not link.requests or process.machine is None or process.is_paused:
            return False
        number = link.requests.popleft()
        if self._is_cut(connection.source, connection.target):
            self.planned.append(Planned(Label("lose", connection), None))
            return True
        asked = self._asked[number]
        self.delivered = asked.request
        effects = self._guarded(
            process,
            lambda machine, now: machine.on_request(connection.source, number, asked.request, now),
        )
        self.run(process, effects)
        return True

    def _answer(self, connection: Connection) -> bool:
        link = self._links.get(connection)
        process = self.processes[connection.source]
        if link is None or not link.answers or process.machine is None or process.is_paused:
            return False
        number, answer = link.answers.popleft()
        if self._is_cut(connection.target, connection.source):
            self.planned.append(Planned(Label("lose", connection), None))
            return True
        if number not in link.unanswered:
            return True  # it was given up
        link.unanswered.remove(number)
        self._answered(process, self._asked[number], answer)
        return True

    def _is_cut(self, source: int, target: int) -> bool:
        fault = self.cut.get((source, target))
        if fault is not None:
            self.struck.add((FaultKind.NETWORK_PARTITION, *fault))
        return fault is not None

    def _lose(self, connection: Connection) -> bool:
        link = self._links.get(connection)
        if link is None or not link.unanswered:
            return False
        process = self.processes[connection.source]
        if process.is_paused:
            self.planned.append(Planned(label=Label("lose", connection), after_ms=PAUSED_MS))
            return False
        self._answered(process, self._asked[link.unanswered.popleft()], None)
        return True

    def _answered(self, process: Process, asked: Asked, answer: Any) -> None:
        target, request = asked.connection.target, asked.request
        self.answered = (request, answer)
        effects = self._guarded(
            process, lambda machine, now: machine.on_answer(target, request, answer, now)
        )
        self.run(process, effects)

    def _wake(self, number: int) -> bool:
        process = self.processes[number]
        if process.scheduled_ms is not None and process.scheduled_ms > self.now_ms:
            return False  # planned twice: it was moved there and back
        process.scheduled_ms = None
        if process.machine is None or process.is_paused or process.wake_ms is None:
            return False
        if process.wake_ms > self.now_ms:  # it has been moved since
            self._plan_wake(process)
            return False
        process.wake_ms = None
        self.run(process, self._guarded(process, lambda machine, now: machine.on_timer(now)))
        return True

    def _flush(self, number: int) -> bool:
        process = self.processes[number]
        machine = process.machine
        if not isinstance(machine, Broker | ControllerNode):
            return False
        if process.is_paused:  # it learns of it when it goes on
            self.planned.append(Planned(Label("flush", number), PAUSED_MS))
            return False
        log = machine.metadata_log

        def flushed(machine: Machine, now_ms: int) -> Effects:
            log.flush()
            return machine.on_flushed(METADATA, log.log_end_offset, now_ms)

        self.run(process, self._guarded(process, flushed))
        return True

    def _guarded(
        self, process: Process, event: Callable[[Machine, int], Effects]
    ) -> Effects | None:
        """None: the disk failed, and the process with it."""
        assert process.machine is not None
        try:
            return event(process.machine, self._time(process))
        except StoreFailed:
            has_failed = any(store.has_failed for store in process.disk.values())
            kind = FaultKind.DISK_FAILURE if has_failed else FaultKind.DISK_FULL
            self.struck.add((kind, process.id, process.disk_struck_ms))
            self.crash(process.id)
            return None

    def run(self, process: Process, effects: Effects | None) -> None:
        """Does what a machine asks for: this is the whole of a host."""
        if effects is None:
            return
        for target, request in effects.send:
            self._send(process, target, request)
        for number, answer in effects.reply:
            connection = self._asked[number].connection
            link = self._links[connection]
            if number in link.unanswered:
                link.answers.append((number, answer))
                self.planned.append(Planned(Label("answer", connection), None))
        for _ in effects.flush:
            self.planned.append(Planned(Label("flush", process.id), None))
        if effects.wake_ms is not None:
            process.wake_ms = effects.wake_ms - process.skew_ms
            self._plan_wake(process)
        machine = process.machine
        if isinstance(machine, Broker) and machine.phase is Phase.STOPPED:
            self.crash(process.id)

    def _plan_wake(self, process: Process) -> None:
        if process.wake_ms is not None and (
            process.scheduled_ms is None or process.wake_ms < process.scheduled_ms
        ):
            process.scheduled_ms = process.wake_ms
            after_ms = max(0, process.wake_ms - self.now_ms)
            self.planned.append(Planned(Label("wake", process.id), after_ms))

    # Network

    def _send(self, process: Process, target: int, request: Any) -> Link:
        number = 0
        if type(request) is OnConnection:
            request, number = request
        channel = _channel(request)
        if number:
            channel = f"{channel} {number + 1}"
        connection = Connection(process.id, target, channel, process.life)
        link = self._links.get(connection)
        if link is None:
            link = self._links[connection] = Link()
        self._asked_count += 1
        number = self._asked_count
        self._asked[number] = Asked(connection, request)
        link.unanswered.append(number)
        other = self.processes[target]
        if other.machine is None:
            self.planned.append(Planned(Label("lose", connection), 1))  # refused
            return link
        link.requests.append(number)
        self.planned.append(Planned(Label("deliver", connection), None))
        if other.is_paused:
            self.planned.append(Planned(Label("lose", connection), None))
        return link

    def ask(self, source: int, target: int, request: Any) -> None:
        """As an administrator does, who does not wait for the answer."""
        link = self._send(self.processes[source], target, request)
        link.unanswered.pop()

    def disconnect(self, connection: Connection) -> bool:
        """What is on its way is gone, and whoever asked will find out."""
        link = self._links.get(connection)
        if link is None or not (link.requests or link.unanswered):
            return False
        link.requests.clear()
        link.answers.clear()
        self.planned += [Planned(Label("lose", connection), 1)] * len(link.unanswered)
        return True

    @property
    def connections(self) -> list[Connection]:
        return list(self._links)

    # What the controller has written down

    @property
    def controller(self) -> ControllerNode | None:
        """The active one."""
        for number in range(FIRST_CONTROLLER, FIRST_CONTROLLER + self.settings.controllers):
            machine = self.processes[number].machine
            if isinstance(machine, ControllerNode) and machine.active is not None:
                return machine
        return None

    def agreed(self, partition: TopicPartition) -> PartitionState | None:
        controller = self.controller
        return None if controller is None else controller.image.partitions.get(partition)


def _channel(request: Any) -> str:
    match request:
        case Produce():
            return "Produce"
        case TransactionalCommit():
            return "TxnOffsetCommit"
        case _:
            return type(request).__name__
