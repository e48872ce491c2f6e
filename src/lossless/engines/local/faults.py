"""Faults on a cluster: each is injected, then looked for, and the finding is the evidence."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING

from lossless.contract.faults import Fault, FaultKind, Fired, Unsupported
from lossless.engines.waiting import wait_until
from lossless.errors import BadInput, Unavailable

if TYPE_CHECKING:
    from lossless.engines.local.planned import PlannedCluster

# A controller notices a dead broker when its session ends: 9 s unless configured otherwise.
ELECTION_S_MAX = 60.0
IN_SYNC_S_MAX = 120.0

_OUT_OF_REACH: Mapping[FaultKind, str] = {
    FaultKind.POWER_LOSS: "killing a process keeps what it wrote: the page cache belongs to the "
    "system, which would have to lose power itself",
    FaultKind.POWER_LOSS_EVERYWHERE: "killing processes keeps what they wrote: the page cache "
    "belongs to the system, which would have to lose power itself",
    FaultKind.LATE_MESSAGES: "brokers talk over the loopback interface; `lossless proxy` delays "
    "what clients send",
    FaultKind.NETWORK_PARTITION: "brokers talk over the loopback interface, which cannot be cut "
    "between two of them",
    FaultKind.DISK_FULL: "the data folder is on the file system of everything else",
    FaultKind.DISK_FAILURE: "the data folder is on a disk that works",
}


def inject(cluster: PlannedCluster, fault: Fault) -> Fired | Unsupported:
    action = _ACTIONS.get(fault.kind)
    if action is None and cluster.plan.engine == "embedded":
        action = _OF_OURS.get(fault.kind)
    if action is None:
        why = _OUT_OF_REACH.get(fault.kind, "it strikes clients or sinks, not brokers")
        return Unsupported(fault=fault, why=why)
    return Fired(fault=fault, evidence=action(cluster, fault))


def _broker(cluster: PlannedCluster, fault: Fault) -> int:
    if fault.broker is None:
        known = ", ".join(str(node.id) for node in cluster.plan.brokers)
        raise BadInput(f"{fault.kind} strikes one broker", hint=f"choose one of {known}")
    return fault.broker


def _leader_crash(cluster: PlannedCluster, fault: Fault) -> str:
    if fault.topic is None:
        raise BadInput(f"{fault.kind} strikes the leader of a partition: name a topic")
    partition = fault.partition or 0
    name = f"{fault.topic}-{partition}"
    leader = cluster.leader_of(fault.topic, partition)
    if leader < 0:
        raise Unavailable(f"{name} has no leader that could crash")
    evidence = cluster.kill(leader).evidence
    if len(cluster.nodes_in("running", brokers=True)) == 0:
        return f"{evidence}; it was the last broker"
    successor = leader

    def moved() -> bool:
        nonlocal successor
        with suppress(Unavailable):  # a broker may be busy with the election
            successor = cluster.leader_of(fault.topic or "", partition)
        return successor != leader

    if not wait_until(moved, timeout_s=ELECTION_S_MAX):
        raise Unavailable(f"{evidence}, but after {ELECTION_S_MAX:.0f} s it still leads {name}")
    if successor < 0:
        return f"{evidence}; {name} has no leader now"
    return f"{evidence}; {name} is led by broker {successor} now"


def _controller_crash(cluster: PlannedCluster, _: Fault) -> str:
    active = cluster.controller()
    evidence = cluster.kill(active).evidence
    voters = len(cluster.plan.controllers)
    alive = len(cluster.nodes_in("running", brokers=False))
    if alive * 2 <= voters:
        return f"{evidence}; no controller is active, since {alive} of {voters} run"
    successor = active

    def moved() -> bool:
        nonlocal successor
        with suppress(Unavailable):
            successor = cluster.controller()
        return successor != active

    if not wait_until(moved, timeout_s=ELECTION_S_MAX):
        raise Unavailable(f"{evidence}, but after {ELECTION_S_MAX:.0f} s no other took over")
    return f"{evidence}; controller {successor} is active now"


def _rolling_restart(cluster: PlannedCluster, _: Fault) -> str:
    for node in cluster.plan.brokers:
        cluster.restart(node.id)
        if not wait_until(lambda: _in_sync(cluster), timeout_s=IN_SYNC_S_MAX):
            raise Unavailable(
                f"{node.name} was restarted, but its replicas are not in sync after "
                f"{IN_SYNC_S_MAX:.0f} s; the brokers after it were left alone"
            )
    count = len(cluster.plan.brokers)
    return f"{count} brokers restarted in turn, all replicas in sync after each"


def _in_sync(cluster: PlannedCluster) -> bool:
    with suppress(Unavailable):
        return cluster.in_sync()
    return False


_ACTIONS: Mapping[FaultKind, Callable[[PlannedCluster, Fault], str]] = {
    FaultKind.BROKER_CRASH: lambda c, f: c.kill(_broker(c, f)).evidence,
    FaultKind.BROKER_PAUSE: lambda c, f: c.pause(_broker(c, f)).evidence,
    FaultKind.BROKER_RESUME: lambda c, f: c.resume(_broker(c, f)).evidence,
    FaultKind.BROKER_RESTART: lambda c, f: c.restart(_broker(c, f)).evidence,
    FaultKind.BROKER_STOP: lambda c, f: c.stop_broker(_broker(c, f)).evidence,
    FaultKind.LEADER_CRASH: _leader_crash,
    FaultKind.CONTROLLER_CRASH: _controller_crash,
    FaultKind.ROLLING_RESTART: _rolling_restart,
}


def _partition(cluster: PlannedCluster, fault: Fault) -> str:
    broker = _broker(cluster, fault)
    if fault.other is None:
        return cluster.isolate(broker).evidence
    return cluster.cut(broker, fault.other).evidence


# What only brokers of this package can bring upon themselves.
_OF_OURS: Mapping[FaultKind, Callable[[PlannedCluster, Fault], str]] = {
    FaultKind.NETWORK_PARTITION: _partition,
    FaultKind.NETWORK_MEND: lambda c, _: c.mend().evidence,
    FaultKind.DISK_FULL: lambda c, f: c.fill_disk(_broker(c, f)).evidence,
    FaultKind.DISK_SLOW: lambda c, f: c.slow_disk(_broker(c, f), f.delay_ms).evidence,
}
