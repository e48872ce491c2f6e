"""The embedded cluster beside Apache Kafka: both run on this machine, and take turns.

Three brokers each, replication factor 3, 6 partitions, acks=all, min.insync.replicas 2, and Java
tools of Kafka's own as clients. Apache Kafka gets the heap and the flags of its start script, and
ten runs of each kind to warm up: a cold one is three times slower, and beating that would mean
nothing.

While one is measured the other stands still (SIGSTOP): two cores are few, and a cluster that is
idle still takes some of them. What it has left to the system to write is on disk by then: with
600 MB of somebody else's being written beside them, our brokers took 4.1 s of CPU instead of 3.0.

Memory is full of cached files before anything is measured, as it is on a machine that has run for a
day. A virtual machine gets memory that it has never used, or has given back, from its host page by
page, for 2.5 s of its own CPU a gigabyte: that was a quarter of what a run at 1 KiB took, whichever
cluster wrote, and in one run more than in another.
"""

from __future__ import annotations

import os
import re
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil
from confluent_kafka.admin import AdminClient, NewTopic

from benchmarks.measure import Result, console
from lossless.engines.interface import ClusterSpec
from lossless.engines.local.cluster import LocalCluster
from lossless.engines.local.start import start_cluster
from lossless.jars import jars
from lossless.jars.java import java

# A run is several times as long as one to warm up: the client is a JVM too, which takes two seconds
# of CPU to start and to compile what it does, whoever it talks to.
LENGTH = 4
WARM_UPS = {"embedded": 2, "apache": 10}
START_SCRIPT = {
    "KAFKA_HEAP_OPTS": "-Xmx1G -Xms1G",
    "KAFKA_JVM_PERFORMANCE_OPTS": "-server -XX:+UseG1GC -XX:MaxGCPauseMillis=20 "
    "-XX:InitiatingHeapOccupancyPercent=35 -XX:+ExplicitGCInvokesConcurrent -XX:MaxInlineLevel=15",
}
CONFIG = {
    # Who stands still for a while is neither fenced nor out of sync for it.
    "broker.session.timeout.ms": "3600000",
    "replica.lag.time.max.ms": "3600000",
    # What a run has written is gone before the next one begins.
    "log.segment.delete.delay.ms": "0",
}
SETTLED_S = 1.0  # after it goes on: what was due in the meantime is done
DELETED_S = 2.0
LEFT_FREE_BYTES = 1 << 30
READ_BYTES = 1 << 24
PARTITIONS, REPLICAS = 6, 3
BATCHED = ("linger.ms=5", "batch.size=65536")
ONE_BY_ONE = ("linger.ms=0", "batch.size=1")
APACHE = "Apache Kafka 4.1, warmed up"

_SENT = re.compile(
    r"^(\d+) records sent, ([\d.]+) records/sec .*?(\d+) ms 50th, (\d+) ms 95th, (\d+) ms 99th"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sent:
    records_per_s: float
    p99_ms: int
    cpu_s: float


@dataclass(frozen=True, slots=True)
class Side:
    name: str
    cluster: LocalCluster

    def create(self, topic: str, partitions: int = PARTITIONS) -> None:
        admin = AdminClient({"bootstrap.servers": self.cluster.bootstrap_servers})
        new = NewTopic(topic, partitions, REPLICAS, config={"min.insync.replicas": "2"})
        admin.create_topics([new])[topic].result(30)

    def delete(self, topic: str) -> None:
        admin = AdminClient({"bootstrap.servers": self.cluster.bootstrap_servers})
        admin.delete_topics([topic])[topic].result(30)
        time.sleep(DELETED_S)

    def send(
        self, topic: str, records: int, size: int, how: tuple[str, ...], throughput: int = -1
    ) -> Sent:
        before = self._cpu_s()
        said = _java(
            "ProducerPerformance",
            *("--topic", topic, "--num-records", str(records), "--record-size", str(size)),
            *("--throughput", str(throughput), "--producer-props", "acks=all", *how),
            f"bootstrap.servers={self.cluster.bootstrap_servers}",
        )
        found = _SENT.search(said.strip().splitlines()[-1])
        if found is None:
            raise RuntimeError(f"ProducerPerformance said: {said[-400:]}")
        return Sent(
            records_per_s=float(found[2]), p99_ms=int(found[5]), cpu_s=self._cpu_s() - before
        )

    def consume(self, topic: str, records: int) -> float:
        said = _java(
            "ConsumerPerformance",
            *("--topic", topic, "--messages", str(records), "--hide-header"),
            *("--bootstrap-server", self.cluster.bootstrap_servers, "--timeout", "60000"),
            *("--group", f"bench-{time.monotonic_ns()}"),
        )
        *_, fetch_rate = said.strip().splitlines()[-1].split(",")  # records/s while fetching
        return float(fetch_rate)

    def stand_still(self) -> None:
        for row in self.cluster.status():
            self.cluster.pause(row.broker)

    def go_on(self) -> None:
        for row in self.cluster.status():
            self.cluster.resume(row.broker)
        admin = AdminClient({"bootstrap.servers": self.cluster.bootstrap_servers})
        topics = admin.list_topics(timeout=30).topics.values()
        behind = [
            f"{topic.topic}-{number}"
            for topic in topics
            for number, partition in topic.partitions.items()
            if len(partition.isrs) < REPLICAS
        ]
        if behind:
            raise RuntimeError(f"not everybody is in sync: {', '.join(behind)}")
        time.sleep(SETTLED_S)

    def memory_mb(self) -> float:
        """Of a broker, at the median."""
        processes = [psutil.Process(row.pid) for row in self.cluster.status() if row.pid]
        return statistics.median(process.memory_info().rss for process in processes) / 1e6

    def _cpu_s(self) -> float:
        times = [psutil.Process(row.pid).cpu_times() for row in self.cluster.status() if row.pid]
        return sum(used.user + used.system for used in times)


def _java(tool: str, *arguments: str) -> str:
    class_path = os.pathsep.join(map(str, jars("kafka")))
    command = [str(java()), "-Xmx512m", "-cp", class_path, f"org.apache.kafka.tools.{tool}"]
    done = subprocess.run([*command, *arguments], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{tool} failed: {done.stdout[-300:]} {done.stderr[-300:]}")
    return done.stdout


@contextmanager
def _sides(folder: Path, starts: int) -> Iterator[tuple[dict[str, Side], dict[str, list[float]]]]:
    """Both clusters, and how long they took to start: in turn, several times each."""
    os.environ.update(START_SCRIPT)
    took: dict[str, list[float]] = {"embedded": [], "apache": []}
    with ExitStack() as exits:
        sides = {}
        for number in range(starts):
            for engine, times in took.items():
                place = folder / f"{engine}-{number}"
                began = time.perf_counter()
                spec = ClusterSpec(config=CONFIG)
                cluster = start_cluster(spec, place, engine=engine, temporary=True)
                times.append(time.perf_counter() - began)
                console.print(f"  start of {engine}: {times[-1]:.2f} s")
                if number < starts - 1:
                    cluster.stop()
                else:
                    exits.callback(cluster.stop)
                    sides[engine] = Side(engine, cluster)
        yield sides, took


@contextmanager
def _alone(side: Side, sides: Mapping[str, Side]) -> Iterator[None]:
    others = [other for other in sides.values() if other is not side]
    for other in others:
        other.stand_still()
    os.sync()
    try:
        yield
    finally:
        for other in others:
            other.go_on()


def _fill_memory(folder: Path) -> None:
    """With the pages of a file that has none of its own on the disk."""
    console.print("  filling the memory with cached pages …")
    file = folder / "cached"
    with file.open("wb") as writer:
        writer.truncate(psutil.virtual_memory().available - LEFT_FREE_BYTES)
    with file.open("rb", buffering=0) as reader:
        while reader.read(READ_BYTES):
            pass


def _alternating(
    name: str, sides: Mapping[str, Side], runs: int, measure: Callable[[Side, int], float]
) -> dict[str, list[float]]:
    found: dict[str, list[float]] = {engine: [] for engine in sides}
    for run in range(runs):
        order = list(sides) if run % 2 == 0 else list(reversed(sides))
        for engine in order:
            with _alone(sides[engine], sides):
                value = measure(sides[engine], run)
            found[engine].append(value)
            console.print(f"  {name}: run {run + 1} of {runs}, {engine}: {value:,.10g}")
    return found


def _compared(
    name: str, unit: str, found: Mapping[str, list[float]], bar: float | None, *, less: bool = False
) -> Result:
    """`less`: a smaller value is better, and the bar is the largest share of theirs."""
    ours, theirs = (statistics.median(found[engine]) for engine in ("embedded", "apache"))
    ratio = ours / theirs
    holds = None if bar is None else (ratio <= bar if less else ratio >= bar)
    return Result(
        name=name,
        value=round(ours, 2),
        unit=unit,
        against=APACHE,
        against_value=round(theirs, 2),
        ratio=round(ratio, 3),
        bar=bar,
        holds=holds,
    )


def measure(records: int, runs: int) -> list[Result]:
    with tempfile.TemporaryDirectory() as folder:
        return _measure(Path(folder), records * LENGTH, runs)


def _measure(folder: Path, records: int, runs: int) -> list[Result]:
    results = []
    with _sides(folder, starts=3) as (sides, took):
        _fill_memory(folder)
        results.append(_compared("start of three brokers", "s", took, 0.1, less=True))
        small, cpu = _produce("produce 100 B", sides, runs, records, 100, BATCHED)
        for engine, used in cpu.items():
            cpu[engine] = [used_s * 2_000_000 / records for used_s in used]
        kib, _ = _produce("produce 1 KiB", sides, runs, records // 10, 1024, BATCHED)
        single, _ = _produce("one record per request", sides, runs, records // 80, 100, ONE_BY_ONE)
        results += [
            _compared("produce 100 B", "records/s", small, 1.3),
            _compared("CPU of the brokers for 2 M records of 100 B", "s", cpu, None, less=True),
            _compared("produce 1 KiB", "records/s", kib, 1.3),
            _compared("one record per request", "records/s", single, 2.0),
        ]
        half = int(statistics.median(small["apache"]) / 2)
        for side in sides.values():
            side.create("read")
            with _alone(side, sides):
                side.send("read", records, 100, BATCHED)
        late = _alternating(
            "p99",
            sides,
            min(runs, 5),
            lambda side, _: side.send("read", records // 2, 100, BATCHED, half).p99_ms,
        )
        results.append(
            _compared("p99 latency at half of Kafka's peak", "ms", late, None, less=True)
        )
        consumed = _alternating(
            "consume 100 B", sides, runs, lambda side, _: side.consume("read", records)
        )
        results.append(_compared("consume 100 B", "records/s", consumed, 0.9))
        memory = {engine: [side.memory_mb()] for engine, side in sides.items()}
        results.append(
            _compared("resident memory of a broker, loaded", "MB", memory, 0.25, less=True)
        )
    return results


def _produce(
    what: str,
    sides: Mapping[str, Side],
    runs: int,
    records: int,
    size: int,
    how: tuple[str, ...],
) -> tuple[dict[str, list[float]], dict[str, list[float]]]:
    """Records a second, and what the brokers took of the CPU for all of them."""
    cpu: dict[str, list[float]] = {engine: [] for engine in sides}
    name = what.replace(" ", "-")
    for engine, side in sides.items():
        with _alone(side, sides), _topic(side, f"{name}-warm-up") as topic:
            for number in range(WARM_UPS[engine]):
                sent = side.send(topic, records // LENGTH, size, how)
                console.print(
                    f"  {what}: warming up {engine}, {number + 1}: "
                    f"{sent.records_per_s:,.0f} records/s"
                )

    def run(side: Side, number: int) -> float:
        with _topic(side, f"{name}-{number}") as topic:
            sent = side.send(topic, records, size, how)
        cpu[side.name].append(sent.cpu_s)
        return sent.records_per_s

    return _alternating(what, sides, runs, run), cpu


@contextmanager
def _topic(side: Side, name: str) -> Iterator[str]:
    """For one run: of all of them together a disk would be full."""
    side.create(name)
    yield name
    side.delete(name)
