"""The configurations of the machines, made of a broker's settings."""

from __future__ import annotations

from collections.abc import Mapping

from lossless.core.broker import BrokerConfig, TopicConfig
from lossless.core.controller_node import ControllerConfig
from lossless.core.coordination import CoordinationConfig
from lossless.core.groups.config import GroupConfig
from lossless.core.metadata import MIN_ISR
from lossless.core.quorum import QuorumConfig
from lossless.core.replica import ReplicaConfig
from lossless.core.settings.broker_settings import BrokerSettings
from lossless.core.settings.brokers import BROKERS
from lossless.core.settings.policies import log_config_for, policy_for
from lossless.core.transactions.config import TransactionConfig, VerificationConfig

# Kafka's raft client has this fixed; a fetch that waits must come back before its sender doubts
# the leader, so shorter timeouts shorten it in Kafka's own proportion.
_QUORUM_FETCH_WAIT_MS_MAX = 500


def broker_config(settings: BrokerSettings) -> BrokerConfig:
    """Its log and flush_before_ack are those of topics that set nothing."""
    replication = settings.replication
    return BrokerConfig(
        heartbeat_ms=settings.membership.broker_heartbeat_interval_ms,
        fetch_wait_ms=replication.replica_fetch_wait_max_ms,
        backoff_ms=replication.replica_fetch_backoff_ms,
        checkpoint_ms=replication.replica_high_watermark_checkpoint_interval_ms,
        tidy_ms=max(1, settings.upkeep.log_retention_check_interval_ms),
        replica=ReplicaConfig(
            lag_ms_max=replication.replica_lag_time_max_ms,
            flush_before_ack=policy_for({}, settings).flush_before_ack,
            fetch_bytes_max=replication.replica_fetch_max_bytes,
        ),
        log=log_config_for({}, settings),
        quorum=quorum_config(settings),
        coordination=CoordinationConfig(
            groups=_group_config(settings),
            transactions=_transaction_config(settings),
            verification=VerificationConfig(
                partition_verification_enable=(
                    settings.transactions.transaction_partition_verification_enable
                ),
                producer_id_expiration_ms=settings.upkeep.producer_id_expiration_ms,
            ),
        ),
    )


def _group_config(settings: BrokerSettings) -> GroupConfig:
    groups, offsets = settings.groups, settings.offsets
    return GroupConfig(
        min_session_timeout_ms=groups.group_min_session_timeout_ms,
        max_session_timeout_ms=groups.group_max_session_timeout_ms,
        initial_rebalance_delay_ms=groups.group_initial_rebalance_delay_ms,
        max_size=groups.group_max_size,
        consumer_session_timeout_ms=groups.group_consumer_session_timeout_ms,
        consumer_heartbeat_interval_ms=groups.group_consumer_heartbeat_interval_ms,
        consumer_max_size=groups.group_consumer_max_size,
        consumer_assignors=groups.group_consumer_assignors,
        offset_metadata_max_bytes=offsets.offset_metadata_max_bytes,
        offsets_retention_minutes=offsets.offsets_retention_minutes,
        offsets_retention_check_interval_ms=offsets.offsets_retention_check_interval_ms,
    )


def _transaction_config(settings: BrokerSettings) -> TransactionConfig:
    transactions = settings.transactions
    return TransactionConfig(
        transactional_id_expiration_ms=transactions.transactional_id_expiration_ms,
        transaction_max_timeout_ms=transactions.transaction_max_timeout_ms,
        abort_timed_out_interval_ms=(
            transactions.transaction_abort_timed_out_transaction_cleanup_interval_ms
        ),
        remove_expired_interval_ms=(
            transactions.transaction_remove_expired_transaction_cleanup_interval_ms
        ),
        offsets_topic_partitions=settings.offsets.offsets_topic_num_partitions,
    )


def topic_config(overrides: Mapping[str, str], settings: BrokerSettings) -> TopicConfig:
    replication, policy = settings.replication, policy_for(overrides, settings)
    replica = ReplicaConfig(
        lag_ms_max=replication.replica_lag_time_max_ms,
        flush_before_ack=policy.flush_before_ack,
        fetch_bytes_max=replication.replica_fetch_max_bytes,
    )
    return TopicConfig(log_config_for(overrides, settings), replica, policy)


def controller_config(settings: BrokerSettings) -> ControllerConfig:
    return ControllerConfig(
        session_timeout_ms=settings.membership.broker_session_timeout_ms,
        # Kafka's controllers agree on the minimum also where nobody has set it (KIP-966).
        properties={MIN_ISR: BROKERS[MIN_ISR].default or "1", **settings.properties},
        quorum=quorum_config(settings),
    )


def quorum_config(settings: BrokerSettings) -> QuorumConfig:
    """Kafka allows timeouts of zero, and means at once; the machine draws from below them."""
    controllers = settings.controllers
    fetch_timeout_ms = max(1, controllers.controller_quorum_fetch_timeout_ms)
    return QuorumConfig(
        election_timeout_ms=max(1, controllers.controller_quorum_election_timeout_ms),
        fetch_timeout_ms=fetch_timeout_ms,
        election_backoff_max_ms=max(1, controllers.controller_quorum_election_backoff_max_ms),
        retry_backoff_ms=controllers.controller_quorum_retry_backoff_ms,
        fetch_max_bytes=controllers.internal_metadata_max_fetch_size_in_bytes,
        fetch_wait_ms=min(_QUORUM_FETCH_WAIT_MS_MAX, fetch_timeout_ms // 4),
    )
