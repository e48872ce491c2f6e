"""Every error of the client, each of one of four kinds that say what can still be done.

    LosslessError
    └── ClientError                          4
        ├── NotDelivered         retriable   4    retries are exhausted; it may be written or not
        ├── BufferFull           retriable   4    no room in memory while others are retried
        ├── SpoolFull            retriable   4    no room on disk to park it
        ├── StoreUnavailable     retriable   4    the store did not do it; nothing is half done
        ├── Refused              permanent   2    too large, not authorised, invalid: never this one
        │   └── SerializationFailed          2    it never became bytes
        ├── DeserializationFailed permanent  2    its bytes are not what was expected
        ├── TransactionAborted   abortable   4    nothing of this transaction was stored: begin anew
        ├── ClientFailed         fatal       4    the client is finished; make a new one
        │   ├── Fenced                       4    another one has taken its place
        │   │   └── PartitionLost            4    another member has taken this partition
        │   └── TransactionUndecided         4    it is not known whether the transaction is stored
        ├── InvalidPosition      permanent   1    there is no right place to read on from
        │   ├── NoCommittedOffset            1
        │   ├── OffsetOutOfRange             1
        │   └── LogTruncated                 1
        └── HandlerFailed        permanent   1    the handler raised, and nobody may go past it

An error of a record carries it: what could not be delivered is never known by a message alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import TYPE_CHECKING, ClassVar

from lossless.errors import LosslessError

if TYPE_CHECKING:
    from lossless.client.record import Record


def text_of_error(error: BaseException) -> str:
    """Its message. Exceptions of applications may have a __str__ that raises."""
    try:
        return str(error)
    except Exception as failure:
        return f"<its __str__ raised {type(failure).__name__}>"


def described(error: BaseException) -> str:
    """Its class and its message, if it has one."""
    text = text_of_error(error)
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


class Kind(Enum):
    """What can still be done."""

    RETRIABLE = "retriable"  # the same again may work
    PERMANENT = "permanent"  # never for this record, others may go on
    ABORTABLE = "abortable"  # never in this transaction, the next one may go on
    FATAL = "fatal"  # never with this client


class ClientError(LosslessError):
    """The root; never raised itself."""

    exit_code = 4
    kind: ClassVar[Kind]

    def __init__(
        self,
        what: str,
        *,
        hint: str | None = None,
        code: int | None = None,
        record: Record | None = None,
    ) -> None:
        super().__init__(what, hint=hint)
        self.code = code  # Kafka's, or librdkafka's own below zero
        self.record = record


class NotDelivered(ClientError):
    """Nobody acknowledged it in time. It may be in the log, or not."""

    kind = Kind.RETRIABLE


class BufferFull(ClientError):
    """There is no room in memory, because what was sent before is still being retried."""

    kind = Kind.RETRIABLE


class SpoolFull(ClientError):
    """There is no room on disk to park it."""

    kind = Kind.RETRIABLE


class StoreUnavailable(ClientError):
    """A store of data and offsets could not do it now. Read its positions again, and repeat."""

    kind = Kind.RETRIABLE


class Refused(ClientError):
    """This record will never be taken as it is."""

    exit_code = 2
    kind = Kind.PERMANENT


class SerializationFailed(Refused):
    """It never became bytes; nothing was sent."""


class DeserializationFailed(ClientError):
    """The key or the value of a record that was read is not what was expected."""

    exit_code = 2
    kind = Kind.PERMANENT


class TransactionAborted(ClientError):
    """Nothing of this transaction was stored."""

    kind = Kind.ABORTABLE


class ClientFailed(ClientError):
    """The client cannot go on; a new one may."""

    kind = Kind.FATAL


class TransactionUndecided(ClientFailed):
    """The commit was not answered in time: the transaction is stored as a whole or not at all."""


class Fenced(ClientFailed):
    """Another one with the same name has taken the place of this one."""


class PartitionLost(Fenced):
    """Another member has taken the partition: what was done here for it was not stored."""

    partitions: Sequence[tuple[str, int]] = ()  # those that are lost, where they are known


class InvalidPosition(ClientError):
    """There is no right place to read on from, and nobody said which wrong one to take."""

    exit_code = 1
    kind = Kind.PERMANENT


class NoCommittedOffset(InvalidPosition):
    """The group never committed, or what it committed has expired."""


class OffsetOutOfRange(InvalidPosition):
    """The records to read on from are gone, or not there yet."""


class LogTruncated(InvalidPosition):
    """Records that were read are no longer in the log: an unclean election took them back."""


class HandlerFailed(ClientError):
    """The handler raised, and nobody may go past the record. The cause is chained."""

    exit_code = 1
    kind = Kind.PERMANENT
