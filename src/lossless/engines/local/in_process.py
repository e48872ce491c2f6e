"""The embedded cluster within this process: no processes to start, gone with the program.

All nodes share one event loop in a thread of its own. Killing one drops it as it is: connections
break, nothing is flushed, nobody is told. What only a process can do, being stopped by a signal in
the middle of a step, needs processes.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import shutil
import tempfile
import threading
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any, NoReturn, TypeVar

from lossless.broker.faults import Faults
from lossless.broker.loop import new_event_loop
from lossless.broker.meta import write_meta
from lossless.broker.node import Node, NodeConfig
from lossless.contract.faults import FaultKind, Fired
from lossless.core.settings.kinds import InvalidSetting
from lossless.engines.interface import BrokerStatus, ClusterSpec
from lossless.engines.local import plan as planning
from lossless.engines.local.planned import START_S_MAX, STOP_S_MAX, PlannedCluster, fired
from lossless.engines.local.probe import active_controller, lists
from lossless.engines.local.state import State, node_folder, read_state, write_state
from lossless.engines.private import FOLDER_MODE, make_private
from lossless.engines.waiting import wait_until
from lossless.errors import BadInput, Unavailable

Result = TypeVar("Result")


class InProcessCluster(PlannedCluster):
    """Started when it is made; `stop` ends it, and so does the end of the program."""

    def __init__(self, spec: ClusterSpec) -> None:
        planning.check_spec(spec)
        self.folder, self.plan = _place(spec)
        self._nodes: dict[int, Node] = {}
        self._suffered: dict[int, Faults] = {}
        self._loop = new_event_loop()
        self._thread = threading.Thread(target=self._run, name="lossless-cluster", daemon=True)
        self._thread.start()
        try:
            for node in self.plan.nodes:
                planning.check_ports_free(node)
                self._start(node)
            if not wait_until(self._is_ready, timeout_s=START_S_MAX, poll_s=0.01):
                raise Unavailable(f"after {START_S_MAX:.0f} s the cluster is not ready")
        except BaseException:
            self.stop()
            raise

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_forever()

    def _is_ready(self) -> bool:
        everyone = {node.id for node in self.plan.brokers}
        return (
            all(lists(self.plan, node, everyone) for node in self.plan.brokers)
            and active_controller(self.plan, self.plan.brokers) is not None
        )

    # Nodes

    def status(self) -> Sequence[BrokerStatus]:
        return [
            BrokerStatus(
                broker=node.id,
                role=node.role,
                address=self.plan.address(node),
                state="running" if node.id in self._nodes else "dead",
                pid=None,
            )
            for node in self.plan.nodes
        ]

    def kill(self, broker: int) -> Fired:
        node = self.node(broker)
        running = self._take(node)
        self._call(running.stop)
        return fired(FaultKind.BROKER_CRASH, node, "dropped, with nothing flushed")

    def pause(self, broker: int) -> Fired:
        self._needs_processes("pause", broker)

    def resume(self, broker: int) -> Fired:
        self._needs_processes("resume", broker)

    def stop_broker(self, broker: int) -> Fired:
        node = self.node(broker)
        by_itself = self._shut_down(self._take(node))
        how = "ended in order" if by_itself else f"was dropped after {STOP_S_MAX:.0f} s of waiting"
        return fired(FaultKind.BROKER_STOP, node, how)

    def restart(self, broker: int) -> Fired:
        node = self.node(broker)
        if broker in self._nodes:
            self._shut_down(self._take(node))
        self._start(node)
        evidence = f"runs on {self.plan.address(node)}"
        missing = self._missing_quorum()
        if missing is not None:
            evidence += f"; {missing}"
        elif wait_until(lambda: self._is_back(node), timeout_s=START_S_MAX, poll_s=0.01):
            evidence += ", back in the cluster"
        else:
            raise Unavailable(f"{node.name} is not back after {START_S_MAX:.0f} s")
        return fired(FaultKind.BROKER_RESTART, node, evidence)

    def _faults_of(self, node: planning.Node) -> Faults:
        return self._suffered.get(node.id, Faults())

    def _suffer(self, node: planning.Node, wanted: Faults) -> None:
        running = self._nodes.get(node.id)
        if running is None:
            raise Unavailable(f"{node.name} is not running")
        self._call(lambda: running.suffer(wanted))
        self._suffered[node.id] = wanted

    def stop(self) -> None:
        if not self._thread.is_alive():
            return
        try:
            if not self.plan.temporary:
                for brokers in (True, False):
                    for node in self.plan.nodes:
                        if node.is_broker == brokers and node.id in self._nodes:
                            self._shut_down(self._take(node))
            for running in self._nodes.values():
                self._call(running.stop)
            self._nodes.clear()
        finally:
            self._await(_settle())
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()
            if self.plan.temporary:
                shutil.rmtree(self.folder, ignore_errors=True)

    def _start(self, node: planning.Node) -> None:
        place = node_folder(self.folder, node)
        make_private(place)
        write_meta(place / "data", self.plan.cluster_id)
        properties = self.plan.properties(node, place)

        async def start() -> Node:
            started = Node(NodeConfig.from_properties(properties), self._on_failure(node))
            await started.start()
            return started

        self._suffered.pop(node.id, None)
        try:
            self._nodes[node.id] = self._await(start())
        except InvalidSetting as error:
            raise BadInput(f"{node.name} did not start: {error}") from error

    def _on_failure(self, node: planning.Node) -> Callable[[BaseException], None]:
        def fail(_error: BaseException) -> None:
            """On the loop's own thread: what a process would do by ending."""
            running = self._nodes.pop(node.id, None)
            if running is not None:
                running.stop()

        return fail

    def _take(self, node: planning.Node) -> Node:
        running = self._nodes.pop(node.id, None)
        if running is None:
            raise Unavailable(f"{node.name} is not running")
        return running

    def _shut_down(self, running: Node) -> bool:
        return self._await(running.shut_down(timeout_s=STOP_S_MAX))

    # The loop's thread

    def _call(self, act: Callable[[], None]) -> None:
        async def call() -> None:
            act()

        self._await(call())

    def _await(self, work: Coroutine[Any, Any, Result]) -> Result:
        waiting: concurrent.futures.Future[Result] = asyncio.run_coroutine_threadsafe(
            work, self._loop
        )
        return waiting.result()

    def _needs_processes(self, what: str, broker: int) -> NoReturn:
        raise BadInput(
            f"broker {broker} is a part of this process: it has no process of its own to {what}",
            hint="lossless.cluster(processes=True) gives every broker one",
        )


async def _settle() -> None:
    """What was cancelled or closed is still to be told so."""
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)
    await asyncio.sleep(0)


def _place(spec: ClusterSpec) -> tuple[Path, planning.Plan]:
    """Where, and what: ports and ids of a folder that is kept are those of the first time."""
    if spec.data is None:
        folder = Path(tempfile.mkdtemp(prefix="lossless-kafka-"))
        return folder, planning.make_plan(spec, engine="embedded", temporary=True)
    folder = spec.data.absolute()
    folder.mkdir(FOLDER_MODE, parents=True, exist_ok=True)
    kept = read_state(folder)
    if kept is None:
        plan = planning.make_plan(spec, engine="embedded", temporary=False)
        write_state(folder, State(plan=plan))
        return folder, plan
    plan = planning.kept_plan(kept.plan, spec)
    write_state(folder, State(plan=plan))
    return folder, plan
