from __future__ import annotations

import pytest

from lossless.core.messages import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from lossless.core.settings.broker_settings import BrokerSettings
from lossless.core.settings.policies import internal_topics, log_config_for, policy_for
from lossless.core.settings.topics import TOPICS, problem_with_topic
from lossless.log.log import LogConfig

FOR_EVER_MS = (1 << 63) - 1


def settings(**properties: str) -> BrokerSettings:
    texts = {name.replace("_", "."): text for name, text in properties.items()}
    return BrokerSettings.from_properties(texts)[0]


def test_a_topic_that_sets_nothing_has_kafkas_log() -> None:
    assert log_config_for({}, settings()) == LogConfig()


def test_a_topics_settings_reach_its_log() -> None:
    overrides = {
        "segment.bytes": "1048576",
        "segment.ms": "2",
        "index.interval.bytes": "3",
        "retention.ms": "4",
        "retention.bytes": "5",
        "delete.retention.ms": "6",
        "message.timestamp.type": "LogAppendTime",
    }
    assert log_config_for(overrides, settings(producer_id_expiration_ms="7")) == LogConfig(
        segment_bytes=1 << 20,
        segment_ms=2,
        index_interval_bytes=3,
        retention_ms=4,
        retention_bytes=5,
        delete_retention_ms=6,
        producer_id_expiration_ms=7,
        log_append_time=True,
    )


def test_a_brokers_settings_reach_the_logs_of_topics_that_set_nothing() -> None:
    config = log_config_for({}, settings(log_retention_minutes="1", log_roll_hours="2"))
    assert (config.retention_ms, config.segment_ms) == (60_000, 7_200_000)


def test_minus_one_keeps_records_for_ever() -> None:
    config = log_config_for({"retention.ms": "-1", "retention.bytes": "-1"}, settings())
    assert config.retention_ms is None
    assert config.retention_bytes is None


@pytest.mark.parametrize("policy", ["compact", ""])
def test_retention_applies_to_no_topic_that_does_not_delete(policy: str) -> None:
    overrides = {"cleanup.policy": policy, "retention.ms": "1", "retention.bytes": "1"}
    config = log_config_for(overrides, settings())
    assert config.retention_ms is None
    assert config.retention_bytes is None


def test_a_topic_can_be_compacted_and_lose_its_oldest_records_as_well() -> None:
    overrides = {"cleanup.policy": "compact,delete", "retention.ms": "1"}
    policy = policy_for(overrides, settings())
    assert policy.compacts
    assert policy.deletes
    assert log_config_for(overrides, settings()).retention_ms == 1


def test_a_compacted_topic_closes_segments_in_time_for_compaction() -> None:
    overrides = {"max.compaction.lag.ms": "10", "segment.ms": "20"}
    assert log_config_for(overrides, settings()).segment_ms == 20
    assert log_config_for({**overrides, "cleanup.policy": "compact"}, settings()).segment_ms == 10


def test_tests_can_have_segments_smaller_than_kafka_allows() -> None:
    assert log_config_for({"internal.segment.bytes": "7"}, settings()).segment_bytes == 7


def test_a_topic_that_sets_nothing_has_kafkas_policy() -> None:
    policy = policy_for({}, settings())
    assert policy.deletes
    assert not policy.compacts
    assert policy.compression_type == "producer"
    assert policy.compression_level is None
    assert policy.max_message_bytes == 1_048_588
    assert policy.min_insync_replicas == 1
    assert not policy.flush_before_ack
    assert policy.message_timestamp_before_max_ms == FOR_EVER_MS
    assert policy.message_timestamp_after_max_ms == 3_600_000
    assert not policy.unclean_leader_election_enable
    assert policy.min_cleanable_dirty_ratio == 0.5
    assert (policy.min_compaction_lag_ms, policy.max_compaction_lag_ms) == (0, FOR_EVER_MS)


@pytest.mark.parametrize(("messages", "flushes"), [("1", True), ("2", False)])
def test_a_flush_after_every_record_is_a_flush_before_every_acknowledgement(
    messages: str, flushes: bool
) -> None:
    assert policy_for({"flush.messages": messages}, settings()).flush_before_ack is flushes
    broker = settings(log_flush_interval_messages=messages)
    assert policy_for({}, broker).flush_before_ack is flushes


@pytest.mark.parametrize(
    ("compression", "level"),
    [("gzip", 4), ("lz4", 5), ("zstd", 6), ("snappy", None), ("uncompressed", None)],
)
def test_a_compression_has_its_own_level(compression: str, level: int | None) -> None:
    overrides = {
        "compression.type": compression,
        "compression.gzip.level": "4",
        "compression.lz4.level": "5",
        "compression.zstd.level": "6",
    }
    assert policy_for(overrides, settings()).compression_level == level


def test_every_honoured_setting_of_a_topic_changes_something() -> None:
    """Each by itself, to a value that is not the default."""
    changed = {
        "cleanup.policy": "compact",
        "compression.type": "lz4",
        "message.timestamp.type": "LogAppendTime",
        "min.cleanable.dirty.ratio": "0.75",
        "unclean.leader.election.enable": "true",
        "segment.bytes": "1048577",
        "flush.messages": "1",
        "message.timestamp.before.max.ms": "3",
    }
    for name, setting in TOPICS.items():
        if not setting.honoured:
            continue
        context: dict[str, str] = {}
        if name.startswith("compression.") and name.endswith(".level"):
            context["compression.type"] = name.split(".")[1]
        before = log_config_for(context, settings()), policy_for(context, settings())
        overrides = {**context, name: changed.get(name, "7")}
        assert problem_with_topic(overrides, {}) is None
        after = log_config_for(overrides, settings()), policy_for(overrides, settings())
        assert before != after, name


def test_internal_topics_are_compacted_and_replicated_as_the_broker_says() -> None:
    broker = settings(
        offsets_topic_num_partitions="8",
        offsets_topic_replication_factor="2",
        transaction_state_log_min_isr="3",
    )
    topics = internal_topics(broker)
    offsets, transactions = topics[OFFSETS_TOPIC], topics[TRANSACTIONS_TOPIC]
    assert (offsets.num_partitions, offsets.replication_factor) == (8, 2)
    assert (transactions.num_partitions, transactions.replication_factor) == (50, 3)
    for topic in topics.values():
        assert problem_with_topic(dict(topic.overrides), broker.properties) is None
        policy = policy_for(topic.overrides, broker)
        assert policy.compacts
        assert not policy.deletes
        assert log_config_for(topic.overrides, broker).segment_bytes == 100 << 20
    assert policy_for(transactions.overrides, broker).min_insync_replicas == 3
    assert policy_for(offsets.overrides, broker).compression_type == "producer"
