"""A batch with a right checksum whose records make no sense was sent so: it is no damage."""

from __future__ import annotations

import struct

import pytest
from crc32c import crc32c

from lossless.log.batch import Batch, Record, build, parse
from lossless.log.log import Appended, Log, LogConfig
from lossless.log.memory import MemoryStore

CONFIG = LogConfig(segment_bytes=200)


def unreadable(**producer: int) -> Batch:
    """Says that it is compressed with gzip, and is not."""
    batch = build([Record(0, 5, b"a", b"1")], **producer)
    checked = struct.pack(">h", batch.attributes | 1) + batch.data[23:]
    return parse(batch.data[:17] + struct.pack(">I", crc32c(checked)) + checked)


@pytest.fixture
def log() -> Log:
    found = Log(MemoryStore(), CONFIG)
    for batch in (unreadable(), build([Record(0, 9, b"b", b"2")])):
        assert isinstance(found.append(batch, leader_epoch=0, now_ms=0), Appended)
    return found


def test_a_search_by_time_goes_past_it(log: Log) -> None:
    record = log.first_at_or_after(1)
    assert record is not None
    assert (record.offset, record.key) == (1, b"b")
    assert log.first_at_or_after(10) is None


@pytest.mark.parametrize(
    "producer", [{}, {"producer_id": 7, "producer_epoch": 0, "base_sequence": 0}]
)
def test_compaction_drops_its_records_and_nothing_else(producer: dict[str, int]) -> None:
    log = Log(MemoryStore(), CONFIG)
    log.append(unreadable(**producer), leader_epoch=0, now_ms=0)
    for number in range(6):
        log.append(build([Record(0, 9, b"b", b"%d" % number)]), leader_epoch=0, now_ms=0)
    log.flush()
    log.compact(now_ms=0, high_watermark=log.log_end_offset)
    kept = [record.value for batch in log.batches() for record in batch.readable_records()]
    assert kept[-1] == b"5"
    assert len(kept) < 6
