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

from lossless.core.messages import TopicPartition
from lossless.core.transactions.state import Transaction, TransactionState
from lossless.log.batch import NO_PRODUCER_ID

KEY_VERSION = 0
VALUE_VERSION = 1

_SHORT = struct.Struct(">h")
_INT = struct.Struct(">i")
_LONG = struct.Struct(">q")
_HEAD = struct.Struct(">qhib")  # producer id, epoch, timeout, state
_TIMES = struct.Struct(">qq")  # last update, start

_PREVIOUS_PRODUCER_ID, _NEXT_PRODUCER_ID, _CLIENT_TRANSACTION_VERSION = range(3)


class UnreadableRecord(ValueError):
    """A record that this version does not understand: nobody can coordinate without it."""


def encode_key(transactional_id: str) -> bytes:
    text = transactional_id.encode()
    return _SHORT.pack(KEY_VERSION) + _SHORT.pack(len(text)) + text


def decode_key(key: bytes) -> str | None:
    """None for a kind of key that is not known here: it was left by another version."""
    reader = _Reader(key)
    if reader.fixed(_SHORT) != KEY_VERSION:
        return None
    return reader.text(reader.fixed(_SHORT))


def encode_value(transaction: Transaction) -> bytes:
    body = bytearray(_SHORT.pack(VALUE_VERSION))
    body += _HEAD.pack(
        transaction.producer_id,
        transaction.producer_epoch,
        transaction.transaction_timeout_ms,
        transaction.state,
    )
    if transaction.state is TransactionState.EMPTY:
        body += _varint(0)  # null
    else:
        topics = [
            (topic, [partition.partition for partition in partitions])
            for topic, partitions in groupby(transaction.partitions, lambda each: each.topic)
        ]
        body += _varint(len(topics) + 1)
        for topic, numbers in topics:
            text = topic.encode()
            body += _varint(len(text) + 1) + text + _varint(len(numbers) + 1)
            body += b"".join(map(_INT.pack, numbers))
            body += _varint(0)  # no tags
    body += _TIMES.pack(transaction.last_update_timestamp_ms, transaction.start_timestamp_ms)
    tags = []
    if transaction.previous_producer_id != NO_PRODUCER_ID:
        tags.append((_PREVIOUS_PRODUCER_ID, _LONG.pack(transaction.previous_producer_id)))
    if transaction.next_producer_id != NO_PRODUCER_ID:
        tags.append((_NEXT_PRODUCER_ID, _LONG.pack(transaction.next_producer_id)))
    if transaction.client_transaction_version:
        version = _SHORT.pack(transaction.client_transaction_version)
        tags.append((_CLIENT_TRANSACTION_VERSION, version))
    body += _varint(len(tags))
    for tag, data in tags:
        body += _varint(tag) + _varint(len(data)) + data
    return bytes(body)


def decode_value(value: bytes) -> Transaction:
    try:
        return _decode_value(_Reader(value))
    except (IndexError, struct.error, UnicodeDecodeError) as error:
        raise UnreadableRecord(
            f"a record of a transaction ends early or is damaged: {error}"
        ) from (error)


def _decode_value(reader: _Reader) -> Transaction:
    version = reader.fixed(_SHORT)
    if version not in (0, VALUE_VERSION):
        raise UnreadableRecord(f"version {version} of a transaction's record is not known here")
    is_flexible = version == VALUE_VERSION
    producer_id, epoch, timeout_ms, status = _HEAD.unpack(reader.take(_HEAD.size))
    try:
        state = TransactionState(status)
    except ValueError as error:
        raise UnreadableRecord(f"state {status} of a transaction is not known here") from error
    partitions: list[TopicPartition] = []
    for _ in range(reader.count(is_flexible)):
        topic = reader.text(reader.count(is_flexible) if is_flexible else reader.fixed(_SHORT))
        numbers = [reader.fixed(_INT) for _ in range(reader.count(is_flexible))]
        partitions += [TopicPartition(topic, number) for number in numbers]
        if is_flexible:
            reader.tags()
    last_update_ms, start_ms = _TIMES.unpack(reader.take(_TIMES.size))
    tags = reader.tags() if is_flexible else {}

    def tagged(tag: int, shape: struct.Struct, default: int) -> int:
        return _Reader(tags[tag]).fixed(shape) if tag in tags else default

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


class _Reader:
    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def take(self, size: int) -> bytes:
        end = self._at + size
        if end > len(self._data):
            raise IndexError(f"{size} bytes wanted, {len(self._data) - self._at} left")
        part = self._data[self._at : end]
        self._at = end
        return part

    def fixed(self, shape: struct.Struct) -> int:
        number: int = shape.unpack(self.take(shape.size))[0]
        return number

    def text(self, size: int) -> str:
        return self.take(size).decode()

    def varint(self) -> int:
        number = shift = 0
        while True:
            byte = self.take(1)[0]
            number |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return number

    def count(self, is_flexible: bool) -> int:
        """How many follow; a missing list is an empty one."""
        return max(0, self.varint() - 1 if is_flexible else self.fixed(_INT))

    def tags(self) -> dict[int, bytes]:
        found = {}
        for _ in range(self.varint()):
            tag = self.varint()
            found[tag] = self.take(self.varint())
        return found


def _varint(number: int) -> bytes:
    body = bytearray()
    while number >= 0x80:
        body.append(number & 0x7F | 0x80)
        number >>= 7
    body.append(number)
    return bytes(body)
