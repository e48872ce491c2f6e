"""The transactions of one producer: one at a time, each call repeated for as long as it can help.

What is acknowledged inside a transaction counts for the audit when it is committed, not before.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

from confluent_kafka import KafkaException

from lossless.client.classification import error_from
from lossless.client.errors import ClientError, ClientFailed, Kind
from lossless.errors import BadInput

if TYPE_CHECKING:
    from confluent_kafka import Message, TopicPartition
    from confluent_kafka import Producer as Client

    from lossless.client.producing.deliveries import Deliveries

CALL_S = 1.0  # of one call into librdkafka, which no signal interrupts
SETTLED_S = 5.0  # for what failed because of an abort

Offsets = tuple[list["TopicPartition"], Any]  # and the group's metadata


class Sending(Protocol):
    """A producer, as far as its transactions need to know it."""

    @property
    def fatal(self) -> ClientError | None:
        """Why it cannot go on, if it cannot."""
        ...

    def refusal(self) -> ClientError | None:
        """Why nothing can be sent any more, if so."""
        ...

    def fail(self, error: ClientError) -> None: ...

    def wait_until_idle(self, timeout_s: float) -> None:
        """Until everything is acknowledged or has failed."""
        ...

    def patience_s(self) -> float: ...


class Transactions:
    """Used by the thread that has the transaction, but for what says so."""

    def __init__(self, client: Client, deliveries: Deliveries, sending: Sending) -> None:
        self._client = client
        self._deliveries = deliveries
        self._sending = sending
        self._is_initialized = False
        self.open: object | None = None
        self._failure: ClientError | None = None  # of the first record of it that failed
        self._uncounted: list[Message] = []  # acknowledged, in the one that is open
        self._countable: list[Message] = []  # acknowledged, in those that are committed
        self._counting = threading.Lock()

    def begin(self, transaction: object) -> None:
        """The first time it fences whoever has had the transactional.id before."""
        refusal = self._sending.refusal()
        if refusal is not None:
            raise refusal
        if self.open is not None:
            raise BadInput(
                "this producer has a transaction open", hint="end it first, or use another producer"
            )
        patience_s = self._sending.patience_s()
        if not self._is_initialized:
            self._call(self._client.init_transactions, CALL_S, patience_s=patience_s)
            self._is_initialized = True
        self._call(self._client.begin_transaction, patience_s=patience_s)
        self._failure = None
        self.open = transaction

    def settle(self, transaction: object) -> ClientError | None:
        """Waits for every record of it; the failure of the first that failed."""
        self._check(transaction)
        self._sending.wait_until_idle(self._sending.patience_s())
        if self._sending.fatal is not None:  # and everything else failed because of it
            raise self._sending.fatal
        return self._failure

    def commit(self, transaction: object, offsets: Offsets | None) -> None:
        self._check(transaction)
        if offsets is not None:
            send = self._client.send_offsets_to_transaction
            self._call(send, *offsets, CALL_S, patience_s=self._sending.patience_s())
        # Nobody knows whether it is committed before there is an answer: no time is too long.
        self._call(self._client.commit_transaction, CALL_S, patience_s=None)
        self.open = None
        with self._counting:
            self._countable += self._uncounted
            self._uncounted = []

    def abort(self, transaction: object, timeout_s: float) -> None:
        if transaction is not self.open:
            return
        try:
            if self._sending.fatal is None:
                self._call(self._client.abort_transaction, CALL_S, patience_s=timeout_s)
            # What failed because of it is not to be taken for a failure of the next one.
            self._sending.wait_until_idle(SETTLED_S)
        finally:
            self.open = None
            with self._counting:  # what was acknowledged of it is not stored after all
                self._deliveries.acknowledged = []
                self._uncounted = []

    def on_failure(self, error: ClientError) -> None:
        """Of the serving thread: a record was given up."""
        if self.open is not None and self._failure is None:
            self._failure = error

    def committed_since(self) -> list[Message]:
        """Of the serving thread: what can be counted, since it was last asked."""
        with self._counting:
            self._uncounted += self._deliveries.acknowledged
            self._deliveries.acknowledged = []
            committed, self._countable = self._countable, []
        return committed

    def _check(self, transaction: object) -> None:
        if transaction is not self.open:
            raise self._sending.refusal() or ClientFailed("the transaction is over")

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
                    if found.kind is Kind.FATAL:
                        self._sending.fail(found)
                    raise found from raised
            else:
                return
