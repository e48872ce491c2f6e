from __future__ import annotations

from dataclasses import fields

import pytest

from lossless.core.broker import BrokerConfig
from lossless.core.controller_node import ControllerConfig
from lossless.core.quorum import QuorumConfig
from lossless.core.settings.broker_settings import PARTS, BrokerSettings, setting_name
from lossless.core.settings.brokers import BROKERS, effective
from lossless.core.settings.deviations import DEVIATIONS, with_deviations
from lossless.core.settings.kinds import InvalidSetting, problem
from lossless.core.settings.machines import broker_config, controller_config, quorum_config


def settings(**properties: str) -> BrokerSettings:
    texts = {setting_name(name): text for name, text in properties.items()}
    return BrokerSettings.from_properties(texts)[0]


def test_without_properties_everything_is_kafkas_default() -> None:
    read, warnings = BrokerSettings.from_properties({})
    assert warnings == []
    assert read.topic_creation.num_partitions == 1
    assert read.offsets.offsets_topic_num_partitions == 50
    assert read.groups.group_consumer_assignors == ("uniform", "range")
    assert read.transactions.transaction_partition_verification_enable is True
    assert read.membership.broker_rack is None


def test_every_field_has_the_type_of_its_setting() -> None:
    types = {
        "BOOLEAN": "bool",
        "STRING": "str",
        "INT": "int",
        "SHORT": "int",
        "LONG": "int",
        "LIST": "tuple[str, ...]",
    }
    for part in PARTS:
        for field in fields(part):
            setting = BROKERS[setting_name(field.name)]
            optional = "" if setting.default is not None else " | None"
            assert field.type == types[setting.kind.name] + optional, field.name


def test_a_setting_that_nobody_knows_is_warned_about() -> None:
    _, warnings = BrokerSettings.from_properties({"num.partition": "3"})
    assert warnings == [
        "num.partition is not a setting of Kafka 4.1: ignored; did you mean num.partitions?"
    ]


def test_a_setting_that_has_no_effect_here_is_warned_about_unless_it_is_the_default() -> None:
    properties = {"num.io.threads": "8", "num.network.threads": "4", "node.id": "1"}
    _, warnings = BrokerSettings.from_properties(
        {**properties, "listener.name.internal.ssl.cipher.suites": "secret"}
    )
    assert warnings == [
        "listener.name.internal.ssl.cipher.suites is not honoured by the embedded broker: ignored",
        "num.network.threads is not honoured by the embedded broker: ignored",
    ]


@pytest.mark.parametrize(
    ("properties", "message"),
    [
        ({"num.partitions": "0"}, "Value must be at least 1"),
        ({"num.io.threads": "many"}, "Not a number of type INT"),
        ({"listener.name.x.max.connections": "-1"}, "Value must be at least 0"),
        ({"log.roll.ms": "0"}, "log.roll.ms must be greater than or equal to 1"),
        ({"log.roll.jitter.ms": "-1"}, "log.roll.jitter.ms must be greater than or equal to 0"),
        ({"log.retention.minutes": "0"}, "log.retention.ms must be unlimited"),
        (
            {"replica.fetch.wait.max.ms": "500", "replica.lag.time.max.ms": "400"},
            "replica.fetch.wait.max.ms must be less than or equal to replica.lag.time.max.ms",
        ),
        (
            {"group.consumer.session.timeout.ms": "60001"},
            (
                "group.consumer.session.timeout.ms must be less than or equal to "
                "group.consumer.max.session.timeout.ms"
            ),
        ),
        (
            {
                "group.consumer.min.session.timeout.ms": "5000",
                "group.consumer.session.timeout.ms": "5000",
            },
            (
                "group.consumer.heartbeat.interval.ms must be less than "
                "group.consumer.session.timeout.ms"
            ),
        ),
        ({"group.coordinator.rebalance.protocols": "consumer"}, "Disabling the 'classic' protocol"),
        ({"node.id": "1", "broker.id": "2"}, "You must set `node.id` to the same value"),
    ],
)
def test_a_broker_does_not_start_with_what_kafka_would_not_start_with(
    properties: dict[str, str], message: str
) -> None:
    with pytest.raises(InvalidSetting, match=message):
        BrokerSettings.from_properties(properties)


@pytest.mark.parametrize(
    "properties",
    [
        {"log.retention.hours": "-1"},
        {"log.roll.ms": "1", "log.roll.jitter.ms": "0"},
        {"log.retention.minutes": "5", "log.retention.ms": "1"},
        {"broker.id": "3"},
    ],
)
def test_a_broker_starts_with_the_limits_themselves(properties: dict[str, str]) -> None:
    BrokerSettings.from_properties(properties)


# Which value counts


def test_what_changed_for_one_broker_goes_before_all_and_that_before_what_is_static() -> None:
    static, for_all = {"log.cleaner.threads": "1"}, {"log.cleaner.threads": "2"}
    assert effective(static)["log.cleaner.threads"] == "1"
    assert effective(static, for_all)["log.cleaner.threads"] == "2"
    assert effective(static, for_all, {"log.cleaner.threads": "3"})["log.cleaner.threads"] == "3"


def test_a_change_takes_the_place_of_the_same_thing_by_another_name() -> None:
    merged = effective({"log.retention.minutes": "1"}, {"log.retention.ms": "5"})
    assert merged == {"log.retention.ms": "5"}


def test_the_older_name_of_the_node_is_the_same() -> None:
    assert effective({"node.id": "4"}) == {"node.id": "4", "broker.id": "4"}
    assert effective({"broker.id": "4"}) == {"node.id": "4", "broker.id": "4"}


# Other values than Kafka's


def test_every_deviation_is_a_valid_value_of_a_setting_that_is_honoured() -> None:
    properties = {"broker.session.timeout.ms": "1000"}
    for one in DEVIATIONS:
        for brokers in (1, 3, 16):
            value = one.value(brokers, properties)
            assert value is not None
            assert problem(BROKERS[one.name], value) is None
            assert BROKERS[one.name].honoured
            BrokerSettings.from_properties(with_deviations(properties, brokers=brokers))


def test_what_the_user_sets_goes_before_the_deviations() -> None:
    ours = with_deviations({"offsets.topic.num.partitions": "50"}, brokers=3)
    assert ours["offsets.topic.num.partitions"] == "50"
    assert ours["transaction.state.log.num.partitions"] == "8"


@pytest.mark.parametrize(
    ("brokers", "replicas", "acknowledging"), [(1, 1, 1), (2, 2, 2), (5, 3, 2)]
)
def test_there_are_no_more_replicas_than_brokers(
    brokers: int, replicas: int, acknowledging: int
) -> None:
    read, _ = BrokerSettings.from_properties(with_deviations({}, brokers=brokers))
    assert read.topic_creation.default_replication_factor == replicas
    assert read.offsets.offsets_topic_replication_factor == replicas
    assert read.transactions.transaction_state_log_replication_factor == replicas
    assert read.transactions.transaction_state_log_min_isr == acknowledging


def test_a_shorter_session_brings_more_frequent_heartbeats_unless_both_are_set() -> None:
    name, session = "broker.heartbeat.interval.ms", "broker.session.timeout.ms"
    assert name not in with_deviations({}, brokers=3)
    assert with_deviations({session: "1500"}, brokers=3)[name] == "300"
    assert with_deviations({session: "3"}, brokers=3)[name] == "1"
    assert with_deviations({session: "1500", name: "700"}, brokers=3)[name] == "700"
    assert name not in with_deviations({session: "soon"}, brokers=3)


# The configurations of the machines


def test_kafkas_defaults_make_the_machines_own_defaults_but_for_the_pause_after_a_failure() -> None:
    read = settings()
    agreed = {"min.insync.replicas": "1"}  # also where nobody has set it
    assert controller_config(read) == ControllerConfig(properties=agreed)
    assert broker_config(read) == BrokerConfig(backoff_ms=1000)
    ours, _ = BrokerSettings.from_properties(with_deviations({}, brokers=3))
    assert broker_config(ours).backoff_ms == BrokerConfig().backoff_ms


def test_settings_reach_the_machines() -> None:
    read = settings(
        broker_heartbeat_interval_ms="7",
        broker_session_timeout_ms="70",
        replica_fetch_wait_max_ms="8",
        replica_high_watermark_checkpoint_interval_ms="9",
        replica_lag_time_max_ms="10",
        replica_fetch_max_bytes="11",
        log_flush_interval_messages="1",
        log_segment_bytes="1048577",
        controller_quorum_election_timeout_ms="12",
    )
    config = broker_config(read)
    assert (config.heartbeat_ms, config.fetch_wait_ms, config.checkpoint_ms) == (7, 8, 9)
    assert (config.replica.lag_ms_max, config.replica.fetch_bytes_max) == (10, 11)
    assert config.replica.flush_before_ack
    assert config.log.segment_bytes == 1_048_577
    assert config.quorum.election_timeout_ms == 12
    assert controller_config(read).session_timeout_ms == 70


def test_a_quorums_fetch_comes_back_before_its_sender_doubts_the_leader() -> None:
    for timeout_ms in ("0", "1", "500", "2000", "60000"):
        config = quorum_config(settings(controller_quorum_fetch_timeout_ms=timeout_ms))
        assert config.fetch_wait_ms < config.fetch_timeout_ms
        assert config.fetch_wait_ms <= QuorumConfig().fetch_wait_ms


def test_our_quorum_elects_in_less_than_a_second() -> None:
    ours, _ = BrokerSettings.from_properties(with_deviations({}, brokers=3))
    config = quorum_config(ours)
    # The leader dies; the first follower to notice stands, loses once, and stands again.
    worst_ms = config.fetch_timeout_ms + 2 * config.election_timeout_ms
    assert worst_ms + config.election_backoff_max_ms < 1000


def test_timeouts_of_zero_leave_the_machine_something_to_draw_from() -> None:
    config = quorum_config(
        settings(
            controller_quorum_election_timeout_ms="0", controller_quorum_election_backoff_max_ms="0"
        )
    )
    assert (config.election_timeout_ms, config.election_backoff_max_ms) == (1, 1)
