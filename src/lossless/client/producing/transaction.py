"""Several records, and the offsets that they came from, stored together or not at all.

    for batch in consumer.batches():
        with producer.transaction(consumer) as transaction:
            transaction.send("totals", …)

A transaction of a consumer covers the record or the batch in hand: their offsets and the metadata
of the group are fixed when it begins, and it never commits without them. While it is open, the
consumer hands out nothing more; after an abort it hands out the same records again.

The end of the block commits; an exception in it, an interrupt too, aborts and goes on. An interrupt
(the exception of a signal handler) that arrives during the commit is raised when the commit has
ended, with a note that says how it ended. After five seconds without an end the transaction is
undecided. What cannot be committed raises one of these:

    TransactionAborted   nothing of it was stored: do the whole block again
    PartitionLost        nothing of it was stored: a partition of the consumer was revoked or lost
                         since it began, and its records are handed out again here or elsewhere
    Fenced, ClientFailed another producer has taken this transactional.id, or this one cannot go on
    TransactionUndecided the commit was not answered: it is not known whether the records are stored

A commit whose answer got lost is repeated for `transaction.timeout.ms`: only an answer says whether
the records are stored. Without one, the consumer hands out nothing more, since records that are
stored would be processed twice; a new consumer resumes after what is stored. The same holds when a
commit that was sent is refused and no abort is accepted: the refusal may answer a repetition of it.
A delivery in a transaction says that the record is in the log; that readers see it is the commit's
doing. Readers must be `read_committed`.
"""

from __future__ import annotations

import logging
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, Protocol, Self

from lossless.client.errors import (
    ClientError,
    Kind,
    PartitionLost,
    TransactionAborted,
    TransactionUndecided,
    described,
)
from lossless.client.producing.delivery import Delivery
from lossless.client.producing.transacting import Transactions, undecided
from lossless.client.producing.undisturbed import INTERRUPTED_S, Undisturbed
from lossless.errors import BadInput, LosslessError

if TYPE_CHECKING:
    from confluent_kafka import TopicPartition

    from lossless.client.producing.producer import Producer

logger = logging.getLogger("lossless.client.producer")

ABORT_S = 60.0


class HasOffsets(Protocol):
    """A consumer, as far as a transaction needs to know it."""

    def transaction_begun(self) -> None:
        """The record or batch in hand belongs to the transaction."""
        ...

    def transaction_offsets(self) -> tuple[list[TopicPartition], Any]:
        """What it has finished, as next offsets, and its group's metadata, both as of the
        beginning. PartitionLost if a partition is gone since."""
        ...

    def transaction_committed(self) -> None:
        """What it had in hand is finished."""
        ...

    def transaction_aborted(self) -> None:
        """What it had in hand was not done after all: it must be given out again."""
        ...

    def transaction_undecided(self, error: ClientError) -> None:
        """It is not known whether what it had in hand was done: it must hand out nothing more."""
        ...


class Transaction:
    """One of a producer at a time. Used by one thread, but for `send`."""

    def __init__(
        self, producer: Producer, transactions: Transactions, consumer: HasOffsets | None
    ) -> None:
        self._producer = producer
        self._transactions = transactions
        self._consumer = consumer
        self._is_open = False

    def send(self, topic: str, value: object = None, key: object = None, **more: Any) -> Delivery:
        """As `Producer.send`."""
        if not self._is_open:
            raise BadInput(
                "this transaction is not open",
                hint="send inside its `with` block; begin another one for more",
            )
        return self._producer.send(topic, value, key, **more)

    def __enter__(self) -> Self:
        if self._consumer is not None:
            try:
                self._consumer.transaction_begun()
            except LosslessError:  # refused: another transaction may be open, and stays so
                raise
            except BaseException:
                self._give_back()
                raise
        try:
            self._transactions.begin(self)
            self._is_open = True
        except BaseException as error:
            if self._transactions.open is self:  # interrupted
                self._abort_because_of(error)
            else:
                self._give_back()
            raise
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
        else:
            self._abort_because_of(error)

    def abort(self, timeout_s: float = ABORT_S) -> None:
        """Nothing of it is stored. Whoever uses the `with` block need not call it."""
        Undisturbed(partial(self._abort, timeout_s), name="lossless-abort").run()

    def _abort(self, timeout_s: float) -> None:
        self._is_open = False
        failure: BaseException | None = None
        try:
            self._transactions.abort(self, timeout_s)
        except BaseException as error:
            failure = error
            raise
        finally:
            self._give_back_unless_committed(failure)

    def _abort_because_of(self, error: BaseException) -> None:
        try:
            self.abort(ABORT_S if isinstance(error, Exception) else INTERRUPTED_S)
        except ClientError as also:
            logger.error(
                "while a transaction was aborted because of %s: %s", described(error), also
            )

    def _commit(self) -> None:
        committing = Undisturbed(self._commit_or_abort, name="lossless-commit")
        try:
            failure = self._transactions.settle(self)
            if failure is not None:
                raise TransactionAborted(
                    f"the transaction lacks a record: {failure.what}",
                    hint="nothing of it was stored: do it again",
                    record=failure.record,
                ) from failure
            if self._consumer is not None:
                self._transactions.send_offsets(self, self._consumer.transaction_offsets())
            committing.run()
        except BaseException as error:
            if committing.prevent():  # the commit was not sent
                self._on_failure(error)
            elif error is not committing.failure:
                self._on_interruption(error, committing)
            raise

    def _commit_or_abort(self) -> None:
        """From here on, an interruption changes nothing any more."""
        try:
            self._transactions.commit(self)
        except TransactionUndecided as error:
            self._is_open = False
            if self._consumer is not None:
                self._consumer.transaction_undecided(error)
            raise
        except ClientError as error:
            self._on_failure(error)
            raise
        self._is_open = False
        if self._consumer is not None:
            self._consumer.transaction_committed()

    def _on_failure(self, error: BaseException) -> None:
        is_lost = isinstance(error, PartitionLost)
        if isinstance(error, ClientError) and error.kind is Kind.FATAL and not is_lost:
            self._is_open = False
            self._give_back_unless_committed(error)
        else:
            self._abort_because_of(error)

    def _on_interruption(self, error: BaseException, committing: Undisturbed) -> None:
        """While it was committed: records are handed out again only if the commit has failed."""
        if not committing.has_ended:
            self._is_open = False
            found = undecided("its commit was interrupted, and did not end soon after", None)
            found.__cause__ = error
            self._transactions.leave_undecided(found)
            if self._consumer is not None:
                self._consumer.transaction_undecided(found)
            what = found.what
        elif committing.failure is None:
            what = "the transaction was committed before this exception was raised"
        else:
            what = f"the commit of the transaction failed: {described(committing.failure)}"
        error.add_note(what)
        logger.warning("a transaction was interrupted by %s: %s", described(error), what)

    def _give_back_unless_committed(self, error: BaseException | None) -> None:
        """A commit that was refused may follow one that was accepted and whose answer got lost."""
        if self._consumer is None:
            return
        if not self._transactions.may_be_committed:
            self._consumer.transaction_aborted()
            return
        code = error.code if isinstance(error, ClientError) else None
        what = "was interrupted" if error is None else f"ended with {described(error)}"
        found = undecided(f"the commit {what}", code)
        found.__cause__ = error
        self._consumer.transaction_undecided(found)

    def _give_back(self) -> None:
        if self._consumer is not None:
            self._consumer.transaction_aborted()
