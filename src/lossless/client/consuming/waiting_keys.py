"""Keys that wait in a retry topic: their later records go behind them, so that order is kept.

For each partition of a topic one machine (`retrying.KeyOrder`) knows which keys lie in the retry
partition of the same number. It is filled on assignment by reading that partition from what the
group has committed there to its end, before the first record is handed out; and emptied as the
group commits there, whoever of its members does, which is asked for from time to time.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any, Protocol, runtime_checkable

from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    KafkaException,
    Message,
    TopicPartition,
)

from lossless.client.consuming.interfaces import Place, offset_of, place_of
from lossless.client.consuming.positions import ASK_AGAIN_S, Leaving
from lossless.client.retrying import Forward, KeyOrder, is_of_another_group
from lossless.errors import Unavailable

logger = logging.getLogger(__name__)

ASK_INTERVAL_S = 1.0
ASK_TIMEOUT_S = 1.0
BEGIN_TIMEOUT_S = 5.0


@runtime_checkable
class KeepsKeyOrder(Protocol):
    """Of retry policies, those that keep the order of keys when `keep_key_order` says so."""

    @property
    def keep_key_order(self) -> bool: ...

    def behind(self, message: Message, *, group: str | None, now_ms: int) -> Forward: ...

    def retry_topics(self, topic: str) -> tuple[str, ...]: ...


class WaitingKeys:
    """Machines are changed by the poll thread and by workers: under one lock."""

    def __init__(
        self,
        policy: KeepsKeyOrder,
        *,
        group: str,
        topics: tuple[str, ...],
        settings: Mapping[str, Any],
        timeout_s: float,
        send: Callable[[Message, Forward], int | None],
    ) -> None:
        self._policy = policy
        self._group = group
        self._retry_topic = {topic: policy.retry_topics(topic)[0] for topic in topics}
        self._settings = settings
        self._timeout_s = timeout_s
        self._send = send
        self._lock = threading.Lock()
        self._machines: dict[Place, KeyOrder] = {}
        self._asked_at = 0.0

    # Asked by workers

    def sent_behind(self, message: Message) -> bool:
        """Whether the record was sent to the retry topic, because one of its key waits there."""
        place = place_of(message)
        with self._lock:
            machine = self._machines.get(place)
            waits = machine is not None and machine.waits(_key(message))
        if not waits:
            return False
        to = self._policy.behind(message, group=self._group, now_ms=round(time.time() * 1000))
        self.on_forwarded(message, self._send(message, to))
        return True

    def on_forwarded(self, message: Message, offset: int | None) -> None:
        with self._lock:
            machine = self._machines.get(place_of(message))
            if machine is not None and offset is not None:
                machine.on_forwarded(_key(message), offset)

    # Asked by the poll thread

    def begin(self, consumer: Consumer, places: list[Place], closing: threading.Event) -> None:
        """Reads what waits there for the partitions that were just assigned. Raises Leaving if the
        consumer is closing."""
        retried = {
            (self._retry_topic[topic], number): (topic, number)
            for topic, number in places
            if topic in self._retry_topic
        }
        if not retried:
            return
        deadline = time.monotonic() + self._timeout_s
        asked = [TopicPartition(*place) for place in retried]
        committed = _answered(
            lambda: consumer.committed(asked, timeout=BEGIN_TIMEOUT_S), deadline, closing
        )
        for position in committed:
            machine = KeyOrder(committed=max(0, position.offset))
            self._scan(machine, position, deadline, closing)
            with self._lock:
                self._machines[retried[position.topic, position.partition]] = machine

    def _scan(
        self,
        machine: KeyOrder,
        position: TopicPartition,
        deadline: float,
        closing: threading.Event,
    ) -> None:
        place = (position.topic, position.partition)
        reading = Consumer({**self._settings, "enable.partition.eof": False})
        try:
            first, end = _answered(
                lambda: reading.get_watermark_offsets(
                    TopicPartition(*place), timeout=BEGIN_TIMEOUT_S
                ),
                deadline,
                closing,
            )
            start = max(first, position.offset)
            reading.assign([TopicPartition(*place, start if start > 0 else OFFSET_BEGINNING)])
            at = start
            while at < end:
                if closing.is_set():
                    raise Leaving
                if time.monotonic() > deadline:
                    raise Unavailable(
                        f"{place[0]}-{place[1]} could not be read to its end, {end}, in "
                        f"{self._timeout_s:.0f} s: which keys wait there is not known",
                        hint="are its brokers there? more time: max.poll.interval.ms",
                    )
                for message in reading.consume(500, 0.1):
                    if message.error() is None and not is_of_another_group(message, self._group):
                        machine.on_scanned(_key(message), offset_of(message))
                (now,) = reading.position([TopicPartition(*place)])
                at = max(at, now.offset)
            machine.on_scan_ended()
        finally:
            reading.close()
        if len(machine):
            logger.info("%s-%d: %d keys wait", *place, len(machine))

    def forget(self, places: set[Place]) -> None:
        with self._lock:
            for place in places:
                self._machines.pop(place, None)

    def ask(self, consumer: Consumer) -> None:
        """How far the group is in the retry partitions of keys that wait."""
        now = time.monotonic()
        if now - self._asked_at < ASK_INTERVAL_S:
            return
        self._asked_at = now
        with self._lock:
            waiting = {
                (self._retry_topic[topic], number): machine
                for (topic, number), machine in self._machines.items()
                if len(machine)
            }
        if not waiting:
            return
        try:
            committed = consumer.committed(
                [TopicPartition(*place) for place in waiting], timeout=ASK_TIMEOUT_S
            )
        except KafkaException as error:
            logger.debug("what is committed could not be asked: %s", error)
            return
        with self._lock:
            for position in committed:
                if position.error is None and position.offset >= 0:
                    waiting[position.topic, position.partition].on_committed(position.offset)


def _answered(ask: Callable[[], Any], deadline: float, closing: threading.Event) -> Any:
    """Asks again while the brokers do not answer, until the deadline."""
    while True:
        try:
            return ask()
        except KafkaException:
            if time.monotonic() >= deadline:
                raise
        if closing.wait(ASK_AGAIN_S):
            raise Leaving


def _key(message: Message) -> bytes | None:
    key = message.key()
    return key.encode() if isinstance(key, str) else key
