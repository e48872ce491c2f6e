"""Settings of topics, and where their defaults come from.

What a topic does not set it has from the broker, whose setting may have another name and another
unit: retention.ms is log.retention.ms, else log.retention.minutes, else log.retention.hours.

Rules learnt
- A topic with an unknown or wrong setting is not created, and one that exists is not changed.
- What is wrong with two settings together is judged with the broker's values for those that the
  topic does not set.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from lossless.core.settings.brokers import BROKERS
from lossless.core.settings.kinds import InvalidSetting, Value, text_of, value_of
from lossless.core.settings.table import read_table

TOPICS = read_table(
    """\
cleanup.policy: list of compact delete = delete (honoured)
    Whether old segments are deleted, compacted by key, or both.
compression.type: string of uncompressed zstd lz4 snappy gzip producer = producer (honoured)
    How the broker stores batches: in this compression, or as the producer sent them.
compression.gzip.level: int 1..9 or -1 = -1 (honoured)
    How hard gzip tries when the broker compresses.
compression.lz4.level: int 1..17 = 9 (honoured)
    How hard lz4 tries when the broker compresses.
compression.zstd.level: int -131072..22 = 3 (honoured)
    How hard zstd tries when the broker compresses.
delete.retention.ms: long 0.. = 86400000 (honoured)
    How long compaction keeps the mark that a key was deleted.
file.delete.delay.ms: long 0.. = 60000
    How long the files of a deleted segment stay on disk.
flush.messages: long 1.. = 9223372036854775807 (honoured)
    1 flushes to disk before every acknowledgement; more leaves flushing to the system.
flush.ms: long 0.. = 9223372036854775807
    How long a record may wait to be flushed to disk.
follower.replication.throttled.replicas: list replicas = ""
    Replicas whose followers are held to the replication quota, as partition:broker, or *.
index.interval.bytes: int 0.. = 4096 (honoured)
    After so many bytes the index gets another entry.
internal.segment.bytes: int (honoured, internal)
    For tests: how large a segment grows before the next one begins.
leader.replication.throttled.replicas: list replicas = ""
    Replicas whose leaders are held to the replication quota, as partition:broker, or *.
local.retention.bytes: long -2.. = -2
    How much stays on the broker once it is remote; -2 means retention.bytes.
local.retention.ms: long -2.. = -2
    How long records stay on the broker once they are remote; -2 means retention.ms.
max.compaction.lag.ms: long 1.. = 9223372036854775807 (honoured)
    After so much time a record must be compacted.
max.message.bytes: int 0.. = 1048588 (honoured)
    The largest batch of records that is accepted.
message.timestamp.after.max.ms: long 0.. = 3600000 (honoured)
    How far a record's time may lie ahead of the broker's clock.
message.timestamp.before.max.ms: long 0.. = 9223372036854775807 (honoured)
    How far a record's time may lie behind the broker's clock.
message.timestamp.type: string of CreateTime LogAppendTime = CreateTime (honoured)
    Whether records carry the producer's time or the time of their appending.
min.cleanable.dirty.ratio: double 0..1 = 0.5 (honoured)
    The log is compacted when at least this part of it is new since the last time.
min.compaction.lag.ms: long 0.. = 0 (honoured)
    How long a record is safe from compaction.
min.insync.replicas: int 1.. = 1 (honoured)
    With acks=all, so many replicas must be in sync or the write is refused.
preallocate: boolean = false
    Whether a new segment's file is made in its full size.
remote.log.copy.disable: boolean = false
    Whether no more segments are copied to remote storage.
remote.log.delete.on.disable: boolean = false
    Whether remote segments are deleted when the topic's remote storage is turned off.
remote.storage.enable: boolean = false
    Whether old segments of the topic are kept in remote storage.
retention.bytes: long = -1 (honoured)
    How large a partition may be before its oldest segments go; -1 is without limit.
retention.ms: long -1.. = 604800000 (honoured)
    How long records are kept; -1 keeps them for ever.
segment.bytes: int 1048576.. = 1073741824 (honoured)
    How large a segment grows before the next one begins.
segment.index.bytes: int 4.. = 10485760
    How large an index may be.
segment.jitter.ms: long 0.. = 0
    Up to so much earlier a segment may end, so that not all end at once.
segment.ms: long 1.. = 604800000 (honoured)
    How old a segment grows before the next one begins.
unclean.leader.election.enable: boolean = false (honoured)
    Whether a replica that may miss acknowledged records can become leader when no other is left.
"""
)

_MINUTE_MS = 60_000
_HOUR_MS = 60 * _MINUTE_MS


class Synonym(NamedTuple):
    """A broker's setting that a topic's default comes from."""

    name: str
    unit_ms: int | None = None  # None: the same value


# The first that is set counts.
SYNONYMS: Mapping[str, tuple[Synonym, ...]] = {
    "cleanup.policy": (Synonym("log.cleanup.policy"),),
    "compression.gzip.level": (Synonym("compression.gzip.level"),),
    "compression.lz4.level": (Synonym("compression.lz4.level"),),
    "compression.type": (Synonym("compression.type"),),
    "compression.zstd.level": (Synonym("compression.zstd.level"),),
    "delete.retention.ms": (Synonym("log.cleaner.delete.retention.ms"),),
    "file.delete.delay.ms": (Synonym("log.segment.delete.delay.ms"),),
    "flush.messages": (Synonym("log.flush.interval.messages"),),
    "flush.ms": (
        Synonym("log.flush.interval.ms"),
        Synonym("log.flush.scheduler.interval.ms"),
    ),
    "index.interval.bytes": (Synonym("log.index.interval.bytes"),),
    "local.retention.bytes": (Synonym("log.local.retention.bytes"),),
    "local.retention.ms": (Synonym("log.local.retention.ms"),),
    "max.compaction.lag.ms": (Synonym("log.cleaner.max.compaction.lag.ms"),),
    "max.message.bytes": (Synonym("message.max.bytes"),),
    "message.timestamp.after.max.ms": (Synonym("log.message.timestamp.after.max.ms"),),
    "message.timestamp.before.max.ms": (Synonym("log.message.timestamp.before.max.ms"),),
    "message.timestamp.type": (Synonym("log.message.timestamp.type"),),
    "min.cleanable.dirty.ratio": (Synonym("log.cleaner.min.cleanable.ratio"),),
    "min.compaction.lag.ms": (Synonym("log.cleaner.min.compaction.lag.ms"),),
    "min.insync.replicas": (Synonym("min.insync.replicas"),),
    "preallocate": (Synonym("log.preallocate"),),
    "retention.bytes": (Synonym("log.retention.bytes"),),
    "retention.ms": (
        Synonym("log.retention.ms"),
        Synonym("log.retention.minutes", _MINUTE_MS),
        Synonym("log.retention.hours", _HOUR_MS),
    ),
    "segment.bytes": (Synonym("log.segment.bytes"),),
    "segment.index.bytes": (Synonym("log.index.size.max.bytes"),),
    "segment.jitter.ms": (
        Synonym("log.roll.jitter.ms"),
        Synonym("log.roll.jitter.hours", _HOUR_MS),
    ),
    "segment.ms": (Synonym("log.roll.ms"), Synonym("log.roll.hours", _HOUR_MS)),
    "unclean.leader.election.enable": (Synonym("unclean.leader.election.enable"),),
}


def topic_value(
    name: str, overrides: Mapping[str, str], properties: Mapping[str, str]
) -> Value | None:
    """What a topic goes by: its own value, its broker's, or Kafka's. None: it has no value."""
    text = overrides.get(name)
    if text is None:
        text = _default(name, properties)
    return None if text is None else value_of(TOPICS[name], text)


def _default(name: str, properties: Mapping[str, str]) -> str | None:
    for synonym in SYNONYMS.get(name, ()):
        text = properties.get(synonym.name)
        if text is None:
            continue
        value = value_of(BROKERS[synonym.name], text)
        if synonym.unit_ms is not None:
            assert isinstance(value, int)
            value *= synonym.unit_ms
        if name == "retention.ms":
            assert isinstance(value, int)
            value = max(value, -1)  # whatever is negative: for ever
        return text_of(value)
    return TOPICS[name].default


def problem_with_topic(
    overrides: Mapping[str, str | None], properties: Mapping[str, str]
) -> str | None:
    """Why a topic cannot have these settings, given its broker's; None: it can."""
    without = [name for name, text in overrides.items() if text is None]
    if without:
        return f"Null value not supported for topic configs: {','.join(without)}"
    texts = {name: text for name, text in overrides.items() if text is not None}
    unknown = next((name for name in texts if name not in TOPICS), None)
    if unknown is not None:
        return f"Unknown topic config name: {unknown}"
    try:
        values = {name: topic_value(name, texts, properties) for name in TOPICS}
    except InvalidSetting as invalid:
        return str(invalid)
    return _conflict(values)


def _conflict(values: Mapping[str, Value | None]) -> str | None:
    low, high = values["min.compaction.lag.ms"], values["max.compaction.lag.ms"]
    assert isinstance(low, int)
    assert isinstance(high, int)
    if low > high:
        return (
            "conflict topic config setting "
            f"min.compaction.lag.ms ({low}) > max.compaction.lag.ms ({high})"
        )
    if values["remote.storage.enable"]:
        return (
            "Tiered Storage functionality is disabled in the broker. "
            "Topic cannot be configured with remote log storage."
        )
    return None
