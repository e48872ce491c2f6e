"""The poll thread: the only one that talks to Kafka, and one that never stops talking.

    read       consume() hands chunks to the work, which knows what to do with them
    full       partitions are paused, and polling goes on: the group sees a member that is alive,
               however long a record takes (claim C9)
    commit     what the work says is finished, when it is due
    rebalance  inside consume(): see assignment.py
    end        by close(), or by a failure, which the caller gets: what is finished is committed,
               partitions are given back, the group is left

Nothing may raise inside a callback of librdkafka: what consume() had read by then would be thrown
away, and its position moved past it.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from queue import Empty, SimpleQueue
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from lossless.client.classification import error_from, kind_of
from lossless.client.consuming.assignment import Assignment
from lossless.client.consuming.committing import ZOMBIE, Committer
from lossless.client.consuming.interfaces import Place, Work, place_of
from lossless.client.consuming.positions import Leaving, Positions
from lossless.client.consuming.reaching import Reaching
from lossless.client.consuming.settings import ConsumerOptions, ConsumerSettings
from lossless.client.consuming.waiting_keys import WaitingKeys
from lossless.client.errors import Kind
from lossless.client.metrics import ConsumerMetrics
from lossless.client.stores.interface import Store
from lossless.client.stores.topics import Topics
from lossless.errors import BadInput

logger = logging.getLogger(__name__)

IDLE_S = 0.1  # the longest that a call from another thread waits while nothing comes
SOON_S = 0.005
FILL_S = 0.005  # waited for a chunk to fill up, when there is other work meanwhile
LAG_INTERVAL_S = 2.0
LOOK_INTERVAL_S = 0.5
CALL_S = 60.0


class Poller:
    def __init__(
        self,
        settings: ConsumerSettings,
        options: ConsumerOptions,
        metrics: ConsumerMetrics,
        work: Work,
        *,
        chunk_records: int,
        store: Store | None,
        waiting_keys: WaitingKeys | None,
    ) -> None:
        self._options = options
        self._metrics = metrics
        self._work = work
        self._chunk_records = chunk_records
        self._fill_bytes_max = settings.buffered_bytes_max // 8
        self._failure: BaseException | None = None
        self._closing = threading.Event()
        self._calls: SimpleQueue[tuple[Callable[[], Any], Future[Any]]] = SimpleQueue()
        self._told: set[tuple[int, str | None]] = set()
        self._lag_at = 0.0
        self._new_topics: set[str] = set()
        self._look_at = 0.0
        self._group_metadata: object = None
        error_callback = settings.librdkafka.get("error_cb")
        self._error_callback = error_callback if callable(error_callback) else None
        self._reaching = Reaching(settings.connections, timeout_s=options.connect_timeout_s)
        self._consumer: Consumer | None = Consumer(
            {
                **settings.librdkafka,
                "on_commit": self._on_commit,
                "error_cb": self._on_error,
            }
        )
        self.committer = Committer(
            self._consumer,
            metrics,
            every_s=options.commit_every_s,
            every_records=options.commit_every_records,
            refused=lambda error: self._fail(error_from(error, reading=True)),
        )
        topics = Topics(settings.of_an_admin())
        self.assignment = Assignment(
            self._consumer,
            work,
            self.committer,
            Positions(
                self._consumer,
                options,
                metrics,
                group=settings.group,
                store=store,
                timeout_s=settings.max_poll_interval_s / 2,
                closing=self._closing,
                topic_ids=topics.ids,
                partitions=topics.partitions,
                explain=settings.connections.explanation,
            ),
            options,
            metrics,
            cooperative=settings.cooperative,
            store=store,
            waiting_keys=waiting_keys,
            fail=self._fail,
            closing=self._closing,
        )
        self._thread = threading.Thread(
            target=self._run, name=f"lossless-poll-{settings.group}", daemon=True
        )

    def start(self) -> None:
        self._thread.start()

    @property
    def failure(self) -> BaseException | None:
        return self._failure

    def call(self, function: Callable[[], Any]) -> Future[Any]:
        """Runs it in the poll thread, between two reads."""
        self.refuse_in_hook()
        future: Future[Any] = Future()
        self._calls.put((function, future))
        if not self._thread.is_alive():
            self._serve_calls()
        return future

    def refuse_in_hook(self) -> None:
        if threading.current_thread() is self._thread:
            raise BadInput(
                "called in a hook, for whose end the call would wait",
                hint="call it in the loop, or in a handler",
            )

    def look_for(self, topic: str) -> None:
        """A record was sent to this topic of the subscription, and may have created it: librdkafka
        alone would find it after topic.metadata.refresh.interval.ms, five minutes."""
        self._new_topics.add(topic)

    def _look_for_topics(self, consumer: Consumer, now: float) -> None:
        if now < self._look_at:
            return
        self._look_at = now + LOOK_INTERVAL_S
        looked_for = sorted(self._new_topics)
        try:
            found = consumer.list_topics(timeout=LOOK_INTERVAL_S).topics
        except KafkaException as error:
            logger.debug("%s not found yet: %s", ", ".join(looked_for), error)
            return
        for topic in looked_for:
            if topic in found and found[topic].error is None:
                self._new_topics.discard(topic)

    def group_metadata(self) -> object | None:
        """The group's metadata as of the last read, or None while this consumer is not a member.

        A transaction must not wait for a poll thread that waits for records. Metadata of an earlier
        generation makes the transaction fail, as it should.
        """
        if self._group_metadata is None:
            self.call(self._refresh_group_metadata).result(CALL_S)
        return self._group_metadata

    def _refresh_group_metadata(self) -> None:
        """confluent-kafka 2.16 waits for the other call with the interpreter locked when two
        threads use one consumer: for ever. Hence only in the poll thread."""
        if self._consumer is not None:
            metadata = self._consumer.consumer_group_metadata()
            # Without a member id the broker would take the offsets without a check of the
            # generation, as it does for old clients. Asked afterwards: a member that was removed
            # from the group gets a new id only after callbacks in this thread.
            self._group_metadata = metadata if self._consumer.memberid() else None

    def close(self, timeout_s: float, *, commit_timeout_s: float) -> bool:
        """Whether everything ended in time, and the last commit in its own."""
        self._closing.set()
        if self._thread.ident is None:
            self._leave_group()
            return True
        deadline = time.monotonic() + timeout_s
        while self._thread.is_alive():
            since = self.committer.committing_since
            until = deadline if since is None else min(deadline, since + commit_timeout_s)
            left_s = until - time.monotonic()
            if left_s <= 0:
                return False
            self._thread.join(min(left_s, IDLE_S))
        return True

    # The thread

    def _run(self) -> None:
        consumer = self._consumer
        assert consumer is not None
        try:
            consumer.subscribe(
                list(self._options.topics),
                on_assign=self.assignment.on_assign,
                on_revoke=self.assignment.on_revoke,
                on_lost=self.assignment.on_lost,
            )
            while not self._closing.is_set() and self._failure is None:
                self._step(consumer)
        except Leaving:
            logger.info("closing: where to go on is not asked for any more")
        except BaseException as error:
            self._fail(error)
        try:
            self._work.end(self._failure)
            self.assignment.give_back_all()
        except BaseException as error:
            self._fail(error)
            logger.exception("while leaving the group")
        finally:
            self._leave_group()
            self._work.end(self._failure)
            self._serve_calls()
            self._metrics.buffered = self._work.buffered()
            self._metrics.paused = 0

    def _leave_group(self) -> None:
        consumer, self._consumer = self._consumer, None
        if consumer is not None:
            try:
                consumer.close()
            except KafkaException as error:
                logger.warning("closed with %s", error)

    def _step(self, consumer: Consumer) -> None:
        self._serve_calls()
        has_room = self._work.wait_for_room(IDLE_S)
        if not self._reaching.is_reached:
            self._reaching.check(consumer, has_partitions=bool(self.assignment.partitions))
        checked = self.assignment.check_epochs()
        self.assignment.apply_pauses()
        records: list[Message] = []
        if has_room:
            records = self._read(consumer, IDLE_S if checked else SOON_S)
        elif self.assignment.all_paused:
            records = consumer.consume(1, IDLE_S / 2)
        if self.committer.by_transactions:
            # Before the records are handed over: a transaction over them must not begin with the
            # metadata of an earlier generation, or the broker refuses its offsets.
            self._refresh_group_metadata()
        self._take_in(consumer, records)
        del records  # or they would outlive the loop's use of them, until more are read
        now = time.monotonic()
        finished = self._work.finished()
        if self.committer.due(finished, now):
            self.committer.add(self._work.collect())
            self.committer.commit(finished, now)
        self._metrics.buffered = self._work.buffered()
        self.assignment.ask_for_waiting_keys()
        if self._new_topics:
            self._look_for_topics(consumer, now)
        if now - self._lag_at >= LAG_INTERVAL_S:
            self._lag_at = now
            self.assignment.measure_lag()
            self.assignment.check_fenced()

    def _read(self, consumer: Consumer, idle_s: float) -> list[Message]:
        """consume() waits until it has as many as it was asked for: who has nothing to do must
        not wait for that, who has may."""
        records = consumer.consume(self._chunk_records, 0)
        if not records:
            return consumer.consume(1, idle_s)
        missing = self._chunk_records - len(records)
        if missing and self._work.buffered() and sum(map(len, records)) < self._fill_bytes_max:
            self.assignment.gone_lately.clear()
            more = consumer.consume(missing, FILL_S)
            if self.assignment.gone_lately:  # while we waited: those will be read again by others
                gone = self.assignment.gone_lately
                records = [message for message in records if place_of(message) not in gone]
            records += more
        return records

    def _take_in(self, consumer: Consumer, records: list[Message]) -> None:
        if not records or self._failure is not None:
            return
        if any(map(Message.error, records)):
            troubled = [message for message in records if message.error() is not None]
            records = [message for message in records if message.error() is None]
            self._hand_over(consumer, records)
            for message in troubled:
                self._on_trouble(message)
        else:
            self._hand_over(consumer, records)

    def _hand_over(self, consumer: Consumer, records: list[Message]) -> None:
        if not records:
            return
        self._metrics.received += len(records)
        ends: dict[Place, TopicPartition] = {
            (each.topic, each.partition): each
            for each in consumer.position(self.assignment.partitions)
            if each.offset >= 0
        }
        self._work.take_in(records, ends)

    def _on_trouble(self, message: Message) -> None:
        error = message.error()
        if error is None or error.code() == KafkaError._PARTITION_EOF:
            return
        if error.code() == KafkaError._AUTO_OFFSET_RESET:
            self.assignment.recover(message)
        else:
            self._on_error(error, message.topic())

    def _on_error(self, error: KafkaError, topic: str | None = None) -> None:
        if self._error_callback is not None:
            try:
                self._error_callback(error)
            except Exception:
                logger.exception("error_cb raised")
        code = error.code()
        # What is wrong with this member's place in the group librdkafka mends: it joins again.
        mends_itself = code in ZOMBIE or code in (
            KafkaError.STALE_MEMBER_EPOCH,
            KafkaError._MAX_POLL_EXCEEDED,
        )
        if error.fatal() or (kind_of(code) is Kind.PERMANENT and not mends_itself):
            self._fail(error_from(error, reading=True))
        elif (error.code(), topic) not in self._told:
            self._told.add((error.code(), topic))
            logger.warning("%s%s; going on", f"{topic}: " if topic else "", error.str())

    def _on_commit(self, error: KafkaError | None, partitions: list[TopicPartition]) -> None:
        try:
            self.committer.on_commit(error, partitions)
        except BaseException as failure:
            self._fail(failure)

    def _fail(self, failure: BaseException) -> None:
        if self._failure is None:
            self._failure = failure

    def _serve_calls(self) -> None:
        while True:
            try:
                function, future = self._calls.get_nowait()
            except Empty:
                return
            if not future.set_running_or_notify_cancel():
                continue
            try:
                future.set_result(function())
            except BaseException as error:
                future.set_exception(error)
