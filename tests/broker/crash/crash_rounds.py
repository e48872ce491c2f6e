"""Rounds of kill -9 under load, and the judgement at their end.

    a round     who dies is drawn; die; the effect is waited for; restart; records flow again
    the end     acknowledged ⊆ stored ⊆ attempted, each once, in order, at its offset; what was read
                is what is stored; replicas are equal byte by byte

A seed says who dies when. How far everybody has come by then it does not say, so the same seed is
the same story, and not the same run.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

from crash_disks import Copy, copies, difference
from crash_load import CONSUMER, Load

from lossless.engines.interface import ClusterSpec
from lossless.engines.local.cluster import LocalCluster
from lossless.engines.local.start import start_cluster
from lossless.engines.waiting import wait_until
from lossless.errors import Unavailable
from lossless.verifier.anomaly import Kind
from lossless.verifier.history import FinalLog, Group, History
from lossless.verifier.verdict import Verdict, conclude, judge, undecided
from topics import create_topic

PARTITIONS = 3
SETTLE_S_MAX = 60.0
QUICK = {"broker.session.timeout.ms": "1000"}
TOPIC_CONFIG = {"min_insync_replicas": "2", "segment_bytes": str(1 << 20)}


@contextmanager
def running(folder: Path, *, controllers: int = 0, **config: str) -> Iterator[LocalCluster]:
    """What its brokers have written and said is kept if the promise was broken."""
    settings = {name.replace("_", "."): value for name, value in config.items()}
    spec = ClusterSpec(controllers=controllers, config={**QUICK, **settings})
    cluster = start_cluster(spec, folder, engine="embedded", temporary=False)
    try:
        yield cluster
    finally:
        cluster.stop()
    shutil.rmtree(folder)


@contextmanager
def loaded(
    cluster: LocalCluster, topic: str, partitions: int = PARTITIONS, *, burst: int = 0
) -> Iterator[Load]:
    """A topic with load on it; judged at the end, if it came to its end."""
    create_topic(cluster.bootstrap_servers, topic, partitions=partitions, **TOPIC_CONFIG)
    load = Load(cluster.bootstrap_servers, topic, partitions, burst=burst)
    load.start()
    try:
        wait_for(
            lambda: bool(load.complaints) or min(load.progress()) > burst // partitions,
            "the first acknowledgements",
        )
        yield load
    finally:
        load.stop()
        load.write_stories(cluster.folder)
    require_kept(cluster, load)


def wait_for(condition: Callable[[], bool], what: str, timeout_s: float = SETTLE_S_MAX) -> None:
    def is_true() -> bool:
        try:
            return condition()
        except Unavailable:  # who was to be asked is not there
            return False

    assert wait_until(is_true, timeout_s=timeout_s), f"{what}: not within {timeout_s:.0f} s"


def wait_for_records(load: Load) -> None:
    """More is acknowledged in every partition, and all that is acknowledged is read as it is."""
    before = load.progress()
    wait_for(
        lambda: (
            bool(load.complaints)
            or all(now > then for now, then in zip(load.progress(), before, strict=True))
        ),
        f"new records in every partition of {load.topic}, beyond {before}",
    )
    assert not load.complaints, load.complaints[:5]
    told = load.told()
    wait_for(lambda: not load.unread(told), f"reading what was acknowledged in {load.topic}")


class Rounds:
    def __init__(self, cluster: LocalCluster, load: Load, chance: random.Random) -> None:
        self._cluster = cluster
        self._load = load
        self._chance = chance
        self._brokers = [node.id for node in cluster.plan.brokers]
        self._has_controllers_apart = any(not node.is_broker for node in cluster.plan.nodes)

    def run(self, number: int) -> None:
        fault = self._chance.choice(
            (self._leader, self._follower, self._controller, self._two, self._all)
        )
        partition = self._chance.randrange(PARTITIONS)
        killed, has_effect = fault(partition)
        print(f"round {number}: {fault.__name__.strip('_')} of {partition}: {killed}", flush=True)
        wait_for(has_effect, f"the effect of killing {killed}")
        restart(self._cluster, killed)
        wait_for_records(self._load)
        if self._chance.randrange(3):  # sometimes the next one dies before all are in sync again
            wait_for(self._cluster.in_sync, "all replicas in sync")

    # Who dies, and how one sees it

    def _leader(self, partition: int) -> tuple[list[int], Callable[[], bool]]:
        topic = self._load.topic
        leader = self._cluster.leader_of(topic, partition)
        kill(self._cluster, [leader])
        return [leader], lambda: self._cluster.leader_of(topic, partition) not in (leader, -1)

    def _follower(self, partition: int) -> tuple[list[int], Callable[[], bool]]:
        topic = self._load.topic
        leader = self._cluster.leader_of(topic, partition)
        follower = self._chance.choice([broker for broker in self._brokers if broker != leader])
        kill(self._cluster, [follower])
        return [follower], lambda: follower not in self._cluster.in_sync_replicas(topic, partition)

    def _controller(self, _partition: int) -> tuple[list[int], Callable[[], bool]]:
        controller = self._cluster.controller()
        kill(self._cluster, [controller])
        return [controller], lambda: self._cluster.controller() != controller

    def _two(self, partition: int) -> tuple[list[int], Callable[[], bool]]:
        killed = self._chance.sample(self._brokers, 2)
        (left,) = set(self._brokers) - set(killed)
        kill(self._cluster, killed)
        if not self._has_controllers_apart:  # with them the quorum is gone, and nobody can tell
            return killed, _at_once
        return killed, lambda: self._cluster.leader_of(self._load.topic, partition) in (left, -1)

    def _all(self, _partition: int) -> tuple[list[int], Callable[[], bool]]:
        kill(self._cluster, self._brokers)
        return self._brokers, _at_once


def _at_once() -> bool:
    return True


def kill(cluster: LocalCluster, nodes: list[int]) -> None:
    """All at the same moment, and not one after the other."""
    processes = [row.pid for row in cluster.status() if row.broker in nodes and row.pid]
    assert len(processes) == len(nodes), f"{nodes} do not all run"
    for process in processes:
        os.kill(process, signal.SIGKILL)
    wait_for(
        lambda: all(row.state == "dead" for row in cluster.status() if row.broker in nodes),
        f"the death of {nodes}",
    )


def restart(cluster: LocalCluster, nodes: list[int]) -> None:
    """At the same time, as after a loss of power."""
    with ThreadPoolExecutor() as starting:
        for started in [starting.submit(cluster.restart, node) for node in nodes]:
            started.result()


# The judgement


def require_kept(cluster: LocalCluster, load: Load) -> None:
    """Everything of the promise, once the load has ended."""
    assert not load.complaints, load.complaints[:5]
    wait_for(cluster.in_sync, "all replicas in sync")
    final = [_final(cluster, load, partition) for partition in range(load.partitions)]
    group = Group(CONSUMER, (CONSUMER,), dict.fromkeys(range(load.partitions), 0))
    history = History(tuple(load.events), tuple(final), (group,), settled=True)
    anomalies = judge(history)
    verdict = conclude(anomalies, undecided(history), tolerated=frozenset[Kind]())
    assert verdict is Verdict.UNREFUTED, anomalies[:10]
    for partition, told in load.acknowledged.items():
        at = history.at[partition]
        assert all(at.get(offset) == value for offset, value in told.items())


def _final(cluster: LocalCluster, load: Load, partition: int) -> FinalLog:
    by_broker = _equal_copies(cluster, load.topic, partition)
    leader = by_broker[cluster.leader_of(load.topic, partition)]
    return FinalLog(
        partition,
        leader.log_start_offset,
        leader.log_end_offset,
        leader.records,
        {broker: copy.records for broker, copy in by_broker.items()},
    )


def _equal_copies(cluster: LocalCluster, topic: str, partition: int) -> dict[int, Copy]:
    """Nobody sends any more, and everybody is in sync: what is on its way arrives soon."""
    found: dict[int, Copy] = {}

    def are_equal() -> bool:
        found.update(copies(cluster, topic, partition))
        first, *others = found.values()
        return all(difference(first, other) is None for other in others)

    wait_for(are_equal, f"equal replicas of {topic}-{partition}", timeout_s=20)
    return found
