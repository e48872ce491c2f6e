"""Settings of the transaction coordinator, with Kafka's names and defaults."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionConfig:
    # transactional.id.expiration.ms
    transactional_id_expiration_ms: int = 7 * 24 * 3_600_000
    # transaction.max.timeout.ms
    transaction_max_timeout_ms: int = 15 * 60_000
    # transaction.abort.timed.out.transaction.cleanup.interval.ms
    abort_timed_out_interval_ms: int = 10_000
    # transaction.remove.expired.transaction.cleanup.interval.ms
    remove_expired_interval_ms: int = 3_600_000
    # offsets.topic.num.partitions: where the offsets of a group will be while there is no topic
    offsets_topic_partitions: int = 50
    # The feature transaction.version: 2 raises the epoch at the end of every transaction (KIP-890)
    transaction_version: int = 2
    # How long to wait before a leader is asked again to write a marker. Kafka has no setting.
    marker_retry_backoff_ms: int = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class VerificationConfig:
    # transaction.partition.verification.enable; what a Produce adds itself is always asked for
    partition_verification_enable: bool = True
    # add.partitions.to.txn.retry.backoff.ms
    retry_backoff_ms: int = 20
    # add.partitions.to.txn.retry.backoff.max.ms: how long in all
    retry_backoff_max_ms: int = 100
    # producer.id.expiration.ms: when to forget a producer that was never verified
    producer_id_expiration_ms: int = 24 * 3_600_000
