"""Park: which records go to the spool, and when they come back out of it.

The promise: a later record of a key never overtakes a parked one. The rules that keep it:

- librdkafka never gives a record up by itself, for it would send the next one of the same key
  before we hear of it. We keep the time. When the oldest record has waited for too long we *hold*:
  from then on sending writes to the spool, whatever the key, and everything that librdkafka has not
  sent yet is purged and parked. What is in flight is left to be decided: it comes first anyway, and
  takes socket.timeout.ms at most. Holding ends when nothing is outstanding any more.
- A *lane* is the records of one topic, partition asked for and key. As long as a lane has rows in
  the spool, its new records go there too. Other lanes are free.
- Rows are sent again in order, a thousand at a time; more while these do not move, for a partition
  without a leader must not keep the others waiting. When one fails, nothing more is sent until
  every other one in flight is decided; then it starts again from the first row. So a row is only
  in flight behind those before it.
- A row is removed when it is acknowledged, and its lane is free only after that is on the disk.

The gate makes "is this lane free?" and "give it to librdkafka" one step; holding begins under it.
"""

from __future__ import annotations

import itertools
import logging
import sqlite3
import threading
import time
import weakref
from collections import Counter, deque
from functools import partial
from typing import TYPE_CHECKING

from confluent_kafka import KafkaException

from lossless.client.classification import error_from
from lossless.client.errors import ClientError, Kind, Refused, SpoolFull
from lossless.client.metrics import ProducerMetrics
from lossless.client.producing.deliveries import Deliveries
from lossless.client.producing.delivery import Delivery
from lossless.client.producing.spool import Parked, Spool, bytes_of, lane_of
from lossless.client.record import Record

if TYPE_CHECKING:
    from confluent_kafka import KafkaError, Message
    from confluent_kafka import Producer as Client

logger = logging.getLogger("lossless.client.producer")

REPLAYED_AT_ONCE_MAX = 1_000
REPLAYED_MAX = 50_000  # also if what was sent again does not move
MOVES_S = 0.2
REPLAY_AGAIN_S = 1.0
UNCOMMITTED_MAX = 10_000
STUCK_S = 3.0  # without an acknowledgement: the cluster takes nothing


class Parking:
    """Sending threads call `takes`, under the gate; all the rest is of the serving thread."""

    def __init__(
        self,
        spool: Spool,
        client: Client,
        deliveries: Deliveries,
        metrics: ProducerMetrics,
        *,
        timeout_s: float,
    ) -> None:
        self.gate = threading.RLock()
        self._spool = spool
        self._client = client
        self._deliveries = deliveries
        self._metrics = metrics
        self._timeout_s = timeout_s
        self._base = spool.last_place
        self._holding = False
        self._lanes = Counter(spool.lanes)
        self._uncommitted: deque[tuple[Parked, Delivery]] = deque()
        self._bytes = spool.bytes  # with what is not committed yet
        self._waiting: weakref.WeakValueDictionary[int, Delivery] = weakref.WeakValueDictionary()
        self._replaying: dict[int, Parked] = {}
        self._acknowledged: list[Parked] = []
        self._cursor = 0
        self._in_order = True  # nothing failed since the cursor was at the first row
        self._replay_at = 0.0
        self._replayed_at = 0.0  # when rows were last sent again
        self._moved_at = 0.0  # when the last row was acknowledged
        self._is_unreadable = False
        self._stays = False  # what is acknowledged, since it cannot be removed
        self._ending = False
        if spool.count:
            logger.info("%d records parked in %s are sent again", spool.count, spool.folder)
        if spool.refused:
            logger.warning(
                "%d records in %s were refused by Kafka and are kept there",
                spool.refused,
                spool.folder,
            )
        self._show()

    # Of the threads that send, under the gate

    def takes(self, record: Record, delivery: Delivery) -> bool:
        """Whether the record must go to the spool; if so it is on its way there."""
        if not self._holding and lane_of(record) not in self._lanes:
            return False
        if len(self._uncommitted) >= UNCOMMITTED_MAX:
            raise BufferError("too many records wait for the disk")
        self._accept(record, delivery)
        return True

    def _accept(self, record: Record, delivery: Delivery) -> None:
        size = bytes_of(record)
        if self._bytes + size > self._spool.bytes_max:
            raise SpoolFull(
                f"{record}: no room to park it, {self._spool.folder} holds {self._bytes} of "
                f"{self._spool.bytes_max} bytes",
                hint="the cluster has not taken what is parked: look why, or raise bytes_max",
                record=record,
            )
        self._bytes += size
        self._lanes[lane_of(record)] += 1
        self._uncommitted.append((Parked(self._base + delivery.number, record, size), delivery))

    # Of the serving thread

    @property
    def is_committed(self) -> bool:
        """Whether everything is on the disk that is to be there."""
        return not self._uncommitted

    @property
    def is_idle(self) -> bool:
        """And nothing is being sent again, nor acknowledged and still there."""
        return not (self._uncommitted or self._holding or self._replaying or self._acknowledged)

    def is_drained(self, since: float, now: float) -> bool:
        """Whether nothing is left, or the cluster has taken nothing for a while."""
        if self.is_idle and not self._spool.count:
            return True
        return now - max(since, self._moved_at) > STUCK_S

    def park(self, record: Record, delivery: Delivery) -> None:
        """It was given up. SpoolFull when there is no room for it."""
        with self.gate:
            self._hold()
            self._accept(record, delivery)

    def hold(self) -> None:
        """Everything that is not acknowledged goes to the spool, now."""
        with self.gate:
            self._hold()

    def end(self) -> None:
        """Nothing more is sent again by this producer."""
        self._ending = True

    def close(self) -> int:
        """How many records stay parked."""
        self._spool.close()
        return int(self._spool.count)

    def tend(self, now: float) -> bool:
        if 0 < self._timeout_s <= self._deliveries.waited_s(now) and not self._holding:
            self.hold()
        if self._holding:
            # Again and again: what was in flight and failed is in the queue again.
            self._client.purge(in_queue=True, in_flight=False, blocking=False)
        self._commit()
        if self._acknowledged:
            self._moved_at = now
        removed = self._remove()
        if self._holding:
            with self.gate:
                if not self._deliveries.outstanding and not self._uncommitted:
                    self._holding = False
                    logger.info("%d records are parked", self._spool.count)
        elif removed:
            self._replay(now)
        self._show()
        return self._holding or bool(self._uncommitted or self._replaying)

    def _hold(self) -> None:
        if not self._holding:
            self._holding = True
            self._in_order = False
            logger.warning(
                "records that are not acknowledged yet are parked in %s", self._spool.folder
            )

    def _commit(self) -> None:
        added = list(itertools.islice(self._uncommitted, len(self._uncommitted)))
        size = len(added)
        while added:
            part = added[:size]
            try:
                self._spool.add([row for row, _ in part])
            except sqlite3.Error as error:  # on a disk that is almost full less may still fit
                made_room = self._spool.shrink()
                if size == 1 and not made_room:
                    self._cannot_park(*part[0], error)
                    del added[0]
                size = max(1, size // 2)
                continue
            self._is_parked(part)
            del added[: len(part)]

    def _is_parked(self, added: list[tuple[Parked, Delivery]]) -> None:
        for row, delivery in added:
            self._uncommitted.popleft()
            self._waiting[row.place] = delivery
            delivery.parked = True
            if row.place <= self._cursor:  # threads that send at once, or holding: go back for it
                self._in_order = False
            if delivery.is_watched:
                self._deliveries.watched[delivery.number] = delivery

    def _cannot_park(self, row: Parked, delivery: Delivery, error: sqlite3.Error) -> None:
        self._uncommitted.popleft()
        self._free([row])
        self._metrics.failed += 1
        full = SpoolFull(
            f"{row.record}: it could not be parked in {self._spool.folder}: {error}",
            hint="look whether the disk is full",
            record=row.record,
        )
        full.__cause__ = error
        self._deliveries.failed(delivery, full)

    # Sending again

    def _replay(self, now: float) -> None:
        if self._ending or now < self._replay_at:
            return
        if not self._in_order:
            if self._replaying:
                return
            self._in_order = True
            self._cursor = 0
        if not self._spool.count:
            return
        if len(self._replaying) > REPLAYED_AT_ONCE_MAX // 2:
            moves = now - max(self._replayed_at, self._moved_at) < MOVES_S
            if moves or len(self._replaying) > REPLAYED_MAX:
                return
        self._replayed_at = now
        for row in self._next_rows(now):
            if not self._send_again(row, now):
                return
            self._cursor = row.place

    def _next_rows(self, now: float) -> list[Parked]:
        try:
            rows = self._spool.after(self._cursor, REPLAYED_AT_ONCE_MAX)
        except sqlite3.Error as failure:
            if not self._is_unreadable:
                self._is_unreadable = True
                logger.error(
                    "records parked in %s cannot be read, and stay there: %s (keep the folder, and "
                    "copy what is readable by `sqlite3 … .recover`)",
                    self._spool.folder,
                    failure,
                )
            self._replay_at = now + REPLAY_AGAIN_S
            return []
        self._is_unreadable = False
        return rows

    def _send_again(self, row: Parked, now: float) -> bool:
        record = row.record
        if row.damage is not None:
            self._refuse(row, f"its headers are damaged on the disk: {row.damage}", now)
            return self._in_order
        self._replaying[row.place] = row
        try:
            self._client.produce(
                record.topic,
                record.value,
                record.key,
                -1 if record.partition is None else record.partition,
                partial(self._on_report, row),
                None,
                record.timestamp_ms or 0,
                [*record.headers],
            )
        except BufferError:
            del self._replaying[row.place]
            return False
        except KafkaException as raised:
            del self._replaying[row.place]
            self._on_failure(row, error_from(raised.args[0], record))
            if not self._in_order:
                self._replay_at = now + REPLAY_AGAIN_S
            return self._in_order
        except (TypeError, ValueError, OverflowError) as raised:
            del self._replaying[row.place]
            self._refuse(row, f"it is damaged on the disk: {raised}", now)
            return self._in_order
        return True

    def _refuse(self, row: Parked, why: str, now: float) -> None:
        where = f"row {row.place} of {self._spool.folder}"
        self._on_failure(row, Refused(f"{where}: {why}", record=row.record))
        if not self._in_order:
            self._replay_at = now + REPLAY_AGAIN_S

    def _on_report(self, row: Parked, error: KafkaError | None, message: Message) -> None:
        del self._replaying[row.place]
        if error is not None:
            self._on_failure(row, error_from(error, row.record))
            return
        self._acknowledged.append(row)
        self._deliveries.acknowledged.append(message)
        delivery = self._waiting.pop(row.place, None)
        if delivery is not None:
            self._deliveries.watched.pop(delivery.number, None)
            delivery.acknowledge(message)

    def _on_failure(self, row: Parked, error: ClientError) -> None:
        if error.kind is not Kind.PERMANENT:
            self._in_order = False  # it stays where it is
            return
        try:
            self._spool.refuse(row, error.what)
        except sqlite3.Error as failure:  # then it is refused again, until there is room to say so
            self._in_order = False
            self._replay_at = time.monotonic() + REPLAY_AGAIN_S
            logger.error(
                "a parked record is refused, which cannot be noted: %s: %s", failure, error
            )
            return
        logger.error("a parked record is refused and kept in %s: %s", self._spool.folder, error)
        self._free([row])
        self._metrics.failed += 1
        delivery = self._waiting.pop(row.place, None)
        if delivery is not None:
            self._deliveries.watched.pop(delivery.number, None)
            self._deliveries.failed(delivery, error)

    def _remove(self) -> bool:
        """Whether the rows that are acknowledged are gone: else they would be sent again."""
        if self._acknowledged:
            try:
                self._spool.remove(self._acknowledged)
            except sqlite3.Error as failure:
                if not self._stays:
                    self._stays = True
                    logger.error(
                        "acknowledged records stay parked in %s until it can be written again: %s",
                        self._spool.folder,
                        failure,
                    )
                return False
            self._stays = False
            rows, self._acknowledged = self._acknowledged, []
            self._free(rows)
        return True

    def _free(self, rows: list[Parked]) -> None:
        with self.gate:
            for row in rows:
                self._bytes -= row.bytes
                lane = lane_of(row.record)
                self._lanes[lane] -= 1
                if not self._lanes[lane]:
                    del self._lanes[lane]

    def _show(self) -> None:
        self._metrics.parked = self._spool.count + len(self._uncommitted)
        self._metrics.parked_bytes = self._bytes
