"""What an embedded broker acts on, read from properties into types.

Every field is a setting of Kafka's, its dots written as underscores. Three kinds are read
elsewhere: the defaults of topics, for each topic (policies.py); the bounds of groups (groups.py);
and what listeners demand (lossless.broker.security).

Rules learnt
- A setting that nobody knows is warned about and ignored, as Kafka does. One that Kafka knows and
  this broker does not act on is warned about, too: it would be a silent difference otherwise.
- A wrong value stops the start: a broker that guesses is worse than one that does not run.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from types import MappingProxyType
from typing import Any, NamedTuple, TypeVar

from lossless.contract.place import nearest
from lossless.core.settings.brokers import BESIDES_KAFKA, BROKERS, effective, setting_for
from lossless.core.settings.kinds import InvalidSetting, Value, problem, text_of, value_of

Part = TypeVar("Part")


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicCreation:
    auto_create_topics_enable: bool
    num_partitions: int
    default_replication_factor: int
    delete_topic_enable: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Membership:
    """Of a broker in its cluster."""

    broker_rack: str | None
    broker_heartbeat_interval_ms: int
    broker_session_timeout_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Controllers:
    controller_quorum_election_timeout_ms: int
    controller_quorum_fetch_timeout_ms: int
    controller_quorum_election_backoff_max_ms: int
    controller_quorum_retry_backoff_ms: int
    internal_metadata_max_fetch_size_in_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Replication:
    replica_lag_time_max_ms: int
    replica_fetch_max_bytes: int
    replica_fetch_wait_max_ms: int
    replica_fetch_backoff_ms: int
    replica_high_watermark_checkpoint_interval_ms: int
    replica_selector_class: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Network:
    socket_request_max_bytes: int
    connections_max_idle_ms: int
    fetch_max_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Upkeep:
    """What is done to logs from time to time."""

    log_retention_check_interval_ms: int
    producer_id_expiration_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Groups:
    group_initial_rebalance_delay_ms: int
    group_min_session_timeout_ms: int
    group_max_session_timeout_ms: int
    group_max_size: int
    group_coordinator_rebalance_protocols: tuple[str, ...]
    group_consumer_session_timeout_ms: int
    group_consumer_heartbeat_interval_ms: int
    group_consumer_max_size: int
    group_consumer_assignors: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Offsets:
    offsets_topic_num_partitions: int
    offsets_topic_replication_factor: int
    offsets_topic_segment_bytes: int
    offsets_retention_minutes: int
    offsets_retention_check_interval_ms: int
    offset_metadata_max_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Transactions:
    transaction_state_log_num_partitions: int
    transaction_state_log_replication_factor: int
    transaction_state_log_min_isr: int
    transaction_state_log_segment_bytes: int
    transaction_max_timeout_ms: int
    transaction_abort_timed_out_transaction_cleanup_interval_ms: int
    transaction_remove_expired_transaction_cleanup_interval_ms: int
    transactional_id_expiration_ms: int
    transaction_partition_verification_enable: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerSettings:
    topic_creation: TopicCreation
    membership: Membership
    controllers: Controllers
    replication: Replication
    network: Network
    upkeep: Upkeep
    groups: Groups
    offsets: Offsets
    transactions: Transactions
    properties: Mapping[str, str]  # all of them, as text: topics have their defaults from here

    @classmethod
    def from_properties(cls, properties: Mapping[str, str]) -> tuple[BrokerSettings, list[str]]:
        """Settings and warnings. What is not set has Kafka's default: ours come by way of
        deviations.with_deviations. InvalidSetting if Kafka would not start with it."""
        texts = effective(properties)
        for name, text in texts.items():
            setting = setting_for(name)
            wrong = None if setting is None else problem(setting, text)
            if wrong is not None:
                raise InvalidSetting(wrong)
        settings = cls(
            topic_creation=_read(TopicCreation, texts),
            membership=_read(Membership, texts),
            controllers=_read(Controllers, texts),
            replication=_read(Replication, texts),
            network=_read(Network, texts),
            upkeep=_read(Upkeep, texts),
            groups=_read(Groups, texts),
            offsets=_read(Offsets, texts),
            transactions=_read(Transactions, texts),
            properties=MappingProxyType(texts),
        )
        conflict = _conflict(texts)
        if conflict is not None:
            raise InvalidSetting(conflict)
        return settings, _warnings(properties)


PARTS: tuple[type[Any], ...] = (
    TopicCreation,
    Membership,
    Controllers,
    Replication,
    Network,
    Upkeep,
    Groups,
    Offsets,
    Transactions,
)


def setting_name(field: str) -> str:
    return field.replace("_", ".")


def broker_value(name: str, properties: Mapping[str, str]) -> Value | None:
    setting = BROKERS[name]
    text = properties.get(name, setting.default)
    return None if text is None else value_of(setting, text)


def _read(part: type[Part], properties: Mapping[str, str]) -> Part:
    read: Any = part  # every part is a dataclass whose fields are named after settings
    return part(
        **{one.name: broker_value(setting_name(one.name), properties) for one in fields(read)}
    )


def _warnings(properties: Mapping[str, str]) -> list[str]:
    warnings = []
    for name, text in sorted(properties.items()):
        setting = setting_for(name) or BESIDES_KAFKA.get(name)
        if setting is None:
            near = nearest(name, BROKERS)
            meant = f"; did you mean {near}?" if near else ""
            warnings.append(f"{name} is not a setting of Kafka 4.1: ignored{meant}")
        elif not (setting.honoured or setting.by_engine) and not _is_default(name, text):
            warnings.append(f"{name} is not honoured by the embedded broker: ignored")
    return warnings


def _is_default(name: str, text: str) -> bool:
    setting = BROKERS.get(name)
    if setting is None or setting.default is None:
        return False
    return text_of(value_of(setting, text)) == setting.default


# What Kafka compares before it starts: the first must not be more than the second.


class _Order(NamedTuple):
    less: str
    more: str
    strictly: bool = False


_ORDERS = (
    _Order("replica.fetch.wait.max.ms", "replica.socket.timeout.ms"),
    _Order("replica.fetch.wait.max.ms", "replica.lag.time.max.ms"),
    _Order("log.cleaner.min.compaction.lag.ms", "log.cleaner.max.compaction.lag.ms"),
    *(
        order
        for family in ("group.consumer", "group.share", "group.streams")
        for what in ("heartbeat.interval.ms", "session.timeout.ms")
        for order in (
            _Order(f"{family}.min.{what}", f"{family}.max.{what}"),
            _Order(f"{family}.min.{what}", f"{family}.{what}"),
            _Order(f"{family}.{what}", f"{family}.max.{what}"),
        )
    ),
    *(
        _Order(f"{family}.heartbeat.interval.ms", f"{family}.session.timeout.ms", strictly=True)
        for family in ("group.consumer", "group.share", "group.streams")
    ),
)


def _conflict(properties: Mapping[str, str]) -> str | None:
    def number(name: str) -> int:
        value = broker_value(name, properties)
        assert isinstance(value, int)
        return value

    for less, more, strictly in _ORDERS:
        if number(less) > number(more) or (strictly and number(less) == number(more)):
            relation = "less than" if strictly else "less than or equal to"
            return f"{less} must be {relation} {more}"
    for name in ("log.roll.ms", "log.roll.jitter.ms"):
        least = 1 if name == "log.roll.ms" else 0
        if name in properties and number(name) < least:
            return f"{name} must be greater than or equal to {least}"
    for name in ("log.retention.ms", "log.retention.minutes", "log.retention.hours"):
        if name in properties:
            if number(name) == 0:
                return "log.retention.ms must be unlimited (-1) or, greater than or equal to 1"
            break
    protocols = broker_value("group.coordinator.rebalance.protocols", properties)
    assert isinstance(protocols, tuple)
    if "classic" not in protocols:
        return "Disabling the 'classic' protocol is not supported."
    if properties.get("node.id") != properties.get("broker.id"):
        return "You must set `node.id` to the same value as `broker.id`."
    return None
