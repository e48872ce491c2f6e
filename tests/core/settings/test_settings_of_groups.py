from __future__ import annotations

import pytest

from lossless.core.settings.groups import group_value, problem_with_group


def test_a_group_has_its_brokers_values_unless_it_has_its_own() -> None:
    name = "consumer.session.timeout.ms"
    assert group_value(name, {}, {}) == 45_000
    properties = {"group.consumer.session.timeout.ms": "50000"}
    assert group_value(name, {}, properties) == 50_000
    assert group_value(name, {name: "55000"}, properties) == 55_000
    assert group_value("share.isolation.level", {}, properties) == "read_uncommitted"


@pytest.mark.parametrize(
    ("overrides", "expected"),
    [
        ({"session.timeout.ms": "1"}, "Unknown group config name: session.timeout.ms"),
        (
            {"consumer.session.timeout.ms": None},
            "Null value not supported for group configs: consumer.session.timeout.ms",
        ),
        (
            {"consumer.session.timeout.ms": "soon"},
            (
                "Invalid value soon for configuration consumer.session.timeout.ms: "
                "Not a number of type INT"
            ),
        ),
        (
            {"consumer.session.timeout.ms": "44999"},
            (
                "consumer.session.timeout.ms must be greater than or equal to "
                "group.consumer.min.session.timeout.ms"
            ),
        ),
        (
            {"consumer.heartbeat.interval.ms": "15001"},
            (
                "consumer.heartbeat.interval.ms must be less than or equal to "
                "group.consumer.max.heartbeat.interval.ms"
            ),
        ),
        ({"consumer.session.timeout.ms": "60000", "consumer.heartbeat.interval.ms": "6000"}, None),
    ],
)
def test_a_group_is_held_to_its_brokers_bounds(
    overrides: dict[str, str | None], expected: str | None
) -> None:
    assert problem_with_group(overrides, {}) == expected


def test_a_session_must_last_longer_than_a_heartbeat_interval() -> None:
    properties = {
        "group.consumer.min.session.timeout.ms": "1000",
        "group.consumer.max.heartbeat.interval.ms": "20000",
    }
    overrides = {"consumer.session.timeout.ms": "9000", "consumer.heartbeat.interval.ms": "9000"}
    assert problem_with_group(overrides, properties) == (
        "consumer.session.timeout.ms must be greater than consumer.heartbeat.interval.ms"
    )
