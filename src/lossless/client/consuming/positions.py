"""Where reading begins, and what happens where there is no right place to go on from.

    no offset       the group never committed, or what it committed has expired (claims C2 and C12).
                    With no_offset="latest", the member that has partition 0 commits the ends of all
                    partitions when the group begins on a topic; the others wait for it. So a
                    partition without an offset, where partition 0 has one, was added later, and is
                    read from its first record.
    out of range    the records are gone, or were never there
    truncated       records that were read are no longer in the log (claim C11)

librdkafka is told never to choose (auto.offset.reset=error). What it does instead: an error record
_AUTO_OFFSET_RESET for the partition, whose text names the reason, and which stops being fetched;
it cannot be sought then, only assigned anew. Truncation is found because commits and positions
carry leader epochs, which librdkafka compares with the leader's when the leader changes or a
partition is assigned.

Every move by policy is logged with the number of records it leaves out, and counted.
"""

from __future__ import annotations

import logging
import re
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    TopicPartition,
)

from lossless.client.connecting import Explanation
from lossless.client.consuming.interfaces import Place, has_epoch, place_of
from lossless.client.consuming.settings import ConsumerOptions
from lossless.client.errors import (
    LogTruncated,
    NoCommittedOffset,
    OffsetOutOfRange,
    StoreUnavailable,
)
from lossless.client.finished_runs import Run, decode
from lossless.client.metrics import ConsumerMetrics
from lossless.client.stores.interface import Store
from lossless.errors import Unavailable

logger = logging.getLogger(__name__)

ASK_TIMEOUT_S = 5.0
ASK_AGAIN_S = 0.2
BEGINNING_S = 10.0  # for the member that has partition 0 to commit where the group begins

_BROKER_END = re.compile(r"broker end offset is (-?\d+)")


class Leaving(Exception):
    """Nobody is to wait for an answer any more: the member closes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """Where one partition begins."""

    position: TopicPartition
    finished_beyond: Sequence[Run] = ()
    committed: TopicPartition | None = None  # what the group has; None: nothing
    commit_at_once: bool = False  # chosen by us: a crash must not choose again, further on


class Positions:
    """Asked in the poll thread only. Whoever does not answer is asked again, until the time is up,
    or the consumer is `closing` (Leaving)."""

    def __init__(
        self,
        consumer: Consumer,
        options: ConsumerOptions,
        metrics: ConsumerMetrics,
        *,
        group: str,
        store: Store | None,
        timeout_s: float,
        closing: threading.Event,
        topic_ids: Callable[[set[str]], Mapping[str, str]] = lambda _: {},
        partitions: Callable[[str], Sequence[int]] = lambda _: (),
        explain: Callable[[], Explanation | None] = lambda: None,
    ) -> None:
        self._explain = explain  # why brokers are unreachable
        self._topic_ids = topic_ids  # these two ask the brokers
        self._partitions = partitions
        self._consumer = consumer
        self._options = options
        self._metrics = metrics
        self._group = group
        self._store = store
        self._timeout_s = timeout_s
        self._closing = closing

    def starts(self, partitions: Sequence[TopicPartition]) -> list[Start]:
        """For partitions that were just assigned. NoCommittedOffset when the policy is to stop."""
        asked = [TopicPartition(each.topic, each.partition) for each in partitions]
        if self._store is None:
            return [self._start(each) for each in self._committed(asked)]
        stored = self._claimed(self._store, [(each.topic, each.partition) for each in asked])
        return [self._start_stored(each, stored) for each in self._committed(asked)]

    def _claimed(self, store: Store, places: list[Place]) -> dict[Place, int | None]:
        """A store that is away is waited for: partitions may come while it is."""
        deadline = time.monotonic() + self._timeout_s
        topic_ids = self._ids_of({topic for topic, _ in places}, deadline)
        while True:
            try:
                claimed = store.claim(self._group, places, topic_ids=topic_ids)
                return {(place.topic, place.partition): at for place, at in claimed.items()}
            except StoreUnavailable as error:
                if time.monotonic() >= deadline:
                    raise
                logger.warning("%s; asked again", error.what)
            self._pause()

    def _ids_of(self, topics: set[str], deadline: float) -> Mapping[str, str]:
        while True:
            try:
                return self._topic_ids(topics)
            except KafkaException as error:
                failed = error.args[0]
            self._ask_again(failed, deadline, f"the ids of the topics {', '.join(sorted(topics))}")

    def _start_stored(self, committed: TopicPartition, stored: Mapping[Place, int | None]) -> Start:
        """By the store alone: what is committed in Kafka says nothing about what is in there."""
        place = (committed.topic, committed.partition)
        offset = stored.get(place)
        if offset is None:
            return self._first(place)
        known = committed if committed.offset >= 0 else None
        return Start(position=TopicPartition(*place, offset), committed=known)

    def _start(self, committed: TopicPartition) -> Start:
        place = (committed.topic, committed.partition)
        known = committed if committed.offset >= 0 else None
        if known is not None:
            beyond = decode(known.offset, known.metadata) if self._options.remember_finished else ()
            return Start(position=known, finished_beyond=beyond, committed=known)
        return self._first(place)

    def _first(self, place: Place) -> Start:
        shown = f"{place[0]}-{place[1]}"
        match self._options.no_offset:
            case "stop":
                raise NoCommittedOffset(
                    f"{shown}: group {self._group} has committed nothing there, or it has expired",
                    hint='say where to begin: no_offset="earliest" repeats what was processed '
                    'before, if anything was; no_offset="latest" skips what is there',
                )
            case "latest":
                return self._latest(place)
            case "earliest":
                logger.info("%s: no committed offset, begins at the first record", shown)
                self._metrics.jumps += 1
                return Start(position=TopicPartition(*place, OFFSET_BEGINNING))

    def _latest(self, place: Place) -> Start:
        shown = f"{place[0]}-{place[1]}"
        self._metrics.jumps += 1
        if place[1] == 0:
            self._begin_topic(place[0])
        deadline = time.monotonic() + BEGINNING_S
        while time.monotonic() < deadline:
            try:
                begun, own = self._consumer.committed(
                    [TopicPartition(place[0], 0), TopicPartition(*place)], timeout=ASK_TIMEOUT_S
                )
            except KafkaException as error:
                logger.info("%s: where the group began is asked again: %s", shown, error)
            else:
                if own.offset >= 0:
                    logger.info("%s: begins at the end, %d", shown, own.offset)
                    return Start(position=own, committed=own)
                if begun.offset >= 0:
                    logger.info("%s: was added after the group began: first record", shown)
                    return Start(position=TopicPartition(*place, OFFSET_BEGINNING))
            self._pause()
        _, end = self.watermarks(place)
        logger.info("%s: no committed offset, begins at the end, %d", shown, end)
        # Committed before anything is read: a consumer that begins at the end and dies at once must
        # not begin further on the next time.
        return Start(position=TopicPartition(*place, end), commit_at_once=True)

    def _begin_topic(self, topic: str) -> None:
        """Commits the ends of all partitions without an offset, in one request. If that fails, each
        member begins at the ends that it finds."""
        try:
            asked = [TopicPartition(topic, number) for number in self._partitions(topic)]
            answered = self._consumer.committed(asked, timeout=ASK_TIMEOUT_S)
            missing = [each for each in answered if each.offset < 0 and each.error is None]
            ends = [
                TopicPartition(topic, each.partition, self.watermarks((topic, each.partition))[1])
                for each in missing
            ]
            self._consumer.commit(offsets=ends, asynchronous=True)  # a lost one is noticed above
        except KafkaException as error:
            logger.warning("%s: its ends could not be committed at once: %s", topic, error)

    def recover(self, message: Message, stood_at: TopicPartition) -> TopicPartition:
        """For _AUTO_OFFSET_RESET: where to go on. InvalidPosition when the policy is to stop.

        `stood_at` has a leader epoch when records were read up to there, by us or by the group.
        """
        error = message.error()
        if error is None:
            raise AssertionError("only an error is recovered from")
        place = place_of(message)
        text = error.str()
        offset = message.offset()
        if offset is None or offset < 0:
            offset = stood_at.offset if stood_at.offset >= 0 else None
        if "truncation" in text.lower() or "no epoch found" in text.lower():
            return self._truncated(place, offset, text)
        if "no previously committed" in text.lower():
            return self._first(place).position
        first, end = self.watermarks(place)
        if offset is not None and offset > end and has_epoch(stood_at):
            return self._truncated(place, offset, text)  # what was read there is gone
        return self._out_of_range(place, offset, first, end)

    def _out_of_range(
        self, place: Place, offset: int | None, first: int, end: int
    ) -> TopicPartition:
        shown = f"{place[0]}-{place[1]}"
        where = "unknown" if offset is None else str(offset)
        gone = 0 if offset is None else max(0, first - offset)
        what = f"{shown}: offset {where} is not in the log, which has {first} to {end}" + (
            f"; {gone} records were deleted unread" if gone else ""
        )
        if self._options.out_of_range == "stop":
            raise OffsetOutOfRange(
                what,
                hint='say where to go on: out_of_range="earliest" takes the oldest there is, '
                '"latest" skips all of it; or set the offsets of the group',
            )
        chosen = first if self._options.out_of_range == "earliest" else end
        self._jump(f"{what}; goes on at {chosen}")
        return TopicPartition(*place, chosen)

    def _truncated(self, place: Place, offset: int | None, text: str) -> TopicPartition:
        first, end = self.watermarks(place)
        found = _BROKER_END.search(text)
        diverged = int(found.group(1)) if found and int(found.group(1)) >= 0 else end
        chosen = max(first, min(end, diverged))
        shown = f"{place[0]}-{place[1]}"
        taken_back = max(0, (offset or chosen) - chosen)
        what = (
            f"{shown}: the log was truncated to {chosen} by an unclean election; {taken_back} "
            "records that were read are no longer there, and others may stand in their place"
        )
        if self._options.truncated == "stop":
            raise LogTruncated(
                what,
                hint="take back what was done for them, where that is possible; then go on with "
                'truncated="continue", which reads from where the logs part',
            )
        self._jump(f"{what}; goes on there")
        return TopicPartition(*place, chosen)

    def _jump(self, what: str) -> None:
        logger.warning("%s", what)
        self._metrics.jumps += 1

    def _committed(self, asked: list[TopicPartition]) -> list[TopicPartition]:
        deadline = time.monotonic() + self._timeout_s
        while True:
            try:
                answered = self._consumer.committed(asked, timeout=ASK_TIMEOUT_S)
                failed = next((each.error for each in answered if each.error), None)
                if failed is None:
                    return answered
            except KafkaException as error:
                failed = error.args[0]
            self._ask_again(failed, deadline, f"what group {self._group} has committed")

    def watermarks(self, place: Place, timeout_s: float | None = None) -> tuple[int, int]:
        timeout_s = self._timeout_s if timeout_s is None else timeout_s
        deadline = time.monotonic() + timeout_s
        while True:
            try:
                return self._consumer.get_watermark_offsets(
                    TopicPartition(*place), timeout=ASK_TIMEOUT_S
                )
            except KafkaException as error:
                failed = error.args[0]
            what = f"where {place[0]}-{place[1]} begins and ends"
            self._ask_again(failed, deadline, what, timeout_s)

    def _ask_again(
        self, error: KafkaError, deadline: float, what: str, timeout_s: float | None = None
    ) -> None:
        if time.monotonic() >= deadline:
            why = self._explain()
            raise Unavailable(
                f"{what} could not be read for {timeout_s or self._timeout_s:.0f} s: "
                f"{error.str() if why is None else why.what}",
                hint=(why.hint if why is not None else None)
                or "are the brokers there, and may this client read the group?",
            )
        self._pause()

    def _pause(self) -> None:
        if self._closing.wait(ASK_AGAIN_S):
            raise Leaving
