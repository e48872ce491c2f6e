"""Commits: what is finished, every few seconds or records, and before partitions are given away.

Rules:
    - One asynchronous commit at a time; offsets of a partition only go up.
    - A commit that failed for a reason that passes is tried again.
    - A commit refused because the group has gone on without this member is not (claim C13). Its
      partitions commit nothing more until the group has spoken: either they are lost, and dropped,
      or they are kept, and the next commit is as good as any. Between the two librdkafka would
      commit as nobody in particular, which a broker takes when the group happens to be empty.
    - A partition that is forgotten is never committed, whatever is still under way for it.

All of it in the poll thread.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from lossless.client.consuming.interfaces import Place, shown
from lossless.client.metrics import ConsumerMetrics

logger = logging.getLogger(__name__)

RETRY_FIRST_S = 0.1
RETRY_MAX_S = 5.0

# Not among them is STALE_MEMBER_EPOCH: the group has gone on with this member in it, whose next
# heartbeat brings the new epoch; or the loss of the partitions, which are forgotten then.
ZOMBIE = frozenset(
    {
        KafkaError.ILLEGAL_GENERATION,
        KafkaError.UNKNOWN_MEMBER_ID,
        KafkaError.FENCED_INSTANCE_ID,
        KafkaError.FENCED_MEMBER_EPOCH,
        KafkaError._ASSIGNMENT_LOST,
        KafkaError._FENCED,
    }
)
# Not worth trying again with the same offsets: the group, the topic or the rights are not there.
REFUSED = frozenset(
    {
        KafkaError.GROUP_AUTHORIZATION_FAILED,
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.INVALID_GROUP_ID,
        KafkaError.OFFSET_METADATA_TOO_LARGE,
        KafkaError.INVALID_COMMIT_OFFSET_SIZE,
    }
)


class Committer:
    def __init__(
        self,
        consumer: Consumer,
        metrics: ConsumerMetrics,
        *,
        every_s: float,
        every_records: int | None,
        refused: Callable[[KafkaError], None],
    ) -> None:
        self._consumer = consumer
        self._metrics = metrics
        self._every_s = every_s
        self._every_records = every_records
        self._refused = refused
        self._positions: dict[Place, TopicPartition] = {}  # what may be committed
        self._committed: dict[Place, TopicPartition] = {}  # what Kafka has
        self._suspended: set[Place] = set()
        self._in_flight: dict[Place, TopicPartition] = {}
        self._starting = threading.Lock()
        self._idle = threading.Event()  # no commit is under way
        self._idle.set()
        self._last_at = time.monotonic()
        self._finished_at_last = 0
        self._retry_at = 0.0
        self._retry_s = RETRY_FIRST_S
        self.committing_since: float | None = None  # monotonic time at which commit_now began
        self.by_transactions = False  # a producer commits: only the positions are kept

    def committed_before(self, place: Place, position: TopicPartition) -> None:
        """What the group had committed when the partition was assigned."""
        self._committed[place] = position

    def committed(self, place: Place) -> int | None:
        position = self._committed.get(place)
        return None if position is None else position.offset

    def positions(self) -> dict[Place, TopicPartition]:
        return dict(self._positions)

    def uncommitted(self) -> dict[Place, TopicPartition]:
        """Positions that Kafka does not have yet."""
        known = self.positions()
        return {place: at for place, at in known.items() if self._is_news(place, at)}

    def add(self, positions: Mapping[Place, TopicPartition]) -> None:
        self._positions.update(positions)

    def leave_to_transactions(self, timeout_s: float) -> bool:
        """Commits nothing from now on. Returns whether the last commit was answered in time.

        Until then a transaction must not commit: the broker could apply the older offsets last.
        Called by the thread of the transaction.
        """
        with self._starting:
            self.by_transactions = True
        return self._idle.wait(timeout_s)

    def committed_by_transaction(self, positions: Mapping[Place, TopicPartition]) -> None:
        self._committed.update(positions)

    def forget(self, places: Iterable[Place]) -> None:
        for place in places:
            for known in (self._positions, self._committed, self._in_flight):
                known.pop(place, None)
            self._suspended.discard(place)

    def group_has_spoken(self) -> None:
        self._suspended.clear()

    def soon(self) -> None:
        """Whatever the interval says."""
        self._retry_at = self._retry_at or time.monotonic()

    def due(self, finished: int, now: float) -> bool:
        if self._in_flight:
            return False
        if self._retry_at:
            return now >= self._retry_at
        if finished == self._finished_at_last:
            return False
        if now - self._last_at >= self._every_s:
            return True
        return (
            self._every_records is not None
            and finished - self._finished_at_last >= self._every_records
        )

    def commit(self, finished: int, now: float) -> None:
        """Asks for it; `on_commit` hears what became of it, inside a later consume()."""
        self._last_at = now
        self._finished_at_last = finished
        self._retry_at = 0.0
        offsets = self._start(self._positions)
        if not offsets:
            return
        try:
            self._consumer.commit(offsets=offsets, asynchronous=True)
        except KafkaException as error:
            self._idle.set()
            self._failed(error.args[0], offsets)
            return
        self._in_flight = {(each.topic, each.partition): each for each in offsets}

    def on_commit(self, error: KafkaError | None, partitions: list[TopicPartition]) -> None:
        """Synchronous commits do not come by here; those of the beginning of a group do."""
        if not any((each.topic, each.partition) in self._in_flight for each in partitions):
            return
        asked, self._in_flight = self._in_flight, {}
        self._idle.set()
        self._answered(error, [p for p in partitions if (p.topic, p.partition) in asked], asked)

    def commit_now(self, places: Iterable[Place], timeout_s: float) -> bool:
        """Synchronously, for these partitions; again while the reason passes. Whether it worked.

        librdkafka itself may wait for the coordinator for longer than that.
        """
        self.committing_since = time.monotonic()
        try:
            return self._commit_now(set(places), timeout_s)
        finally:
            self.committing_since = None

    def _commit_now(self, wanted: set[Place], timeout_s: float) -> bool:
        deadline = time.monotonic() + timeout_s
        pause_s = RETRY_FIRST_S
        while True:
            offsets = self._start({p: o for p, o in self._positions.items() if p in wanted})
            if not offsets:
                return not (wanted & self._suspended)
            asked = {(each.topic, each.partition): each for each in offsets}
            try:
                answered = self._consumer.commit(offsets=offsets, asynchronous=False)
            except KafkaException as error:
                self._answered(error.args[0], offsets, asked)
            else:
                self._answered(None, answered, asked)
            finally:
                if not self._in_flight:
                    self._idle.set()
            self._retry_at = 0.0
            if not self._outstanding({p: o for p, o in self._positions.items() if p in wanted}):
                return not (wanted & self._suspended)
            if time.monotonic() + pause_s >= deadline:
                logger.warning("%s: not committed in time; will be repeated", shown(wanted))
                return False
            time.sleep(pause_s)
            pause_s = min(2 * pause_s, RETRY_MAX_S)

    def _start(self, positions: Mapping[Place, TopicPartition]) -> list[TopicPartition]:
        """What is to be committed now; a transaction that begins waits for it."""
        with self._starting:
            offsets = self._outstanding(positions)
            if offsets:
                self._idle.clear()
            return offsets

    def _outstanding(self, positions: Mapping[Place, TopicPartition]) -> list[TopicPartition]:
        if self.by_transactions:
            return []
        return [
            position
            for place, position in positions.items()
            if place not in self._suspended and self._is_news(place, position)
        ]

    def _is_news(self, place: Place, position: TopicPartition) -> bool:
        known = self._committed.get(place)
        if known is None or position.offset > known.offset:
            return True
        return position.offset == known.offset and (position.metadata or "") != (
            known.metadata or ""
        )

    def _answered(
        self,
        error: KafkaError | None,
        partitions: list[TopicPartition],
        asked: Mapping[Place, TopicPartition],
    ) -> None:
        if error is not None:
            self._failed(error, list(asked.values()))
            return
        failed: dict[int, list[TopicPartition]] = {}
        errors: dict[int, KafkaError] = {}
        for answer in partitions:
            place = (answer.topic, answer.partition)
            if answer.error is not None:
                failed.setdefault(answer.error.code(), []).append(answer)
                errors[answer.error.code()] = answer.error
            elif place in asked and place in self._positions:
                self._committed[place] = asked[place]
        for code, refused in failed.items():
            self._failed(errors[code], refused)
        if not failed:
            self._metrics.commits += 1
            self._retry_s = RETRY_FIRST_S

    def _failed(self, error: KafkaError, offsets: list[TopicPartition]) -> None:
        code = error.code()
        if code == KafkaError._NO_OFFSET or not offsets:  # or all of them forgotten meanwhile
            return
        self._metrics.commits_failed += 1
        places = {(each.topic, each.partition) for each in offsets}
        if code in ZOMBIE:
            logger.warning(
                "commit of %s refused (%s): the group may have gone on without this member",
                shown(places),
                error.str(),
            )
            self._suspended |= places
        elif code in REFUSED:
            self._refused(error)
        else:
            logger.info("commit of %s failed, will be tried again: %s", shown(places), error.str())
            self._retry_at = time.monotonic() + self._retry_s
            self._retry_s = min(2 * self._retry_s, RETRY_MAX_S)
