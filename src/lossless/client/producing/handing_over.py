"""How a record gets to librdkafka when one call is not enough: no room, the spool, a transaction.

Everything here runs in the thread that sends. A record is outstanding from just before librdkafka
is given it, and stops being so if librdkafka does not take it, whatever the reason.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from confluent_kafka import KafkaException

from lossless.client.classification import error_from
from lossless.client.errors import BufferFull, ClientError, Kind, Refused
from lossless.client.producing.deliveries import Deliveries
from lossless.client.producing.delivery import Delivery
from lossless.client.producing.failing import Failing
from lossless.client.producing.giving_up import GivingUp, Park, Raise
from lossless.client.producing.parking import Parking
from lossless.client.producing.serving import Serving
from lossless.client.producing.standing import Standing
from lossless.client.record import Record

if TYPE_CHECKING:
    from lossless.client.producing.transacting import Transactions

ROOM_S = 0.01  # less than the serving thread stands back
LOOK_AGAIN_S = 0.01  # of a coroutine, which must not block its loop


class Produce(Protocol):
    def __call__(self, *arguments: object) -> None: ...


class HandingOver:
    def __init__(
        self,
        produce: Produce,
        policy: GivingUp,
        standing: Standing,
        deliveries: Deliveries,
        serving: Serving,
        failing: Failing,
        parking: Parking | None,
        transactions: Transactions | None,
        *,
        hear: Callable[[float], None] | None,
        wait_s: float | None,
    ) -> None:
        """Transactions: those of a producer that sends in nothing else. hear: serves librdkafka's
        answers from the thread that sends, if this may be done there."""
        self._hear = hear
        self._produce = produce
        self._policy = policy
        self._standing = standing
        self._deliveries = deliveries
        self._serving = serving
        self._failing = failing
        self._parking = parking
        self._transactions = transactions
        self._wait_s = wait_s

    def send(self, delivery: Delivery, record: Record, raised: Exception | None = None) -> None:
        """Raised: by an attempt that was made already."""
        deadline = self._deadline()
        while not self._attempt(delivery, record, raised):
            raised = None
            left_s = deadline - time.monotonic()
            if left_s <= 0 or self._serving.is_current:  # which is the one that makes room
                raise self._no_room(record)
            if self._hear is None:
                self._serving.wait_for_room(min(ROOM_S, left_s))
            else:
                self._hear(min(ROOM_S, left_s))

    async def send_async(self, delivery: Delivery, record: Record) -> None:
        """Like `send`, but lets the event loop run while it waits."""
        deadline = self._deadline()
        while not self._attempt(delivery, record, None):
            if time.monotonic() >= deadline or self._serving.is_current:
                raise self._no_room(record)
            try:
                await asyncio.sleep(LOOK_AGAIN_S)
            except asyncio.CancelledError:
                self._deliveries.unsent += 1
                raise

    def end(self) -> None:
        """Drops what keeps librdkafka's client alive. What is sent from now on is refused."""
        del self._failing, self._parking, self._transactions

    def _deadline(self) -> float:
        wait_s = self._standing.patience_s() if self._wait_s is None else self._wait_s
        return time.monotonic() + wait_s

    def _attempt(self, delivery: Delivery, record: Record, raised: Exception | None) -> bool:
        """False if there is no room for it now."""
        if raised is None:
            try:
                self._hand_over(delivery, record)
            except Exception as error:
                raised = error
            else:
                return True
        refusal = self._standing.refusal()
        if isinstance(raised, KafkaException):
            self._on_refused(delivery, record, error_from(raised.args[0], record))
            return True
        if refusal is not None:  # whatever a producer that is ending may have raised
            self._deliveries.unsent += 1
            raise refusal
        if isinstance(raised, BufferError):
            return False
        self._deliveries.unsent += 1
        if isinstance(raised, ClientError):
            raise raised
        raise Refused(
            f"{record}: librdkafka does not take it: {raised}",
            hint="look at the types of topic, partition, timestamp and headers",
            record=record,
        ) from raised

    def _hand_over(self, delivery: Delivery, record: Record) -> None:
        if self._standing.is_of_parent:  # a lock may be held by a thread that is not here
            raise self._standing.refused()
        if self._transactions is not None and self._transactions.open is None:
            raise Refused(
                f"{record}: this producer has a transactional.id and sends in transactions only",
                hint="with producer.transaction() as transaction: transaction.send(…)",
                record=record,
            )
        if self._parking is None:
            self._give_to_librdkafka(delivery, record)
            return
        delivery.record = record
        with self._parking.gate:
            if self._standing.refuses:
                raise self._standing.refused()
            if not self._parking.takes(record, delivery):
                self._give_to_librdkafka(delivery, record)

    def _give_to_librdkafka(self, delivery: Delivery, record: Record) -> None:
        self._deliveries.outstanding[delivery.number] = delivery
        try:
            self._produce(
                record.topic,
                record.value,
                record.key,
                -1 if record.partition is None else record.partition,
                delivery,
                None,
                record.timestamp_ms or 0,
                [*record.headers],
            )
        except Exception:  # Ctrl-C is no Exception: it may come when librdkafka has the record
            del self._deliveries.outstanding[delivery.number]
            raise

    def _no_room(self, record: Record) -> BufferFull:
        self._deliveries.unsent += 1
        return BufferFull(
            f"{record}: there is no room in memory: {len(self._deliveries.outstanding)} records"
            " wait for the cluster to take them",
            hint="wait until it does, park records on disk (giving_up=Park(…)), or raise "
            "queue.buffering.max.messages and queue.buffering.max.kbytes",
            record=record,
        )

    def _on_refused(self, delivery: Delivery, record: Record, error: ClientError) -> None:
        if error.kind is Kind.FATAL:
            self._standing.fail(error)
        if isinstance(self._policy, Raise | Park) or error.kind is Kind.FATAL:
            self._deliveries.unsent += 1
            raise error
        self._failing.give_up(delivery, record, error)
