"""What a topic's settings mean for its partitions: the log's own configuration, and the rest.

Rules learnt
- Retention applies to a topic whose policy contains delete, and to no other: a compacted topic
  never loses its oldest segments, whatever retention.ms says.
- A compacted topic closes a segment when max.compaction.lag.ms has passed, since the active one is
  never compacted.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

from lossless.core.messages import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from lossless.core.settings.broker_settings import BrokerSettings
from lossless.core.settings.topics import topic_value
from lossless.log.log import LogConfig

Typed = TypeVar("Typed", bool, int, float, str, tuple[str, ...])


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicPolicy:
    """What a log does not have to know."""

    deletes: bool  # cleanup.policy; a topic can have both, or neither
    compacts: bool
    compression_type: str  # producer: as it came
    compression_level: int | None  # of that compression, if it has levels
    max_message_bytes: int
    min_insync_replicas: int
    flush_before_ack: bool  # flush.messages=1
    message_timestamp_before_max_ms: int
    message_timestamp_after_max_ms: int
    unclean_leader_election_enable: bool
    min_cleanable_dirty_ratio: float
    min_compaction_lag_ms: int
    max_compaction_lag_ms: int


class InternalTopic(NamedTuple):
    """A topic that the brokers make for themselves."""

    name: str
    num_partitions: int
    replication_factor: int
    overrides: Mapping[str, str]


class _Values(NamedTuple):
    """A topic's settings, of the type that is asked for."""

    overrides: Mapping[str, str]
    properties: Mapping[str, str]

    def of(self, name: str, kind: type[Typed]) -> Typed:
        value = topic_value(name, self.overrides, self.properties)
        assert isinstance(value, kind), name
        return value

    def cleans_by(self, policy: str) -> bool:
        return policy in self.of("cleanup.policy", tuple)


def log_config_for(topic_overrides: Mapping[str, str], settings: BrokerSettings) -> LogConfig:
    """The overrides are a topic's that exists: problem_with_topic found nothing in them."""
    values = _Values(topic_overrides, settings.properties)
    deletes, compacts = values.cleans_by("delete"), values.cleans_by("compact")
    retention_ms, retention_bytes = (
        values.of("retention.ms", int),
        values.of("retention.bytes", int),
    )
    for_tests = topic_value("internal.segment.bytes", topic_overrides, settings.properties)
    segment_ms, lag_ms = values.of("segment.ms", int), values.of("max.compaction.lag.ms", int)
    return LogConfig(
        segment_bytes=for_tests if isinstance(for_tests, int) else values.of("segment.bytes", int),
        segment_ms=min(segment_ms, lag_ms) if compacts else segment_ms,
        index_interval_bytes=values.of("index.interval.bytes", int),
        retention_ms=retention_ms if deletes and retention_ms >= 0 else None,
        retention_bytes=retention_bytes if deletes and retention_bytes >= 0 else None,
        delete_retention_ms=values.of("delete.retention.ms", int),
        producer_id_expiration_ms=settings.upkeep.producer_id_expiration_ms,
        log_append_time=values.of("message.timestamp.type", str) == "LogAppendTime",
    )


def policy_for(topic_overrides: Mapping[str, str], settings: BrokerSettings) -> TopicPolicy:
    """Likewise."""
    values = _Values(topic_overrides, settings.properties)
    compression = values.of("compression.type", str)
    has_levels = compression in ("gzip", "lz4", "zstd")
    return TopicPolicy(
        deletes=values.cleans_by("delete"),
        compacts=values.cleans_by("compact"),
        compression_type=compression,
        compression_level=values.of(f"compression.{compression}.level", int)
        if has_levels
        else None,
        max_message_bytes=values.of("max.message.bytes", int),
        min_insync_replicas=values.of("min.insync.replicas", int),
        flush_before_ack=values.of("flush.messages", int) == 1,
        message_timestamp_before_max_ms=values.of("message.timestamp.before.max.ms", int),
        message_timestamp_after_max_ms=values.of("message.timestamp.after.max.ms", int),
        unclean_leader_election_enable=values.of("unclean.leader.election.enable", bool),
        min_cleanable_dirty_ratio=values.of("min.cleanable.dirty.ratio", float),
        min_compaction_lag_ms=values.of("min.compaction.lag.ms", int),
        max_compaction_lag_ms=values.of("max.compaction.lag.ms", int),
    )


def internal_topics(settings: BrokerSettings) -> dict[str, InternalTopic]:
    """As Kafka makes them: compacted, in small segments."""
    offsets, transactions = settings.offsets, settings.transactions
    made = (
        InternalTopic(
            OFFSETS_TOPIC,
            offsets.offsets_topic_num_partitions,
            offsets.offsets_topic_replication_factor,
            {
                "cleanup.policy": "compact",
                "compression.type": "producer",
                "segment.bytes": str(offsets.offsets_topic_segment_bytes),
            },
        ),
        InternalTopic(
            TRANSACTIONS_TOPIC,
            transactions.transaction_state_log_num_partitions,
            transactions.transaction_state_log_replication_factor,
            {
                "cleanup.policy": "compact",
                "compression.type": "uncompressed",
                "min.insync.replicas": str(transactions.transaction_state_log_min_isr),
                "segment.bytes": str(transactions.transaction_state_log_segment_bytes),
                "unclean.leader.election.enable": "false",
            },
        ),
    )
    return {topic.name: topic for topic in made}
