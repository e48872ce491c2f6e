"""What every engine offers: a cluster from a specification, and faults that prove themselves.

Three engines stand behind it: this package's own brokers (`embedded`), Apache Kafka in processes
of ours (`apache`), and any address (`external`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from lossless.contract.faults import Fault, Fired, Unsupported


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterSpec:
    """What to build. `controllers=0` means that the brokers are their own controllers."""

    brokers: int = 3
    controllers: int = 0
    racks: Sequence[str] = ()
    config: Mapping[str, str] = field(default_factory=dict)  # broker settings by Kafka's names
    data: Path | None = None  # kept when given; a temporary folder, removed at the end, when not
    advertised_host: str = "127.0.0.1"
    port: int | None = None  # of the first broker, the others follow; None: free ones


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerStatus:
    broker: int
    role: str  # broker | controller | broker+controller
    address: str
    state: str  # running | paused | dead
    pid: int | None
    reason: str | None = None  # of a dead one: why it ended, if it said so


class Cluster(Protocol):
    """A cluster that clients can connect to."""

    @property
    def bootstrap_servers(self) -> str: ...

    @property
    def client_settings(self) -> Mapping[str, str]:
        """Everything a client needs, by the Java client's names; bootstrap.servers among them."""

    def leader_of(self, topic: str, partition: int) -> int: ...

    def controller(self) -> int: ...

    def status(self) -> Sequence[BrokerStatus]: ...

    def inject(self, fault: Fault) -> Fired | Unsupported: ...

    def stop(self) -> None: ...


class Engine(Protocol):
    def start(self, spec: ClusterSpec) -> Cluster: ...
