"""The policy at work: what becomes of each record that was given up (see giving_up.py)."""

from __future__ import annotations

import logging
from collections.abc import Callable as Function
from functools import partial
from typing import TYPE_CHECKING

from confluent_kafka import KafkaError, KafkaException

from lossless.client.classification import PURGED, UNREACHABLE, error_from
from lossless.client.connecting import Connections
from lossless.client.errors import ClientError, Kind, NotDelivered, SpoolFull
from lossless.client.metrics import ProducerMetrics
from lossless.client.producing.callbacks import called_well
from lossless.client.producing.deliveries import Deliveries
from lossless.client.producing.delivery import Delivery
from lossless.client.producing.giving_up import (
    Callback,
    DeadLetter,
    Drop,
    GivingUp,
    dead_letter_headers,
)
from lossless.client.producing.parking import Parking
from lossless.client.record import Headers, Record

if TYPE_CHECKING:
    from confluent_kafka import Message
    from confluent_kafka import Producer as Client

logger = logging.getLogger("lossless.client.producer")


class Failing:
    """Of the serving thread; a record that is refused at once fails in the thread that sends it."""

    def __init__(
        self,
        policy: GivingUp,
        client: Client,
        deliveries: Deliveries,
        metrics: ProducerMetrics,
        parking: Parking | None,
        connections: Connections,
        *,
        headers_of: Function[[Delivery], Headers],
        transactional: bool,
    ) -> None:
        self._policy = policy
        self._client = client
        self._deliveries = deliveries
        self._metrics = metrics
        self._parking = parking
        self._connections = connections
        self._headers_of = headers_of
        self._is_transactional = transactional
        self._is_ending = False
        self._unsent: dict[int, tuple[Delivery, Record, ClientError]] = {}  # dead letters
        self._in_flight: dict[int, Delivery] = {}

    def on_failure(
        self,
        delivery: Delivery,
        failed: KafkaError,
        message: Message,
        fatal: ClientError | None,
    ) -> ClientError:
        """librdkafka gave it up. fatal: why the whole client failed, which then is the reason."""
        record = delivery.record or Record(
            topic=message.topic() or "",
            key=message.key(),
            value=message.value(),
            headers=self._headers_of(delivery),
            partition=delivery.partition,
            timestamp_ms=_timestamp_ms(message),
        )
        if fatal is not None and failed.code() in PURGED:
            error: ClientError = type(fatal)(
                f"{record}: {fatal.what}", hint=fatal.hint, code=fatal.code, record=record
            )
        elif failed.code() == KafkaError._PURGE_QUEUE and self._connections.is_login_refused:
            error = login_refused(self._connections, record)
        else:
            unreachable = failed.code() in UNREACHABLE
            explanation = self._connections.explanation() if unreachable else None
            error = error_from(failed, record, explanation)
        self.give_up(delivery, record, error)
        return error

    def give_up(self, delivery: Delivery, record: Record, error: ClientError) -> None:
        policy = self._policy
        handled = self._is_transactional  # the transaction as a whole fails, which is raised
        parking = self._parking if error.kind is not Kind.PERMANENT else None
        if parking is not None:
            try:
                parking.park(record, delivery)
                return
            except SpoolFull as full:
                full.__cause__ = error
                error = full
        self._metrics.failed += 1
        if isinstance(policy, DeadLetter):
            if not self._is_ending and error.kind is not Kind.FATAL:
                delivery.give_up(error)
                self._unsent[delivery.number] = (delivery, record, error)
                return
        elif isinstance(policy, Callback):
            name = "the callback for records given up"
            handled = called_well(policy.function, record, error, name=name) or handled
        elif isinstance(policy, Drop):
            self._metrics.dropped += 1
            handled = True
            logger.warning("dropped: %s", error.what)
        self._deliveries.failed(delivery, error, handled=handled)

    def end(self) -> None:
        """Out of time: no dead letter is begun any more."""
        self._is_ending = True

    @property
    def is_idle(self) -> bool:
        return not self._unsent and not self._in_flight

    def is_settled(self, reached: int) -> bool:
        """Whether every dead letter of records below this number is decided."""
        return all(number > reached for number in [*self._unsent, *self._in_flight])

    def tend(self) -> bool:
        for number, (delivery, record, error) in list(self._unsent.items()):
            if self._is_ending:
                self._deliveries.failed(delivery, error)
            elif not self._send_letter(delivery, record, error):
                return True
            del self._unsent[number]
        return bool(self._in_flight)

    def _send_letter(self, delivery: Delivery, record: Record, error: ClientError) -> bool:
        """False when there is no room for it yet."""
        if not isinstance(self._policy, DeadLetter):
            raise AssertionError("only one policy writes letters")
        self._in_flight[delivery.number] = delivery
        try:
            self._client.produce(
                self._policy.topic_for(record),
                record.value,
                record.key,
                -1,
                partial(self._on_letter, delivery, record, error),
                None,
                0,
                [*dead_letter_headers(record, error)],
            )
        except BufferError:
            del self._in_flight[delivery.number]
            return False
        except KafkaException as raised:
            del self._in_flight[delivery.number]
            self._no_letter(delivery, error, error_from(raised.args[0], record))
        return True

    def _on_letter(
        self,
        delivery: Delivery,
        record: Record,
        error: ClientError,
        failed: KafkaError | None,
        message: Message,
    ) -> None:
        del self._in_flight[delivery.number]
        if failed is not None:
            self._no_letter(delivery, error, error_from(failed, record))
            return
        self._metrics.dead_lettered += 1
        logger.warning("a dead letter in %s: %s", message.topic(), error.what)
        self._deliveries.acknowledged.append(message)
        delivery.acknowledge(message)

    def _no_letter(self, delivery: Delivery, error: ClientError, also: ClientError) -> None:
        logger.error("no dead letter either: %s", also)
        error.__cause__ = also
        self._deliveries.failed(delivery, error)


def login_refused(connections: Connections, record: Record | None = None) -> NotDelivered:
    """No broker takes the login: whatever is sent would wait until time is up."""
    explanation = connections.explanation()
    what = "no broker accepts the login"
    if explanation is not None:
        what = f"{what}: {explanation.what}"
    return NotDelivered(
        what if record is None else f"{record}: {what}",
        hint=None if explanation is None else explanation.hint,
        code=KafkaError._AUTHENTICATION,
        record=record,
    )


def _timestamp_ms(message: Message) -> int | None:
    """A record that a broker has refused has none any more."""
    timestamp_ms = message.timestamp()[1]
    return timestamp_ms if timestamp_ms > 0 else None
