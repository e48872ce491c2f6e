"""Logs for tests: small segments, batches that tell what they are."""

from __future__ import annotations

from lossless.log.batch import Batch, Record, build
from lossless.log.log import Appended, Log, LogConfig
from lossless.log.store import Store

# A batch of one record has about 70 bytes: three or four to a segment.
SMALL = LogConfig(segment_bytes=300, index_interval_bytes=100, retention_ms=None)


def batch(
    *values: bytes,
    key: bytes | None = None,
    timestamp_ms: int = 0,
    producer_id: int = -1,
    epoch: int = -1,
    sequence: int = -1,
    transactional: bool = False,
) -> Batch:
    return build(
        [Record(n, timestamp_ms, key, value) for n, value in enumerate(values or (b"v",))],
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=sequence,
        transactional=transactional,
    )


def fill(log: Log, count: int, *, leader_epoch: int = 0, timestamp_ms: int = 0) -> None:
    for _ in range(count):
        number = log.log_end_offset
        one = batch(b"%d" % number, timestamp_ms=timestamp_ms)
        assert log.append(one, leader_epoch=leader_epoch, now_ms=timestamp_ms) == Appended(
            number, number
        )


def opened(store: Store, config: LogConfig = SMALL) -> Log:
    return Log(store, config)


def values(log: Log) -> list[bytes]:
    return [record.value or b"" for one in log.batches() for record in one.records()]
