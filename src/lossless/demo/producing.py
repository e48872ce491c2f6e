"""Two producers of numbered orders that log every acknowledgement.

Producers send orders below the limit of a gate. The demo raises the limit step by step, so that the
faults hit while orders are in flight. Every delivery report becomes a line of JSON in the format of
Kafka's VerifiableProducer and, if requested, is counted in the reports to `__lossless_audit`.
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
REPORT_WIDTH_MS = 10_000  # not a minute, which would cover nearly the whole demo
# Enough for full batches, and few enough that a closed gate or a dead leader takes effect quickly.
IN_FLIGHT_MAX = 10_000

CAREFUL: Mapping[str, str] = {"acks": "all", "enable.idempotence": "true", "linger.ms": "5"}
CARELESS: Mapping[str, str] = {"acks": "1", "enable.idempotence": "false", "linger.ms": "5"}


@dataclass(slots=True)
class Gate:
    """Orders below `limit` may be sent. Written by one thread, read by the others."""

    limit: int = 0
    closed: bool = False  # permanently: waiting producers stop


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerPlan:
    """The work of one producer: every `step`-th order, starting with `first`."""

    settings: Mapping[str, str]
    topic: str
    topic_id: str
    first: int
    step: int
    orders: int
    events: Path
    reports: bool  # whether to send counts of acknowledged records to the audit topic


@dataclass(slots=True)
class Deliveries:
    """The counts of one producer, written only by its own thread."""

    sent: int = 0
    acknowledged: Counter[int] = field(default_factory=Counter)  # by partition
    failed: int = 0


class OrderProducer(threading.Thread):
    """One producer in its own thread, which also handles its delivery reports."""

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
        # Delivery reports contain all errors; log lines would only repeat them.
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
            while number >= self._gate.limit and not self._gate.closed:
                self._poll(producer, POLL_S)
            if self._gate.closed:
                break
            self._send(producer, number, on_delivery)
            if self.deliveries.sent % 256 == 0:
                self._poll(producer, 0)
        while len(producer) and not self._gate.closed:
            self._poll(producer, POLL_S)
        if self._gate.closed:
            producer.purge()
        self._report(producer, flush=True)
        producer.flush(0 if self._gate.closed else 30)
        if self._unreported is not None or (len(producer) and not self._gate.closed):
            raise Unavailable(
                f"acknowledged records could not be reported to {AUDIT_TOPIC}: "
                f"{self._unreported or 'no response'}"
            )
        _write_event(
            events,
            "tool_data",
            sent=self.deliveries.sent,
            acked=self.deliveries.acknowledged.total(),
        )
        _write_event(events, "shutdown_complete")

    def _send(self, producer: Producer, number: int, on_delivery: Any) -> None:
        while not self._gate.closed:
            try:
                producer.produce(
                    self._plan.topic,
                    key=order_key(number),
                    value=order_value(number),
                    on_delivery=on_delivery,
                )
            except BufferError:
                self._poll(producer, POLL_S)
            else:
                self.deliveries.sent += 1
                return

    def _poll(self, producer: Producer, wait_s: float) -> None:
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
            self._counter.add(
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
        """Sends a report, waiting for room in the queue, which orders fill during a failover."""
        while not self._gate.closed:
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
    """All producers. Entering the context starts them; leaving it stops them."""

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
        self._gate.closed = True
        for producer in self._producers:
            producer.join()

    def allow_up_to(self, number: int) -> None:
        """Allows the producers to send the orders below `number`."""
        self._gate.limit = number

    @property
    def acknowledged(self) -> int:
        return sum(p.deliveries.acknowledged.total() for p in self._producers)

    @property
    def failed(self) -> int:
        return sum(p.deliveries.failed for p in self._producers)

    @property
    def finished(self) -> bool:
        """Whether every order has its delivery report, and every report is in the audit topic."""
        return not any(p.is_alive() for p in self._producers)

    def acknowledged_in(self, partitions: set[int]) -> int:
        return sum(
            p.deliveries.acknowledged[partition]
            for p in self._producers
            for partition in partitions
        )

    def check(self) -> None:
        """Raises the exception that stopped a producer, if any."""
        for producer in self._producers:
            if producer.failure is not None:
                raise producer.failure


def _write_event(events: TextIOWrapper, name: str, **fields: object) -> None:
    line = {"timestamp": int(time.time() * 1000), "name": name, **fields}
    events.write(json.dumps(line, separators=(",", ":")) + "\n")


def _text(data: bytes | str | None) -> str | None:
    return data.decode() if isinstance(data, bytes) else data
