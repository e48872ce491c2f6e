"""The transactions of one producer: one at a time, each call repeated for as long as it can help.

What is acknowledged inside a transaction counts for the audit when it is committed, not before.

A commit takes `transaction.timeout.ms` for the offsets and as long again for the commit itself, at
most: after that time the coordinator aborts a transaction that nobody has decided to commit.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

from confluent_kafka import KafkaError, KafkaException

from lossless.client.classification import error_from
from lossless.client.errors import ClientError, ClientFailed, Kind, TransactionUndecided
from lossless.client.producing.undisturbed import Undisturbed
from lossless.errors import BadInput

if TYPE_CHECKING:
    from confluent_kafka import Message, TopicPartition
    from confluent_kafka import Producer as Client

    from lossless.client.producing.deliveries import Deliveries

CALL_S = 1.0  # of one call into librdkafka, which no signal interrupts
SETTLED_S = 5.0  # for what failed because of an abort
PAUSE_S = 0.05  # after a call that failed at once

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


def _unanswered(what: str, code: int) -> ClientFailed:
    hint = "the cluster does not answer: close the producer, make a new one"
    return ClientFailed(what, hint=hint, code=code)


def undecided(what: str, code: int | None) -> TransactionUndecided:
    return TransactionUndecided(
        f"it is not known whether the transaction is stored: {what}",
        hint="close the producer and the consumer and make new ones: they wait until the "
        "transaction is decided, and the consumer resumes after what is stored",
        code=code,
    )


class Transactions:
    """Used by the thread that has the transaction, but for what says so."""

    def __init__(
        self,
        client: Client,
        deliveries: Deliveries,
        sending: Sending,
        *,
        timeout_s: float,
        hopeless: Callable[[], ClientError | None],
    ) -> None:
        """`timeout_s`: that of a transaction. `hopeless`: why calls need not be repeated, if so."""
        self._hopeless = hopeless
        self._client = client
        self._timeout_s = timeout_s
        self._deliveries = deliveries
        self._sending = sending
        self._initializing: Undisturbed | None = None
        self._is_initialized = False
        self._offsets_sent: threading.Event | None = None  # of the last call that was made
        # Since the commit was sent, unless an abort is accepted: coordinators accept none of a
        # transaction that is decided. (librdkafka's EndTxn has version 1; later versions differ.)
        self.may_be_committed = False
        self.open: object | None = None
        self._failure: ClientError | None = None  # of the first record of it that failed
        self._uncounted: list[Message] = []  # acknowledged, in the one that is open
        self._countable: list[Message] = []  # acknowledged, in those that are committed
        self._counting = threading.Lock()
        self._pace = threading.Event()  # never set

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
            self._initialize(patience_s)
        self._failure = None
        self.may_be_committed = False
        self.open = transaction
        try:
            self._call(self._client.begin_transaction, patience_s=patience_s)
        except ClientError:
            self.open = None
            raise

    def _initialize(self, patience_s: float) -> None:
        def initialize() -> None:
            self._call(self._client.init_transactions, CALL_S, patience_s=patience_s)
            self._is_initialized = True

        earlier = self._initializing  # which was interrupted
        if earlier is not None and not earlier.wait(patience_s):
            raise _unanswered("the transactional.id is being initialised", KafkaError._TIMED_OUT)
        if not self._is_initialized:
            self._initializing = Undisturbed(initialize, name="lossless-transactions")
            self._initializing.run()

    def settle(self, transaction: object) -> ClientError | None:
        """Waits for every record of it; the failure of the first that failed."""
        self._check(transaction)
        self._sending.wait_until_idle(self._sending.patience_s())
        if self._sending.fatal is not None:  # and everything else failed because of it
            raise self._sending.fatal
        return self._failure

    def send_offsets(self, transaction: object, offsets: Offsets) -> None:
        self._check(transaction)
        deadline = time.monotonic() + self._timeout_s
        self._call(self._send_offsets, offsets, deadline, patience_s=self._timeout_s)

    def commit(self, transaction: object) -> None:
        self._check(transaction)
        self.may_be_committed = True
        self._call(
            self._client.commit_transaction, CALL_S, patience_s=self._timeout_s, late=undecided
        )
        self.open = None
        with self._counting:
            self._countable += self._uncounted
            self._uncounted = []

    def _send_offsets(self, offsets: Offsets, deadline: float) -> None:
        """In a thread of its own: librdkafka may never return from this call, whatever its time-out
        (confluentinc/librdkafka#5456), and while it is in progress no other one is possible."""
        ended = self._offsets_sent = threading.Event()
        failures: list[BaseException] = []

        def send() -> None:
            try:
                self._client.send_offsets_to_transaction(*offsets, CALL_S)
            except BaseException as failure:
                failures.append(failure)
            finally:
                ended.set()

        threading.Thread(target=send, name="lossless-transaction-offsets", daemon=True).start()
        if not ended.wait(max(CALL_S, deadline - time.monotonic())):
            found = ClientFailed(
                f"the offsets of the transaction were not sent within {self._timeout_s:g} s",
                hint="nothing of the transaction is stored: make a new producer and repeat it",
            )
            self._sending.fail(found)
            raise found
        if failures:
            raise failures[0]

    def abort(self, transaction: object, timeout_s: float) -> None:
        if transaction is not self.open:
            return
        try:
            if self._sending.fatal is None:
                self._wait_for_offsets(timeout_s)
                self._call(self._client.abort_transaction, CALL_S, patience_s=timeout_s)
                self.may_be_committed = False
            # What failed because of it is not to be taken for a failure of the next one.
            self._sending.wait_until_idle(SETTLED_S)
        finally:
            self.open = None
            with self._counting:  # what was acknowledged of it is not stored after all
                self._deliveries.acknowledged = []
                self._uncounted = []

    def _wait_for_offsets(self, timeout_s: float) -> None:
        """Sending them may have been interrupted, and be in progress still."""
        if self._offsets_sent is None or self._offsets_sent.wait(timeout_s):
            return
        found = ClientFailed(
            f"sending the offsets of the transaction did not end within {timeout_s:g} s",
            hint="nothing of the transaction is stored: make a new producer and repeat it",
        )
        self._sending.fail(found)
        raise found

    def leave_undecided(self, error: ClientError) -> None:
        """The commit is still in progress, and its end is not waited for."""
        self._sending.fail(error)
        self.open = None

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
        self,
        call: Callable[..., object],
        *arguments: object,
        patience_s: float,
        late: Callable[[str, int], ClientFailed] = _unanswered,
    ) -> None:
        """Repeats the call as long as it can help, and for `patience_s` at most."""
        deadline = time.monotonic() + patience_s
        while True:
            called_at = time.monotonic()
            try:
                call(*arguments)
            except KafkaException as raised:
                error = raised.args[0]
                now = time.monotonic()
                if not error.retriable() or now >= deadline:
                    found = error_from(error)
                    if now >= deadline and (error.retriable() or found.kind is Kind.RETRIABLE):
                        found = late(f"after {patience_s:g} s: {found.what}", error.code())
                    if found.kind is Kind.FATAL:
                        self._sending.fail(found)
                    raise found from raised
                hopeless = self._hopeless()
                if hopeless is not None:
                    raise hopeless from raised
                self._pace.wait(max(0.0, called_at + PAUSE_S - now))
            else:
                return
