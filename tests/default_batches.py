"""The batch headers that client libraries send with their default settings.

Read from the libraries' sources; `conformance/test_default_clients.py` runs the libraries and
compares what they send. A library that is idempotent by default has a producer id from the broker;
the others have -1, and differ in what they write beside it.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from crc32c import crc32c

from lossless.log.batch import Batch, Record, build, parse
from lossless.log.compression import Compression

ASSIGNED_ID = 4_711

_PRODUCER_AT, _PRODUCER = 43, struct.Struct(">qhi")
_LEADER_EPOCH_AT = 12
_CHECKSUM_AT, _CHECKED_FROM = 17, 21


class DefaultHeader(NamedTuple):
    producer_id: int
    producer_epoch: int
    base_sequence: int
    compression: Compression = Compression.NONE
    leader_epoch: int = -1


DEFAULT_HEADERS = {
    "Java": DefaultHeader(ASSIGNED_ID, 0, 0),
    "confluent-kafka": DefaultHeader(-1, -1, -1, leader_epoch=0),
    "aiokafka": DefaultHeader(-1, -1, 0),
    "kafka-python": DefaultHeader(ASSIGNED_ID, 0, 0),
    "franz-go": DefaultHeader(ASSIGNED_ID, 0, 0, Compression.SNAPPY),
    "sarama": DefaultHeader(-1, -1, 0, leader_epoch=0),
    "sarama, early versions": DefaultHeader(-1, 0, 0, leader_epoch=0),
    "kafka-go": DefaultHeader(-1, -1, -1),
    "KafkaJS": DefaultHeader(-1, 0, 0, leader_epoch=0),
}


def sent_by(client: str, *records: Record) -> Batch:
    """A batch as this client library writes it unless it is configured otherwise."""
    header = DEFAULT_HEADERS[client]
    data = bytearray(build(records, compression=header.compression).data)
    struct.pack_into(">i", data, _LEADER_EPOCH_AT, header.leader_epoch)
    _PRODUCER.pack_into(
        data, _PRODUCER_AT, header.producer_id, header.producer_epoch, header.base_sequence
    )
    return sealed(data)


def sealed(data: bytes | bytearray) -> Batch:
    """The batch with the checksum that its bytes have."""
    checksum = struct.pack(">I", crc32c(bytes(data[_CHECKED_FROM:])))
    return parse(bytes(data[:_CHECKSUM_AT]) + checksum + bytes(data[_CHECKED_FROM:]))
