"""What Kafka acknowledged, told to the audit topic: each minute, and when the producer closes.

Only a record with an offset counts: nobody vouches for the others. A topic's id is a part of what
is reported, since a topic that is deleted and made again is another one; it is asked for once, when
its first record is acknowledged, and counting waits for the answer.

The audit topic is made when it is missing, with the cluster's own defaults: whoever wants others
makes it first. A report that could not be sent is sent again: a report is the whole of its series,
so one too many changes nothing. What cannot be reported at all is said in the log, once; it makes
the audit know less and no record unsafe, so it fails nothing.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from confluent_kafka import KafkaError, KafkaException, Message, TopicCollection
from confluent_kafka.admin import AdminClient, NewTopic

from lossless.acknowledged import AUDIT_TOPIC, AcknowledgedCount, AcknowledgedCounter
from lossless.client.classification import kind_of
from lossless.client.connecting import Connections
from lossless.client.errors import Kind

if TYPE_CHECKING:
    from confluent_kafka import Producer as Client

logger = logging.getLogger("lossless.client.producer")

INTERVAL_S = 60.0
ASKING_S_MAX = 30.0
ASK_AGAIN_S = 1.0
WAITING_MAX = 1_000_000  # records that are counted when their topic's id is known
SENT_AT_ONCE_MAX = 1_000

Count = Callable[[list[int], int], None]  # offsets, and a time in the minute of all of them

_MILLISECONDS = itemgetter(1)


class Reporting:
    """Of one thread at a time: whoever calls it holds a lock, but for what says "of any thread"."""

    def __init__(
        self,
        counter: AcknowledgedCounter,
        client: Client,
        admin_settings: Mapping[str, Any],
        *,
        polls: bool,
    ) -> None:
        """Polls: the client is ours alone, so nobody else serves it."""
        self._polls = polls
        self._counter = counter
        self._client = client
        self._admin_settings = admin_settings
        self._admin: AdminClient | None = None
        self._counting: dict[tuple[str | None, int | None], Count] = {}
        self._topic_ids: dict[str, str] = {}
        self._asked: dict[str, Future[Any]] = {}
        self._made: Future[None] | None = None  # the audit topic, if it has to be
        self._has_topic = False
        self._ask_at: dict[str, float] = {}
        self._waiting: dict[str, list[tuple[int, int, int]]] = {}
        self._unsent: deque[AcknowledgedCount] = deque()
        self._in_flight = 0
        self._report_at = time.monotonic() + INTERVAL_S
        self._given_up = False
        self._finishing = False

    def count(self, messages: list[Message]) -> None:
        """This is done for every record. As a rule they are of one minute, in runs of a partition,
        and what is asked of each of them is asked without a step of ours."""
        if self._given_up:
            return
        offsets: list[Any] = [*map(Message.offset, messages)]
        times_ms = [*map(_MILLISECONDS, map(Message.timestamp, messages))]
        time_ms = min(times_ms)
        if None in offsets or not self._counter.is_same_series(time_ms, max(times_ms)):
            for message in messages:
                self._count_one(message)
            return
        places = zip(map(Message.topic, messages), map(Message.partition, messages), strict=True)
        end = 0
        for place, same in groupby(places):
            start, end = end, end + len(list(same))
            count = self._counting.get(place)
            if count is not None:
                count(offsets[start:end], time_ms)
            else:
                for message in messages[start:end]:
                    self._count_one(message)

    def finish(self) -> None:
        """Of any thread: reports everything that is left."""
        self._finishing = True

    @property
    def is_finished(self) -> bool:
        """Of any thread: whether everything that was acknowledged is reported, or never will be."""
        return self._given_up or (
            self._finishing
            and self._report_at == 0
            and not (self._asked or self._waiting or self._unsent or self._in_flight)
        )

    def tend(self, now: float) -> bool:
        if self._given_up:
            return False
        if self._polls:
            self._client.poll(0)
        self._hear_of_topics(now)
        if self._finishing or now >= self._report_at:
            self._unsent += self._counter.reports(int(time.time() * 1000), flush=self._finishing)
            self._report_at = 0 if self._finishing else now + INTERVAL_S
        while self._has_topic and self._unsent and self._in_flight < SENT_AT_ONCE_MAX:
            if not self._send(self._unsent.popleft()):
                break
        return bool(self._asked or self._made or self._finishing)

    def close(self) -> None:
        if self._polls and self._in_flight:
            self._client.purge(blocking=False)
        self._admin = None

    # Counting

    def _count_one(self, message: Message) -> None:
        topic, partition, offset = message.topic(), message.partition(), message.offset()
        if topic is None or partition is None or offset is None:
            return
        topic_id = self._topic_ids.get(topic)
        timestamp_ms = message.timestamp()[1]
        if topic_id is not None:
            self._count_of(topic, topic_id, partition)([offset], timestamp_ms)
            return
        waiting = self._waiting.setdefault(topic, [])
        if len(waiting) < WAITING_MAX:
            waiting.append((partition, offset, timestamp_ms))
        if topic not in self._asked and topic not in self._ask_at:
            self._ask(topic)

    def _count_of(self, topic: str, topic_id: str, partition: int) -> Count:
        found = self._counter.partition(topic=topic, topic_id=topic_id, partition=partition)
        self._counting[topic, partition] = found.add_many
        return found.add_many

    def _ask(self, topic: str) -> None:
        if self._admin is None:
            self._admin = AdminClient(dict(self._admin_settings), logger=Connections(logger))
        topics = [topic]
        if not self._has_topic and AUDIT_TOPIC not in self._asked and self._made is None:
            topics.append(AUDIT_TOPIC)
        self._asked.update(
            self._admin.describe_topics(TopicCollection(topics), request_timeout=ASKING_S_MAX)
        )

    def _hear_of_topics(self, now: float) -> None:
        for topic, answer in [(t, a) for t, a in self._asked.items() if a.done()]:
            del self._asked[topic]
            try:
                described = answer.result()
            except KafkaException as raised:
                self._on_no_topic(topic, raised.args[0], now)
                continue
            if topic == AUDIT_TOPIC:
                self._has_topic = True
                continue
            # As Kafka's own tools print it: librdkafka uses the other base64 alphabet.
            self._on_topic_id(topic, str(described.topic_id).replace("+", "-").replace("/", "_"))
        self._hear_of_making(now)
        for topic in [topic for topic, at in self._ask_at.items() if at <= now]:
            del self._ask_at[topic]
            self._ask(topic)
        if not self._asked and not self._ask_at and self._made is None:
            self._admin = None  # its threads and connections are of no more use

    def _on_topic_id(self, topic: str, topic_id: str) -> None:
        self._topic_ids[topic] = topic_id
        waiting = self._waiting.pop(topic, [])
        if len(waiting) >= WAITING_MAX:
            logger.warning("some records of %s are missing from the audit", topic)
        for partition, offset, timestamp_ms in waiting:
            self._count_of(topic, topic_id, partition)([offset], timestamp_ms)

    def _on_no_topic(self, topic: str, error: KafkaError, now: float) -> None:
        if topic == AUDIT_TOPIC and error.code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
            if self._admin is None:
                raise AssertionError("whoever asked is there until every answer is")
            made = self._admin.create_topics([NewTopic(AUDIT_TOPIC, 1, replication_factor=-1)])
            self._made = made[AUDIT_TOPIC]
        elif kind_of(error.code()) is Kind.RETRIABLE:
            self._ask_at[topic] = now + ASK_AGAIN_S
        else:
            self._give_up(f"{topic} cannot be described: {error.str()}")

    def _hear_of_making(self, now: float) -> None:
        if self._made is None or not self._made.done():
            return
        made, self._made = self._made, None
        try:
            made.result()
        except KafkaException as raised:
            error = raised.args[0]
            if error.code() != KafkaError.TOPIC_ALREADY_EXISTS:
                if kind_of(error.code()) is Kind.RETRIABLE:
                    self._ask_at[AUDIT_TOPIC] = now + ASK_AGAIN_S
                else:
                    self._give_up(f"{AUDIT_TOPIC} cannot be made: {error.str()}")
                return
        self._has_topic = True

    # Sending

    def _send(self, report: AcknowledgedCount) -> bool:
        def on_report(error: KafkaError | None, _message: Message) -> None:
            self._in_flight -= 1
            if error is None:
                return
            if kind_of(error.code()) is Kind.RETRIABLE:
                self._unsent.append(report)
            else:
                self._give_up(f"{AUDIT_TOPIC}: {error.str()}")

        try:
            self._client.produce(
                AUDIT_TOPIC, key=report.key(), value=report.to_bytes(), on_delivery=on_report
            )
        except BufferError:
            self._unsent.appendleft(report)
            return False
        except KafkaException as raised:
            self._give_up(f"{AUDIT_TOPIC}: {raised.args[0].str()}")
            return False
        self._in_flight += 1
        return True

    def _give_up(self, reason: str) -> None:
        if self._given_up:
            return
        self._given_up = True
        self._counting.clear()
        self._waiting.clear()
        self._unsent.clear()
        self._asked.clear()
        self._ask_at.clear()
        logger.warning(
            "what is acknowledged is no longer reported to the audit: %s "
            "(create the topic and grant this user WRITE on it, or give audit=False)",
            reason,
        )
