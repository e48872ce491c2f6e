"""APIs for settings, asked of real nodes: two brokers and a controller."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from admin_cluster import CONTROLLER, AdminCluster

from lossless.core.messages import Error
from lossless.log.batch import Record, build

DESCRIBE, ALTER, INCREMENTAL, LIST, CREATE_TOPICS, PRODUCE = 32, 33, 44, 74, 19, 0
TOPIC, BROKER, LOGGER, METRICS, GROUP = 2, 4, 8, 16, 32
SET, DELETE, APPEND, SUBTRACT = 0, 1, 2, 3
OWN, OF_ALL, STATIC, DEFAULT = 2, 3, 4, 5  # where a value comes from


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AdminCluster]:
    cluster = AdminCluster(
        tmp_path_factory.mktemp("two"), 2, min_insync_replicas="2", num_partitions="3"
    )
    topics = [
        {"name": name, "num_partitions": -1, "replication_factor": -1}
        for name in ("orders", "payments")
    ]
    made = cluster.ask(CREATE_TOPICS, 7, {"topics": topics, "timeout": 5000}).topics
    assert errors(made) == [Error.NONE] * 2
    cluster.everywhere(lambda broker: cluster.partition("payments", of=broker))
    yield cluster
    cluster.stop()


def errors(results: Any) -> list[Error]:
    return [Error(one.error_code.value) for one in results]


def change(
    two: AdminCluster,
    kind: int,
    name: str,
    *changes: tuple[str, int, str | None],
    of: int = 1,
    validate_only: bool = False,
) -> Any:
    configs = [
        {"name": key, "config_operation": operation, "value": value}
        for key, operation, value in changes
    ]
    resource = {"resource_type": kind, "resource_name": name, "configs": configs}
    fields = {"resources": [resource], "validate_only": validate_only}
    (told,) = two.ask(INCREMENTAL, 1, fields, of=of).responses
    assert (told.resource_type, told.resource_name) == (kind, name)
    return told


def described(
    two: AdminCluster, kind: int, name: str, *keys: str, of: int = 1, version: int = 4
) -> Any:
    resource = {"resource_type": kind, "resource_name": name, "configuration_keys": keys or None}
    fields = {"resources": [resource], "include_synonyms": True, "include_documentation": True}
    (told,) = two.ask(DESCRIBE, version, fields, of=of).results
    return told


def value(two: AdminCluster, kind: int, name: str, key: str, *, of: int = 1) -> tuple[str, int]:
    (only,) = described(two, kind, name, key, of=of).configs
    return only.value, only.config_source


# Describing


@pytest.mark.parametrize("version", [1, 2, 3, 4])
def test_a_topic_is_described_with_where_each_value_comes_from(
    two: AdminCluster, version: int
) -> None:
    told = described(two, TOPIC, "payments", version=version)
    configs = {config.name: config for config in told.configs}
    assert {"retention.ms", "cleanup.policy", "min.insync.replicas"} < configs.keys()
    minimum = configs["min.insync.replicas"]
    assert (minimum.value, minimum.config_source, minimum.read_only) == ("2", OF_ALL, False)
    assert [(one.value, one.source) for one in minimum.synonyms] == [
        ("2", OF_ALL),  # the controller has made it everybody's
        ("2", STATIC),
        ("1", DEFAULT),
    ]
    if version >= 3:
        assert minimum.config_type == 3
        assert "in sync" in minimum.documentation


def test_a_broker_is_described_by_itself_only(two: AdminCluster) -> None:
    assert value(two, BROKER, "2", "num.partitions", of=2) == ("3", STATIC)
    told = described(two, BROKER, "2", of=1)
    assert told.error_code.value == Error.INVALID_REQUEST
    assert "expected 1 or empty string" in told.error_message


def test_a_controller_describes_itself_and_topics(two: AdminCluster) -> None:
    assert value(two, BROKER, str(CONTROLLER), "num.partitions", of=CONTROLLER) == ("3", STATIC)
    assert value(two, TOPIC, "payments", "min.insync.replicas", of=CONTROLLER) == ("2", OF_ALL)


@pytest.mark.parametrize(
    ("kind", "name", "error"),
    [
        (TOPIC, "nowhere", Error.UNKNOWN_TOPIC_OR_PARTITION),
        (TOPIC, "no good", Error.INVALID_TOPIC_EXCEPTION),
        (LOGGER, "1", Error.INVALID_REQUEST),
        (GROUP, "", Error.INVALID_REQUEST),
        (METRICS, "", Error.INVALID_REQUEST),
        (77, "x", Error.INVALID_REQUEST),
    ],
)
def test_what_cannot_be_described_is_refused(
    two: AdminCluster, kind: int, name: str, error: Error
) -> None:
    told = described(two, kind, name)
    assert (told.error_code.value, told.configs) == (error, ())
    assert told.error_message


def test_client_metrics_have_no_settings(two: AdminCluster) -> None:
    told = described(two, METRICS, "any")
    assert (told.error_code.value, told.configs) == (Error.NONE, ())


# Changing


@pytest.mark.parametrize("version", [0, 1])
def test_a_topics_settings_change_one_by_one(two: AdminCluster, version: int) -> None:
    configs = [
        {"name": "retention.ms", "config_operation": SET, "value": str(1000 + version)},
        {"name": "cleanup.policy", "config_operation": APPEND, "value": "compact"},
    ]
    resource = {"resource_type": TOPIC, "resource_name": "orders", "configs": configs}
    answer = two.ask(INCREMENTAL, version, {"resources": [resource]})
    assert errors(answer.responses) == [Error.NONE]

    def told(broker: int) -> list[str]:
        found = described(two, TOPIC, "orders", "retention.ms", "cleanup.policy", of=broker)
        return [one.value for one in found.configs]

    two.everywhere(lambda broker: told(broker) == ["delete,compact", str(1000 + version)])


@pytest.mark.parametrize("version", [0, 1, 2])
def test_all_settings_at_once_replace_those_before(two: AdminCluster, version: int) -> None:
    change(two, TOPIC, "orders", ("segment.ms", SET, "7"))
    configs = [{"name": "flush.ms", "value": str(version)}]
    resource = {"resource_type": TOPIC, "resource_name": "orders", "configs": configs}
    answer = two.ask(ALTER, version, {"resources": [resource], "validate_only": False})
    assert errors(answer.responses) == [Error.NONE]
    two.until(lambda: value(two, TOPIC, "orders", "flush.ms") == (str(version), 1))
    assert value(two, TOPIC, "orders", "segment.ms") == ("604800000", DEFAULT)


def test_each_resource_has_its_own_answer(two: AdminCluster) -> None:
    def resource(kind: int, name: str, *configs: tuple[str, int, str | None]) -> dict[str, Any]:
        told = [{"name": key, "config_operation": how, "value": to} for key, how, to in configs]
        return {"resource_type": kind, "resource_name": name, "configs": told}

    asked = [
        resource(TOPIC, "payments", ("retention.ms", SET, "5000")),
        resource(TOPIC, "nowhere", ("retention.ms", SET, "5000")),
        resource(GROUP, "g", ("consumer.session.timeout.ms", SET, "1")),
        resource(BROKER, "2", ("log.retention.ms", SET, "5000")),
        resource(LOGGER, "1", ("root", SET, "DEBUG")),
        resource(GROUP, "g", ("consumer.session.timeout.ms", SET, "2")),
        resource(77, "x"),
        resource(GROUP, "h", ("consumer.session.timeout.ms", 9, "2")),
    ]
    answer = two.ask(INCREMENTAL, 1, {"resources": asked, "validate_only": True})
    assert errors(answer.responses) == [
        Error.NONE,
        Error.UNKNOWN_TOPIC_OR_PARTITION,
        Error.INVALID_REQUEST,  # twice
        Error.INVALID_REQUEST,  # of another broker than the one that is asked
        Error.INVALID_REQUEST,
        Error.INVALID_REQUEST,
        Error.INVALID_REQUEST,
        Error.INVALID_REQUEST,
    ]
    assert [one.resource_name for one in answer.responses] == [
        one["resource_name"] for one in asked
    ]
    assert value(two, TOPIC, "payments", "retention.ms")[0] != "5000"


def test_a_setting_of_one_broker_goes_before_that_of_all(two: AdminCluster) -> None:
    all_of_them = change(two, BROKER, "", ("log.retention.ms", SET, "70000"))
    one = change(two, BROKER, "2", ("log.retention.ms", SET, "80000"), of=2)
    assert errors([all_of_them, one]) == [Error.NONE] * 2
    expected = {1: ("70000", OF_ALL), 2: ("80000", OWN)}
    two.everywhere(
        lambda broker: (
            value(two, BROKER, str(broker), "log.retention.ms", of=broker) == expected[broker]
        )
    )
    # The topics on a broker have their default from there.
    for broker in (1, 2):
        assert value(two, TOPIC, "payments", "retention.ms", of=broker) == expected[broker]
    assert value(two, BROKER, "", "log.retention.ms") == ("70000", OF_ALL)


def test_what_is_set_for_all_brokers_counts_for_the_next_record(two: AdminCluster) -> None:
    records = build([Record(0, 1, None, b"x" * 200)]).data

    def produced() -> Error:
        data = [{"name": "payments", "partition_data": [{"index": 0, "records": records}]}]
        leader = two.partition("payments").leader_id
        fields = {"acks": -1, "timeout": 5000, "topic_data": data}
        answer = two.ask(PRODUCE, 9, fields, of=leader)
        (told,) = errors(answer.responses[0].partition_responses)
        return told

    assert produced() is Error.NONE
    change(two, BROKER, "", ("message.max.bytes", SET, "100"))
    two.until(lambda: produced() is Error.MESSAGE_TOO_LARGE)
    change(two, TOPIC, "payments", ("max.message.bytes", SET, "1000"))
    two.until(lambda: produced() is Error.NONE)


def test_what_needs_a_restart_is_refused(two: AdminCluster) -> None:
    told = change(two, BROKER, "1", ("num.partitions", SET, "9"))
    assert told.error_code.value == Error.INVALID_REQUEST
    assert told.error_message == "Cannot update these configs dynamically: num.partitions"


def test_a_group_is_described_with_its_own_settings_and_is_listed_then(two: AdminCluster) -> None:
    def groups() -> list[str]:
        answer = two.ask(LIST, 1, {"resource_types": [GROUP]})
        return [one.resource_name for one in answer.config_resources]

    assert value(two, GROUP, "billing", "consumer.session.timeout.ms") == ("45000", DEFAULT)
    assert groups() == []
    told = change(two, GROUP, "billing", ("consumer.session.timeout.ms", SET, "50000"))
    assert told.error_code.value == Error.NONE
    two.until(lambda: groups() == ["billing"])
    assert value(two, GROUP, "billing", "consumer.session.timeout.ms") == ("50000", 8)


def test_what_has_settings_is_listed(two: AdminCluster) -> None:
    answer = two.ask(LIST, 1, {"resource_types": []})
    named = {(one.resource_type, one.resource_name) for one in answer.config_resources}
    assert {(TOPIC, "orders"), (BROKER, "1"), (BROKER, "2"), (LOGGER, "2")} <= named
    assert two.ask(LIST, 0, {}).config_resources == ()
    unknown = two.ask(LIST, 1, {"resource_types": [77]})
    assert unknown.error_code.value == Error.UNSUPPORTED_VERSION
