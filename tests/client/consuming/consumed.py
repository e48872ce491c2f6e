"""A topic, a group, and what tests ask of them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import confluent_kafka
from confluent_kafka import Message, TopicPartition
from confluent_kafka.admin import AdminClient

from lossless.client.consuming import Consumer
from lossless.engines.waiting import wait_until
from topics import create_topic, produce

PATIENCE_S = 30.0


@dataclass(frozen=True, slots=True)
class Kafka:
    servers: str
    topic: str
    group: str

    def make_topic(self, *, partitions: int = 1, topic: str | None = None, **config: str) -> None:
        create_topic(self.servers, topic or self.topic, partitions=partitions, replicas=1, **config)

    def fill(
        self, count: int, *, first: int = 0, partitions: int = 1, keys: int | None = None
    ) -> None:
        """Values are numbers; partitions take turns, or the key decides."""
        produce(
            self.servers,
            self.topic,
            [
                (
                    (n if keys is None else n % keys) % partitions,
                    None if keys is None else b"%d" % (n % keys),
                    b"%d" % n,
                )
                for n in range(first, first + count)
            ],
        )

    def consumer(self, **options: Any) -> Consumer:
        settings = {
            "bootstrap.servers": self.servers,
            "session.timeout.ms": 6000,
            **options.pop("settings", {}),
        }
        return Consumer(
            options.pop("topics", self.topic),
            {name: value for name, value in settings.items() if value is not None},
            **{"group": self.group, **options},
        )

    def committed(self, partitions: int = 1, topic: str | None = None) -> list[int]:
        return [each.offset for each in self.positions(partitions, topic)]

    def positions(self, partitions: int = 1, topic: str | None = None) -> list[TopicPartition]:
        asking = confluent_kafka.Consumer(
            {"bootstrap.servers": self.servers, "group.id": self.group}
        )
        wanted = [TopicPartition(topic or self.topic, n) for n in range(partitions)]
        found: list[TopicPartition] = []

        def is_answered() -> bool:
            try:
                found[:] = asking.committed(wanted, timeout=10)
            except confluent_kafka.KafkaException:  # a coordinator that is looked for
                return False
            return True

        try:
            assert wait_until(is_answered, timeout_s=PATIENCE_S)
            return found
        finally:
            asking.close()

    def assigned(self) -> list[int]:
        """How many partitions each member of the group has."""
        admin = AdminClient({"bootstrap.servers": self.servers})
        group = admin.describe_consumer_groups([self.group])[self.group].result(PATIENCE_S)
        return [len(member.assignment.topic_partitions) for member in group.members]

    def commit(self, *offsets: TopicPartition) -> None:
        committing = confluent_kafka.Consumer(
            {"bootstrap.servers": self.servers, "group.id": self.group}
        )
        try:
            committing.commit(offsets=list(offsets), asynchronous=False)
        finally:
            committing.close()


def number(message: Message) -> int:
    value = message.value()
    assert value is not None
    return int(value)


@dataclass(slots=True)
class Seen:
    """What a handler was given, from any thread."""

    numbers: list[int] = field(default_factory=list)

    def __call__(self, message: Message) -> None:
        self.numbers.append(number(message))

    def wait_for(self, wanted: Iterable[int]) -> None:
        missing = set(wanted)
        assert wait_until(
            lambda: missing <= set(self.numbers), timeout_s=PATIENCE_S, poll_s=0.01
        ), f"missing: {sorted(missing - set(self.numbers))[:20]}"

    def wait_for_count(self, count: int) -> None:
        assert wait_until(lambda: len(self.numbers) >= count, timeout_s=PATIENCE_S, poll_s=0.01), (
            f"{len(self.numbers)} of {count}"
        )


class Running:
    """A consumer whose run() is under way in another thread."""

    def __init__(self, consumer: Consumer, handler: Callable[..., Any]) -> None:
        self.consumer = consumer
        self.failure: BaseException | None = None
        self._handler = handler
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self.consumer.run(self._handler)
        except BaseException as failure:
            self.failure = failure

    def join(self) -> None:
        self._thread.join(PATIENCE_S)
        assert not self._thread.is_alive()

    def close(self) -> None:
        self.consumer.stop()
        self.consumer.close()
        self.join()


@contextmanager
def running(consumer: Consumer, handler: Callable[..., Any]) -> Iterator[Running]:
    run = Running(consumer, handler)
    try:
        yield run
    finally:
        run.close()
    if run.failure is not None:
        raise run.failure


def eventually(condition: Callable[[], bool]) -> None:
    assert wait_until(condition, timeout_s=PATIENCE_S, poll_s=0.02)
