from __future__ import annotations

import kafka_says
import pytest

from lossless.core.settings.topics import problem_with_topic, topic_value


@pytest.mark.parametrize(("overrides", "refusal"), kafka_says.topic_refusals())
def test_a_topic_is_refused_when_and_as_kafka_refuses_it(
    overrides: dict[str, str], refusal: str | None
) -> None:
    assert problem_with_topic(overrides, {}) == refusal


def test_a_topic_cannot_be_without_a_value() -> None:
    assert problem_with_topic({"retention.ms": None}, {}) == (
        "Null value not supported for topic configs: retention.ms"
    )


def test_two_settings_are_judged_together_with_the_brokers() -> None:
    overrides = {"min.compaction.lag.ms": "100"}
    assert problem_with_topic(overrides, {}) is None
    conflict = problem_with_topic(overrides, {"log.cleaner.max.compaction.lag.ms": "99"})
    assert conflict is not None
    assert "min.compaction.lag.ms (100) > max.compaction.lag.ms (99)" in conflict


@pytest.mark.parametrize(
    ("properties", "retention_ms"),
    [
        ({}, 604_800_000),
        ({"log.retention.hours": "2"}, 7_200_000),
        ({"log.retention.hours": "2", "log.retention.minutes": "3"}, 180_000),
        ({"log.retention.minutes": "3", "log.retention.ms": "4"}, 4),
        ({"log.retention.hours": "-1"}, -1),
        ({"log.retention.ms": "-5"}, -1),
    ],
)
def test_the_smallest_unit_that_the_broker_sets_counts(
    properties: dict[str, str], retention_ms: int
) -> None:
    assert topic_value("retention.ms", {}, properties) == retention_ms


def test_what_the_topic_sets_goes_before_what_its_broker_sets() -> None:
    assert topic_value("min.insync.replicas", {"min.insync.replicas": "2"}, {}) == 2
    properties = {"min.insync.replicas": "3"}
    assert topic_value("min.insync.replicas", {"min.insync.replicas": "2"}, properties) == 2
    assert topic_value("min.insync.replicas", {}, properties) == 3


def test_a_setting_without_default_has_no_value() -> None:
    assert topic_value("internal.segment.bytes", {}, {}) is None
