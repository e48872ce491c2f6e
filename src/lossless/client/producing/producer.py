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

import itertools
import json
import logging
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, Unpack

from confluent_kafka import KafkaException

from lossless.client import headers as names
from lossless.client.classification import error_from
from lossless.client.connecting import Connections
from lossless.client.errors import ClientError, ClientFailed, Kind, NotDelivered, described
from lossless.client.metrics import ProducerMetrics
from lossless.client.producing.checking import check_metrics, check_settings, check_time
from lossless.client.producing.deliveries import Deliveries
from lossless.client.producing.delivery import Delivery, is_adding_here
from lossless.client.producing.failing import Failing, login_refused
from lossless.client.producing.giving_up import GivingUp, Park, Raise
from lossless.client.producing.handing_over import HandingOver
from lossless.client.producing.making import check_policy, make_client, make_reporting, program
from lossless.client.producing.parking import Parking
from lossless.client.producing.preparing import Preparing, SendOptions
from lossless.client.producing.processes import forget, never_destroy, remember
from lossless.client.producing.serializing import Serializer
from lossless.client.producing.serving import Serving
from lossless.client.producing.settings import producer_settings
from lossless.client.producing.settling import Settling
from lossless.client.producing.spool import Spool
from lossless.client.producing.standing import LAST_WORDS_S, Standing, is_held_here
from lossless.client.producing.transacting import Transactions
from lossless.client.producing.transaction import HasOffsets, Transaction
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

_OPERATION_ID = names.OPERATION_ID


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
        check_settings(settings)
        check_time("producer", "pause_max_s", pause_max_s)
        check_time("producer", "buffer_wait_s", buffer_wait_s)
        check_metrics(metrics)
        refuse(producer_contradictions(settings), where="producer")
        self._settings = producer_settings(settings, pause_max_s=pause_max_s)
        self._giving_up: GivingUp = giving_up or Raise()
        check_policy(self._settings, self._giving_up)
        self.application = application or self._settings.client_id or program()
        self.metrics = metrics or ProducerMetrics(client=self.application)
        self._closing = threading.RLock()  # a signal handler may close what its thread closes
        self._closes = itertools.count()
        self._is_ended = False
        self._counting = threading.RLock()  # of what was acknowledged, by one thread at a time
        self._close_by: float | None = None  # closing was asked for in the middle of sending
        self._standing = Standing(
            timeout_s=self._settings.delivery_timeout_s,
            on_refused=self._on_refused,
            is_served_here=lambda: self._serving.is_current,
            wait_until_idle=lambda timeout_s: self._settling.wait_until_idle(timeout_s),
        )
        self._deliveries = Deliveries(
            self._on_failure, self._standing.check_may_wait, self._count_unless_busy
        )
        self._numbers = self._deliveries.numbers
        self._outstanding = self._deliveries.outstanding
        self._preparing = Preparing(
            self._deliveries,
            application=self.application,
            serialize_key=serialize_key,
            serialize_value=serialize_value,
        )
        self._id_format = self._preparing.id_format
        self._constant_headers = self._preparing.constant_headers
        self._marked_at = 0.0
        self._is_login_refused = False  # by every broker, as of the last statistics
        self._interrupted = False  # in the middle of an answer
        self._hearing: set[int] = set()  # threads that read answers for others
        self._is_transactional = self._settings.transactional_id is not None
        self._is_careful = self._is_transactional or isinstance(self._giving_up, Park)
        self._is_plain = not (self._is_careful or self._preparing.serializes)

        spool = (
            Spool(self._giving_up.folder, bytes_max=self._giving_up.bytes_max)
            if isinstance(self._giving_up, Park)
            else None
        )
        given_logger: Any = self._settings.librdkafka.get("logger")
        self._connections = Connections(
            logger if given_logger is None else given_logger, self._settings.librdkafka
        )
        try:
            self._client = make_client(
                self._settings,
                self._connections,
                parks=self.parks,
                on_statistics=self._on_statistics,
            )
        except BaseException:
            if spool is not None:
                spool.close()
            raise
        self._produce: Callable[..., None] = self._client.produce
        self._poll: Callable[[float], int] = self._client.poll
        self._transactions = Transactions(
            self._client,
            self._deliveries,
            self._standing,
            timeout_s=self._settings.transaction_timeout_s,
            hopeless=self._hopeless,
        )
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
            self._connections,
            headers_of=self._preparing.headers_of,
            transactional=self._is_transactional,
        )
        self._reporting = (
            make_reporting(
                self._client,
                self._settings,
                application=self.application,
                instance=self._preparing.instance,
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
        self._handing_over = HandingOver(
            lambda *arguments: self._produce(*arguments),
            self._giving_up,
            self._standing,
            self._deliveries,
            self._serving,
            self._failing,
            self._parking,
            self._transactions if self._is_transactional else None,
            hear=None if self._is_careful else self._hear,
            wait_s=buffer_wait_s,
        )
        self._serving.start()
        remember(self)

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
        is_special = options or not topic or not self._is_plain
        if is_special or type(value) is not bytes or type(key) is not bytes:
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
        except Exception as raised:  # not Ctrl-C, which may come when librdkafka has the record
            del self._outstanding[number]
            self._handing_over.send(
                delivery, self._preparing.record(delivery, topic, value, key), raised
            )
        if not number % HEARD_EVERY:
            self._hear()
        return delivery

    async def send_async(
        self,
        topic: str,
        value: object = None,
        key: object = None,
        **options: Unpack[SendOptions],
    ) -> Delivery:
        """Sends one record from a coroutine: like `send`, but never blocks the event loop.

        `send` blocks its thread when there is no room in memory, for seconds if the cluster is
        slow. This waits for room with the loop running; the delivery that it returns can then be
        awaited in turn, or not. Serializers are called in the loop's thread.
        """
        delivery, sent, by = self._preparing.prepare(topic, value, key, **options)
        timestamp_ms = options.get("timestamp_ms")
        record = self._preparing.record(delivery, topic, sent, by, timestamp_ms)
        await self._handing_over.send_async(delivery, record)
        if not delivery.number % HEARD_EVERY:
            self._hear()
        return delivery

    def _send(
        self, topic: str, value: object, key: object, **options: Unpack[SendOptions]
    ) -> Delivery:
        """What `send` does, for any record."""
        try:
            delivery, sent, by = self._preparing.prepare(topic, value, key, **options)
            self._send_prepared(delivery, topic, sent, by, options.get("timestamp_ms") or 0)
        except Exception:
            self._close_if_asked()
            raise
        if not self._is_careful and not delivery.number % HEARD_EVERY:
            self._hear()
        self._close_if_asked()
        return delivery

    def _send_prepared(
        self,
        delivery: Delivery,
        topic: str,
        value: bytes | None,
        key: bytes | None,
        timestamp_ms: int,
    ) -> None:
        number, partition = delivery.number, delivery.partition
        raised: Exception | None = None
        if not self._is_careful:
            headers = [*self._preparing.headers_of(delivery)]
            self._outstanding[number] = delivery
            place = -1 if partition is None else partition
            try:
                self._produce(topic, value, key, place, delivery, None, timestamp_ms, headers)
            except Exception as error:
                del self._outstanding[number]
                raised = error
            else:
                return
        record = self._preparing.record(delivery, topic, value, key, timestamp_ms)
        self._handing_over.send(delivery, record, raised)

    def _hear(self, wait_s: float = 0.0) -> None:
        """Serves librdkafka's answers from the thread that sends (see serving.py)."""
        self._serving.heard_elsewhere = True
        thread = threading.get_ident()
        self._hearing.add(thread)
        try:
            self._poll(wait_s)
        except KafkaException as raised:
            self._on_fatal(raised.args[0])
        except BaseException:
            # Ctrl-C, or what a signal handler raises. One answer may be lost with it.
            self._interrupted = True
            raise
        finally:
            self._hearing.discard(thread)
        self._serving.heard_elsewhere = True
        self._count_unless_busy()
        self._close_if_asked()

    @property
    def parks(self) -> bool:
        """Whether records wait on disk while the cluster is unreachable. Their deliveries are then
        neither acknowledged nor failed for as long as that lasts."""
        return isinstance(self._giving_up, Park)

    # Waiting

    def flush(self, timeout_s: float | None = None) -> None:
        """Returns when everything sent so far is acknowledged, parked or failed.

        Raises what failed and what nobody looked at; NotDelivered when time is up, which gives
        nothing up: the records stay on their way.
        """
        check_time("flush", "timeout_s", timeout_s)
        self._standing.check_may_wait("flush()")
        reached = next(self._deliveries.numbers)
        self._deliveries.unsent += 1
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        settling = self._settling
        if not self._serving.wait_until(lambda: settling.is_settled(reached), deadline):
            if self._serving.is_over:
                raise self._standing.refused()
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

        While one thread closes, another one that calls this waits for it, and the earlier of both
        deadlines holds. A signal handler that interrupted closing only sets the deadline: the
        closing that it interrupted continues when the handler returns.
        """
        check_time("close", "timeout_s", timeout_s)
        self._standing.check_may_wait("close()")
        wait_s = self._standing.patience_s() if timeout_s is None else timeout_s
        self._settling.hurry(time.monotonic() + wait_s)
        if self._is_sending_here():
            self._close_by = time.monotonic() + wait_s
            self._standing.close()
            return
        with self._closing:
            if next(self._closes):
                return
            try:
                self._standing.close()
                if self._transactions.open is not None:
                    self._transactions.abort(self._transactions.open, LAST_WORDS_S)
                self._settling.deliver_or_give_up(wait_s)
                self._settling.report()
            except BaseException as error:
                self._end()
                self._log_unnoticed(error)
                raise
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
            logger.error("while the producer was closed because of %s: %s", described(error), also)

    def _is_sending_here(self) -> bool:
        """Whether a signal handler calls, and the send that it interrupted holds a lock, or has
        answers in hand: closing would wait for threads that wait for these."""
        if threading.get_ident() in self._hearing:
            return True
        gate = None if self._parking is None else self._parking.gate
        held = gate is not None and is_held_here(gate)
        return held or is_held_here(self._counting) or is_adding_here()

    def _close_if_asked(self) -> None:
        close_by = self._close_by
        if close_by is not None:
            self._close_by = None
            self.close(max(0.0, close_by - time.monotonic()))

    def _log_unnoticed(self, error: BaseException) -> None:
        try:
            self._deliveries.raise_unnoticed()
        except ClientError as also:
            logger.error("closing was interrupted by %s: %s", described(error), also)

    def _end(self) -> None:
        self._is_ended = True
        forget(self)
        self._serving.end()
        self._deliveries.fail_undecided()
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
        self._handing_over.end()
        self._settling.end()
        del self._client, self._failing, self._transactions

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

    # Of the serving thread

    def _tend(self, now: float) -> bool:
        with self._counting:
            self._count()
        self._deliveries.serve()
        if self._is_ended:  # while a callback was running
            return False
        if now - self._marked_at >= MARK_S:
            self._marked_at = now
            self._measure(now)
            if self._is_login_refused and self._deliveries.outstanding:
                self._give_up_all()
            if self._interrupted and len(self._client) == 0:
                self._interrupted = False
                self._deliveries.fail_lost_reports()
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
            self._connections.made()
            if self._reporting is not None:
                self._reporting.count(acknowledged)

    def _count_unless_busy(self) -> None:
        if not self._is_transactional and self._counting.acquire(blocking=False):
            try:
                self._count()
            finally:
                self._counting.release()

    def _hopeless(self) -> ClientError | None:
        """Why it helps nothing to repeat a call, if so."""
        return login_refused(self._connections) if self._is_login_refused else None

    def _give_up_all(self) -> None:
        """What waits to be sent, that is: nothing of it can be stored."""
        if self._parking is not None:
            self._parking.hold()
        self._client.purge(in_queue=True, in_flight=False, blocking=False)

    def _measure(self, now: float) -> None:
        reached = self._deliveries.mark(now)
        metrics = self.metrics
        metrics.sent = reached - self._deliveries.marks_taken - self._deliveries.unsent
        metrics.in_flight = len(self._deliveries.outstanding)
        timeout_s = self._settings.delivery_timeout_s
        metrics.retries_left_s = max(0.0, timeout_s - self._deliveries.waited_s(now))

    def _on_failure(self, delivery: Delivery, failed: KafkaError, message: Message) -> None:
        error = self._failing.on_failure(delivery, failed, message, self._standing.fatal)
        if self._is_ended:  # while a callback was running
            return
        self._transactions.on_failure(error)
        if error.kind is Kind.FATAL and self._standing.fatal is None:
            self._standing.fail(error)

    def _on_refused(self) -> None:
        """Nothing can be sent from now on. A record that another thread is sending is either with
        librdkafka by now, and is served, or is refused: the last step of sending is this call."""
        self._produce = self._produce_no_more

    def _produce_no_more(self, *_: object, **__: object) -> None:
        raise self._standing.refused()

    def _on_serving_failed(self, failure: BaseException) -> None:
        error = ClientFailed(f"serving deliveries failed: {described(failure)}")
        error.__cause__ = failure
        self._standing.fail(error)

    def _on_fatal(self, error: KafkaError) -> None:
        """What librdkafka says of the whole client, not of one record."""
        self._standing.fail(error_from(error))

    def _on_statistics(self, statistics: str) -> None:
        brokers = json.loads(statistics)["brokers"].values()
        if any(broker["state"] == "UP" for broker in brokers):
            self._connections.made()
        self._is_login_refused = self._connections.is_login_refused
        self.metrics.retried = sum(broker["txretries"] for broker in brokers)

    # Of the process

    def _on_exit(self, deadline: float) -> str | None:
        name = f"the producer of {self.application!r} was not closed before the process ended"
        try:
            in_transaction = self._transactions.open is not None
            self.close(max(0.0, deadline - time.monotonic()))
        except ClientError as error:
            return f"{name}: {error}"
        except Exception as failure:
            return f"{name}, and closing it failed: {described(failure)}"
        return f"{name}: its open transaction was aborted" if in_transaction else None

    def _on_fork(self) -> None:
        never_destroy(self._client, self._parking)  # SQLite must not be closed there either
        self._standing.leave_to_parent()


def _no_answers(_wait_s: float) -> int:
    return 0
