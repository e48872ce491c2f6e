"""Two producers of numbered orders that write down what Kafka acknowledged.

Orders go out as far as the gate is open: whoever conducts the demo opens it step by step, so that
faults fall in the middle. Every delivery report becomes a line of JSON in the form that Kafka's own
verifiable producer writes and, when asked for, counts in the reports to `__lossless_audit`.
"""

from __future__ import annotations

import json
import os
import threading
import time
import uuid
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from io import TextIOWrapper
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from confluent_kafka import KafkaError, Message, Producer

from lossless.acknowledged import AUDIT_TOPIC, AcknowledgedCount, AcknowledgedCounter
from lossless.demo.orders import order_key, order_value
from lossless.errors import Unavailable

PRODUCERS = 2
POLL_S = 0.05
REPORT_INTERVAL_S = 1.0
REPORT_WIDTH_MS = 10_000  # instead of a minute, which would hold nearly the whole demo
# Enough for full batches, and few enough that a closed gate or a dead leader is felt at once.
IN_FLIGHT_MAX = 10_000

CAREFUL: Mapping[str, str] = {"acks": "all", "enable.idempotence": "true", "linger.ms": "5"}
CARELESS: Mapping[str, str] = {"acks": "1", "enable.idempotence": "false", "linger.ms": "5"}


@dataclass(slots=True)
class Gate:
    """Orders below `open_to` may go out. Written by one thread, read by the others."""

    open_to: int = 0
    shut: bool = False  # for good: whoever waits gives up


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerPlan:
    """What one producer does: every `step`-th order from `first` on."""

    settings: Mapping[str, str]
    topic: str
    topic_id: str
    first: int
    step: int
    orders: int
    events: Path
    reports: bool  # whether acknowledged counts go to the audit topic


@dataclass(slots=True)
class Deliveries:
    """What one producer knows of its orders. Only its own thread writes it."""

    sent: int = 0
    acknowledged: Counter[int] = field(default_factory=Counter)  # by partition
    failed: int = 0


class OrderProducer(threading.Thread):
    """One producer in a thread of its own; delivery reports arrive there too."""

    def __init__(self, plan: ProducerPlan, gate: Gate) -> None:
        super().__init__(name=f"orders-{plan.first}", daemon=True)
        self.deliveries = Deliveries()
        self.failure: BaseException | None = None
        self._plan = plan
        self._gate = gate
        self._counter = AcknowledgedCounter(
            producer=f"lossless demo@localhost#{os.getpid()}",
            instance=uuid.uuid4().hex,
            width_ms=REPORT_WIDTH_MS,
        )
        self._unreported: KafkaError | None = None
        self._reported_at = time.monotonic()

    def run(self) -> None:
        try:
            with self._plan.events.open("w") as events:
                self._run(events)
        except BaseException as failure:
            self.failure = failure

    def _run(self, events: TextIOWrapper) -> None:
        # What matters comes back as delivery reports; log lines would only repeat it.
        settings: dict[str, Any] = {
            "queue.buffering.max.messages": IN_FLIGHT_MAX,
            **self._plan.settings,
            "log_level": "0",
        }
        producer = Producer(settings)

        def on_delivery(error: KafkaError | None, message: Message) -> None:
            self._on_delivery(events, error, message)

        _write_event(events, "startup_complete")
        for number in range(self._plan.first, self._plan.orders, self._plan.step):
            while number >= self._gate.open_to and not self._gate.shut:
                self._attend(producer, POLL_S)
            if self._gate.shut:
                break
            self._send(producer, number, on_delivery)
            if self.deliveries.sent % 256 == 0:
                self._attend(producer, 0)
        while len(producer) and not self._gate.shut:
            self._attend(producer, POLL_S)
        if self._gate.shut:
            producer.purge()
        self._report(producer, flush=True)
        producer.flush(0 if self._gate.shut else 30)
        if self._unreported is not None or (len(producer) and not self._gate.shut):
            raise Unavailable(
                f"what was acknowledged could not be reported to {AUDIT_TOPIC}: "
                f"{self._unreported or 'no answer'}"
            )
        _write_event(
            events,
            "tool_data",
            sent=self.deliveries.sent,
            acked=self.deliveries.acknowledged.total(),
        )
        _write_event(events, "shutdown_complete")

    def _send(self, producer: Producer, number: int, on_delivery: Any) -> None:
        while not self._gate.shut:
            try:
                producer.produce(
                    self._plan.topic,
                    key=order_key(number),
                    value=order_value(number),
                    on_delivery=on_delivery,
                )
            except BufferError:
                self._attend(producer, POLL_S)
            else:
                self.deliveries.sent += 1
                return

    def _attend(self, producer: Producer, wait_s: float) -> None:
        producer.poll(wait_s)
        if time.monotonic() - self._reported_at >= REPORT_INTERVAL_S:
            self._report(producer, flush=False)

    def _on_delivery(
        self, events: TextIOWrapper, error: KafkaError | None, message: Message
    ) -> None:
        key, value = message.key(), message.value()
        shown = {
            "key": _text(key),
            "value": _text(value),
            "topic": message.topic(),
        }
        if error is not None:
            self.deliveries.failed += 1
            _write_event(events, "producer_send_error", **shown, message=error.str())
            return
        partition, offset = message.partition(), message.offset()
        if partition is None or offset is None:
            raise AssertionError("an acknowledged record has a partition and an offset")
        self.deliveries.acknowledged[partition] += 1
        _write_event(events, "producer_send_success", **shown, partition=partition, offset=offset)
        if self._plan.reports:
            self._counter.delivered(
                topic=self._plan.topic,
                topic_id=self._plan.topic_id,
                partition=partition,
                offset=offset,
                timestamp_ms=message.timestamp()[1],
            )

    def _report(self, producer: Producer, *, flush: bool) -> None:
        self._reported_at = time.monotonic()
        for report in list(self._counter.reports(int(time.time() * 1000), flush=flush)):
            self._send_report(producer, report)

    def _send_report(self, producer: Producer, report: AcknowledgedCount) -> None:
        """Waits for room in the queue, which orders fill while a broker is being replaced."""
        while not self._gate.shut:
            try:
                producer.produce(
                    AUDIT_TOPIC,
                    key=report.key(),
                    value=report.to_bytes(),
                    on_delivery=self._on_report_delivery,
                )
            except BufferError:
                producer.poll(POLL_S)
            else:
                return

    def _on_report_delivery(self, error: KafkaError | None, _message: Message) -> None:
        self._unreported = self._unreported or error


class OrderProducers:
    """The producers together. Use as a context: whatever happens, they end."""

    def __init__(
        self,
        *,
        settings: Mapping[str, str],
        topic: str,
        topic_id: str,
        orders: int,
        events: Path,
        reports: bool,
    ) -> None:
        self._gate = Gate()
        self._producers = [
            OrderProducer(
                ProducerPlan(
                    settings=settings,
                    topic=topic,
                    topic_id=topic_id,
                    first=number,
                    step=PRODUCERS,
                    orders=orders,
                    events=events / f"producer-{number}.jsonl",
                    reports=reports,
                ),
                self._gate,
            )
            for number in range(PRODUCERS)
        ]

    def __enter__(self) -> Self:
        for producer in self._producers:
            producer.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._gate.shut = True
        for producer in self._producers:
            producer.join()

    def open_to(self, number: int) -> None:
        """Lets the orders below `number` out."""
        self._gate.open_to = number

    @property
    def acknowledged(self) -> int:
        return sum(p.deliveries.acknowledged.total() for p in self._producers)

    @property
    def failed(self) -> int:
        return sum(p.deliveries.failed for p in self._producers)

    @property
    def finished(self) -> bool:
        """Every order was sent and answered, and every report is in the audit topic."""
        return not any(p.is_alive() for p in self._producers)

    def acknowledged_in(self, partitions: set[int]) -> int:
        return sum(
            p.deliveries.acknowledged[partition]
            for p in self._producers
            for partition in partitions
        )

    def check(self) -> None:
        """Raises what stopped a producer, if one was stopped."""
        for producer in self._producers:
            if producer.failure is not None:
                raise producer.failure


def _write_event(events: TextIOWrapper, name: str, **fields: object) -> None:
    line = {"timestamp": int(time.time() * 1000), "name": name, **fields}
    events.write(json.dumps(line, separators=(",", ":")) + "\n")


def _text(data: bytes | str | None) -> str | None:
    return data.decode() if isinstance(data, bytes) else data
