"""What the embedded cluster costs as it grows: partitions, connections, members of a group.

Each row is a cluster of three brokers in processes, started for it, and compared with the first row
of its kind: what should be paid once must not be paid for each.
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil
from confluent_kafka import Consumer
from confluent_kafka.admin import AdminClient

from benchmarks.kafka import BATCHED, Side
from benchmarks.measure import Result, console
from lossless.engines.interface import ClusterSpec
from lossless.engines.local.start import start_cluster
from lossless.log.batch import Record, build
from lossless.wire import frames
from lossless.wire.outgoing import outgoing

PARTITIONS = (1, 10, 100, 1_000)
CONNECTIONS = (1, 10, 100, 500)
MEMBERS = (1, 10, 50, 200)
RECORDS = 500_000
REQUESTS = 10_000
IDLE_S = 5.0
ALL_ASSIGNED_S_MAX = 120.0
PRODUCE, PRODUCE_VERSION = 0, 9


def growth() -> list[Result]:
    return [*_partitions(), *_connections(), *_members()]


@dataclass(frozen=True, slots=True)
class _Row:
    """A measured value, under the same name for every size."""

    name: str
    value: float
    unit: str


def _results(what: str, rows_by_size: dict[int, list[_Row]]) -> list[Result]:
    smallest = min(rows_by_size)
    first = {row.name: row.value for row in rows_by_size[smallest]}
    results = []
    for size, rows in rows_by_size.items():
        for row in rows:
            console.print(f"  {size:,} {what}: {row.name} {row.value:,.4g} {row.unit}")
            results.append(
                Result(
                    name=f"{size:,} {what}: {row.name}",
                    value=round(row.value, 3),
                    unit=row.unit,
                    against=f"{smallest} of them",
                    against_value=round(first[row.name], 3),
                    ratio=round(row.value / first[row.name], 3) if first[row.name] else None,
                )
            )
    return results


@contextmanager
def _cluster() -> Iterator[Side]:
    with tempfile.TemporaryDirectory(prefix="lossless-growth-") as folder:
        place = Path(folder) / "cluster"
        cluster = start_cluster(ClusterSpec(), place, engine="embedded", temporary=True)
        try:
            yield Side("embedded", cluster)
        finally:
            cluster.stop()


def _cpu_s(side: Side) -> float:
    times = [psutil.Process(row.pid).cpu_times() for row in side.cluster.status() if row.pid]
    return sum(used.user + used.system for used in times)


def _idle_share(side: Side) -> float:
    """Of one core, of all brokers together, while nobody asks for anything."""
    before = _cpu_s(side)
    time.sleep(IDLE_S)
    return (_cpu_s(side) - before) / IDLE_S * 100


def _partitions() -> list[Result]:
    found = {}
    for count in PARTITIONS:
        with _cluster() as side:
            began = time.perf_counter()
            side.create("many", count)
            created_s = time.perf_counter() - began
            side.send("many", RECORDS // 5, 100, BATCHED)  # the client learns of its partitions
            sent = side.send("many", RECORDS, 100, BATCHED)
            found[count] = [
                _Row("created", created_s, "s"),
                _Row("produced, 100 B", sent.records_per_s, "records/s"),
                _Row("CPU of all brokers when idle", _idle_share(side), "% of a core"),
                _Row("resident memory of a broker", side.memory_mb(), "MB"),
            ]
    return _results("partitions", found)


def _connections() -> list[Result]:
    found = {}
    for count in CONNECTIONS:
        with _cluster() as side:
            side.create("asked")
            before_mb = side.memory_mb()
            requests_per_s, used_s = asyncio.run(_ask_from(side, count))
            found[count] = [
                _Row("one record per request", requests_per_s, "requests/s"),
                _Row("CPU of all brokers", used_s / REQUESTS * 1e6, "µs/request"),
                _Row("memory added to a broker", side.memory_mb() - before_mb, "MB"),
            ]
    return _results("connections", found)


async def _ask_from(side: Side, count: int) -> tuple[float, float]:
    """Each connection has one request on its way; together they make all of them."""
    admin = AdminClient({"bootstrap.servers": side.cluster.bootstrap_servers})
    while not (told := admin.list_topics("asked", timeout=10)).topics["asked"].partitions:
        await asyncio.sleep(0.05)
    batch = build([Record(0, round(time.time() * 1000), None, b"x" * 100)])
    frames_to = []
    for number, partition in told.topics["asked"].partitions.items():
        leader = told.brokers[partition.leader]
        data = [{"index": number, "records": batch.data}]
        asked = outgoing(
            PRODUCE,
            PRODUCE_VERSION,
            {
                "acks": -1,
                "timeout": 30_000,
                "topic_data": [{"name": "asked", "partition_data": data}],
            },
        )
        frame = frames.request(
            PRODUCE, PRODUCE_VERSION, 1, "growth", asked.message, tagged=asked.is_flexible
        )
        frames_to.append((leader.host, leader.port, frame))
    opened = [
        (await asyncio.open_connection(host, port), frame)
        for host, port, frame in (frames_to[n % len(frames_to)] for n in range(count))
    ]
    left = REQUESTS

    async def ask(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, frame: bytes) -> None:
        nonlocal left
        while left > 0:
            left -= 1
            writer.write(frame)
            size = int.from_bytes(await reader.readexactly(4), "big")
            await reader.readexactly(size)

    before_s = _cpu_s(side)
    began = time.perf_counter()
    await asyncio.gather(*(ask(reader, writer, frame) for (reader, writer), frame in opened))
    took_s = time.perf_counter() - began
    used_s = _cpu_s(side) - before_s
    for (_, writer), _ in opened:
        writer.close()
        await writer.wait_closed()
    return REQUESTS / took_s, used_s


def _members() -> list[Result]:
    found = {}
    for count in MEMBERS:
        with _cluster() as side:
            side.create("shared", max(MEMBERS))
            found[count] = [
                row for protocol in ("classic", "consumer") for row in _group(side, protocol, count)
            ]
    return _results("members", found)


def _group(side: Side, protocol: str, count: int) -> list[_Row]:
    settings = {
        "bootstrap.servers": side.cluster.bootstrap_servers,
        "group.id": f"growth-{protocol}",
        "group.protocol": protocol,
    }
    members = [Consumer(settings) for _ in range(count)]
    try:
        began = time.perf_counter()
        for member in members:
            member.subscribe(["shared"])
        while not all(member.assignment() for member in members):
            if time.perf_counter() - began > ALL_ASSIGNED_S_MAX:
                raise RuntimeError(f"{count} members: not all of them got a partition")
            for member in members:
                member.poll(0.001)
        took_s = time.perf_counter() - began
        return [
            _Row(f"everybody has partitions ({protocol})", took_s, "s"),
            _Row(f"CPU of all brokers when idle ({protocol})", _idle_share(side), "% of a core"),
        ]
    finally:
        # All at once: whoever leaves alone has the others share anew, and nobody polls for them.
        with ThreadPoolExecutor(count) as closing:
            for member in members:
                closing.submit(member.close)
