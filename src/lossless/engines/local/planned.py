"""What is the same for every cluster that was planned here, however its nodes are run."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from confluent_kafka.admin import ClusterMetadata

from lossless.broker.faults import Faults
from lossless.contract.faults import Fault, FaultKind, Fired, Unsupported
from lossless.engines.interface import BrokerStatus
from lossless.engines.local import security
from lossless.engines.local.faults import inject
from lossless.engines.local.plan import Node, Plan
from lossless.engines.local.probe import active_controller, has_quorum, lists
from lossless.engines.metadata import partition_of, read_metadata
from lossless.errors import BadInput, Unavailable

START_S_MAX = 120.0
STOP_S_MAX = 20.0  # Apache Kafka waits for ever for controllers that are gone


class PlannedCluster(ABC):
    plan: Plan

    @abstractmethod
    def status(self) -> Sequence[BrokerStatus]: ...

    @abstractmethod
    def kill(self, broker: int) -> Fired:
        """kill -9: no goodbye to the controller, nothing flushed."""

    @abstractmethod
    def pause(self, broker: int) -> Fired:
        """The broker keeps its connections and answers nothing."""

    @abstractmethod
    def resume(self, broker: int) -> Fired: ...

    @abstractmethod
    def stop_broker(self, broker: int) -> Fired:
        """Controlled shutdown: leadership moves away first, the log is closed."""

    @abstractmethod
    def restart(self, broker: int) -> Fired:
        """On the same port with the same data; stopped in order first, if it is alive."""

    @abstractmethod
    def _suffer(self, node: Node, faults: Faults) -> None:
        """The node has these faults, and no others, when this returns. Only ours can."""

    def isolate(self, broker: int) -> Fired:
        """From all other nodes; clients still reach it."""
        node = self.node(broker)
        others = [other for other in self.plan.nodes if other.id != broker]
        self._inflict(node, cut=self._numbers(others))
        names = ", ".join(other.name for other in others)
        return fired(FaultKind.NETWORK_PARTITION, node, f"hears nothing of {names}")

    def cut(self, broker: int, other: int) -> Fired:
        """One from one other, both ways."""
        node, cut_off = self.node(broker), self.node(other)
        if node == cut_off:
            raise BadInput(f"{node.name} cannot be cut off from itself")
        before = self._faults_of(node).cut
        self._inflict(node, cut=tuple(sorted({*before, *self._numbers([cut_off])})))
        return fired(FaultKind.NETWORK_PARTITION, node, f"hears nothing of {cut_off.name}")

    def fill_disk(self, broker: int) -> Fired:
        """Nothing more can be written: it stops as soon as it tries."""
        node = self.node(broker)
        self._inflict(node, disk_is_full=True)
        return fired(FaultKind.DISK_FULL, node, "has no space left on its disk")

    def slow_disk(self, broker: int, delay_ms: int) -> Fired:
        node = self.node(broker)
        if delay_ms < 1:
            raise BadInput(f"a disk that is slower by {delay_ms} ms is not slower")
        self._inflict(node, disk_delay_ms=delay_ms)
        return fired(FaultKind.DISK_SLOW, node, f"every write takes {delay_ms} ms more")

    def mend(self) -> Fired:
        """Networks and disks of all that run are as they were."""
        mended = []
        for node in self.nodes_alive():
            if self._faults_of(node) != Faults():
                self._suffer(node, Faults())
                mended.append(node.name)
        what = f"{', '.join(mended)} mended" if mended else "nothing was cut, full or slow"
        return Fired(fault=Fault(kind=FaultKind.NETWORK_MEND), evidence=what)

    def nodes_alive(self) -> list[Node]:
        now = {row.broker: row.state for row in self.status()}
        return [node for node in self.plan.nodes if now[node.id] != "dead"]

    def _numbers(self, nodes: Sequence[Node]) -> tuple[int, ...]:
        """Of the brokers and of the controllers that they are."""
        numbers = [node.id for node in nodes if node.is_broker]
        numbers += [self.plan.voter(node) for node in nodes if node.is_controller]
        return tuple(sorted(numbers))

    def _inflict(self, node: Node, **changes: Any) -> None:
        if self.plan.engine != "embedded":
            raise BadInput(
                f"networks and disks of {self.plan.engine} brokers cannot be broken from outside",
                hint="use --kafka embedded, or the proxy between clients and brokers",
            )
        self._suffer(node, replace(self._faults_of(node), **changes))

    @abstractmethod
    def _faults_of(self, node: Node) -> Faults:
        """What it suffers now."""

    @abstractmethod
    def stop(self) -> None:
        """Everything, in order when the data is kept. What was stopped may be stopped again."""

    @property
    def bootstrap_servers(self) -> str:
        return ",".join(self.plan.address(node) for node in self.plan.brokers)

    @property
    def client_settings(self) -> Mapping[str, str]:
        return {
            "bootstrap.servers": self.bootstrap_servers,
            **security.client_settings(self.plan.config),
        }

    def leader_of(self, topic: str, partition: int) -> int:
        """The broker that leads the partition, or -1 when none does."""
        return int(partition_of(self.metadata(), topic, partition).leader)

    def in_sync_replicas(self, topic: str, partition: int) -> list[int]:
        return sorted(partition_of(self.metadata(), topic, partition).isrs)

    def controller(self) -> int:
        leader = active_controller(self.plan, self.nodes_in("running", brokers=True))
        if leader is None:
            raise Unavailable(
                "no controller is active: the quorum has no majority",
                hint="restart the controllers that are down",
            )
        return leader

    def metadata(self) -> ClusterMetadata:
        """From a broker that runs: one that is paused would let us wait."""
        running = self.nodes_in("running", brokers=True)
        failure = Unavailable("no broker is running", hint="lossless restart BROKER starts one")
        for node in running:
            try:
                address = {"bootstrap.servers": self.plan.address(node)}
                return read_metadata({**self.client_settings, **address}, timeout_s=3)
            except Unavailable as error:
                failure = error
        raise failure

    def nodes_in(self, state: str, *, brokers: bool) -> list[Node]:
        """Nodes whose process is in a state: the brokers, or the controllers."""
        now = {row.broker: row.state for row in self.status()}
        nodes = self.plan.brokers if brokers else self.plan.controllers
        return [node for node in nodes if now[node.id] == state]

    def node(self, broker: int) -> Node:
        for node in self.plan.nodes:
            if node.id == broker:
                return node
        known = ", ".join(str(node.id) for node in self.plan.nodes)
        raise BadInput(f"there is no broker {broker}", hint=f"choose one of {known}")

    def in_sync(self) -> bool:
        """Whether every replica on a running broker is in sync."""
        running = {node.id for node in self.nodes_in("running", brokers=True)}
        return all(
            running.intersection(partition.replicas) <= set(partition.isrs)
            for topic in self.metadata().topics.values()
            for partition in topic.partitions.values()
        )

    def inject(self, fault: Fault) -> Fired | Unsupported:
        return inject(self, fault)

    def _is_back(self, node: Node) -> bool:
        if not node.is_broker:
            return has_quorum(self.plan, node)
        return all(
            lists(self.plan, other, {node.id}) for other in self.nodes_in("running", brokers=True)
        )

    def _missing_quorum(self) -> str | None:
        """Why a broker that starts now cannot be in the cluster yet."""
        alive = self.nodes_in("running", brokers=False)
        if len(alive) * 2 > len(self.plan.controllers):
            return None
        return (
            f"not in the cluster yet, since only {len(alive)} of "
            f"{len(self.plan.controllers)} controllers run"
        )


def fired(kind: FaultKind, node: Node, evidence: str) -> Fired:
    return Fired(fault=Fault(kind=kind, broker=node.id), evidence=f"{node.name}: {evidence}")
