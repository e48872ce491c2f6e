"""The environment of a demo: a folder, three brokers, producers and drivers.

One context owns all of it. When the context is left, for whatever reason, every process is stopped
and the folder is deleted, unless --keep names it.
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
from lossless.demo.progress import Counts, InjectedFault, Progress
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
WAIT_S_MAX = 300.0

# Shares of the orders. About half of them are sent when the faults are injected. A driver, which
# reads a sixth per batch, has batches before, between and after the faults.
FIRST_SHARE = 0.25  # acknowledged before the driver reads the first
STRIKE_SHARE = 0.35  # acknowledged when the leader is killed, with orders in flight
SECOND_SHARE = 0.75  # the producers may send these until the driver has died
BATCHES = 6
# The driver is killed after writing this batch. The first share fills at most three batches, the
# second fills four and a half.
CRASH_BATCH = 4
CRASH_POINT = f"after-commit@{CRASH_BATCH}:kill"


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The settings in which the two variants differ."""

    producer: Mapping[str, str]
    topic: Mapping[str, str]
    session_timeout_ms: int
    reports: bool


@dataclass(slots=True, kw_only=True)
class Environment:
    """A running demo. Created by `demo_environment`."""

    orders: int
    folder: DemoFolder
    cluster: LocalCluster
    producers: OrderProducers
    progress: Progress
    faults: list[InjectedFault] = field(default_factory=list)
    _exits: ExitStack
    _drivers: list[Driver] = field(default_factory=list)

    def share(self, share: float) -> int:
        return int(self.orders * share)

    @property
    def records_per_batch(self) -> int:
        return max(1, self.orders // BATCHES)

    def start_driver(self, arguments: Sequence[str], *, crash_points: str = "") -> Driver:
        """Starts a Python program in the demo's folder. It ends with the demo at the latest."""
        driver = Driver(
            [sys.executable, "-m", *arguments],
            folder=self.folder.path,
            environment=self.folder.driver_environment(crash_points),
            log=self.folder.driver_log(len(self._drivers) + 1),
        )
        self._drivers.append(self._exits.enter_context(driver))
        return driver

    def wait_for(self, condition: Callable[[], bool], what: str) -> None:
        """Waits for a condition and reports the counts meanwhile.

        Raises the error of a producer that failed, or Unavailable after WAIT_S_MAX.
        """

        def reached() -> bool:
            self.producers.check()
            self.progress.counts(
                Counts(
                    orders=self.orders,
                    acknowledged=self.producers.acknowledged,
                    stored=max((driver.records for driver in self._drivers), default=0),
                )
            )
            return condition()

        if not wait_until(reached, timeout_s=WAIT_S_MAX):
            raise Unavailable(
                f"timed out after {WAIT_S_MAX:.0f} s waiting for {what}",
                hint="the machine may be overloaded; `lossless demo --keep DIR` keeps all logs",
            )

    def wait_for_acknowledged(self, orders: int) -> None:
        self.wait_for(
            lambda: self.producers.acknowledged + self.producers.failed >= orders,
            f"{orders} orders to be acknowledged",
        )

    def wait_for_stored(self, driver: Driver, records: int) -> None:
        """Waits until this many records are in the table."""

        def stored() -> bool:
            if driver.exit_code is not None:
                raise _unexpected_end(driver)
            return driver.records >= records

        self.wait_for(stored, f"{records} records in the table")

    def wait_for_death(self, driver: Driver) -> None:
        """Waits until the driver has died. Raises Undecided if it was not at its crash point."""
        self.wait_for(lambda: driver.exit_code is not None, "the driver to reach its crash point")
        if self.folder.crashes() != [CRASH_POINT]:
            raise _unexpected_end(driver)

    def wait_for_end(self, driver: Driver, what: str) -> None:
        """Waits until the driver has ended. Raises Undecided if it failed."""
        self.wait_for(lambda: driver.exit_code is not None, what)
        if driver.exit_code != 0:
            raise _unexpected_end(driver)

    def wait_for_leader(self, other_than: int) -> int:
        """Waits until another broker leads partition 0, and returns its id."""
        leader = -1

        def elected() -> bool:
            nonlocal leader
            with suppress(Unavailable):  # a broker may be busy with the election
                leader = self.cluster.leader_of(TOPIC, 0)
            return leader not in (-1, other_than)

        self.wait_for(elected, f"a new leader of {TOPIC}-0")
        return leader

    def inject(self, fault: Fault, what: str) -> None:
        """Injects a fault and reports it. Raises Undecided if the engine does not support it."""
        fired = self.cluster.inject(fault)
        if isinstance(fired, Unsupported):
            raise Undecided(f"{what}: {fired.why}")
        self.report_fault(what, fired.evidence)

    def report_fault(self, what: str, evidence: str) -> None:
        """Records a fault that took effect, and reports it."""
        fault = InjectedFault(what=what, evidence=evidence)
        self.faults.append(fault)
        self.progress.fault(fault)


@contextmanager
def demo_environment(
    settings: Settings, *, engine: str, orders: int, keep: Path | None, progress: Progress
) -> Iterator[Environment]:
    """Starts brokers and producers. Leaving the context stops all processes of the demo."""
    check_keep(keep)
    java()
    for name in ("kafka", "spark") if engine == "apache" else ("spark",):
        jars(name)  # fetches them if they are missing, with a progress bar
    with ExitStack() as exits:
        folder = exits.enter_context(demo_folder(keep))
        progress.step(f"starting {BROKERS} brokers ({engine})")
        cluster = start_cluster(
            ClusterSpec(
                brokers=BROKERS,
                config={
                    "broker.session.timeout.ms": str(settings.session_timeout_ms),
                    # Leadership must move only because of the faults.
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
        yield Environment(
            orders=orders,
            folder=folder,
            cluster=cluster,
            producers=producers,
            progress=progress,
            _exits=exits,
        )
        progress.step("stopping everything")


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
    """Creates the topics and waits until every broker knows them: clients may ask any of them."""
    create_topics(cluster.client_settings, topics, replication_factor_max=REPLICATION_FACTOR)
    names = {topic.name for topic in topics}

    def known() -> bool:
        addresses = [cluster.plan.address(node) for node in cluster.plan.brokers]
        return all(
            names <= set(read_metadata({"bootstrap.servers": address}).topics)
            for address in addresses
        )

    if not wait_until(known, timeout_s=WAIT_S_MAX):
        raise Unavailable(
            f"not all brokers know the topics {', '.join(sorted(names))} after {WAIT_S_MAX:.0f} s"
        )


def _unexpected_end(driver: Driver) -> Undecided:
    return Undecided(
        f"the driver ended unexpectedly with exit code {driver.exit_code}",
        hint=f"last lines of its log:\n{driver.tail()}",
    )


def evidence_of_death(driver: Driver, checkpoints: Iterable[Path]) -> str:
    """Returns the batches planned and finished, from the checkpoint of the dead driver."""
    planned, done = set(), set()
    for checkpoint in checkpoints:
        planned |= {int(p.name) for p in (checkpoint / "offsets").glob("[0-9]*")}
        done |= {int(p.name) for p in (checkpoint / "commits").glob("[0-9]*")}
    if not planned - done:
        raise Undecided("the driver died too late: its checkpoint already contains every batch")
    return (
        f"process {driver.pid} died after its batch was committed to the table; its checkpoint has "
        f"{len(planned)} batches planned and {len(done)} finished"
    )


def since(began: float) -> float:
    """Returns the seconds since `began`, a time of `time.monotonic`."""
    return round(time.monotonic() - began, 1)
