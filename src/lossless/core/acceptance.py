"""What a leader takes from a producer, by the settings of the topic.

    too large         max.message.bytes
    not readable      compressed in another way than it says, or other records than it announces
    without a key     where old records of a key make room for new ones (cleanup.policy=compact)
    too late, early   message.timestamp.before.max.ms, …after.max.ms, unless the broker gives times
    compressed        as the topic wants it (compression.type), whatever the producer chose

Followers take what the leader has taken.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from lossless.core.messages import Error, RecordError
from lossless.core.settings.policies import TopicPolicy
from lossless.log.batch import NO_TIMESTAMP, Batch, CorruptBatch, OversizedBatch, recompressed
from lossless.log.compression import Compression
from lossless.log.record_structure import InvalidRecords, TooManyElements, require_records

RECORD_ERRORS_MAX = 10_000  # as many records as librdkafka puts into a batch
_FOREVER = 0x7FFFFFFFFFFFFFFF
_COMPRESSIONS = {
    "uncompressed": Compression.NONE,
    "none": Compression.NONE,
    "gzip": Compression.GZIP,
    "snappy": Compression.SNAPPY,
    "lz4": Compression.LZ4,
    "zstd": Compression.ZSTD,
}


class Refused(NamedTuple):
    """Why a batch is not written."""

    error: Error
    reason: str | None = None
    records: tuple[RecordError, ...] = ()


def accepted(batch: Batch, policy: TopicPolicy, has_own_time: bool, now_ms: int) -> Batch | Refused:
    """The batch as it is to be written. `has_own_time`: the broker's time replaces the sender's."""
    if len(batch.data) > policy.max_message_bytes:
        return Refused(Error.MESSAGE_TOO_LARGE)
    try:
        body = batch.body()
        keyless = require_records(body, batch.records_count, with_keys=policy.compacts)
    except (OversizedBatch, TooManyElements) as error:
        return Refused(Error.MESSAGE_TOO_LARGE, str(error))
    except (CorruptBatch, InvalidRecords) as error:
        return Refused(Error.INVALID_RECORD, str(error))
    if keyless:
        return _refused(Error.INVALID_RECORD, keyless, "A record of a compacted topic needs a key.")
    if not has_own_time:
        earliest_ms = now_ms - policy.message_timestamp_before_max_ms
        latest_ms = now_ms + policy.message_timestamp_after_max_ms
        if batch.max_timestamp_ms > latest_ms or policy.message_timestamp_before_max_ms != _FOREVER:
            out_of_range = [
                place
                for place, record in enumerate(batch.records())
                if not earliest_ms <= record.timestamp_ms <= latest_ms
                and record.timestamp_ms != NO_TIMESTAMP
            ]
            if out_of_range:
                reason = f"The timestamp should be within [{earliest_ms}, {latest_ms}]."
                return _refused(Error.INVALID_TIMESTAMP, out_of_range, reason)
            if batch.max_timestamp_ms > latest_ms:  # that of none of its records
                return Refused(
                    Error.INVALID_TIMESTAMP, "The batch's maximum timestamp is too late."
                )
    wanted = _COMPRESSIONS.get(policy.compression_type)
    if wanted is not None and wanted is not batch.compression:
        return recompressed(batch, body, wanted)
    return batch


def _refused(error: Error, places: Sequence[int], reason: str) -> Refused:
    """The whole batch, because of these records: a producer fails only them for good, and may send
    the others again."""
    records = tuple(RecordError(place, reason) for place in places[:RECORD_ERRORS_MAX])
    return Refused(error, f"{reason} Records at fault: {len(places)}.", records)
