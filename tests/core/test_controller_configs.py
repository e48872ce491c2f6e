"""What the controller lets be set: of topics, of brokers, of groups."""

from __future__ import annotations

import pytest
from deciding import Cluster
from machines import PARTITION, without

from lossless.core.admin_messages import (
    ALL_BROKERS,
    AlterConfigs,
    ConfigChange,
    ConfigOperation,
    Resource,
    ResourceKind,
    broker_resource,
    topic_resource,
)
from lossless.core.dynamic_settings import AT_RUN_TIME, settings_now
from lossless.core.messages import NO_LEADER, AdminAnswer, Error
from lossless.core.metadata import MIN_ISR, UNCLEAN, ConfigChanged, Image
from lossless.core.settings.broker_settings import BrokerSettings
from lossless.core.settings.brokers import BROKERS
from lossless.core.settings.kinds import Mode

ORDERS = topic_resource("orders")
GROUP = Resource(ResourceKind.GROUP, "billing")
SET, DELETE = ConfigOperation.SET, ConfigOperation.DELETE
APPEND, SUBTRACT = ConfigOperation.APPEND, ConfigOperation.SUBTRACT


@pytest.fixture
def three() -> Cluster:
    cluster = Cluster(1, 2, 3)
    cluster.create()
    return cluster


def alter(
    cluster: Cluster,
    resource: Resource,
    *changes: ConfigChange,
    replaces_all: bool = False,
    validate_only: bool = False,
) -> AdminAnswer:
    request = AlterConfigs(resource, changes, replaces_all, validate_only)
    answer = cluster.committed(cluster.controller.on_alter_configs(request))
    assert isinstance(answer, AdminAnswer)
    return answer


def setting(key: str, value: str | None, operation: ConfigOperation = SET) -> ConfigChange:
    return ConfigChange(key, value, operation)


# One by one


def test_settings_are_set_and_deleted_one_by_one(three: Cluster) -> None:
    alter(three, ORDERS, setting("retention.ms", "5"), setting("segment.ms", "6"))
    assert three.image.overrides(ORDERS) == {"retention.ms": "5", "segment.ms": "6"}
    alter(three, ORDERS, setting("segment.ms", None, DELETE), setting("flush.ms", "7"))
    assert three.image.overrides(ORDERS) == {"retention.ms": "5", "flush.ms": "7"}


def test_what_is_set_already_is_not_written_again(three: Cluster) -> None:
    alter(three, ORDERS, setting("retention.ms", "5"))
    before = three.image.end_offset
    assert alter(three, ORDERS, setting("retention.ms", "5")).error is Error.NONE
    assert alter(three, ORDERS, setting("segment.ms", None, DELETE)).error is Error.NONE
    assert three.image.end_offset == before


@pytest.mark.parametrize(
    ("before", "operation", "value", "after"),
    [
        (None, APPEND, "compact", "delete,compact"),  # Kafka's default is where it begins
        ("compact", APPEND, "compact,delete", "compact,delete"),
        ("compact,delete", SUBTRACT, "delete", "compact"),
        ("compact", SUBTRACT, "delete", "compact"),
        ("compact", SUBTRACT, "compact", ""),
    ],
)
def test_a_list_is_added_to_and_taken_away_from(
    three: Cluster, before: str | None, operation: ConfigOperation, value: str, after: str
) -> None:
    if before is not None:
        alter(three, ORDERS, setting("cleanup.policy", before))
    assert alter(three, ORDERS, setting("cleanup.policy", value, operation)).error is Error.NONE
    assert three.image.overrides(ORDERS)["cleanup.policy"] == after


@pytest.mark.parametrize("key", ["retention.ms", "no.such.setting"])
def test_only_a_list_is_added_to(three: Cluster, key: str) -> None:
    answer = alter(three, ORDERS, setting(key, "5", APPEND))
    assert answer.error is Error.INVALID_CONFIG
    assert answer.what == f"Can't APPEND to key {key} because its type is not LIST."


# All at once


def test_who_sets_all_at_once_deletes_what_is_not_named(three: Cluster) -> None:
    alter(three, ORDERS, setting("retention.ms", "5"), setting("segment.ms", "6"))
    alter(three, ORDERS, setting("segment.ms", "7"), replaces_all=True)
    assert three.image.overrides(ORDERS) == {"segment.ms": "7"}
    alter(three, ORDERS, replaces_all=True)
    assert three.image.overrides(ORDERS) == {}


# What is refused changes nothing


@pytest.mark.parametrize(
    ("resource", "change", "error"),
    [
        (ORDERS, setting("no.such.setting", "5"), Error.INVALID_CONFIG),
        (ORDERS, setting("retention.ms", "soon"), Error.INVALID_CONFIG),
        (ORDERS, setting("retention.ms", "-2"), Error.INVALID_CONFIG),
        (ORDERS, setting("retention.ms", None), Error.INVALID_REQUEST),
        (topic_resource(""), setting("retention.ms", "5"), Error.INVALID_REQUEST),
        (topic_resource("none"), setting("retention.ms", "5"), Error.UNKNOWN_TOPIC_OR_PARTITION),
        (topic_resource("none"), setting("retention.ms", "x"), Error.INVALID_CONFIG),
        (broker_resource(9), setting("log.retention.ms", "5"), Error.BROKER_ID_NOT_REGISTERED),
        (
            Resource(ResourceKind.BROKER, "one"),
            setting("log.retention.ms", "5"),
            Error.INVALID_REQUEST,
        ),
        (Resource(ResourceKind.GROUP, ""), setting("a", "5"), Error.INVALID_REQUEST),
        (GROUP, setting("no.such.setting", "5"), Error.INVALID_CONFIG),
        (GROUP, setting("consumer.session.timeout.ms", "1"), Error.INVALID_CONFIG),
        (Resource(ResourceKind.BROKER_LOGGER, "1"), setting("a", "b"), Error.INVALID_REQUEST),
        (Resource(ResourceKind.CLIENT_METRICS, "m"), setting("a", "b"), Error.INVALID_REQUEST),
    ],
)
def test_what_cannot_be_is_refused_and_changes_nothing(
    three: Cluster, resource: Resource, change: ConfigChange, error: Error
) -> None:
    before = three.image.end_offset
    assert alter(three, resource, change).error is error
    assert three.image.end_offset == before


def test_one_wrong_setting_keeps_the_others_of_its_resource_from_being_made(three: Cluster) -> None:
    answer = alter(three, ORDERS, setting("retention.ms", "5"), setting("segment.ms", "x"))
    assert answer.error is Error.INVALID_CONFIG
    assert three.image.overrides(ORDERS) == {}


def test_two_settings_that_contradict_each_other_are_refused(three: Cluster) -> None:
    alter(three, ORDERS, setting("min.compaction.lag.ms", "10"))
    assert alter(three, ORDERS, setting("max.compaction.lag.ms", "9")).error is Error.INVALID_CONFIG


def test_a_setting_that_is_named_twice_is_refused(three: Cluster) -> None:
    answer = alter(three, ORDERS, setting("retention.ms", "5"), setting("retention.ms", "6"))
    assert answer == AdminAnswer(Error.INVALID_REQUEST, "Error due to duplicate config keys")


def test_a_change_that_is_only_tried_is_judged_and_not_made(three: Cluster) -> None:
    wrong, right = setting("retention.ms", "x"), setting("retention.ms", "5")
    assert alter(three, ORDERS, wrong, validate_only=True).error is Error.INVALID_CONFIG
    assert alter(three, ORDERS, right, validate_only=True).error is Error.NONE
    assert three.image.overrides(ORDERS) == {}


# Brokers


def test_what_changes_while_brokers_run_is_set_for_one_or_for_all(three: Cluster) -> None:
    assert alter(three, ALL_BROKERS, setting("log.retention.ms", "5")).error is Error.NONE
    assert alter(three, broker_resource(1), setting("log.retention.ms", "6")).error is Error.NONE
    assert three.image.effective_properties(1)["log.retention.ms"] == "6"
    assert three.image.effective_properties(2)["log.retention.ms"] == "5"


def test_a_setting_without_effect_is_accepted_with_a_warning(three: Cluster) -> None:
    name = "log.cleaner.backoff.ms"
    answer = alter(three, ALL_BROKERS, setting(name, "5"), setting("log.retention.ms", "6"))
    assert answer.error is Error.NONE
    assert answer.what == f"accepted, without effect on embedded brokers: {name}"
    assert three.image.overrides(ALL_BROKERS)[name] == "5"


@pytest.mark.parametrize(
    ("key", "value", "told"),
    [
        ("node.id", "5", "Cannot update these configs dynamically: node.id"),
        (
            "log.retention.ms",
            "x",
            "Invalid value x for configuration log.retention.ms: Not a number of type LONG",
        ),
        (
            "log.retention.ms",
            "0",
            "log.retention.ms must be unlimited (-1) or, greater than or equal to 1",
        ),
        (
            "ssl.keystore.location",
            "x",
            (
                "Cannot update these configs at default cluster level, broker id must be "
                "specified: ssl.keystore.location"
            ),
        ),
    ],
)
def test_what_a_running_broker_cannot_change_is_refused(
    three: Cluster, key: str, value: str, told: str
) -> None:
    answer = alter(three, ALL_BROKERS, setting(key, value))
    assert answer == AdminAnswer(Error.INVALID_REQUEST, told)


@pytest.mark.parametrize(
    ("resource", "key", "value", "told"),
    [
        (
            ALL_BROKERS,
            "num.network.threads",
            "100",
            (
                "Dynamic thread count update validation failed for num.network.threads=100, value "
                "should not be greater than double the current value 3"
            ),
        ),
        (
            broker_resource(1),
            "num.io.threads",
            "3",
            (
                "Dynamic thread count update validation failed for num.io.threads=3, value should "
                "be at least half the current value 8"
            ),
        ),
        (
            broker_resource(1),
            "listeners",
            "PLAINTEXT://127.0.0.1:1",
            "The embedded broker reads these only when it starts: listeners",
        ),
        (
            broker_resource(1),
            MIN_ISR,
            "0",
            "Invalid value 0 for configuration min.insync.replicas: Value must be at least 1",
        ),
    ],
)
def test_a_value_that_a_running_broker_cannot_take_is_an_invalid_request(
    three: Cluster, resource: Resource, key: str, value: str, told: str
) -> None:
    answer = alter(three, resource, setting(key, value))
    assert answer == AdminAnswer(Error.INVALID_REQUEST, told)


def test_a_pool_of_threads_grows_step_by_step(three: Cluster) -> None:
    for value in ("6", "12", "12", "6"):
        changed = alter(three, ALL_BROKERS, setting("num.network.threads", value))
        assert changed.error is Error.NONE
    again = alter(three, broker_resource(1), setting("num.network.threads", "13"))
    assert again.error is Error.INVALID_REQUEST


def test_what_nobody_knows_may_be_some_plugins(three: Cluster) -> None:
    assert alter(three, ALL_BROKERS, setting("my.plugin.colour", "blue")).error is Error.NONE


def test_every_setting_that_takes_effect_at_once_is_one_that_kafka_changes_at_once() -> None:
    fixed = {name for name in AT_RUN_TIME if BROKERS[name].mode is Mode.READ_ONLY}
    # Other names of log.retention.ms and the like: only the first of each can be changed.
    assert fixed == {
        "log.flush.scheduler.interval.ms",
        "log.retention.hours",
        "log.retention.minutes",
        "log.roll.hours",
        "log.roll.jitter.hours",
    }


def test_a_running_broker_goes_by_what_was_agreed_on() -> None:
    static, _ = BrokerSettings.from_properties({"log.retention.hours": "1"})
    image = Image()
    assert settings_now(static, image, 1) is static
    image.apply(ConfigChanged.of(ALL_BROKERS, "log.retention.ms", "5"), 0)
    image.apply(ConfigChanged.of(broker_resource(2), "log.retention.ms", "6"), 1)
    assert settings_now(static, image, 1).properties == {"log.retention.ms": "5"}
    assert settings_now(static, image, 2).properties == {"log.retention.ms": "6"}


def test_a_broker_whose_own_settings_forbid_what_was_agreed_on_keeps_its_own() -> None:
    static, _ = BrokerSettings.from_properties({"log.cleaner.max.compaction.lag.ms": "5"})
    image = Image()
    image.apply(ConfigChanged.of(ALL_BROKERS, "log.cleaner.min.compaction.lag.ms", "6"), 0)
    assert settings_now(static, image, 1) is static


# What the controller itself goes by


def test_how_many_must_be_in_sync_is_the_clusters_to_say_and_stays_said(three: Cluster) -> None:
    """KIP-966."""
    one = alter(three, broker_resource(1), setting(MIN_ISR, "2"))
    assert one.error is Error.INVALID_CONFIG
    assert alter(three, ALL_BROKERS, setting(MIN_ISR, "2")).error is Error.NONE
    gone = alter(three, ALL_BROKERS, setting(MIN_ISR, None, DELETE))
    assert gone.error is Error.INVALID_CONFIG
    assert three.image.min_isr(PARTITION) == 2


def test_without_eligible_leaders_it_is_a_setting_as_any_other() -> None:
    cluster = Cluster(1, rules=without("eligible_leader_replicas"))
    assert alter(cluster, broker_resource(1), setting(MIN_ISR, "2")).error is Error.NONE
    assert alter(cluster, broker_resource(1), setting(MIN_ISR, None, DELETE)).error is Error.NONE


def test_allowing_unclean_elections_for_all_makes_those_that_are_due(three: Cluster) -> None:
    three.fence(2, 3, 1)
    three.beat(3)
    assert three.leads == NO_LEADER
    alter(three, ALL_BROKERS, setting(UNCLEAN, "true"), validate_only=True)
    assert three.leads == NO_LEADER
    alter(three, ALL_BROKERS, setting(UNCLEAN, "true"))
    assert three.leads == 3


def test_a_topic_is_judged_by_what_its_brokers_say() -> None:
    cluster = Cluster(1, properties={"log.cleaner.max.compaction.lag.ms": "5"})
    cluster.create(copies=1)
    assert alter(cluster, ORDERS, setting("min.compaction.lag.ms", "6")).error is (
        Error.INVALID_CONFIG
    )
    alter(cluster, ALL_BROKERS, setting("log.cleaner.max.compaction.lag.ms", "7"))
    assert alter(cluster, ORDERS, setting("min.compaction.lag.ms", "6")).error is Error.NONE


def test_a_group_has_settings_without_having_members(three: Cluster) -> None:
    assert alter(three, GROUP, setting("consumer.session.timeout.ms", "50000")).error is Error.NONE
    assert three.image.overrides(GROUP) == {"consumer.session.timeout.ms": "50000"}
