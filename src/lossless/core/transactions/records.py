"""What is written to `__transaction_state`: Kafka's own records, key version 0, value version 1.

    key      version, transactional id
    value    version, producer id, epoch, timeout, state, partitions by topic, last update, start,
             and tagged: 0 previous producer id, 1 next producer id, 2 the client's version

Version 0 of the value has no tags and longer counts; it is read and not written. A tag that is not
known here is passed over. Key and value are those of TransactionLogKey and TransactionLogValue.
"""

from __future__ import annotations

import struct
from itertools import groupby

from lossless.core.encoding import Malformed, Reader, Writer
from lossless.core.messages import TopicPartition
from lossless.core.transactions.state import Transaction, TransactionState
from lossless.log.batch import NO_PRODUCER_ID

KEY_VERSION = 0
VALUE_VERSION = 1

_SHORT = struct.Struct(">h")
_LONG = struct.Struct(">q")

_PREVIOUS_PRODUCER_ID, _NEXT_PRODUCER_ID, _CLIENT_TRANSACTION_VERSION = range(3)


class UnreadableRecord(ValueError):
    """A record that this version does not understand: nobody can coordinate without it."""


def encode_key(transactional_id: str) -> bytes:
    writer = Writer(flexible=False)
    writer.int16(KEY_VERSION)
    writer.string(transactional_id)
    return bytes(writer.data)


def decode_key(key: bytes) -> str | None:
    """None for a kind of key that is not known here: it was left by another version."""
    reader = Reader(key, flexible=False)
    return reader.string() if reader.int16() == KEY_VERSION else None


def encode_value(transaction: Transaction) -> bytes:
    writer = Writer(flexible=True)
    writer.int16(VALUE_VERSION)
    writer.int64(transaction.producer_id)
    writer.int16(transaction.producer_epoch)
    writer.int32(transaction.transaction_timeout_ms)
    writer.int8(transaction.state)
    if transaction.state is TransactionState.EMPTY:
        writer.count(-1)
    else:
        topics = [
            (topic, [partition.partition for partition in partitions])
            for topic, partitions in groupby(transaction.partitions, lambda each: each.topic)
        ]
        writer.count(len(topics))
        for topic, numbers in topics:
            writer.string(topic)
            writer.count(len(numbers))
            for number in numbers:
                writer.int32(number)
            writer.tagged()
    writer.int64(transaction.last_update_timestamp_ms)
    writer.int64(transaction.start_timestamp_ms)
    tags = []
    if transaction.previous_producer_id != NO_PRODUCER_ID:
        tags.append((_PREVIOUS_PRODUCER_ID, _LONG.pack(transaction.previous_producer_id)))
    if transaction.next_producer_id != NO_PRODUCER_ID:
        tags.append((_NEXT_PRODUCER_ID, _LONG.pack(transaction.next_producer_id)))
    if transaction.client_transaction_version:
        version = _SHORT.pack(transaction.client_transaction_version)
        tags.append((_CLIENT_TRANSACTION_VERSION, version))
    writer.tagged(tuple(tags))
    return bytes(writer.data)


def decode_value(value: bytes) -> Transaction:
    try:
        return _decode_value(value)
    except (Malformed, struct.error) as error:
        raise UnreadableRecord(
            f"a record of a transaction ends early or is damaged: {error}"
        ) from error


def _decode_value(value: bytes) -> Transaction:
    version = Reader(value, flexible=False).int16()
    if version not in (0, VALUE_VERSION):
        raise UnreadableRecord(f"version {version} of a transaction's record is not known here")
    reader = Reader(value, flexible=version == VALUE_VERSION, at=_SHORT.size)
    producer_id, epoch = reader.int64(), reader.int16()
    timeout_ms, status = reader.int32(), reader.int8()
    try:
        state = TransactionState(status)
    except ValueError as error:
        raise UnreadableRecord(f"state {status} of a transaction is not known here") from error
    partitions: list[TopicPartition] = []
    for _ in range(reader.count()):
        topic = reader.string()
        partitions += [TopicPartition(topic, reader.int32()) for _ in range(reader.count())]
        reader.tagged()
    last_update_ms, start_ms = reader.int64(), reader.int64()
    tags = reader.tagged()

    def tagged(tag: int, shape: struct.Struct, default: int) -> int:
        return int(shape.unpack(tags[tag])[0]) if tag in tags else default

    return Transaction(
        producer_id,
        epoch,
        timeout_ms,
        state,
        tuple(sorted(partitions)),
        last_update_ms,
        start_ms,
        tagged(_PREVIOUS_PRODUCER_ID, _LONG, NO_PRODUCER_ID),
        tagged(_NEXT_PRODUCER_ID, _LONG, NO_PRODUCER_ID),
        tagged(_CLIENT_TRANSACTION_VERSION, _SHORT, 0),
    )
