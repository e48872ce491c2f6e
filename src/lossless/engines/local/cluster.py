"""A cluster in processes of ours, one per broker, so that kill -9 means kill -9."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from lossless.broker import faults
from lossless.broker.faults import Faults
from lossless.contract.faults import FaultKind, Fired
from lossless.engines.interface import BrokerStatus
from lossless.engines.local import process
from lossless.engines.local.logs import LogTail, ended, why_ended
from lossless.engines.local.plan import Node, check_ports_free
from lossless.engines.local.planned import START_S_MAX, STOP_S_MAX, PlannedCluster, fired
from lossless.engines.local.process import Identity
from lossless.engines.local.software import SOFTWARE
from lossless.engines.local.state import (
    State,
    locked,
    node_folder,
    read_state,
    remove_files,
    write_state,
)
from lossless.engines.local.watchdog import Watchdog
from lossless.engines.signals import uninterrupted
from lossless.engines.waiting import wait_until
from lossless.errors import Unavailable

FAULT_S_MAX = 10.0


class LocalCluster(PlannedCluster):
    """A cluster in a folder, whoever started it: every call reads who runs from there."""

    def __init__(self, folder: Path, watchdog: Watchdog | None = None) -> None:
        state = read_state(folder)
        if state is None:
            raise Unavailable(f"there is no cluster in {folder}", hint="lossless up starts one")
        self.folder = folder
        self.plan = state.plan
        self._watchdog = watchdog

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
                    reason=why_ended(node_folder(self.folder, node))
                    if identity and now == "dead"
                    else None,
                )
            )
        return rows

    def ended(self) -> str | None:
        """Which nodes are dead, and why; None if all of them live."""
        dead = {self.node(row.broker).name: row.reason for row in self.status() if not row.pid}
        return ended(dead) if dead else None

    def kill(self, broker: int) -> Fired:
        node = self.node(broker)
        with self._alive(node) as identity:
            process.kill(identity)
        return fired(FaultKind.BROKER_CRASH, node, f"process {identity.pid} is gone (SIGKILL)")

    def pause(self, broker: int) -> Fired:
        node = self.node(broker)
        with self._alive(node) as identity:
            if not process.pause(identity):
                raise Unavailable(f"{node.name} (process {identity.pid}) cannot be paused")
        return fired(FaultKind.BROKER_PAUSE, node, f"process {identity.pid} is stopped (SIGSTOP)")

    def resume(self, broker: int) -> Fired:
        node = self.node(broker)
        with self._alive(node) as identity:
            if not process.resume(identity):
                raise Unavailable(f"{node.name} (process {identity.pid}) cannot be resumed")
        return fired(FaultKind.BROKER_RESUME, node, f"process {identity.pid} runs again (SIGCONT)")

    def stop_broker(self, broker: int) -> Fired:
        node = self.node(broker)
        with self._alive(node) as identity:
            by_itself = process.terminate(identity, timeout_s=STOP_S_MAX)
        how = "ended in order" if by_itself else f"was killed after {STOP_S_MAX:.0f} s of waiting"
        return fired(FaultKind.BROKER_STOP, node, f"process {identity.pid} {how}")

    def restart(self, broker: int) -> Fired:
        node = self.node(broker)
        software = SOFTWARE[self.plan.engine]
        command = software.command()
        place = node_folder(self.folder, node)
        if not self.plan.secret:
            raise Unavailable(
                f"{node.name} cannot come back: an earlier version of Lossless started this "
                "cluster, and nodes of this version log in with controllers",
                hint="lossless down, then lossless up, start all of it again",
            )
        with locked(self.folder):
            state = self._state()
            before = state.processes.get(broker)
            if before is not None and process.is_alive(before):
                process.terminate(before, timeout_s=STOP_S_MAX)
            check_ports_free(node)
            tail = LogTail(place)
            with uninterrupted():
                start = software.start_command(command, place)
                identity = process.start(start, place)
                write_state(self.folder, state.with_process(broker, identity))
        evidence = f"process {identity.pid} on {self.plan.address(node)}"

        def back() -> bool:
            if process.state(identity) == "dead":
                raise tail.failure(node.name)
            return self._is_back(node)

        missing = self._missing_quorum()
        if missing is not None:
            evidence += f"; {missing}"
        elif wait_until(back, timeout_s=START_S_MAX):
            evidence += ", back in the cluster"
        else:
            raise Unavailable(
                f"{node.name} runs (process {identity.pid}) but is not back in the cluster after "
                f"{START_S_MAX:.0f} s",
                hint=f"its log: {place / 'log' / software.LOG_FILE}",
            )
        return fired(FaultKind.BROKER_RESTART, node, evidence)

    def _faults_of(self, node: Node) -> Faults:
        return faults.applied(node_folder(self.folder, node) / "data")

    def _suffer(self, node: Node, wanted: Faults) -> None:
        place = node_folder(self.folder, node) / "data"
        with self._alive(node) as identity:
            faults.ask(place, wanted)
            process.send_user_signal(identity)
            # A full disk may end it before it says so.
            if not wait_until(
                lambda: faults.is_applied(place, wanted) or not process.is_alive(identity),
                timeout_s=FAULT_S_MAX,
            ):
                raise Unavailable(f"{node.name} does not answer", hint="is it paused?")

    def stop(self) -> None:
        try:
            self._stop()
        finally:
            if self._watchdog is not None:
                self._watchdog.dismiss()
                self._watchdog = None

    def _stop(self) -> None:
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
