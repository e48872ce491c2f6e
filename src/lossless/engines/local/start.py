"""Starting a cluster: all of it, or nothing that stays."""

from __future__ import annotations

import dataclasses
import errno
import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from lossless.engines.interface import ClusterSpec
from lossless.engines.local import process
from lossless.engines.local.cluster import LocalCluster
from lossless.engines.local.logs import LogTail
from lossless.engines.local.plan import (
    Node,
    Plan,
    check_host,
    check_ports_free,
    check_spec,
    kept_plan,
    make_plan,
)
from lossless.engines.local.planned import START_S_MAX
from lossless.engines.local.probe import active_controller, lists
from lossless.engines.local.process import Identity
from lossless.engines.local.software import SOFTWARE
from lossless.engines.local.state import (
    State,
    locked,
    node_folder,
    read_state,
    remove_files,
    remove_nodes,
    write_state,
)
from lossless.engines.local.watchdog import Watchdog
from lossless.engines.private import unwritable
from lossless.engines.signals import uninterrupted
from lossless.engines.waiting import wait_until
from lossless.errors import BadInput, LosslessError

DEFAULT_ENGINE = "embedded"

Report = Callable[[str], None]


def _silent(_: str) -> None:
    """Nobody wants to know."""


class LocalEngine:
    def __init__(self, engine: str = DEFAULT_ENGINE) -> None:
        self._engine = engine

    def start(self, spec: ClusterSpec) -> LocalCluster:
        if spec.data is not None:
            folder = spec.data.absolute()
            return start_cluster(
                spec, folder, engine=self._engine, temporary=False, ends_with_program=True
            )
        folder = Path(tempfile.mkdtemp(prefix="lossless-kafka-"))
        try:
            return start_cluster(
                spec, folder, engine=self._engine, temporary=True, ends_with_program=True
            )
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)
            raise


def start_cluster(
    spec: ClusterSpec,
    folder: Path,
    *,
    engine: str = DEFAULT_ENGINE,
    temporary: bool,
    report: Report = _silent,
    ends_with_program: bool = False,
) -> LocalCluster:
    """Returns when clients can connect to every broker; otherwise nothing is left running.

    With `ends_with_program` the brokers stop when this program ends, even if it is killed.
    """
    check_spec(spec)
    check_host(spec.advertised_host)
    software = SOFTWARE[engine]
    command = software.command()  # may fetch jars: nothing is written and no lock held meanwhile
    with locked(folder):
        before = read_state(folder)
        if before is not None and any(map(process.is_alive, before.processes.values())):
            raise BadInput(
                f"a cluster is already running in {folder}", hint="lossless down stops it"
            )
        plan = _plan(spec, folder, before, engine=engine, temporary=temporary)
        if plan.is_open_to_others:
            report(
                f"warning: whoever reaches {plan.host} may read and change everything; "
                "security.inter.broker.protocol = SASL_SSL or SASL_PLAINTEXT asks who they are"
            )
        for warning in software.warnings(plan.config):
            report(f"warning: {warning}")
        started: dict[int, Identity] = {}
        watchdog = Watchdog(folder) if ends_with_program else None
        try:
            _start_nodes(plan, folder, command, started, report)
        except BaseException as error:
            with uninterrupted():
                for identity in started.values():
                    process.kill(identity)
                if watchdog is not None:
                    watchdog.dismiss()
                if before is None or plan.temporary:
                    remove_files(plan, folder)
                else:
                    with suppress(LosslessError):
                        write_state(folder, State(plan=before.plan))
            if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
                raise unwritable(folder, error) from error
            raise
    return LocalCluster(folder, watchdog)


def _plan(
    spec: ClusterSpec, folder: Path, before: State | None, *, engine: str, temporary: bool
) -> Plan:
    if before is not None and before.plan.temporary:
        remove_nodes(before.plan, folder)  # what a crash of the machine left behind
        before = None
    if before is None:
        return make_plan(spec, engine=engine, temporary=temporary)
    plan = before.plan
    if plan.engine != engine:
        raise BadInput(
            f"{folder} holds a cluster of the engine {plan.engine}, not {engine}",
            hint=f"use --kafka {plan.engine}, or choose another folder",
        )
    wanted = make_plan(spec, engine=engine, temporary=temporary)
    if [_shape(node) for node in plan.nodes] != [_shape(node) for node in wanted.nodes]:
        raise BadInput(
            f"{folder} holds a cluster of {len(plan.brokers)} brokers "
            f"({', '.join(map(_described, plan.nodes))}), not the one asked for",
            hint="ask for the same brokers, controllers and racks, or choose another folder",
        )
    if spec.port not in (None, plan.brokers[0].port):
        raise BadInput(
            f"{folder} holds a cluster whose first port is {plan.brokers[0].port}, not {spec.port}",
            hint="leave --port out: ports stay, because clients know them",
        )
    return dataclasses.replace(kept_plan(plan, spec), host=spec.advertised_host)


def _shape(node: Node) -> tuple[int, str, str | None]:
    return (node.id, node.role, node.rack)


def _described(node: Node) -> str:
    return f"{node.id}: {node.role}" + (f" in rack {node.rack}" if node.rack else "")


def _start_nodes(
    plan: Plan,
    folder: Path,
    command: Sequence[str],
    started: dict[int, Identity],
    report: Report,
) -> None:
    software = SOFTWARE[plan.engine]
    tails = {}
    for node in plan.nodes:
        check_ports_free(node)
        place = node_folder(folder, node)
        tails[node.id] = LogTail(place)
        process.write_node_folder(place, plan.properties(node, place))
        software.write_files(place)
    report("preparing the data folders")
    _format(plan, folder, command, tails)
    count = len(plan.nodes)
    report(f"starting {count} process{'' if count == 1 else 'es'}")
    state = State(plan=plan)
    for node in plan.nodes:
        with uninterrupted():
            place = node_folder(folder, node)
            start = software.start_command(command, place)
            started[node.id] = process.start(start, place)
            # Written at once: if we are killed now, `down` still finds what runs.
            state = state.with_process(node.id, started[node.id])
            write_state(folder, state)
    ready: set[int] = set()

    def all_ready() -> bool:
        dead = [node for node in plan.nodes if process.state(started[node.id]) == "dead"]
        if dead:
            raise _failure({node.name: tails[node.id] for node in dead})
        everyone = {node.id for node in plan.brokers}
        for node in plan.brokers:
            if node.id not in ready and lists(plan, node, everyone):
                ready.add(node.id)
                report(f"{node.name} is ready on {plan.address(node)}")
        return ready == everyone and active_controller(plan, plan.brokers) is not None

    if not wait_until(all_ready, timeout_s=START_S_MAX):
        late = [node for node in plan.brokers if node.id not in ready] or plan.controllers
        raise tails[late[0].id].failure(
            f"after {START_S_MAX:.0f} s {late[0].name} is not ready; it"
        )


def _failure(tails: Mapping[str, LogTail]) -> LosslessError:
    """Why the first of these nodes did not start, with the others that name the same reason."""
    failures = {name: tail.failure(name) for name, tail in tails.items()}
    first, failure = next(iter(failures.items()))
    why = failure.what.removeprefix(first)
    same = [name for name, other in failures.items() if other.what == name + why]
    return type(failure)(", ".join(same) + why, hint=failure.hint)


def _format(plan: Plan, folder: Path, command: Sequence[str], tails: Mapping[int, LogTail]) -> None:
    running = {}
    try:
        for node in plan.nodes:
            place = node_folder(folder, node)
            tool = SOFTWARE[plan.engine].format_command(command, place, plan.cluster_id)
            if tool is not None:
                with uninterrupted():
                    running[node] = process.format_storage(tool, place)
        for node, formatting in running.items():
            if formatting.wait() != 0:
                raise tails[node.id].failure(node.name)
    finally:
        with uninterrupted():
            for formatting in running.values():
                formatting.kill()
                formatting.wait()
