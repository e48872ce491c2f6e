"""One case of a test: the clients of this package in it, and all that they were told, in order."""

from __future__ import annotations

import itertools
import sqlite3
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import confluent_kafka
from confluent_kafka import TopicPartition

from claims.observing import QUICK, WAIT_S_MAX, final_log, fresh, reachable, until
from client.claims.client_journal import Journal, Reading, events_of, now_ms
from client.claims.client_process import ClientProcess, client_process
from lossless.client.consuming.consumer import Consumer
from lossless.client.errors import ClientError, Kind
from lossless.client.producing.delivery import Delivery
from lossless.client.producing.producer import Producer
from lossless.engines.local.planned import PlannedCluster
from lossless.engines.waiting import wait_until
from lossless.verifier.history import (
    Acknowledged,
    Committed,
    Event,
    Failed,
    Group,
    History,
    Processed,
    Sent,
)

SENDING: Mapping[str, Any] = {
    **QUICK,
    "linger.ms": 0,
    "retry.backoff.ms": 20,
    "retry.backoff.max.ms": 100,
}
JOINING: Mapping[str, Any] = {
    **QUICK,
    "session.timeout.ms": 2500,  # a busy machine may stand still for a second
    "heartbeat.interval.ms": 200,
    "retry.backoff.ms": 20,
    "fetch.wait.max.ms": 100,
}
STAYING: Mapping[str, Any] = {**JOINING, "session.timeout.ms": 20_000}


def with_dots(settings: Mapping[str, Any]) -> dict[str, Any]:
    return {name.replace("_", "."): value for name, value in settings.items()}


@dataclass(slots=True)
class Member:
    """A consumer here, whose run() is under way in a thread."""

    consumer: Consumer
    assignments: list[list[int]]
    owned: set[int]
    values: list[str] = field(default_factory=list)
    failure: BaseException | None = None
    thread: threading.Thread | None = None

    def wait_for(self, condition: Callable[[], bool], what: str) -> None:
        wait_until(lambda: condition() or self.failure is not None, timeout_s=WAIT_S_MAX)
        assert condition(), f"not {what}; {self.failure!r}; {self.values[-20:]}"

    def close(self) -> None:
        self.consumer.stop()
        self.consumer.close()
        if self.thread is not None:
            self.thread.join(WAIT_S_MAX)
            assert not self.thread.is_alive()


class Seen:
    def __init__(self, kafka: PlannedCluster, folder: Path, *topics: str) -> None:
        """`topics`: those that are read at the end."""
        self.kafka = kafka
        self.folder = folder
        self.topics = topics
        self.groups: dict[str, list[str]] = {}
        self._stored_groups: set[str] = set()
        self._paths: list[Path] = []
        path = folder / f"{fresh('here')}.journal"
        self._journal = Journal(path)
        self._paths.append(path)
        self._sends_of: Seen | None = None

    def note(self, event: Event) -> None:
        self._journal.note(event)

    # Producers

    @contextmanager
    def producer(
        self, name: str = "p1", options: Mapping[str, Any] | None = None, **settings: Any
    ) -> Iterator[Sending]:
        """Closed at the end, when everything is known of what was sent."""
        options = {"audit": False, **(options or {})}
        producer = Producer(
            {"bootstrap.servers": reachable(self.kafka), **SENDING, **with_dots(settings)},
            application=name,
            **options,
        )
        sending = Sending(self, name, producer)
        with suppress_failed(producer):
            yield sending

    # Consumers

    def joins(self, name: str, group: str, *, stored: bool = False) -> None:
        """A member of the group. Stored: the store says what the group has done."""
        self.groups.setdefault(group, []).append(name)
        if stored:
            self._stored_groups.add(group)

    @contextmanager
    def member(
        self,
        name: str,
        group: str,
        handler: Callable[..., Any] | None = None,
        *,
        topics: str | list[str] | None = None,
        settings: Mapping[str, Any] = STAYING,
        in_order: bool = True,
        may_fail: bool = False,
        **options: Any,
    ) -> Iterator[Member]:
        """In this process. The handler is called between the noting of the read and of the end."""
        self.joins(name, group, stored="store" in options)
        reading = Reading(self, name, group, topics=self.topics, in_order=in_order)
        hooks = {
            hook: options.pop(hook, lambda _: None)
            for hook in ("on_assigned", "on_revoked", "on_lost")
        }
        assignments: list[list[int]] = []
        owned: set[int] = set()

        def assigned(partitions: list[TopicPartition]) -> None:
            reading.on_assigned(partitions)
            hooks["on_assigned"](partitions)
            assignments.append([each.partition for each in partitions])
            owned.update(each.partition for each in partitions)

        def gone(hook: str) -> Callable[[list[TopicPartition]], None]:
            def call(partitions: list[TopicPartition]) -> None:
                owned.difference_update(each.partition for each in partitions)
                hooks[hook](partitions)

            return call

        consumer = Consumer(
            topics or list(self.topics),
            {"bootstrap.servers": self.kafka.bootstrap_servers, **settings},
            group=group,
            on_assigned=assigned,
            on_revoked=gone("on_revoked"),
            on_lost=gone("on_lost"),
            **options,
        )
        member = Member(consumer, assignments, owned)

        def handle(message: Any, *unit: Any) -> None:
            reading.read(message)
            if handler is not None:
                handler(message, *unit)
            if not unit:
                reading.processed(message)
            member.values.append(message.value().decode())

        def run() -> None:
            try:
                consumer.run(handle)
            except BaseException as error:
                member.failure = error

        member.thread = threading.Thread(target=run, daemon=True)
        member.thread.start()
        try:
            yield member
        finally:
            member.close()
        if member.failure is not None and not may_fail:
            raise member.failure

    @contextmanager
    def remote(
        self,
        name: str,
        group: str,
        *,
        settings: Mapping[str, Any] = JOINING,
        **what: Any,
    ) -> Iterator[ClientProcess]:
        """In a process of its own."""
        self.joins(name, group, stored="store" in what)
        told = {
            "role": "consumer",
            "topic": self.topics[0],
            "group": group,
            "settings": {"bootstrap.servers": self.kafka.bootstrap_servers, **settings},
            **what,
        }
        with client_process(told, self.folder, name) as process:
            self._paths.append(process.journal)
            yield process

    @contextmanager
    def remote_producer(self, name: str, **what: Any) -> Iterator[ClientProcess]:
        told = {
            "role": "producer",
            "topic": self.topics[0],
            "settings": {
                "bootstrap.servers": reachable(self.kafka),
                **SENDING,
                **what.pop("settings", {}),
            },
            **what,
        }
        with client_process(told, self.folder, name) as process:
            self._paths.append(process.journal)
            yield process

    # What became of it

    def shares_sends_with(self, other: Seen) -> None:
        """The same records, read by somebody else: what was sent stands in the other's notes."""
        self._sends_of = other

    def dead_lettered(self, group: str, topic: str, offset: int, value: str) -> None:
        """Which is a way of being done with it."""
        at = f"{topic}-0"
        self.note(Processed(now_ms(), "dead letters", group, at, offset, value))

    def committed(self, group: str, topic: str | None = None) -> list[int]:
        """By partition; negative: nothing."""
        topic = topic or self.topics[0]
        count = len(self.kafka.metadata().topics[topic].partitions)
        return committed_by(reachable(self.kafka), group, topic, count)

    def wait_for_commit(self, group: str, *offsets: int) -> None:
        until(
            lambda: self.committed(group) == list(offsets),
            f"{group} committed {offsets}",
        )

    def history(self, rows: Mapping[str, list[tuple[str, int, int, str]]] | None = None) -> History:
        """With the logs as they are now. `rows`, of groups with a store: topic, partition, offset
        and value of what is in it, which is what the group has done."""
        rows = rows or {}
        known = self.kafka.metadata().topics
        places = [(topic, n) for topic in self.topics for n in known[topic].partitions]
        final = tuple(final_log(reachable(self.kafka), *place) for place in places)
        events = [
            event
            for event in events_of(*self._paths)
            if not (isinstance(event, Processed) and event.group in rows)
        ]
        if self._sends_of is not None:
            sent = (Sent, Acknowledged, Failed)
            events += [e for e in events_of(*self._sends_of._paths) if isinstance(e, sent)]
        for group, stored in rows.items():
            events += [
                Processed(now_ms(), "the store", group, f"{topic}-{partition}", offset, value)
                for topic, partition, offset, value in stored
            ]
        starts = {f"{topic}-{partition}": 0 for topic, partition in places}
        for group in self.groups:
            for topic in self.topics:
                for partition, offset in enumerate(self.committed(group, topic)):
                    if offset >= 0:
                        events.append(Committed(now_ms(), group, f"{topic}-{partition}", offset))
        groups = tuple(Group(name, tuple(who), starts) for name, who in self.groups.items())
        return History(tuple(events), final, groups, settled=True)


class Sending:
    """A producer of numbered values, and what became of each."""

    def __init__(self, seen: Seen, name: str, producer: Producer) -> None:
        self._seen = seen
        self._name = name
        self._numbers = itertools.count()
        self.producer = producer
        self.deliveries: dict[str, Delivery] = {}

    def send(self, topic: str, count: int = 1, partition: int = 0, **more: Any) -> list[str]:
        return [
            self.send_value(topic, f"{self._name}-{next(self._numbers)}", partition, **more)
            for _ in range(count)
        ]

    def send_numbers(self, topic: str, numbers: range, partition: int = 0) -> list[str]:
        """Values that are numbers; delivered when this returns."""
        values = [self.send_value(topic, str(number), partition) for number in numbers]
        self.told(*values)
        return values

    def send_value(
        self, topic: str, value: str, partition: int = 0, via: Any = None, **more: Any
    ) -> str:
        """`via`: the transaction, and its name."""
        at = f"{topic}-{partition}"
        transaction, name = via or (self.producer, None)
        self._seen.note(Sent(now_ms(), self._name, at, value, name))
        try:
            delivery = transaction.send(topic, value, partition=partition, **more)
        except ClientError as error:
            self._seen.note(Failed(now_ms(), self._name, at, value, error.what, certain=True))
            raise
        self.deliveries[value] = delivery
        delivery.add_callback(lambda done: self._on_delivery(at, value, done))
        return value

    def told(self, *values: str) -> None:
        """Waits until these are acknowledged or have failed; without any, until all are."""
        waited_for = values or tuple(self.deliveries)

        def all_told() -> bool:
            return all(self.deliveries[value].done for value in waited_for)

        assert wait_until(all_told, timeout_s=2 * WAIT_S_MAX), [
            value for value in waited_for if not self.deliveries[value].done
        ]

    def stored(self, topic: str, count: int = 1, partition: int = 0, **more: Any) -> list[str]:
        """Sends, and waits until all of it is acknowledged."""
        values = self.send(topic, count, partition, **more)
        self.told(*values)
        assert not self.failed(*values)
        return values

    def failed(self, *values: str) -> dict[str, ClientError]:
        return {
            value: error
            for value in values or tuple(self.deliveries)
            if (error := self.deliveries[value].error) is not None
        }

    @property
    def untold(self) -> set[str]:
        return {value for value, delivery in self.deliveries.items() if not delivery.done}

    def _on_delivery(self, at: str, value: str, delivery: Delivery) -> None:
        if delivery.error is None:
            offset = delivery.result().offset
            offset = offset if offset is not None and offset >= 0 else None
            self._seen.note(Acknowledged(now_ms(), self._name, at, value, offset))
        else:
            certain = delivery.error.kind is Kind.PERMANENT
            self._seen.note(
                Failed(now_ms(), self._name, at, value, delivery.error.what, certain=certain)
            )


@contextmanager
def suppress_failed(producer: Producer) -> Iterator[None]:
    """Failures are in the notes already: closing has none of its own."""
    try:
        yield
    except BaseException:
        with suppress(ClientError):
            producer.close(1)
        raise
    producer.close()


def committed_by(servers: str, group: str, topic: str, partitions: int) -> list[int]:
    consumer = confluent_kafka.Consumer({"bootstrap.servers": servers, "group.id": group, **QUICK})
    try:
        asked = [TopicPartition(topic, number) for number in range(partitions)]
        return [max(-1, found.offset) for found in consumer.committed(asked, timeout=30)]
    except confluent_kafka.KafkaException:
        return []  # its coordinator is being elected
    finally:
        consumer.close()


def rows_of(path: Path) -> list[tuple[str, int, int, str]]:
    with sqlite3.connect(path) as database:
        rows = database.execute("SELECT * FROM stored ORDER BY topic, part, off").fetchall()
    database.close()
    return rows


def make_table(path: Path, *, unique: bool = False) -> Path:
    """No key, unless asked for: the ledger alone keeps a record from being there twice."""
    key = ", PRIMARY KEY (topic, part, off)" if unique else ""
    with sqlite3.connect(path) as database:
        database.execute(
            f"CREATE TABLE stored (topic TEXT, part INTEGER, off INTEGER, value TEXT{key})"
        )
    database.close()
    return path
