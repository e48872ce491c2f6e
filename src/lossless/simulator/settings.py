"""What is simulated: a cluster, its clients, the faults. One value says all of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, NamedTuple

from lossless.contract.faults import FaultKind
from lossless.contract.values import SURVIVES_BY_DEFAULT
from lossless.core.broker import BrokerConfig, TopicConfig
from lossless.core.controller_node import ControllerConfig
from lossless.core.coordination import CoordinationConfig
from lossless.core.groups.config import GroupConfig
from lossless.core.messages import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from lossless.core.quorum import QuorumConfig
from lossless.core.replica import ReplicaConfig
from lossless.core.settings.broker_settings import BrokerSettings
from lossless.core.settings.policies import policy_for
from lossless.core.transactions.config import TransactionConfig, VerificationConfig
from lossless.log.log import LogConfig
from lossless.log.rules import RULES, Rules

# Shorter than Kafka's by a factor of about thirty, in the same proportions: what matters is which
# comes first, and time that nothing happens in is not worth simulating.
SESSION_MS = 300
HEARTBEAT_MS = 100
LAG_MS_MAX = 400
FETCH_WAIT_MS = 100
REQUEST_TIMEOUT_MS = 350
BACKOFF_MS = 20
CHECKPOINT_MS = 200
DELIVERY_MS = 600  # how long a record of a transaction is tried for
TRANSACTION_MS = 1_500  # transaction.timeout.ms
REBALANCE_MS = 400  # how long a group waits for its members, max.poll.interval.ms
COMPACTED = ("cleanup.policy", "compact")
RETENTION_MS = 60_000  # of committed offsets
COORDINATOR_PARTITIONS = 2  # of each internal topic
QUORUM = QuorumConfig(
    election_timeout_ms=150,
    fetch_timeout_ms=300,
    election_backoff_max_ms=100,
    retry_backoff_ms=BACKOFF_MS,
    fetch_wait_ms=200,
)

# What the simulator can do to a cluster. The vocabulary is that of the whole product.
FAULTS = (
    FaultKind.BROKER_CRASH,
    FaultKind.LEADER_CRASH,
    FaultKind.CONTROLLER_CRASH,
    FaultKind.BROKER_PAUSE,
    FaultKind.BROKER_STOP,
    FaultKind.ROLLING_RESTART,
    FaultKind.POWER_LOSS,
    FaultKind.POWER_LOSS_EVERYWHERE,
    FaultKind.NETWORK_PARTITION,
    FaultKind.DISK_FULL,
    FaultKind.DISK_FAILURE,
    FaultKind.CLIENT_DISCONNECT,
    FaultKind.PRODUCER_CRASH,
    FaultKind.CONSUMER_CRASH,
    FaultKind.LATE_MESSAGES,
)
# These strike one broker, and count together: see budget.py.
BROKER_FAULTS = (
    FaultKind.BROKER_CRASH,
    FaultKind.LEADER_CRASH,
    FaultKind.BROKER_PAUSE,
    FaultKind.BROKER_STOP,
    FaultKind.ROLLING_RESTART,
    FaultKind.POWER_LOSS,
    FaultKind.NETWORK_PARTITION,
    FaultKind.DISK_FULL,
    FaultKind.DISK_FAILURE,
)
# These take away what was not flushed.
DESTRUCTIVE_FAULTS = (FaultKind.POWER_LOSS, FaultKind.DISK_FAILURE)
# These end a broker's process without a clean stop.
DEADLY_FAULTS = (
    FaultKind.BROKER_CRASH,
    FaultKind.LEADER_CRASH,
    FaultKind.DISK_FULL,
    *DESTRUCTIVE_FAULTS,
)
LATE_MS_MAX = 4 * SESSION_MS
AT_A_TIME_MAX = 9


class Allowed(NamedTuple):
    """A kind of fault, and how many of it may strike at a time; of late messages, how late."""

    kind: FaultKind
    number: int

    def __str__(self) -> str:
        return f"{self.kind.value}={self.number}"


def allowed(kind: FaultKind, number: int | None = None) -> Allowed:
    """One at a time, unless a number is given."""
    if number is None:
        number = LATE_MS_MAX if kind is FaultKind.LATE_MESSAGES else 1
    return Allowed(kind, number)


# Every fault, without regard to how many at a time.
UNLIMITED = tuple(
    allowed(kind, None if kind is FaultKind.LATE_MESSAGES else AT_A_TIME_MAX) for kind in FAULTS
)
# What `lossless init` recommends to survive, and messages that no network delivers in time.
RECOMMENDED_FAULTS = (
    *(
        allowed(kind, None if number is True else int(number))
        for kind, number in SURVIVES_BY_DEFAULT.items()
        if kind in FAULTS and number
    ),
    allowed(FaultKind.LATE_MESSAGES),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerSettings:
    client: str = "java"  # or librdkafka
    acks: int = -1
    idempotent: bool | None = None  # None: as the client has it by default
    in_flight_max: int = 5
    retries: bool = True
    first_alone: bool = True  # nothing more is sent before the first is acknowledged
    records: int = 10
    interval_ms: int = 70
    unit: int = 0  # so many records belong together, all or none; 0: each is for itself
    transactional: bool = False  # what belongs together is sent in a transaction
    abort_every: int = 3  # of so many transactions the application aborts one; 0: none
    transaction_version: int = 2  # 1: epochs stay as they are when a transaction ends (KIP-890)

    @property
    def is_idempotent(self) -> bool:
        """Java's default is on, and silently off unless acks=all (KAFKA-13673); librdkafka's is
        off."""
        if self.idempotent is None:
            return self.client == "java" and self.acks == -1
        return self.idempotent


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerSettings:
    client: str = "java"
    # after: once processed. before: on delivery. auto: as the client does it by itself.
    # transaction: in the transaction that writes what was made of the records.
    commit: str = "after"
    hand_off: bool = False  # to a thread that processes later
    reset: str = "earliest"  # auto.offset.reset
    from_follower: bool = False  # KIP-392: whoever is near, instead of the leader
    isolation: str = "read_uncommitted"  # isolation.level
    processing_ms: int = 20
    auto_commit_ms: int = 60


@dataclass(frozen=True, slots=True)
class _BriefGroupConfig(GroupConfig):
    """Kafka counts the retention of offsets in minutes."""

    offsets_retention_brief_ms: int = RETENTION_MS

    @property
    def offsets_retention_ms(self) -> int:
        return self.offsets_retention_brief_ms


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    brokers: int = 3
    controllers: int = 1
    partitions: int = 1
    replication_factor: int = 3
    min_isr: int = 2
    unclean: bool = False
    flush_before_ack: bool = False
    racks: tuple[str, ...] = ()
    segment_bytes: int = 1 << 20
    compaction: bool = False  # of the coordinators' topics, whenever a segment is full
    fetch_bytes: int = 1 << 20  # that a follower asks for at a time
    lag_ms: int = LAG_MS_MAX  # replica.lag.time.max.ms
    producers: int = 2
    producer: ProducerSettings = field(default_factory=ProducerSettings)
    consumers: int = 2
    consumer: ConsumerSettings = field(default_factory=ConsumerSettings)
    # Consumers are shared out among so many groups, which coordinators look after. 0: each consumer
    # is a group, has all partitions, and its offsets are kept by nobody who could fail.
    groups: int = 0
    transforms: bool = False  # members write a copy of each record to another topic
    each_sees_all: bool = False  # what the application expects of every consumer, not of each group
    offsets_retention_ms: int = RETENTION_MS  # offsets.retention.minutes
    verification: bool = True  # transaction.partition.verification.enable
    faults: tuple[Allowed, ...] = ()
    faults_max: int = 4  # in one run
    chaos_ms: int = 900  # for how long faults may strike
    deletes: bool = True  # retention: old records are deleted when a script says so
    rules: Rules = RULES

    def without(self, *names: str) -> Settings:
        """The same with some rules off."""
        off: dict[str, Any] = dict.fromkeys(names, False)
        return replace(self, rules=replace(self.rules, **off))

    def with_all_rules(self) -> Settings:
        return replace(self, rules=RULES)

    @property
    def rules_off(self) -> tuple[str, ...]:
        return tuple(rule.name for rule in fields(Rules) if not getattr(self.rules, rule.name))

    @property
    def broker_config(self) -> BrokerConfig:
        return BrokerConfig(
            heartbeat_ms=HEARTBEAT_MS,
            fetch_wait_ms=FETCH_WAIT_MS,
            backoff_ms=BACKOFF_MS,
            checkpoint_ms=CHECKPOINT_MS,
            tidy_ms=CHECKPOINT_MS if self.compaction else BrokerConfig().tidy_ms,
            replica=ReplicaConfig(
                lag_ms_max=self.lag_ms,
                flush_before_ack=self.flush_before_ack,
                fetch_bytes_max=self.fetch_bytes,
            ),
            coordination=self._coordination,
            log=LogConfig(segment_bytes=self.segment_bytes),
            quorum=QUORUM,
        )

    def topic_config(self, overrides: Mapping[str, str]) -> TopicConfig:
        """Of a topic's own settings only cleanup.policy=compact counts here."""
        config, policy = self.broker_config, None
        if COMPACTED in overrides.items():
            kafkas_defaults, _ = BrokerSettings.from_properties({})
            policy = policy_for(overrides, kafkas_defaults)
        return TopicConfig(config.log, config.replica, policy)

    @property
    def _coordination(self) -> CoordinationConfig:
        return CoordinationConfig(
            groups=_BriefGroupConfig(
                min_session_timeout_ms=1,
                initial_rebalance_delay_ms=BACKOFF_MS,
                new_member_join_timeout_ms=2 * REBALANCE_MS,
                offsets_retention_check_interval_ms=CHECKPOINT_MS,
                rules=self.rules,
                offsets_retention_brief_ms=self.offsets_retention_ms,
            ),
            transactions=TransactionConfig(
                abort_timed_out_interval_ms=HEARTBEAT_MS,
                offsets_topic_partitions=COORDINATOR_PARTITIONS,
                transaction_version=self.producer.transaction_version,
                marker_retry_backoff_ms=BACKOFF_MS,
            ),
            verification=VerificationConfig(
                partition_verification_enable=self.verification, retry_backoff_ms=BACKOFF_MS
            ),
        )

    @property
    def internal_topics(self) -> tuple[str, ...]:
        """That coordinators need."""
        needed = ((OFFSETS_TOPIC, self.groups > 0), (TRANSACTIONS_TOPIC, self.is_transactional))
        return tuple(topic for topic, is_needed in needed if is_needed)

    @property
    def late_ms_max(self) -> int:
        """How late a message may be; 0: none is."""
        return dict(self.faults).get(FaultKind.LATE_MESSAGES, 0)

    @property
    def is_transactional(self) -> bool:
        return self.producer.transactional

    @property
    def controller_config(self) -> ControllerConfig:
        return ControllerConfig(session_timeout_ms=SESSION_MS, quorum=QUORUM)


# What `lossless init` recommends. Its controllers are its brokers; here they stand alone.
RECOMMENDED = Settings(
    controllers=3,
    racks=("a", "b", "c"),
    producer=ProducerSettings(client="librdkafka", idempotent=True),
    consumer=ConsumerSettings(client="librdkafka"),
    faults=RECOMMENDED_FAULTS,
)
