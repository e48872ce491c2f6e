"""Clients that write down what they saw, for the verifier to judge."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from confluent_kafka import (
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, NewTopic

from lossless.engines.local.planned import PlannedCluster
from lossless.engines.waiting import wait_until
from lossless.errors import BadInput, Unavailable
from lossless.verifier.history import (
    Acknowledged,
    Event,
    Failed,
    FinalLog,
    Group,
    History,
    Read,
    Reset,
    Sent,
)
from topics import create_new

WAIT_S_MAX = 60.0
QUICK: Mapping[str, Any] = {
    "log_level": 0,
    "reconnect.backoff.ms": 20,
    "reconnect.backoff.max.ms": 200,
}

_started = time.monotonic()
_numbers = itertools.count(1)


def now_ms() -> int:
    return int((time.monotonic() - _started) * 1000)


def until(condition: Callable[[], bool], what: str, *, timeout_s: float = WAIT_S_MAX) -> None:
    """A broker that is busy with an election may not answer, or not know the topic yet."""

    def holds() -> bool:
        with suppress(Unavailable, BadInput):
            return condition()
        return False

    assert wait_until(holds, timeout_s=timeout_s), f"after {timeout_s:.0f} s: not {what}"


def reachable(kafka: PlannedCluster) -> str:
    """The brokers that answer: a paused one lets a client that begins there wait."""
    running = kafka.nodes_in("running", brokers=True)
    return ",".join(kafka.plan.address(node) for node in running)


def fresh(about: str) -> str:
    """A name that nobody else has."""
    return f"{about}-{next(_numbers)}"


def topic_of(
    kafka: PlannedCluster,
    about: str,
    *,
    replicas: list[int] | None = None,
    partitions: int = 1,
    **config: str,
) -> str:
    """A new topic, all its replicas in sync; the first of them leads."""
    name = fresh(about)
    replicas = replicas or [1, 2, 3]
    settings = {key.replace("_", "."): value for key, value in config.items()}
    new = NewTopic(name, partitions, replica_assignment=[replicas] * partitions, config=settings)
    admin = AdminClient({"bootstrap.servers": reachable(kafka), **QUICK})
    create_new(admin, new)
    until(
        lambda: (
            kafka.leader_of(name, 0) == replicas[0]
            and kafka.in_sync_replicas(name, 0) == sorted(replicas)
        ),
        f"{name} led by {replicas[0]} and in sync on {replicas}",
    )
    return name


def led_by(kafka: PlannedCluster, topic: str, *brokers: int) -> None:
    """Waits for one of them to lead; -1 is nobody."""
    until(lambda: kafka.leader_of(topic, 0) in brokers, f"{topic} is led by one of {brokers}")


def in_sync(kafka: PlannedCluster, topic: str, *brokers: int) -> None:
    until(
        lambda: kafka.in_sync_replicas(topic, 0) == sorted(brokers),
        f"{topic} in sync on {brokers}",
    )


class Seen:
    """One case of a test: its producers, its readers, and all that they were told, in order."""

    def __init__(self, kafka: PlannedCluster, *topics: str) -> None:
        """`topics`: those that are read at the end."""
        self.kafka = kafka
        self.topics = topics
        self.groups: list[Group] = []
        self.events: list[Event] = []
        self._lock = threading.Lock()
        self._sending: list[Sending] = []

    def note(self, event: Event) -> None:
        with self._lock:
            self.events.append(event)

    def producer(self, name: str = "p1", **settings: Any) -> Sending:
        sending = Sending(self, name, settings)
        self._sending.append(sending)
        return sending

    def read(self, name: str, topic: str, start: int = 0, **settings: Any) -> list[str]:
        """What a new reader gets, up to the end as it is told."""
        self.note(Reset(now_ms(), name, f"{topic}-0", None, start, "first start"))
        values = []
        for message in messages_of(reachable(self.kafka), topic, start, **settings):
            value = _value(message)
            self.note(Read(now_ms(), name, f"{topic}-0", message.offset() or 0, value))
            values.append(value)
        return values

    def history(self) -> History:
        """Once everybody was told everything, with the logs as they are now."""
        for sending in self._sending:
            sending.close()
        known = self.kafka.metadata().topics
        final = tuple(
            final_log(reachable(self.kafka), topic, partition)
            for topic in self.topics
            for partition in known[topic].partitions
        )
        return History(tuple(self.events), final, tuple(self.groups), settled=True)


class Sending:
    """A producer of numbered values, and what became of each."""

    def __init__(self, seen: Seen, name: str, settings: Mapping[str, Any]) -> None:
        self._seen = seen
        self._name = name
        self._numbers = itertools.count()
        self._untold: set[str] = set()
        self.within: str | None = None  # the transaction that is open
        self.offsets: dict[str, int | None] = {}  # of what was acknowledged
        self.errors: dict[str, KafkaError] = {}
        self.client = Producer(
            {
                "bootstrap.servers": reachable(seen.kafka),
                **QUICK,
                "linger.ms": 0,
                "retry.backoff.ms": 20,
                "retry.backoff.max.ms": 100,
                "message.timeout.ms": 60_000,
                **{key.replace("_", "."): value for key, value in settings.items()},
            }
        )

    @property
    def untold(self) -> set[str]:
        """What was sent, and nobody has heard of since."""
        self.client.poll(0)
        return set(self._untold)

    def send(self, topic: str, count: int = 1, partition: int = 0) -> list[str]:
        values = []
        for _ in range(count):
            value = f"{self._name}-{next(self._numbers)}"
            self._seen.note(Sent(now_ms(), self._name, f"{topic}-{partition}", value, self.within))
            self._untold.add(value)
            values.append(value)
            self.client.produce(topic, value, partition=partition, on_delivery=self._on_delivery)
            self.client.poll(0)
        return values

    def told(self, *values: str) -> None:
        """Waits until these are acknowledged or have failed; without any, until all are."""
        waited_for = set(values) or set(self._untold)

        def all_told() -> bool:
            self.client.poll(0.02)
            return not waited_for & self._untold

        assert wait_until(all_told, timeout_s=WAIT_S_MAX, poll_s=0), f"never told: {waited_for}"

    def stored(self, topic: str, count: int = 1, partition: int = 0) -> list[str]:
        """Sends, and waits until all of it is acknowledged."""
        values = self.send(topic, count, partition)
        self.told(*values)
        failed = {value: self.errors[value] for value in values if value in self.errors}
        assert not failed, failed
        return values

    def close(self) -> None:
        if self._untold:  # who was fenced can ask no more, and has no need to
            self.told()

    def _on_delivery(self, error: KafkaError | None, message: Message) -> None:
        value, topic = _value(message), f"{message.topic()}-{message.partition()}"
        self._untold.discard(value)
        if error is None:
            told = message.offset()
            offset = told if told is not None and told >= 0 else None
            self.offsets[value] = offset
            self._seen.note(Acknowledged(now_ms(), self._name, topic, value, offset))
        else:
            self.errors[value] = error
            self._seen.note(Failed(now_ms(), self._name, topic, value, error.str(), certain=False))


def messages_of(
    bootstrap_servers: str, topic: str, start: int = 0, partition: int = 0, **settings: Any
) -> list[Message]:
    """From an offset to the end, as the broker tells it to a reader that asks now."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap_servers,
            **QUICK,
            "group.id": "readers",
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
            "enable.partition.eof": True,
            "fetch.wait.max.ms": 100,
            **{key.replace("_", "."): value for key, value in settings.items()},
        }
    )
    messages: list[Message] = []
    try:
        consumer.assign([TopicPartition(topic, partition, start)])
        while True:
            message = consumer.poll(WAIT_S_MAX)
            assert message is not None, f"no end of {topic} in {WAIT_S_MAX:.0f} s"
            error = message.error()
            if error is None:
                messages.append(message)
            elif error.code() == KafkaError._PARTITION_EOF:
                return messages
            else:
                raise AssertionError(error)
    finally:
        consumer.close()


def final_log(bootstrap_servers: str, topic: str, partition: int) -> FinalLog:
    low, high = watermarks(bootstrap_servers, topic, partition)
    records = tuple(
        (message.offset() or 0, _value(message))
        for message in messages_of(
            bootstrap_servers, topic, low, partition, isolation_level="read_uncommitted"
        )
    )
    assert not records or records[-1][0] < high, "somebody still writes: nothing has settled"
    _, stable = watermarks(bootstrap_servers, topic, partition, isolation_level="read_committed")
    return FinalLog(f"{topic}-{partition}", low, high, records, {}, stable)


# R19: who leads since a moment does not know yet what is committed; and not every broker has heard
# who leads.
ELECTING = (KafkaError.OFFSET_NOT_AVAILABLE, KafkaError.NOT_LEADER_FOR_PARTITION)


def watermarks(
    bootstrap_servers: str, topic: str, partition: int = 0, **settings: Any
) -> tuple[int, int]:
    """The first offset, and the high watermark, or the last stable offset if asked for that."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap_servers,
            **QUICK,
            "group.id": "readers",
            "isolation.level": "read_uncommitted",
            **{key.replace("_", "."): value for key, value in settings.items()},
        }
    )
    found: list[tuple[int, int]] = []

    def is_told() -> bool:
        try:
            told = consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=30)
        except KafkaException as error:
            if error.args[0].code() not in ELECTING:
                raise
            return False
        assert told is not None, f"nobody tells the offsets of {topic}"
        found.append(told)
        return True

    try:
        assert wait_until(is_told, timeout_s=WAIT_S_MAX), f"{topic} has no leader that knows"
        return found[0]
    finally:
        consumer.close()


def _value(message: Message) -> str:
    return (message.value() or b"").decode()
