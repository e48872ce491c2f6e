"""Load that remembers: producers with acks=all and idempotence, and a consumer that reads along.

Every record has a number of its own, and its producer's name; what was sent, what was acknowledged
at which offset and what was read is a history, which the verifier judges. What a producer's
client said of itself last is kept too: when it hears nothing, its story tells why.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Mapping, Sequence
from itertools import count
from pathlib import Path

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

from lossless.engines.waiting import wait_until
from lossless.verifier.history import Acknowledged, Event, Failed, Read, Reset, Sent

PACE_S = 0.008
IN_FLIGHT_MAX = 2_000
READ_MAX = 500
STOP_S_MAX = 60.0
PADDING = b"." * 1000  # so that segments are rolled while brokers die
CONSUMER = "consumer"
LINES_MAX = 30_000

# What a client says while it looks for a broker that is there.
_PASSING = {
    KafkaError._ALL_BROKERS_DOWN,
    KafkaError._TRANSPORT,
    KafkaError._TIMED_OUT,
    KafkaError._TIMED_OUT_QUEUE,
    KafkaError._MAX_POLL_EXCEEDED,
}


class _Story(logging.Handler):
    """The last lines of what a client says of itself."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: deque[str] = deque(maxlen=LINES_MAX)

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(f"{record.created:.3f} {record.getMessage()}")


class Load:
    """Runs from `start` to `stop`. Partitions are named by their numbers."""

    def __init__(
        self, bootstrap_servers: str, topic: str, partitions: int, *, burst: int = 0
    ) -> None:
        """Each producer sends its first `burst` records as fast as it can."""
        self._burst = burst
        self.topic = topic
        self.partitions = partitions
        self.events: list[Event] = []
        self.complaints: list[str] = []  # what no client should ever be told
        # By partition: the value at each offset.
        self.acknowledged: dict[int, dict[int, str]] = {n: {} for n in range(partitions)}
        self.read: dict[int, dict[int, str]] = {n: {} for n in range(partitions)}
        self._client = {"bootstrap.servers": bootstrap_servers, "log_level": 0}
        self._stories: dict[str, _Story] = {}
        self._began_s = time.monotonic()
        self._no_more_sends = threading.Event()
        self._no_more_reads = threading.Event()
        self._sending = [
            threading.Thread(target=self._send, args=(name,), name=name, daemon=True)
            for name in ("p1", "p2")
        ]
        self._reading = threading.Thread(target=self._read, name=CONSUMER, daemon=True)

    def start(self) -> None:
        for thread in (*self._sending, self._reading):
            thread.start()

    def stop(self) -> None:
        """Once everything sent is acknowledged, and everything acknowledged read. A client that
        does not come to its end is complained of, and left."""
        self._no_more_sends.set()
        for thread in self._sending:
            self._join(thread)
        wait_until(lambda: not self.unread(self.told()), timeout_s=STOP_S_MAX)
        self._no_more_reads.set()
        self._join(self._reading)

    def _join(self, thread: threading.Thread) -> None:
        thread.join(2 * STOP_S_MAX)
        if thread.is_alive():
            self.complaints.append(f"{thread.name} did not end")

    def told(self) -> dict[int, dict[int, str]]:
        """What is acknowledged by now; producers go on."""
        return {partition: told.copy() for partition, told in self.acknowledged.items()}

    def unread(self, told: Mapping[int, Mapping[int, str]]) -> list[tuple[int, int, str]]:
        """What of this is not read there yet, or not as this."""
        return [
            (partition, offset, value)
            for partition, values in told.items()
            for offset, value in values.items()
            if self.read[partition].get(offset) != value
        ]

    def progress(self) -> list[int]:
        """How many records of each partition are acknowledged."""
        return [len(self.acknowledged[partition]) for partition in range(self.partitions)]

    def write_stories(self, folder: Path) -> None:
        for name, story in self._stories.items():
            (folder / f"{self.topic}-{name}.log").write_text("\n".join(story.lines))

    # Producers

    def _send(self, name: str) -> None:
        story = self._stories[name] = _Story()
        logger = logging.Logger(name)
        logger.addHandler(story)
        producer = Producer(
            {
                **self._client,
                "logger": logger,
                "log_level": 7,
                "debug": "broker,eos,metadata,protocol",
                "enable.idempotence": True,
                "linger.ms": 2,
                "batch.num.messages": 20,  # several batches under way when a broker dies
                "message.timeout.ms": 300_000,
                "socket.connection.setup.timeout.ms": 2_000,
                "reconnect.backoff.max.ms": 250,
                "error_cb": self._on_error,
            }
        )
        for number in count():
            if self._no_more_sends.wait(PACE_S if number >= self._burst else 0):
                break
            partition, value = number % self.partitions, f"{name}-{number}"
            self.events.append(Sent(self._now_ms(), name, partition, value))
            try:
                producer.produce(
                    self.topic,
                    value=_padded(value),
                    partition=partition,
                    on_delivery=lambda error, message: self._on_delivery(name, error, message),
                )
            except KafkaException as error:
                self.complaints.append(f"{name} could not send {value}: {error}")
                break
            producer.poll(0)
            while len(producer) > IN_FLIGHT_MAX:
                producer.poll(0.1)
        left = producer.flush(STOP_S_MAX)
        if left:
            self.complaints.append(f"{name} heard nothing of {left} records in {STOP_S_MAX:.0f} s")

    def _on_delivery(self, name: str, error: KafkaError | None, message: Message) -> None:
        partition, value = message.partition(), _value(message)
        if error is not None:
            self.events.append(
                Failed(self._now_ms(), name, partition, value, str(error), certain=False)
            )
            self.complaints.append(f"{name} was told of {value}: {error}")
            return
        offset = message.offset()
        self.events.append(Acknowledged(self._now_ms(), name, partition, value, offset))
        # None: its answer died with a broker, and librdkafka concludes from the next batch, which
        # was taken, that this one is there too (IMPLICITACK). The judge looks for it in the log.
        if offset is not None:
            self.acknowledged[partition][offset] = value

    # The consumer

    def _read(self) -> None:
        consumer = Consumer(
            {
                **self._client,
                "group.id": f"{self.topic}-readers",
                "enable.auto.commit": False,
                "auto.offset.reset": "error",
                "check.crcs": True,
                "fetch.wait.max.ms": 100,
                "socket.connection.setup.timeout.ms": 2_000,
                "reconnect.backoff.max.ms": 250,
                "error_cb": self._on_error,
            }
        )
        for partition in range(self.partitions):
            self.events.append(Reset(self._now_ms(), CONSUMER, partition, None, 0, "first start"))
        consumer.assign([TopicPartition(self.topic, n, 0) for n in range(self.partitions)])
        while not self._no_more_reads.is_set():
            self._take(consumer.consume(READ_MAX, 0.1))
        consumer.close()

    def _take(self, messages: Sequence[Message]) -> None:
        for message in messages:
            error = message.error()
            if error is not None:
                self._on_error(error)
                continue
            partition, offset, value = message.partition(), message.offset(), _value(message)
            assert offset is not None
            self.events.append(Read(self._now_ms(), CONSUMER, partition, offset, value))
            self.read[partition][offset] = value

    def _on_error(self, error: KafkaError) -> None:
        if error.fatal() or not (error.retriable() or error.code() in _PASSING):
            self.complaints.append(str(error))

    def _now_ms(self) -> int:
        return int((time.monotonic() - self._began_s) * 1000)


def _padded(value: str) -> bytes:
    return value.encode() + PADDING


def _value(message: Message) -> str:
    return value_of(message.value() or b"")


def value_of(stored: bytes) -> str:
    """As it was sent: what is not padded as it should be is somebody else's."""
    value = stored.removesuffix(PADDING)
    return value.decode() if len(value) + len(PADDING) == len(stored) else repr(stored)
