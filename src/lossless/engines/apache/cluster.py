"""Apache Kafka in processes of ours, one per broker, so that kill -9 means kill -9."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from confluent_kafka.admin import ClusterMetadata

from lossless.contract.faults import Fault, FaultKind, Fired, Unsupported
from lossless.engines.apache import process
from lossless.engines.apache.faults import inject
from lossless.engines.apache.logs import LogTail
from lossless.engines.apache.plan import Node, check_ports_free
from lossless.engines.apache.probe import active_controller, lists
from lossless.engines.apache.process import Identity
from lossless.engines.apache.quorum import quorum_leader
from lossless.engines.apache.state import (
    State,
    locked,
    node_folder,
    read_state,
    remove_files,
    write_state,
)
from lossless.engines.interface import BrokerStatus
from lossless.engines.metadata import partition_of, read_metadata
from lossless.engines.signals import uninterrupted
from lossless.engines.waiting import wait_until
from lossless.errors import BadInput, Unavailable

START_S_MAX = 120.0
STOP_S_MAX = 20.0  # a controlled shutdown that waits for a quorum that is gone never ends


class ApacheCluster:
    """A cluster in a folder, whoever started it: every call reads who runs from there."""

    def __init__(self, folder: Path) -> None:
        state = read_state(folder)
        if state is None:
            raise Unavailable(f"there is no cluster in {folder}", hint="lossless up starts one")
        self.folder = folder
        self.plan = state.plan

    @property
    def bootstrap_servers(self) -> str:
        return ",".join(self.plan.address(node) for node in self.plan.brokers)

    @property
    def client_settings(self) -> Mapping[str, str]:
        return {"bootstrap.servers": self.bootstrap_servers}

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
                return read_metadata({"bootstrap.servers": self.plan.address(node)}, timeout_s=3)
            except Unavailable as error:
                failure = error
        raise failure

    def status(self) -> Sequence[BrokerStatus]:
        state = read_state(self.folder) or State(plan=self.plan)
        rows = []
        for node in self.plan.nodes:
            identity = state.processes.get(node.id)
            now = process.state(identity)
            rows.append(
                BrokerStatus(
                    broker=node.id,
                    role=node.role,
                    address=self.plan.address(node),
                    state=now,
                    pid=identity.pid if identity and now != "dead" else None,
                )
            )
        return rows

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

    def kill(self, broker: int) -> Fired:
        """kill -9: no goodbye to the controller, nothing flushed."""
        node = self.node(broker)
        with self._alive(node) as identity:
            process.kill(identity)
        return _fired(FaultKind.BROKER_CRASH, node, f"process {identity.pid} is gone (SIGKILL)")

    def pause(self, broker: int) -> Fired:
        """SIGSTOP: the process keeps its connections and answers nothing."""
        node = self.node(broker)
        with self._alive(node) as identity:
            if not process.pause(identity):
                raise Unavailable(f"{node.name} (process {identity.pid}) cannot be paused")
        return _fired(FaultKind.BROKER_PAUSE, node, f"process {identity.pid} is stopped (SIGSTOP)")

    def resume(self, broker: int) -> Fired:
        node = self.node(broker)
        with self._alive(node) as identity:
            if not process.resume(identity):
                raise Unavailable(f"{node.name} (process {identity.pid}) cannot be resumed")
        return _fired(FaultKind.BROKER_RESUME, node, f"process {identity.pid} runs again (SIGCONT)")

    def stop_broker(self, broker: int) -> Fired:
        """Controlled shutdown: leadership moves away first, the log is closed."""
        node = self.node(broker)
        with self._alive(node) as identity:
            by_itself = process.terminate(identity, timeout_s=STOP_S_MAX)
        how = "ended in order" if by_itself else f"was killed after {STOP_S_MAX:.0f} s of waiting"
        return _fired(FaultKind.BROKER_STOP, node, f"process {identity.pid} {how}")

    def restart(self, broker: int) -> Fired:
        """On the same port with the same data; stopped in order first, if it is alive."""
        node = self.node(broker)
        jvm = process.jvm_command()
        place = node_folder(self.folder, node)
        with locked(self.folder):
            state = self._state()
            before = state.processes.get(broker)
            if before is not None and process.is_alive(before):
                process.terminate(before, timeout_s=STOP_S_MAX)
            check_ports_free(node)
            tail = LogTail(place)
            with uninterrupted():
                identity = process.start(jvm, place)
                write_state(self.folder, state.with_process(broker, identity))
        evidence = f"process {identity.pid} on {self.plan.address(node)}"

        def back() -> bool:
            if process.state(identity) == "dead":
                raise tail.failure(node.name)
            return self._is_back(node)

        alive = self.nodes_in("running", brokers=False)
        if len(alive) * 2 <= len(self.plan.controllers):
            evidence += (
                f"; not in the cluster yet, since only {len(alive)} of "
                f"{len(self.plan.controllers)} controllers run"
            )
        elif wait_until(back, timeout_s=START_S_MAX):
            evidence += ", back in the cluster"
        else:
            raise Unavailable(
                f"{node.name} runs (process {identity.pid}) but is not back in the cluster after "
                f"{START_S_MAX:.0f} s",
                hint=f"its log: {place / 'log' / 'server.log'}",
            )
        return _fired(FaultKind.BROKER_RESTART, node, evidence)

    def _is_back(self, node: Node) -> bool:
        if not node.is_broker:
            return quorum_leader(self.plan.host, node.controller_port or 0) is not None
        return all(
            lists(self.plan, other, {node.id}) for other in self.nodes_in("running", brokers=True)
        )

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

    def stop(self) -> None:
        """Everything, in order when the data is kept. What was stopped may be stopped again."""
        if read_state(self.folder) is None:
            return
        with locked(self.folder):
            state = read_state(self.folder)
            if state is None:
                return
            try:
                if not self.plan.temporary:
                    self._stop_in_order(state)
            finally:
                with uninterrupted():
                    for identity in state.processes.values():
                        process.kill(identity)
                    if self.plan.temporary:
                        remove_files(self.plan, self.folder)
                    else:
                        write_state(self.folder, dataclasses.replace(state, processes={}))

    def _stop_in_order(self, state: State) -> None:
        """Brokers before controllers of their own: they report their end to them."""
        for brokers in (True, False):
            group = [
                state.processes[node.id]
                for node in self.plan.nodes
                if node.is_broker == brokers and node.id in state.processes
            ]
            for identity in group:
                process.send_terminate(identity)
            wait_until(
                lambda group=group: not any(map(process.is_alive, group)),  # type: ignore[misc]
                timeout_s=STOP_S_MAX,
            )

    def _state(self) -> State:
        state = read_state(self.folder)
        if state is None:
            raise Unavailable("the cluster was stopped", hint="lossless up starts one")
        return state

    @contextmanager
    def _alive(self, node: Node) -> Iterator[Identity]:
        with locked(self.folder):
            identity = self._state().processes.get(node.id)
            if identity is None or not process.is_alive(identity):
                raise Unavailable(
                    f"{node.name} is not running", hint=f"lossless restart {node.id} starts it"
                )
            yield identity


def _fired(kind: FaultKind, node: Node, evidence: str) -> Fired:
    return Fired(fault=Fault(kind=kind, broker=node.id), evidence=f"{node.name}: {evidence}")
