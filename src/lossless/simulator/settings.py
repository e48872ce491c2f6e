"""What is simulated: a cluster, its clients, the faults. One value says all of it."""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace
from typing import Any

from lossless.contract.faults import FaultKind
from lossless.core.broker import BrokerConfig
from lossless.core.controller_node import ControllerConfig
from lossless.core.quorum import QuorumConfig
from lossless.core.replica import ReplicaConfig
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
    FaultKind.POWER_LOSS,
    FaultKind.NETWORK_PARTITION,
    FaultKind.DISK_FULL,
    FaultKind.DISK_FAILURE,
    FaultKind.CLIENT_DISCONNECT,
    FaultKind.PRODUCER_CRASH,
    FaultKind.CONSUMER_CRASH,
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
    commit: str = "after"
    hand_off: bool = False  # to a thread that processes later
    reset: str = "earliest"  # auto.offset.reset
    from_follower: bool = False  # KIP-392: whoever is near, instead of the leader
    processing_ms: int = 20
    auto_commit_ms: int = 60


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
    fetch_bytes: int = 1 << 20  # that a follower asks for at a time
    producers: int = 2
    producer: ProducerSettings = field(default_factory=ProducerSettings)
    consumers: int = 2
    consumer: ConsumerSettings = field(default_factory=ConsumerSettings)
    faults: tuple[FaultKind, ...] = ()
    faults_max: int = 4  # in one run
    chaos_ms: int = 900  # for how long faults may strike
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
            replica=ReplicaConfig(
                lag_ms_max=LAG_MS_MAX,
                flush_before_ack=self.flush_before_ack,
                fetch_bytes_max=self.fetch_bytes,
            ),
            log=LogConfig(segment_bytes=self.segment_bytes),
            quorum=QUORUM,
        )

    @property
    def controller_config(self) -> ControllerConfig:
        return ControllerConfig(session_timeout_ms=SESSION_MS, quorum=QUORUM)
