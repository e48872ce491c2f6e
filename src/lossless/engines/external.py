"""Somebody else's Kafka: an address and whatever the client needs to be let in. Nothing of it is
ours to start, stop or break."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from lossless.contract.faults import Fault, Fired, Unsupported
from lossless.engines.interface import BrokerStatus
from lossless.engines.metadata import read_metadata, read_partition
from lossless.errors import BadInput, Unavailable


class ExternalCluster:
    """`settings` are a client's, by the Java client's names, bootstrap.servers among them."""

    def __init__(self, settings: Mapping[str, str]) -> None:
        if not settings.get("bootstrap.servers"):
            raise BadInput("a Kafka by address needs bootstrap.servers")
        self._settings = dict(settings)

    @property
    def bootstrap_servers(self) -> str:
        return self._settings["bootstrap.servers"]

    @property
    def client_settings(self) -> Mapping[str, str]:
        return dict(self._settings)

    def leader_of(self, topic: str, partition: int) -> int:
        return int(read_partition(self._settings, topic, partition).leader)

    def in_sync_replicas(self, topic: str, partition: int) -> list[int]:
        return sorted(read_partition(self._settings, topic, partition).isrs)

    def controller(self) -> int:
        # With KRaft, brokers answer clients with a broker of their choice instead.
        raise Unavailable("a Kafka by address does not tell clients which controller is active")

    def status(self) -> Sequence[BrokerStatus]:
        """The brokers that are in the cluster now; those that are not, nobody can list."""
        brokers = read_metadata(self._settings).brokers
        return [
            BrokerStatus(
                broker=broker,
                role="broker",
                address=f"{node.host}:{node.port}",
                state="running",
                pid=None,
            )
            for broker, node in sorted(brokers.items())
        ]

    def inject(self, fault: Fault) -> Fired | Unsupported:
        return Unsupported(
            fault=fault,
            why=f"{self.bootstrap_servers} is not a cluster that Lossless started, so its "
            "processes and network are out of reach",
        )

    def stop(self) -> None:
        """Nothing was started."""
