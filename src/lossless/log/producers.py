"""What a partition knows of its producers: sequences, epochs, open transactions.

A producer that gets no answer sends again. The log recognises the batch by (producer id, epoch,
sequence) among the last five, says where it is, and does not write it twice.

    a batch of a new producer        any sequence is accepted: what it sent before may have expired
    … of a later epoch               begins at sequence 0
    … of the same epoch              continues the sequence, or is one of the last five again
    … of an earlier epoch            refused: somebody else has taken over the producer's name

Only the leader checks; `apply` changes the state, on leaders, on followers and in recovery alike.
"""

from __future__ import annotations

import enum
import struct
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from crc32c import crc32c

from lossless.log.batch import (
    CONTROL,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    SEQUENCE_MAX,
    TRANSACTIONAL,
    Batch,
    Marker,
    MarkerKind,
    new,
)

BATCHES_MAX = 5  # that a producer may have in flight, and that are remembered
SNAPSHOT_VERSION = 1

_SNAPSHOT_HEADER = struct.Struct(">hI")  # version, and the CRC-32C of what follows
_SNAPSHOT_COUNT = struct.Struct(">i")
# producer id, epoch, last sequence, last offset, offset delta, timestamp, coordinator epoch,
# first offset of the open transaction
_SNAPSHOT_ENTRY = struct.Struct(">qhiqiqiq")


class Refusal(enum.Enum):
    """Why a batch was not appended, by the name that clients know."""

    OUT_OF_ORDER_SEQUENCE_NUMBER = "a batch before this one is missing, or it came too late"
    INVALID_PRODUCER_EPOCH = "a later producer has taken over the name"
    INVALID_TXN_STATE = "a batch outside the transaction that its producer has open"
    TRANSACTION_COORDINATOR_FENCED = "a later coordinator has written a marker"


class Duplicate(NamedTuple):
    """The batch is in the log already, here."""

    base_offset: int
    last_offset: int
    timestamp_ms: int


class SentBatch(NamedTuple):
    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp_ms: int

    @property
    def first_sequence(self) -> int:
        return (self.last_sequence - self.offset_delta) & SEQUENCE_MAX

    @property
    def base_offset(self) -> int:
        return self.last_offset - self.offset_delta


def _sent(batch: Batch) -> SentBatch:
    delta = batch.last_offset_delta
    last_sequence = (batch.base_sequence + delta) & SEQUENCE_MAX
    return new(SentBatch, (last_sequence, batch.base_offset + delta, delta, batch.max_timestamp_ms))


class CompletedTransaction(NamedTuple):
    producer_id: int
    first_offset: int
    last_offset: int  # of the marker
    aborted: bool


@dataclass(slots=True)
class Producer:
    epoch: int = NO_PRODUCER_EPOCH
    coordinator_epoch: int = -1
    transaction_first_offset: int | None = None
    last_timestamp_ms: int = -1
    batches: deque[SentBatch] = field(default_factory=lambda: deque(maxlen=BATCHES_MAX))

    @property
    def last_sequence(self) -> int:
        return self.batches[-1].last_sequence if self.batches else NO_SEQUENCE

    @property
    def last_offset(self) -> int | None:
        return self.batches[-1].last_offset if self.batches else None

    def continue_as(self, epoch: int) -> None:
        if epoch != self.epoch:
            self.epoch = epoch
            self.batches.clear()


class Producers:
    def __init__(self) -> None:
        self._by_id: dict[int, Producer] = {}
        # Where the open transaction of each began, the oldest first: it is asked for with every
        # fetch, and there may be thousands of producers.
        self._open: dict[int, int] = {}

    def __len__(self) -> int:
        return len(self._by_id)

    def get(self, producer_id: int) -> Producer | None:
        return self._by_id.get(producer_id)

    def items(self) -> Iterable[tuple[int, Producer]]:
        return self._by_id.items()

    # The leader's questions

    def check(self, batch: Batch) -> Duplicate | Refusal | None:
        """Whether a batch of an idempotent producer may be appended: None means yes."""
        known = self._by_id.get(batch.producer_id)
        if batch.producer_epoch < (NO_PRODUCER_EPOCH if known is None else known.epoch):
            return Refusal.INVALID_PRODUCER_EPOCH
        if known is None:
            return None
        if known.transaction_first_offset is not None and not batch.is_transactional:
            return Refusal.INVALID_TXN_STATE
        if batch.producer_epoch > known.epoch:
            if batch.base_sequence == 0:
                return None
            return Refusal.OUT_OF_ORDER_SEQUENCE_NUMBER
        if batch.base_sequence == (known.last_sequence + 1) & SEQUENCE_MAX:
            return None
        for sent in known.batches:
            if (sent.first_sequence, sent.last_sequence) == (
                batch.base_sequence,
                batch.last_sequence,
            ):
                return Duplicate(sent.base_offset, sent.last_offset, sent.timestamp_ms)
        return Refusal.OUT_OF_ORDER_SEQUENCE_NUMBER

    def check_marker(self, producer_id: int, producer_epoch: int, marker: Marker) -> Refusal | None:
        known = self._by_id.get(producer_id)
        if known is None:
            return None
        if producer_epoch < known.epoch:
            return Refusal.INVALID_PRODUCER_EPOCH
        if marker.coordinator_epoch < known.coordinator_epoch:
            return Refusal.TRANSACTION_COORDINATOR_FENCED
        return None

    # What happened

    def apply(self, batch: Batch) -> CompletedTransaction | None:
        """Takes note of a batch in the log. A marker completes the transaction it ends."""
        attributes, producer_id = batch.attributes, batch.producer_id
        if attributes & CONTROL:
            marker = batch.marker()
            return None if marker is None else self._apply_marker(batch, marker)
        if producer_id <= NO_PRODUCER_ID:
            return None
        known = self._by_id.get(producer_id)
        if known is None:
            known = self._by_id[producer_id] = Producer()
        if batch.producer_epoch != known.epoch:
            known.continue_as(batch.producer_epoch)
        known.last_timestamp_ms = batch.max_timestamp_ms
        if batch.base_sequence > NO_SEQUENCE:
            known.batches.append(_sent(batch))
        if attributes & TRANSACTIONAL and known.transaction_first_offset is None:
            known.transaction_first_offset = batch.base_offset
            self._open[producer_id] = batch.base_offset
        return None

    def _apply_marker(self, batch: Batch, marker: Marker) -> CompletedTransaction | None:
        known = self._by_id.setdefault(batch.producer_id, Producer())
        known.continue_as(batch.producer_epoch)
        known.coordinator_epoch = marker.coordinator_epoch
        known.last_timestamp_ms = batch.max_timestamp_ms
        known.transaction_first_offset = None
        first_offset = self._open.pop(batch.producer_id, None)
        if first_offset is None:
            return None  # a transaction that wrote nothing here
        return CompletedTransaction(
            batch.producer_id, first_offset, batch.last_offset, marker.kind is MarkerKind.ABORT
        )

    def recall(self, batches: Iterable[Batch]) -> None:
        """Fills in, behind the last batch of each producer, those that were before it."""
        before: dict[int, deque[SentBatch]] = {}
        for batch in batches:
            known = self._by_id.get(batch.producer_id)
            if batch.has_sequence and known is not None and known.epoch == batch.producer_epoch:
                sent = before.setdefault(batch.producer_id, deque(maxlen=BATCHES_MAX))
                sent.append(_sent(batch))
        for producer_id, sent in before.items():
            known = self._by_id[producer_id]
            if known.batches and sent[-1].last_offset == known.batches[-1].last_offset:
                known.batches = sent

    def first_open_offset(self) -> int | None:
        """Where the oldest transaction begins that has no marker yet."""
        return next(iter(self._open.values())) if self._open else None

    def remove_expired(self, now_ms: int, expiration_ms: int) -> None:
        """Forgets who has been silent for long. Whoever has a transaction open is kept."""
        for producer_id in [
            producer_id
            for producer_id, known in self._by_id.items()
            if known.transaction_first_offset is None
            and now_ms - known.last_timestamp_ms >= expiration_ms
        ]:
            del self._by_id[producer_id]

    # Snapshots, as Kafka has them: of each producer the last batch only.

    def encode(self) -> bytes:
        body = bytearray(_SNAPSHOT_COUNT.pack(len(self._by_id)))
        for producer_id, known in sorted(self._by_id.items()):
            last = known.batches[-1] if known.batches else SentBatch(NO_SEQUENCE, -1, 0, -1)
            first_offset = known.transaction_first_offset
            body += _SNAPSHOT_ENTRY.pack(
                producer_id,
                known.epoch,
                last.last_sequence,
                last.last_offset,
                last.offset_delta,
                known.last_timestamp_ms,
                known.coordinator_epoch,
                -1 if first_offset is None else first_offset,
            )
        return _SNAPSHOT_HEADER.pack(SNAPSHOT_VERSION, crc32c(bytes(body))) + bytes(body)

    @classmethod
    def decode(cls, data: bytes) -> Producers | None:
        """None when it cannot be trusted: then the log itself is read."""
        if len(data) < _SNAPSHOT_HEADER.size + _SNAPSHOT_COUNT.size:
            return None
        version, checksum = _SNAPSHOT_HEADER.unpack_from(data)
        body = data[_SNAPSHOT_HEADER.size :]
        entries = body[_SNAPSHOT_COUNT.size :]
        if version != SNAPSHOT_VERSION or crc32c(body) != checksum:
            return None
        if len(entries) != _SNAPSHOT_COUNT.unpack_from(body)[0] * _SNAPSHOT_ENTRY.size:
            return None
        found = cls()
        opened = []
        for fields in _SNAPSHOT_ENTRY.iter_unpack(entries):
            producer_id, epoch, sequence, offset, delta, timestamp_ms, coordinator, first = fields
            known = Producer(epoch, coordinator, None if first < 0 else first, timestamp_ms)
            if sequence != NO_SEQUENCE:
                known.batches.append(SentBatch(sequence, offset, delta, timestamp_ms))
            found._by_id[producer_id] = known
            if first >= 0:
                opened.append((first, producer_id))
        found._open = {producer_id: first for first, producer_id in sorted(opened)}
        return found
