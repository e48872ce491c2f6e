"""Freshness: from a record's timestamp to the commit that holds its row, at a steady rate.

Ours runs with default settings. The peer is the same job by hand: foreachBatch, the same decode,
the same trigger. Both write delta tables, whose log says when each file was committed.
"""

from __future__ import annotations

import json
import multiprocessing
import shutil
import statistics
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pyarrow.parquet
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from benchmarks import orders, peers
from benchmarks.measure import Result, console
from lossless.pipeline.pipeline import Pipeline

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

RATES = (500, 5_000)  # records per second
TRIGGER_S = 1.0  # our default
WARM_UP_S = 10
MEASURED_S = 20
STORED_S_MAX = 120
FIRST_RECORDS = 60
PERCENTILES = (50, 95, 99)
BAR = 1.2  # of the peer's p95, at most


class Job(NamedTuple):
    name: str
    run: Callable[[str, Path], AbstractContextManager[Path]]  # topic and folder to the table
    timestamp: str  # the column that holds the record's timestamp


def measure(
    spark: SparkSession, bootstrap_servers: str, folder: Path, *, runs: int
) -> list[Result]:
    jobs = (
        Job("ours", lambda topic, at: _ours(spark, bootstrap_servers, topic, at), "_lossless"),
        Job("by hand", lambda topic, at: _by_hand(spark, bootstrap_servers, topic, at), "kafka"),
    )
    results = []
    for rate in RATES:
        seen: dict[str, list[list[float]]] = {job.name: [] for job in jobs}
        for run in range(-1, runs):  # the first to warm up
            phase = "warming up" if run < 0 else f"run {run + 1} of {runs}"
            for job in jobs if run % 2 == 0 else reversed(jobs):
                ages = _one_run(job, bootstrap_servers, folder, rate, run)
                if run >= 0:
                    seen[job.name].append(ages)
                console.print(
                    f"  freshness at {rate:,}/s: {phase}, {job.name}: "
                    + ", ".join(
                        f"p{p} {age:.2f} s" for p, age in zip(PERCENTILES, ages, strict=True)
                    )
                )
        for index, percentile in enumerate(PERCENTILES):
            value, against = (
                statistics.median(ages[index] for ages in seen[job.name]) for job in jobs
            )
            ratio = value / against
            bar = BAR if percentile == 95 else None
            results.append(
                Result(
                    name=f"freshness at {rate:,} records/s into delta, p{percentile}",
                    value=round(value, 2),
                    unit="s",
                    against="foreachBatch by hand, same trigger",
                    against_value=round(against, 2),
                    ratio=round(ratio, 3),
                    bar=bar,
                    holds=None if bar is None else ratio <= bar,
                )
            )
    return results


def _one_run(job: Job, bootstrap_servers: str, folder: Path, rate: int, run: int) -> list[float]:
    """Produces at a steady rate while the job runs; returns the percentiles of the rows' ages."""
    topic = f"freshness-{job.name.replace(' ', '-')}-{rate}-{run}"
    admin = AdminClient({"bootstrap.servers": bootstrap_servers})
    admin.create_topics([NewTopic(topic, orders.PARTITIONS, 1)])[topic].result()
    at = folder / topic
    records = rate * (WARM_UP_S + MEASURED_S)
    # A process of its own: the driver's interpreter belongs to the job that is measured.
    load = multiprocessing.get_context("spawn").Process(
        target=produce_at, args=(bootstrap_servers, topic, rate, records), daemon=True
    )
    produce_at(bootstrap_servers, topic, rate, FIRST_RECORDS)
    with job.run(topic, at) as table:
        _wait_until_stored(table, FIRST_RECORDS)  # the job has started
        load.start()
        load.join()
        _wait_until_stored(table, FIRST_RECORDS + records)
    ages = _ages(table, job.timestamp)
    shutil.rmtree(at)
    return ages


def produce_at(bootstrap_servers: str, topic: str, rate: int, records: int) -> None:
    """Sends `records` good orders, `rate` of them per second, evenly over time."""
    producer = Producer({"bootstrap.servers": bootstrap_servers, "linger.ms": 5})
    began = time.perf_counter()
    for number in range(records):
        ahead_s = number / rate - (time.perf_counter() - began)
        if ahead_s > 0.002:
            time.sleep(ahead_s)
        # Every 1,000th order of the benchmark is broken, but never those whose number ends in 0.
        producer.produce(topic, orders.value(number * 10), None, number % orders.PARTITIONS)
        producer.poll(0)
    if producer.flush() != 0:
        raise RuntimeError(f"{topic}: not every record was delivered")


@contextmanager
def _ours(spark: SparkSession, bootstrap_servers: str, topic: str, at: Path) -> Iterator[Path]:
    contract = orders.write_contract(
        at, bootstrap_servers, topic, 'type = "delta"\npath = "./table"'
    )
    pipeline = Pipeline("orders", contract=contract, spark=spark)
    thread = threading.Thread(target=pipeline.run)
    thread.start()
    try:
        yield at / "table"
    finally:
        pipeline.stop()
        thread.join()


@contextmanager
def _by_hand(spark: SparkSession, bootstrap_servers: str, topic: str, at: Path) -> Iterator[Path]:
    table = at / "table"

    def append(batch: DataFrame, _batch_id: int) -> None:
        batch.write.format("delta").mode("append").save(str(table))

    query = (
        peers.stream(spark, bootstrap_servers, topic, keep=["timestamp"])
        .withColumnRenamed("timestamp", "kafka")
        .writeStream.foreachBatch(append)
        .option("checkpointLocation", str(at / "checkpoint"))
        .trigger(processingTime=f"{TRIGGER_S} seconds")
        .start()
    )
    try:
        yield table
        query.processAllAvailable()  # a batch that is interrupted fills the terminal with traces
    finally:
        query.stop()


def _commits(table: Path) -> Iterator[tuple[float, dict[str, str]]]:
    """Yields when each data file was committed, with its action in the table's log."""
    for entry in sorted((table / "_delta_log").glob("*.json")):
        committed_at = entry.stat().st_mtime
        for line in entry.read_text().splitlines():
            if added := json.loads(line).get("add"):
                yield committed_at, added


def _wait_until_stored(table: Path, records: int) -> None:
    deadline = time.monotonic() + STORED_S_MAX
    while True:
        stored = sum(json.loads(file["stats"])["numRecords"] for _, file in _commits(table))
        if stored >= records:
            return
        if time.monotonic() > deadline:
            raise RuntimeError(f"{table}: {stored:,} of {records:,} rows after {STORED_S_MAX} s")
        time.sleep(0.2)


def _ages(table: Path, column: str) -> list[float]:
    """Returns the percentiles of the rows' ages at their commits, in the last MEASURED_S."""
    ages: list[tuple[float, float]] = []
    for committed_at, file in _commits(table):
        values = pyarrow.parquet.read_table(table / file["path"], columns=[column])[column]
        for value in values.to_pylist():
            sent_at = (value["timestamp"] if isinstance(value, dict) else value).timestamp()
            ages.append((sent_at, committed_at - sent_at))
    measured_from = max(sent_at for sent_at, _ in ages) - MEASURED_S
    cuts = statistics.quantiles((age for sent_at, age in ages if sent_at >= measured_from), n=100)
    return [cuts[percentile - 1] for percentile in PERCENTILES]
