"""The producer that never loses silently.

    with Producer({"bootstrap.servers": "…"}, application="shop") as producer:
        delivery = producer.send("orders", b"…", key="42")
        delivery.result()                 # acknowledged, or an error of one of four kinds

`send` hands the record to librdkafka and returns at once; it waits only when there is no room in
memory. Every record is acknowledged, or given up as the policy says (see giving_up.py), or parked;
`flush` and `close` raise what failed and what nobody looked at.

Threads: `send` may be called from any. One thread of ours serves deliveries, and callbacks of
deliveries and of policies run there: they must be short and must not wait for other deliveries.
A process that was forked cannot use its parent's producer, and is told so.
"""

from __future__ import annotations

import json
import logging
import os
import secrets
import socket
import threading
import time
import weakref
from base64 import b32encode
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypedDict, Unpack

from confluent_kafka import KafkaException
from confluent_kafka.serialization import MessageField

from lossless.client import headers as names
from lossless.client.classification import error_from
from lossless.client.errors import (
    BufferFull,
    ClientError,
    ClientFailed,
    Kind,
    NotDelivered,
    Refused,
)
from lossless.client.metrics import ProducerMetrics
from lossless.client.producing.deliveries import Deliveries
from lossless.client.producing.delivery import Delivery
from lossless.client.producing.failing import Failing
from lossless.client.producing.giving_up import GivingUp, Park, Raise
from lossless.client.producing.making import check_policy, make_client, make_reporting, program
from lossless.client.producing.parking import Parking
from lossless.client.producing.serializing import Serializer, serialized
from lossless.client.producing.serving import Serving
from lossless.client.producing.settings import producer_settings
from lossless.client.producing.settling import LAST_WORDS_S, Settling
from lossless.client.producing.spool import Spool
from lossless.client.producing.transacting import Transactions
from lossless.client.producing.transaction import HasOffsets, Transaction
from lossless.client.record import Headers, HeadersGiven, Record, headers_of
from lossless.contract.load import load_contract
from lossless.contract.rules import producer_contradictions, refuse
from lossless.contract.rules.judging import enforce
from lossless.contract.values import Contract
from lossless.errors import BadInput

if TYPE_CHECKING:
    from confluent_kafka import KafkaError, Message


logger = logging.getLogger("lossless.client.producer")

HEARD_EVERY = 256  # records that a thread sends between two looks at librdkafka's answers
MARK_S = 0.1
ROOM_S = 0.05

_OPERATION_ID = names.OPERATION_ID
_producers: weakref.WeakSet[Producer] = weakref.WeakSet()


class SendOptions(TypedDict, total=False):
    """What `Producer.send` takes by name, each of it left out as a rule."""

    headers: HeadersGiven
    partition: int | None
    timestamp_ms: int | None
    event_time_ms: int | None
    operation_id: str | None
    on_delivery: Callable[[Delivery], object] | None


class Producer:
    """Made with settings by Java's names or librdkafka's; safe where they are silent.

    application: what the records' header says they come from; client.id, or the program, if None.
    giving_up: what becomes of a record that is not acknowledged in time (giving_up.py).
    pause_max_s: the longest pause of the cluster to sit out; the delivery timeout, unless given, is
        four times as long, and two minutes at least.
    buffer_wait_s: for how long `send` waits when there is no room; the delivery timeout if None.
    audit: whether acknowledged counts go to the audit topic.
    """

    def __init__(
        self,
        settings: Mapping[str, object],
        *,
        application: str | None = None,
        serialize_key: Serializer | None = None,
        serialize_value: Serializer | None = None,
        giving_up: GivingUp | None = None,
        pause_max_s: float = 30.0,
        buffer_wait_s: float | None = None,
        audit: bool = True,
        metrics: ProducerMetrics | None = None,
    ) -> None:
        refuse(producer_contradictions(settings), where="producer")
        self._settings = producer_settings(settings, pause_max_s=pause_max_s)
        self._giving_up: GivingUp = giving_up or Raise()
        check_policy(self._settings, self._giving_up)
        self._serialize_key = serialize_key
        self._serialize_value = serialize_value
        self._serializes = serialize_key is not None or serialize_value is not None
        self.application = application or self._settings.client_id or program()
        self.metrics = metrics or ProducerMetrics(client=self.application)
        self._buffer_wait_s = buffer_wait_s
        self._instance = b32encode(secrets.token_bytes(12)).decode().rstrip("=").lower()
        self._id_format = f"{self._instance}-%d".encode()
        self._constant_headers = (
            (names.APPLICATION, self.application.encode()),
            (names.HOST, socket.gethostname().encode()),
        )
        self._refusal: tuple[str, str] | None = None  # why nothing can be sent any more
        self._fatal: ClientError | None = None
        self._closing = threading.Lock()
        self._is_ended = False
        self._counting = threading.Lock()  # of what was acknowledged, by one thread at a time
        self._deliveries = Deliveries(self._on_failure)
        self._numbers = self._deliveries.numbers
        self._outstanding = self._deliveries.outstanding
        self._unsent = 0  # numbers that no record got
        self._marked_at = 0.0
        self._interrupted = False  # in the middle of an answer
        self._is_transactional = self._settings.transactional_id is not None
        self._is_careful = self._is_transactional or isinstance(self._giving_up, Park)
        self._is_plain = not (self._is_careful or self._serializes)

        parks = isinstance(self._giving_up, Park)
        spool = (
            Spool(self._giving_up.folder, bytes_max=self._giving_up.bytes_max)
            if isinstance(self._giving_up, Park)
            else None
        )
        try:
            self._client = make_client(
                self._settings, parks=parks, on_statistics=self._on_statistics
            )
        except BaseException:
            if spool is not None:
                spool.close()
            raise
        self._produce: Callable[..., None] = self._client.produce
        self._poll: Callable[[float], int] = self._client.poll
        self._transactions = Transactions(self._client, self._deliveries, self)
        self._parking = (
            Parking(
                spool,
                self._client,
                self._deliveries,
                self.metrics,
                timeout_s=self._settings.delivery_timeout_s,
            )
            if spool is not None
            else None
        )
        self._failing = Failing(
            self._giving_up,
            self._client,
            self._deliveries,
            self.metrics,
            self._parking,
            headers_of=self._headers_of,
            transactional=self._is_transactional,
        )
        self._reporting = (
            make_reporting(
                self._client,
                self._settings,
                application=self.application,
                instance=self._instance,
            )
            if audit
            else None
        )
        self._serving = Serving(
            self._client,
            name=f"lossless-producer-{self.application}",
            tend=self._tend,
            on_fatal=self._on_fatal,
            on_failure=self._on_serving_failed,
        )
        self._settling = Settling(
            self._client,
            self._serving,
            self._deliveries,
            self._failing,
            self._parking,
            self._reporting,
        )
        self._serving.start()
        _producers.add(self)

    @classmethod
    def from_contract(
        cls, name: str, contract: Contract | Path | str | None = None, **keywords: Any
    ) -> Self:
        """The producer that the contract calls by this name; keywords as for the class itself."""
        if not isinstance(contract, Contract):
            contract = load_contract(Path(contract) if contract is not None else None)
        found = contract.producers.get(name)
        if found is None:
            known = ", ".join(contract.producers) or "none"
            raise BadInput(
                f"{contract.path}: there is no producer {name!r}", hint=f"there are: {known}"
            )
        settings = {**contract.cluster.client, **found.config}
        enforce(contract, producers=[name])
        keywords.setdefault("pause_max_s", contract.guarantee.pause_max_s)
        keywords.setdefault("application", name)
        return cls(settings, **keywords)

    # Sending

    def send(
        self,
        topic: str,
        value: object = None,
        key: object = None,
        **options: Unpack[SendOptions],
    ) -> Delivery:
        """Sends one record. Raises what can be known at once: SerializationFailed, Refused (too
        large for the client, no such partition), BufferFull, SpoolFull, ClientFailed.

        headers: pairs, or a mapping. partition: by the key unless given. timestamp_ms: the record's
        Kafka timestamp, else now. event_time_ms: when it happened, as a header. operation_id: the
        same for every copy of one intended record; a header of that name among `headers` counts as
        given, else a new one is made. on_delivery: called with the delivery when it is acknowledged
        or has failed.
        """
        # Most records are bytes and nothing else: for them every step here counts.
        if options or not self._is_plain or type(value) is not bytes or type(key) is not bytes:
            return self._send(topic, value, key, **options)
        number = next(self._numbers)
        delivery = Delivery()
        delivery.number = number
        delivery.deliveries = self._deliveries
        delivery.outcome = None
        self._outstanding[number] = delivery
        application, host = self._constant_headers
        sent = [application, host, (_OPERATION_ID, self._id_format % number)]
        try:
            self._produce(topic, value, key, -1, delivery, None, 0, sent)
        except (BufferError, KafkaException, ClientError) as raised:
            del self._outstanding[number]
            self._send_again(delivery, topic, value, key, 0, raised)
        if not number % HEARD_EVERY:
            self._hear()
        return delivery

    def _send(
        self,
        topic: str,
        value: object,
        key: object,
        *,
        headers: HeadersGiven = (),
        partition: int | None = None,
        timestamp_ms: int | None = None,
        event_time_ms: int | None = None,
        operation_id: str | None = None,
        on_delivery: Callable[[Delivery], object] | None = None,
    ) -> Delivery:
        """What `send` does, for any record."""
        if self._serializes or headers:
            headers = headers_of(headers)  # a list, which serializers may add to
        key = serialized(self._serialize_key, key, topic, MessageField.KEY, headers)
        value = serialized(self._serialize_value, value, topic, MessageField.VALUE, headers)
        number = next(self._numbers)
        delivery = self._deliveries.new(number)
        if headers or operation_id is not None or event_time_ms is not None:
            delivery.headers = self._headers(number, headers, operation_id, event_time_ms)
        if partition is not None:
            delivery.partition = partition
        if on_delivery is not None:
            delivery.add_callback(on_delivery)
        if self._is_careful:
            self._send_again(delivery, topic, value, key, timestamp_ms or 0)
            return delivery
        sent = [*self._headers_of(delivery)]
        self._outstanding[number] = delivery
        place = -1 if partition is None else partition
        try:
            self._produce(topic, value, key, place, delivery, None, timestamp_ms or 0, sent)
        except (BufferError, KafkaException, ClientError) as raised:
            del self._outstanding[number]
            self._send_again(delivery, topic, value, key, timestamp_ms or 0, raised)
        if not number % HEARD_EVERY:
            self._hear()
        return delivery

    def _headers(
        self,
        number: int,
        given: HeadersGiven = (),
        operation_id: str | None = None,
        event_time_ms: int | None = None,
    ) -> list[tuple[str, bytes | None]]:
        """The application's own, then ours."""
        found: list[tuple[str, bytes | None]] = headers_of(given)
        if operation_id is not None:
            made: bytes | None = operation_id.encode()
        elif any(name == names.OPERATION_ID for name, _ in found):
            made = None  # it is there already
        else:
            made = self._id_format % number
        there = {name for name, _ in found}  # a record that is sent on keeps where it came from
        found += [header for header in self._constant_headers if header[0] not in there]
        if made is not None:
            found.append((names.OPERATION_ID, made))
        if event_time_ms is not None:
            found.append((names.EVENT_TIME, b"%d" % event_time_ms))
        return found

    def _headers_of(self, delivery: Delivery) -> Headers:
        return self._headers(delivery.number) if delivery.headers is None else delivery.headers

    def _hear(self) -> None:
        """Serves librdkafka's answers from the thread that sends (see serving.py)."""
        self._serving.heard_elsewhere = True
        try:
            self._poll(0)
        except KeyboardInterrupt:
            # It came while an answer was being told, which is gone now.
            self._interrupted = True
            raise
        except KafkaException as raised:
            self._on_fatal(raised.args[0])
        # What was just heard is counted at once, while it is at hand: if it were kept for another
        # thread, the garbage collector would have to look at all of it.
        if not self._is_transactional and self._counting.acquire(blocking=False):
            try:
                self._count()
            finally:
                self._counting.release()

    def _send_again(
        self,
        delivery: Delivery,
        topic: str,
        value: bytes | None,
        key: bytes | None,
        timestamp_ms: int,
        raised: BufferError | KafkaException | ClientError | None = None,
    ) -> None:
        """Where sending is more than one call: there was no room, or somebody must be asked."""
        record = Record(
            topic=topic,
            key=key,
            value=value,
            headers=self._headers_of(delivery),
            partition=delivery.partition,
            timestamp_ms=timestamp_ms or int(time.time() * 1000),
        )
        wait_s = self._buffer_wait_s
        deadline = time.monotonic() + (self.patience_s() if wait_s is None else wait_s)
        while True:
            if isinstance(raised, ClientError):
                self._unsent += 1
                raise raised
            if isinstance(raised, BufferError):
                self._wait_for_room(record, deadline)
            elif raised is not None:
                self._on_refused(delivery, record, error_from(raised.args[0], record))
                return
            try:
                self._hand_over(delivery, record)
            except (BufferError, KafkaException, ClientError) as again:
                raised = again
            else:
                return

    def _hand_over(self, delivery: Delivery, record: Record) -> None:
        if self._is_transactional and self._transactions.open is None:
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
            if self._refusal is not None:
                raise self._refused()
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
        except BaseException:
            del self._deliveries.outstanding[delivery.number]
            raise

    def _wait_for_room(self, record: Record, deadline: float) -> None:
        left_s = deadline - time.monotonic()
        if self._refusal is not None:
            raise self._refused()
        if left_s <= 0:
            self._unsent += 1
            raise BufferFull(
                f"{record}: there is no room in memory: {len(self._deliveries.outstanding)} records"
                " wait for the cluster to take them",
                hint="wait until it does, park records on disk (giving_up=Park(…)), or raise "
                "queue.buffering.max.messages and queue.buffering.max.kbytes",
                record=record,
            )
        self._serving.wait_for_room(min(ROOM_S, left_s))

    def _on_refused(self, delivery: Delivery, record: Record, error: ClientError) -> None:
        """At once, in the thread that sends."""
        if error.kind is Kind.FATAL:
            self.fail(error)
        if isinstance(self._giving_up, Raise | Park) or error.kind is Kind.FATAL:
            self._unsent += 1
            raise error
        self._failing.give_up(delivery, record, error)

    # Waiting

    def flush(self, timeout_s: float | None = None) -> None:
        """Returns when everything sent so far is acknowledged, parked or failed.

        Raises what failed and what nobody looked at; NotDelivered when time is up, which gives
        nothing up: the records stay on their way.
        """
        reached = next(self._deliveries.numbers)
        self._unsent += 1
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        if not self._serving.wait_until(lambda: self._settling.is_settled(reached), deadline):
            if self._serving.is_over:
                raise self._refused()
            raise NotDelivered(
                f"after {timeout_s:g} s {len(self._deliveries.outstanding)} records are still on "
                "their way",
                hint="they are not given up: flush again, or wait for their deliveries",
            )
        self._deliveries.raise_unnoticed()

    def close(self, timeout_s: float | None = None) -> None:
        """Delivers what was sent, reports what was acknowledged, and ends.

        What is not acknowledged by `timeout_s` (the delivery timeout if None) is parked, if that is
        the policy, and fails otherwise. Raises what failed and what nobody looked at: how many, and
        the first few by topic and key. Closing again does nothing.
        """
        with self._closing:
            if self._is_ended:
                return
            if self._refusal is None:
                self._refuse("the producer is closed", "make a new one")
            wait_s = self.patience_s() if timeout_s is None else timeout_s
            deadline = time.monotonic() + wait_s
            try:
                if self._transactions.open is not None:
                    self._transactions.abort(self._transactions.open, LAST_WORDS_S)
                self._settling.deliver_or_give_up(deadline, wait_s)
                self._settling.report(deadline)
            finally:
                self._end()
        self._deliveries.raise_unnoticed()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is None:
            self.close()
            return
        try:
            # Whoever interrupts does not want to wait for two minutes more.
            self.close(None if isinstance(error, Exception) else LAST_WORDS_S)
        except Exception as also:
            logger.error("while the producer was closed because of %r: %s", error, also)

    def _end(self) -> None:
        self._is_ended = True
        self._serving.end()
        for delivery in list(self._deliveries.outstanding.values()):
            self._deliveries.failed(
                delivery, NotDelivered("the producer ended before the record was acknowledged")
            )
        self._deliveries.outstanding.clear()
        if self._parking is not None:
            parked = self._parking.close()
            if parked:
                logger.warning("%d records stay parked until the next start", parked)
        with self._counting:
            if self._reporting is not None:
                self._reporting.close()
            self._reporting = None
        self._parking = None
        # librdkafka ends with the last of these references. A thread that was sending may still ask
        # for answers once.
        self._poll = _no_answers
        del self._client, self._failing, self._transactions, self._settling
        _producers.discard(self)

    # Transactions

    def transaction(self, consumer: HasOffsets | None = None) -> Transaction:
        """A context: commits at its end, aborts when it is left by an exception.

            with producer.transaction(consumer) as transaction:
                transaction.send("totals", …)

        With a consumer, the offsets of what it has finished are a part of the transaction.
        """
        if not self._is_transactional:
            raise BadInput(
                "this producer has no transactional.id",
                hint="give it one in its settings: it names this producer across its restarts, and "
                "whoever takes it next fences the one before",
            )
        return Transaction(self, self._transactions, consumer)

    # What transactions ask of a producer

    @property
    def fatal(self) -> ClientError | None:
        """Why this producer cannot go on, if it cannot."""
        return self._fatal

    def refusal(self) -> ClientError | None:
        return None if self._refusal is None else self._refused()

    def wait_until_idle(self, timeout_s: float) -> None:
        self._serving.wait_until(self._settling.is_idle, time.monotonic() + timeout_s)

    def patience_s(self) -> float:
        """How long a record may take, and a little more to hear of it."""
        return (self._settings.delivery_timeout_s or threading.TIMEOUT_MAX / 2) + LAST_WORDS_S

    def fail(self, error: ClientError) -> None:
        """librdkafka cannot go on. What was sent is decided, and nothing more can be."""
        if self._fatal is None:
            self._fatal = error
            logger.error("the producer has failed: %s", error)
        self._refuse(f"the producer has failed: {error.what}", "close it and make a new one")

    # Of the serving thread

    def _tend(self, now: float) -> bool:
        with self._counting:
            self._count()
        self._deliveries.serve()
        if now - self._marked_at >= MARK_S:
            self._marked_at = now
            self._measure(now)
            if self._interrupted and len(self._client) == 0:
                self._fail_lost_reports()
        busy = self._parking is not None and self._parking.tend(now)
        if self._reporting is not None:
            with self._counting:
                busy = self._reporting.tend(now) or busy
        return self._failing.tend() or busy

    def _count(self) -> None:
        """What was acknowledged since the last time. By whoever holds the lock for counting."""
        if self._is_transactional:
            acknowledged = self._transactions.committed_since()
        else:
            acknowledged, self._deliveries.acknowledged = self._deliveries.acknowledged, []
        if acknowledged:
            self.metrics.acknowledged += len(acknowledged)
            if self._reporting is not None:
                self._reporting.count(acknowledged)

    def _fail_lost_reports(self) -> None:
        self._interrupted = False
        for delivery in self._deliveries.lost_reports():
            error = NotDelivered(
                f"an interrupt came while the answer for record {delivery.number} was being read",
                hint="it may be written or not",
            )
            self._deliveries.failed(delivery, error)

    def _measure(self, now: float) -> None:
        reached = self._deliveries.mark(now)
        metrics = self.metrics
        metrics.sent = reached - self._deliveries.marks_taken - self._unsent
        metrics.in_flight = len(self._deliveries.outstanding)
        timeout_s = self._settings.delivery_timeout_s
        metrics.retries_left_s = max(0.0, timeout_s - self._deliveries.waited_s(now))

    def _on_failure(self, delivery: Delivery, failed: KafkaError, message: Message) -> None:
        error = self._failing.on_failure(delivery, failed, message)
        self._transactions.on_failure(error)
        if error.kind is Kind.FATAL:
            self.fail(error)

    def _refuse(self, what: str, hint: str) -> None:
        """From now on. A record that is being sent by another thread is either with librdkafka by
        now, and is served, or will be refused: its last step is this call."""
        self._refusal = (what, hint)
        self._produce = self._produce_no_more

    def _produce_no_more(self, *_: object, **__: object) -> None:
        raise self._refused()

    def _refused(self) -> ClientError:
        what, hint = self._refusal or ("the producer has ended", "make a new one")
        kind = type(self._fatal) if self._fatal is not None else ClientFailed
        refused = kind(what, hint=hint, code=self._fatal.code if self._fatal else None)
        refused.__cause__ = self._fatal
        return refused

    def _on_serving_failed(self, failure: BaseException) -> None:
        error = ClientFailed(f"serving deliveries failed: {failure!r}")
        error.__cause__ = failure
        self.fail(error)

    def _on_fatal(self, error: KafkaError) -> None:
        """What librdkafka says of the whole client, not of one record."""
        self.fail(error_from(error))

    def _on_statistics(self, statistics: str) -> None:
        brokers = json.loads(statistics)["brokers"].values()
        self.metrics.retried = sum(broker["txretries"] for broker in brokers)

    def _on_fork(self) -> None:
        """In a child: librdkafka's threads have stayed with the parent."""
        _left_to_parents.append((self._client, self._produce))
        self._refuse(
            "this producer was made by the parent of this process, which has its threads",
            "make the producer after the fork, in the process that uses it",
        )


def _no_answers(_wait_s: float) -> int:
    return 0


def _refuse_forked() -> None:
    for producer in list(_producers):
        producer._on_fork()


_left_to_parents: list[object] = []  # ending librdkafka in a child would wait for its threads
os.register_at_fork(after_in_child=_refuse_forked)
