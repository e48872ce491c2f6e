"""Settings of groups (KIP-848): what one group may have otherwise than its broker says."""

from __future__ import annotations

from collections.abc import Mapping

from lossless.core.settings.brokers import BROKERS
from lossless.core.settings.kinds import InvalidSetting, Setting, Value, value_of
from lossless.core.settings.table import read_table

GROUPS = read_table(
    """\
consumer.heartbeat.interval.ms: int 1.. = 5000 (honoured)
    How often members of the consumer group are told to report.
consumer.session.timeout.ms: int 1.. = 45000 (honoured)
    A member of the consumer group that is silent for so long is removed.
share.auto.offset.reset: string = latest
    Where a share group begins to read: latest, earliest, or by_duration: and how far back.
share.heartbeat.interval.ms: int 1.. = 5000
    How often members of the share group are told to report.
share.isolation.level: string of read_committed read_uncommitted = read_uncommitted
    Whether the share group gets records of transactions that are not committed.
share.record.lock.duration.ms: int 1000.. = 30000
    How long a member of the share group may hold a record.
share.session.timeout.ms: int 1.. = 45000
    A member of the share group that is silent for so long is removed.
streams.heartbeat.interval.ms: int 1.. = 5000
    How often members of the streams group are told to report.
streams.num.standby.replicas: int 0.. = 0
    How many standby copies of its state a streams task has.
streams.session.timeout.ms: int 1.. = 45000
    A member of the streams group that is silent for so long is removed.
"""
)

# What the broker has bounds for.
_BOUNDED = (
    "consumer.heartbeat.interval.ms",
    "consumer.session.timeout.ms",
    "share.heartbeat.interval.ms",
    "share.session.timeout.ms",
    "share.record.lock.duration.ms",
    "streams.heartbeat.interval.ms",
    "streams.session.timeout.ms",
)


def group_value(name: str, overrides: Mapping[str, str], properties: Mapping[str, str]) -> Value:
    """What a group goes by: its own value, its broker's, or Kafka's."""
    text = overrides.get(name)
    if text is not None:
        return value_of(GROUPS[name], text)
    of_broker = BROKERS.get(f"group.{name}")
    return _broker_value(of_broker or GROUPS[name], properties)


def problem_with_group(
    overrides: Mapping[str, str | None], properties: Mapping[str, str]
) -> str | None:
    """Why a group cannot have these settings, given its broker's; None: it can."""
    without = [name for name, text in overrides.items() if text is None]
    if without:
        return f"Null value not supported for group configs: {','.join(without)}"
    texts = {name: text for name, text in overrides.items() if text is not None}
    unknown = next((name for name in texts if name not in GROUPS), None)
    if unknown is not None:
        return f"Unknown group config name: {unknown}"
    try:
        values = {name: group_value(name, texts, properties) for name in GROUPS}
    except InvalidSetting as invalid:
        return str(invalid)
    return _conflict(values, properties)


def _conflict(values: Mapping[str, Value], properties: Mapping[str, str]) -> str | None:
    for name in _BOUNDED:
        low, high = bounds_of(name)
        if _number(values[name]) < _number(_broker_value(BROKERS[low], properties)):
            return f"{name} must be greater than or equal to {low}"
        if _number(values[name]) > _number(_broker_value(BROKERS[high], properties)):
            return f"{name} must be less than or equal to {high}"
    for family in ("consumer", "share", "streams"):
        session, heartbeat = f"{family}.session.timeout.ms", f"{family}.heartbeat.interval.ms"
        if _number(values[session]) <= _number(values[heartbeat]):
            return f"{session} must be greater than {heartbeat}"
    return None


def bounds_of(name: str) -> tuple[str, str]:
    """The broker's settings that a group's must lie between."""
    family, _, rest = name.partition(".")
    return f"group.{family}.min.{rest}", f"group.{family}.max.{rest}"


def _broker_value(setting: Setting, properties: Mapping[str, str]) -> Value:
    text = properties.get(setting.name, setting.default)
    assert text is not None
    return value_of(setting, text)


def _number(value: Value) -> int:
    assert isinstance(value, int)
    return value
