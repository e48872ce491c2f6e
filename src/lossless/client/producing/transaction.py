"""Several records, and the offsets that they came from, stored together or not at all.

    with producer.transaction(consumer) as transaction:
        transaction.send("totals", …)

The end of the block commits; an exception in it, an interrupt too, aborts and goes on. What cannot
be committed raises one of three:

    TransactionAborted   nothing of it was stored: do the whole block again
    Fenced, ClientFailed another producer has taken this transactional.id, or this one cannot go on

A commit whose answer got lost is asked about until it is decided: only then is it known whether the
records are stored. A delivery in a transaction says that the record is in the log; that readers see
it is the commit's doing. Readers must be `read_committed`.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, Any, Protocol, Self

from confluent_kafka import KafkaException

from lossless.client.classification import error_from
from lossless.client.errors import ClientError, ClientFailed, Kind, TransactionAborted
from lossless.client.producing.delivery import Delivery
from lossless.errors import BadInput

if TYPE_CHECKING:
    from confluent_kafka import Producer as Client
    from confluent_kafka import TopicPartition

    from lossless.client.producing.producer import Producer

logger = logging.getLogger("lossless.client.producer")

CALL_S = 1.0  # of one call into librdkafka, which no signal interrupts
ABORT_S = 60.0
INTERRUPTED_ABORT_S = 5.0


class HasOffsets(Protocol):
    """A consumer, as far as a transaction needs to know it."""

    def transaction_offsets(self) -> tuple[list[TopicPartition], Any]:
        """What it has finished, as next offsets, and its group's metadata."""
        ...


class Transaction:
    """One of a producer at a time. Used by one thread, but for `send`."""

    def __init__(self, producer: Producer, consumer: HasOffsets | None) -> None:
        self._producer = producer
        self._consumer = consumer
        self._is_open = False
        self.failure: ClientError | None = None  # of the first record that failed

    def send(self, topic: str, value: object = None, key: object = None, **more: Any) -> Delivery:
        """As `Producer.send`."""
        if not self._is_open:
            raise BadInput(
                "this transaction is not open",
                hint="send inside its `with` block; begin another one for more",
            )
        return self._producer.send(topic, value, key, **more)

    def __enter__(self) -> Self:
        self._producer.begin(self)
        self._is_open = True
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if not self._is_open:  # aborted by whoever closed the producer
            return
        if error is None:
            self._commit()
            return
        try:
            self.abort(ABORT_S if isinstance(error, Exception) else INTERRUPTED_ABORT_S)
        except ClientError as also:
            logger.error("while a transaction was aborted because of %r: %s", error, also)

    def abort(self, timeout_s: float = ABORT_S) -> None:
        """Nothing of it is stored. Whoever uses the `with` block need not call it."""
        self._is_open = False
        self._producer.abort(self, timeout_s)

    def _commit(self) -> None:
        try:
            self._producer.settle(self)
            if self.failure is not None:
                raise TransactionAborted(
                    f"the transaction lacks a record: {self.failure.what}",
                    hint="nothing of it was stored: do it again",
                    record=self.failure.record,
                ) from self.failure
            self._producer.commit(self, self._offsets())
            self._is_open = False
        except ClientError as error:
            if error.kind is not Kind.FATAL:
                self.abort()
            self._is_open = False
            raise
        except BaseException:  # interrupted, or the consumer's own error
            self.abort(INTERRUPTED_ABORT_S)
            raise

    def _offsets(self) -> tuple[list[TopicPartition], Any] | None:
        if self._consumer is None:
            return None
        offsets, group = self._consumer.transaction_offsets()
        return (offsets, group) if offsets else None


class Transacting:
    """librdkafka's transactions, each call repeated for as long as that can help."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._is_initialized = False

    def begin(self, timeout_s: float) -> None:
        """Fences whoever has had the transactional.id before, the first time."""
        if not self._is_initialized:
            self._call(self._client.init_transactions, CALL_S, patience_s=timeout_s)
            self._is_initialized = True
        self._call(self._client.begin_transaction, patience_s=timeout_s)

    def commit(self, offsets: tuple[list[TopicPartition], Any] | None, timeout_s: float) -> None:
        if offsets is not None:
            send = self._client.send_offsets_to_transaction
            self._call(send, *offsets, CALL_S, patience_s=timeout_s)
        # Nobody knows whether it is committed before there is an answer: no time is too long.
        self._call(self._client.commit_transaction, CALL_S, patience_s=None)

    def abort(self, timeout_s: float) -> None:
        self._call(self._client.abort_transaction, CALL_S, patience_s=timeout_s)

    def _call(
        self, call: Callable[..., object], *arguments: object, patience_s: float | None
    ) -> None:
        deadline = None if patience_s is None else time.monotonic() + patience_s
        while True:
            try:
                call(*arguments)
            except KafkaException as raised:
                error = raised.args[0]
                out_of_time = deadline is not None and time.monotonic() >= deadline
                if not error.retriable() or out_of_time:
                    found = error_from(error)
                    if found.kind is Kind.RETRIABLE and out_of_time:
                        found = ClientFailed(
                            f"after {patience_s:g} s: {found.what}",
                            hint="the cluster does not answer: close the producer, make a new one",
                            code=found.code,
                        )
                    raise found from raised
            else:
                return
