"""The values a contract is read into. Frozen: what was promised does not change under a run.

Settings (`config`, `client`, `spark`) are strings by Kafka's Java names, or Spark's; they may hold
secrets, so no `repr` shows them: print them through `redacted`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Literal

from lossless.contract.faults import FaultKind

Delivery = Literal["at-most-once", "at-least-once", "exactly-once"]
Order = Literal["none", "per-key", "per-partition"]
Client = Literal[
    "lossless", "java", "librdkafka"
]  # lossless: Producer and Consumer of this package
Commit = Literal["after-processing", "before-processing", "auto"]
Format = Literal["json", "raw"]
Mode = Literal["append"]
Isolation = Literal["read_committed", "read_uncommitted"]
Start = Literal["earliest", "latest"] | datetime

SURVIVES_BY_DEFAULT: Mapping[FaultKind, int | bool] = {
    FaultKind.BROKER_CRASH: 1,
    FaultKind.LEADER_CRASH: True,
    FaultKind.ROLLING_RESTART: True,
    FaultKind.CLIENT_DISCONNECT: True,
    FaultKind.CONSUMER_CRASH: True,
    FaultKind.DRIVER_CRASH: True,
}

# Faults that take a broker away for a while, or for good: replicas have to make up for it.
BROKER_FAULTS = frozenset(
    {
        FaultKind.BROKER_CRASH,
        FaultKind.LEADER_CRASH,
        FaultKind.BROKER_PAUSE,
        FaultKind.BROKER_STOP,
        FaultKind.ROLLING_RESTART,
        FaultKind.POWER_LOSS,
        FaultKind.NETWORK_PARTITION,
        FaultKind.DISK_FULL,
        FaultKind.DISK_FAILURE,
    }
)
# What `survives` may name: each of these has a rule, or is what the ledger is for (driver-crash).
SURVIVABLE = (
    *(kind for kind in FaultKind if kind in BROKER_FAULTS),
    FaultKind.CONTROLLER_CRASH,
    FaultKind.CLIENT_DISCONNECT,
    FaultKind.CONSUMER_CRASH,
    FaultKind.DRIVER_CRASH,
    FaultKind.EXECUTOR_CRASH,
    FaultKind.SINK_OUTAGE,
)


def _no_settings() -> Mapping[str, str]:
    return {}


@dataclass(frozen=True, slots=True, kw_only=True)
class Guarantee:
    """What is promised, and through which faults: a number says how many at a time."""

    delivery: Delivery = "exactly-once"
    order: Order = "per-partition"
    pause_max_s: float = 30.0
    duplicates_max: int | None = 0  # None: no limit, where less than exactly-once is promised
    survives: Mapping[FaultKind, int | bool] = field(
        default_factory=lambda: dict(SURVIVES_BY_DEFAULT)
    )

    @property
    def may_not_lose(self) -> bool:
        return self.delivery != "at-most-once"

    @property
    def may_not_duplicate(self) -> bool:
        return self.delivery == "exactly-once" or self.duplicates_max == 0

    @property
    def brokers_away(self) -> int:
        """How many brokers may be away at a time without breaking the promise."""
        return max(self.survived(kind) for kind in BROKER_FAULTS)

    def survived(self, kind: FaultKind) -> int:
        """How many such faults at a time the promise covers; 0: none."""
        return int(self.survives.get(kind, 0))


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterContract:
    """The cluster to build, and how to reach the one that exists (`client`)."""

    brokers: int = 3
    controllers: int = 0  # 0: the brokers are their own controllers
    racks: tuple[str, ...] = ()
    config: Mapping[str, str] = field(default_factory=_no_settings, repr=False)
    client: Mapping[str, str] = field(default_factory=_no_settings, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicContract:
    name: str
    partitions: int = 1
    replication_factor: int = 3
    config: Mapping[str, str] = field(default_factory=_no_settings, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerContract:
    name: str
    client: Client = "lossless"  # whose defaults apply where `config` is silent
    config: Mapping[str, str] = field(default_factory=_no_settings, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerContract:
    name: str
    client: Client = "lossless"
    commit: Commit = "after-processing"
    config: Mapping[str, str] = field(default_factory=_no_settings, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class DeltaSinkContract:
    path: str  # an absolute local path, or a URI

    @property
    def type(self) -> Literal["delta"]:
        return "delta"


@dataclass(frozen=True, slots=True, kw_only=True)
class ParquetSinkContract:
    path: str  # an absolute local path

    @property
    def type(self) -> Literal["parquet"]:
        return "parquet"


@dataclass(frozen=True, slots=True, kw_only=True)
class PostgresSinkContract:
    dsn: str = field(repr=False)  # what libpq takes: a URL or key=value pairs; a secret
    table: str  # `table` or `schema.table`

    @property
    def type(self) -> Literal["postgres"]:
        return "postgres"


SinkContract = DeltaSinkContract | PostgresSinkContract | ParquetSinkContract


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineContract:
    """One way from topics to a table. Exactly one of `topics` and `topic_pattern` is given."""

    name: str
    sink: SinkContract
    topics: tuple[str, ...] = ()
    topic_pattern: str | None = None
    format: Format = "json"
    schema: str | Path | None = None  # a Path names a file; a str is DDL
    transform: str | None = None  # "module:function", DataFrame -> DataFrame
    mode: Mode = "append"
    start: Start = "earliest"  # only where the ledger knows nothing yet
    isolation: Isolation = "read_committed"
    records_per_batch_max: int | None = None
    trigger_s: float = 1.0
    dead_letters_max: int | None = None
    add_columns: bool = False
    group: str
    retry_max_s: float = 300.0
    stuck_after_s: float = 60.0
    config: Mapping[str, str] = field(default_factory=_no_settings, repr=False)
    spark: Mapping[str, str] = field(default_factory=_no_settings, repr=False)
    guarantee: Guarantee = field(default_factory=Guarantee)


@dataclass(frozen=True, slots=True, kw_only=True)
class Contract:
    path: Path  # absolute
    guarantee: Guarantee
    cluster: ClusterContract
    topics: Mapping[str, TopicContract]
    producers: Mapping[str, ProducerContract]
    consumers: Mapping[str, ConsumerContract]
    pipelines: Mapping[str, PipelineContract]
    allow_settings: tuple[str, ...] = ()  # names that are not known here and are right all the same
    text: str = field(default="", repr=False, compare=False)  # the file, to find places in it

    @property
    def folder(self) -> Path:
        """What relative paths in the contract start from; `.lossless/` lives here too."""
        return self.path.parent
