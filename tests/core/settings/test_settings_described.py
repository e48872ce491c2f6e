"""DescribeConfigs answers as Kafka 4.1 does, case by case."""

from __future__ import annotations

from typing import Any

import kafka_says
import pytest

from lossless.core.settings.brokers import BROKERS
from lossless.core.settings.describe import (
    Described,
    Source,
    describe_broker,
    describe_cluster_defaults,
    describe_group,
    describe_topic,
)
from lossless.core.settings.topics import TOPICS


def as_kafka_prints(described: list[Described]) -> dict[str, Any]:
    return {
        one.name: [
            one.value,
            one.source,
            one.is_sensitive,
            one.is_read_only,
            one.kind,
            [list(synonym) for synonym in one.synonyms],
        ]
        for one in described
    }


@pytest.mark.parametrize("case", kafka_says.described("topic"))
def test_a_topic_is_described_as_by_kafka(case: dict[str, Any]) -> None:
    described = describe_topic(
        case["overrides"],
        case["broker_properties"],
        case["cluster_defaults"],
        case["broker_overrides"],
    )
    assert as_kafka_prints(described) == case["entries"]


@pytest.mark.parametrize("case", kafka_says.described("broker"))
def test_a_broker_is_described_as_by_kafka(case: dict[str, Any]) -> None:
    described = describe_broker(
        case["broker_properties"], case["cluster_defaults"], case["broker_overrides"]
    )
    assert as_kafka_prints(described) == case["entries"]


@pytest.mark.parametrize("case", kafka_says.described("cluster"))
def test_what_changed_for_all_brokers_is_described_as_by_kafka(case: dict[str, Any]) -> None:
    assert as_kafka_prints(describe_cluster_defaults(case["cluster_defaults"])) == case["entries"]


@pytest.mark.parametrize("case", kafka_says.described("group"))
def test_a_group_is_described_as_by_kafka(case: dict[str, Any]) -> None:
    described = describe_group(case["overrides"], case["broker_properties"])
    assert as_kafka_prints(described) == case["entries"]


def test_a_secret_is_shown_to_nobody() -> None:
    secrets = {
        "ssl.key.password": "hunter2",
        "listener.name.internal.plain.sasl.jaas.config": "hunter2",
        "what.is.this": "hunter2",
    }
    described = describe_broker(secrets, {"ssl.keystore.key": "hunter2"})
    assert "hunter2" not in str(described)
    shown = {one.name: one for one in described}
    assert all(shown[name].source is Source.STATIC_BROKER_CONFIG for name in secrets)


def test_what_a_listener_has_for_itself_is_shown_if_it_is_no_secret() -> None:
    described = describe_broker({"listener.name.internal.max.connections": "7"}, {})
    shown = {one.name: one for one in described}["listener.name.internal.max.connections"]
    assert shown.value == "7"
    assert shown.kind == BROKERS["max.connections"].kind


def test_what_is_only_for_tests_is_described_where_it_is_set() -> None:
    assert "internal.segment.bytes" not in {one.name for one in describe_topic({}, {}, {})}
    described = describe_topic({"internal.segment.bytes": "7"}, {}, {})
    assert "7" in {one.value for one in described if one.name == "internal.segment.bytes"}


def test_every_description_carries_its_documentation() -> None:
    for one in describe_topic({}, {}, {}):
        assert one.documentation == TOPICS[one.name].documentation
    for one in describe_broker({}, {}):
        assert one.documentation == BROKERS[one.name].documentation
