"""What a leader takes from a producer, by the settings of the topic.

    too large         max.message.bytes
    too late, early   message.timestamp.before.max.ms, …after.max.ms, unless the broker gives times
    without a key     where old records of a key make room for new ones (cleanup.policy=compact)
    compressed        as the topic wants it (compression.type), whatever the producer chose

Followers take what the leader has taken.
"""

from __future__ import annotations

from lossless.core.messages import Error
from lossless.core.settings.policies import TopicPolicy
from lossless.log.batch import Batch, CorruptBatch, recompressed
from lossless.log.compression import Compression

_FOREVER = 0x7FFFFFFFFFFFFFFF
_COMPRESSIONS = {
    "uncompressed": Compression.NONE,
    "none": Compression.NONE,
    "gzip": Compression.GZIP,
    "snappy": Compression.SNAPPY,
    "lz4": Compression.LZ4,
    "zstd": Compression.ZSTD,
}


def accepted(batch: Batch, policy: TopicPolicy, has_own_time: bool, now_ms: int) -> Batch | Error:
    """The batch as it is to be written. `has_own_time`: the broker's time replaces the sender's."""
    if len(batch.data) > policy.max_message_bytes:
        return Error.MESSAGE_TOO_LARGE
    wanted = _COMPRESSIONS.get(policy.compression_type)
    try:
        if not has_own_time and (
            batch.max_timestamp_ms - now_ms > policy.message_timestamp_after_max_ms
            or (
                policy.message_timestamp_before_max_ms != _FOREVER
                and _is_too_late(batch, policy, now_ms)
            )
        ):
            return Error.INVALID_TIMESTAMP
        if policy.compacts and any(record.key is None for record in batch.records()):
            return Error.INVALID_RECORD
        if batch.is_compressed or wanted is not None:
            compression = batch.compression  # or it is of no kind that there is
            if wanted is not None and wanted is not compression:
                return recompressed(batch, wanted)
    except CorruptBatch:
        return Error.CORRUPT_MESSAGE
    return batch


def _is_too_late(batch: Batch, policy: TopicPolicy, now_ms: int) -> bool:
    before_ms = now_ms - policy.message_timestamp_before_max_ms
    return any(record.timestamp_ms < before_ms for record in batch.records())
