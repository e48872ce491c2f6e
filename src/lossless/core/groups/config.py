"""What a group coordinator is told when it is made: its settings, and the topics there are."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from lossless.log.rules import RULES, Rules

_MINUTE_MS = 60_000
_INT_MAX = (1 << 31) - 1


@dataclass(frozen=True, slots=True)
class GroupConfig:
    """Kafka's settings, and Kafka's defaults."""

    # The classic protocol
    min_session_timeout_ms: int = 6_000  # group.min.session.timeout.ms
    max_session_timeout_ms: int = 1_800_000  # group.max.session.timeout.ms
    initial_rebalance_delay_ms: int = 3_000  # group.initial.rebalance.delay.ms
    max_size: int = _INT_MAX  # group.max.size
    # Not a setting of Kafka's, but a constant: a member that is new cannot send heartbeats while
    # its join waits, and a client that has gone would stay for ever.
    new_member_join_timeout_ms: int = 5 * _MINUTE_MS

    # The consumer protocol (KIP-848)
    consumer_session_timeout_ms: int = 45_000  # group.consumer.session.timeout.ms
    consumer_heartbeat_interval_ms: int = 5_000  # group.consumer.heartbeat.interval.ms
    consumer_max_size: int = _INT_MAX  # group.consumer.max.size
    consumer_assignors: tuple[str, ...] = ("uniform", "range")  # group.consumer.assignors

    # Offsets
    offset_metadata_max_bytes: int = 4_096  # offset.metadata.max.bytes
    offsets_retention_minutes: int = 7 * 24 * 60  # offsets.retention.minutes
    offsets_retention_check_interval_ms: int = 600_000  # offsets.retention.check.interval.ms

    rules: Rules = RULES  # the simulator's alone

    @property
    def offsets_retention_ms(self) -> int:
        return self.offsets_retention_minutes * _MINUTE_MS


class TopicView(NamedTuple):
    """What a group coordinator needs to know of a topic."""

    id: int  # 128 bits
    partitions: int
    racks: tuple[tuple[str, ...], ...] = ()  # of each partition's replicas; empty: not known
