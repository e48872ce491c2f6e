"""What both variants stand on: a folder, three brokers, producers and drivers.

Everything hangs on one context: when it is left, for whatever reason, nothing runs any more and,
unless it was to be kept, nothing is left on disk.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from lossless.acknowledged import AUDIT_TOPIC
from lossless.contract import TopicContract
from lossless.contract.faults import Fault, Unsupported
from lossless.demo.driver import Driver
from lossless.demo.folder import (
    PARTITIONS,
    REPLICATION_FACTOR,
    TOPIC,
    DemoFolder,
    check_keep,
    demo_folder,
)
from lossless.demo.producing import OrderProducers
from lossless.demo.telling import Counts, FaultTold, Teller
from lossless.engines.interface import ClusterSpec
from lossless.engines.local.cluster import LocalCluster
from lossless.engines.local.start import start_cluster
from lossless.engines.metadata import create_topics, read_metadata
from lossless.engines.waiting import wait_until
from lossless.errors import Unavailable, Undecided
from lossless.jars import jars
from lossless.jars.java import java
from lossless.pipeline.source import SourceLog

BROKERS = 3
PATIENCE_S = 300.0

# How the orders are cut: when the faults strike, about half of them are out, and the driver, which
# takes a sixth at a time, has work before, between and after.
FIRST_SHARE = 0.25  # acknowledged before the driver reads
STRIKE_SHARE = 0.35  # acknowledged when the leader is killed, with orders in flight
SECOND_SHARE = 0.75  # what the producers may send until the driver has died
BATCHES = 6
# The driver is killed after writing this batch: beyond what the first share can fill (two batches,
# or three if it comes late), within what the second can (four and a half).
DEADLY_BATCH = 4
CRASH_POINT = f"after-commit@{DEADLY_BATCH}:kill"


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """In what the two variants differ."""

    producer: Mapping[str, str]
    topic: Mapping[str, str]
    session_timeout_ms: int
    reports: bool


@dataclass(slots=True, kw_only=True)
class Stage:
    orders: int
    folder: DemoFolder
    cluster: LocalCluster
    producers: OrderProducers
    teller: Teller
    faults: list[FaultTold] = field(default_factory=list)
    _exits: ExitStack
    _drivers: list[Driver] = field(default_factory=list)

    def share(self, share: float) -> int:
        return int(self.orders * share)

    @property
    def records_per_batch(self) -> int:
        return max(1, self.orders // BATCHES)

    def start_driver(self, arguments: Sequence[str], *, crash_points: str = "") -> Driver:
        """A Python program in the demo's folder; it ends with the demo at the latest."""
        driver = Driver(
            [sys.executable, "-m", *arguments],
            folder=self.folder.path,
            environment=self.folder.driver_environment(crash_points),
            log=self.folder.driver_log(len(self._drivers) + 1),
        )
        self._drivers.append(self._exits.enter_context(driver))
        return driver

    def wait_for(self, condition: Callable[[], bool], what: str) -> None:
        """Waits and tells how far it is; fails if a producer did, or if it takes too long."""

        def reached() -> bool:
            self.producers.check()
            self.teller.counts(
                Counts(
                    orders=self.orders,
                    acknowledged=self.producers.acknowledged,
                    stored=max((driver.records for driver in self._drivers), default=0),
                )
            )
            return condition()

        if not wait_until(reached, timeout_s=PATIENCE_S):
            raise Unavailable(
                f"waited {PATIENCE_S:.0f} s in vain for {what}",
                hint="is the machine very busy? `lossless demo --keep DIR` keeps every log",
            )

    def wait_for_acknowledged(self, orders: int) -> None:
        self.wait_for(
            lambda: self.producers.acknowledged + self.producers.failed >= orders,
            f"{orders} orders to be acknowledged",
        )

    def wait_for_stored(self, driver: Driver, records: int) -> None:
        """Until the driver has brought so many records into the table."""

        def stored() -> bool:
            if driver.exit_code is not None:
                raise _unexpected_end(driver)
            return driver.records >= records

        self.wait_for(stored, f"{records} records in the table")

    def wait_for_death(self, driver: Driver) -> None:
        """Until the driver has died at its crash point, and nowhere else."""
        self.wait_for(lambda: driver.exit_code is not None, "the driver to reach its crash point")
        if self.folder.crashes() != [CRASH_POINT]:
            raise _unexpected_end(driver)

    def wait_for_end(self, driver: Driver, what: str) -> None:
        """Until the driver has done its work and ended by itself."""
        self.wait_for(lambda: driver.exit_code is not None, what)
        if driver.exit_code != 0:
            raise _unexpected_end(driver)

    def wait_for_leader(self, other_than: int) -> int:
        """The broker that leads partition 0 once somebody else does."""
        leader = -1

        def elected() -> bool:
            nonlocal leader
            with suppress(Unavailable):  # a broker may be busy with the election
                leader = self.cluster.leader_of(TOPIC, 0)
            return leader not in (-1, other_than)

        self.wait_for(elected, f"a new leader of {TOPIC}-0")
        return leader

    def inject(self, fault: Fault, what: str) -> None:
        fired = self.cluster.inject(fault)
        if isinstance(fired, Unsupported):
            raise Undecided(f"{what}: {fired.why}")
        self.tell_fault(what, fired.evidence)

    def tell_fault(self, what: str, evidence: str) -> None:
        told = FaultTold(what=what, evidence=evidence)
        self.faults.append(told)
        self.teller.fault(told)


@contextmanager
def set_stage(
    settings: Settings, *, engine: str, orders: int, keep: Path | None, teller: Teller
) -> Iterator[Stage]:
    check_keep(keep)
    java()
    for name in ("kafka", "spark") if engine == "apache" else ("spark",):
        jars(name)  # fetched now, with progress of their own, if they are not there yet
    with ExitStack() as exits:
        folder = exits.enter_context(demo_folder(keep))
        teller.step(f"starting {BROKERS} brokers ({engine})")
        cluster = start_cluster(
            ClusterSpec(
                brokers=BROKERS,
                config={
                    "broker.session.timeout.ms": str(settings.session_timeout_ms),
                    # Leadership moves when we strike, and at no other time.
                    "auto.leader.rebalance.enable": "false",
                },
            ),
            folder.kafka,
            engine=engine,
            temporary=keep is None,
            ends_with_program=True,
        )
        exits.callback(cluster.stop)
        _create_topics(cluster, _topics(settings))
        topic_ids = {p.topic_id for p in SourceLog(cluster.client_settings).partitions([TOPIC])}
        producers = OrderProducers(
            settings={**cluster.client_settings, **settings.producer},
            topic=TOPIC,
            topic_id=topic_ids.pop(),
            orders=orders,
            events=folder.producers,
            reports=settings.reports,
        )
        exits.enter_context(producers)
        yield Stage(
            orders=orders,
            folder=folder,
            cluster=cluster,
            producers=producers,
            teller=teller,
            _exits=exits,
        )
        teller.step("stopping everything")


def _topics(settings: Settings) -> list[TopicContract]:
    orders = TopicContract(
        name=TOPIC,
        partitions=PARTITIONS,
        replication_factor=REPLICATION_FACTOR,
        config=dict(settings.topic),
    )
    audit = TopicContract(
        name=AUDIT_TOPIC, replication_factor=REPLICATION_FACTOR, config={"min.insync.replicas": "2"}
    )
    return [orders, audit] if settings.reports else [orders]


def _create_topics(cluster: LocalCluster, topics: Sequence[TopicContract]) -> None:
    """Returns when every broker knows the topics: a client may ask any of them next."""
    create_topics(cluster.client_settings, topics, replication_factor_max=REPLICATION_FACTOR)
    names = {topic.name for topic in topics}

    def known() -> bool:
        addresses = [cluster.plan.address(node) for node in cluster.plan.brokers]
        return all(
            names <= set(read_metadata({"bootstrap.servers": address}).topics)
            for address in addresses
        )

    if not wait_until(known, timeout_s=PATIENCE_S):
        raise Unavailable(f"the topics {', '.join(sorted(names))} are not known to all brokers")


def _unexpected_end(driver: Driver) -> Undecided:
    return Undecided(
        f"the driver ended with {driver.exit_code}, which was not planned",
        hint=f"the end of its log:\n{driver.tail()}",
    )


def evidence_of_death(driver: Driver, checkpoints: Iterable[Path]) -> str:
    """What Spark planned and what it knows to be done, from the checkpoint the dead driver left."""
    planned, done = set(), set()
    for checkpoint in checkpoints:
        planned |= {int(p.name) for p in (checkpoint / "offsets").glob("[0-9]*")}
        done |= {int(p.name) for p in (checkpoint / "commits").glob("[0-9]*")}
    if not planned - done:
        raise Undecided("the dead driver's checkpoint knows of every batch: it died too late")
    return (
        f"process {driver.pid} is gone after its batch went into the table; the checkpoint it "
        f"left has {len(planned)} batches planned and {len(done)} finished"
    )


def since(began: float) -> float:
    return round(time.monotonic() - began, 1)
