"""`make bench`: us and the peer in one run. Results to build/bench.json."""

from __future__ import annotations

import os
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click
import psycopg
from tests.postgres_server import SUPERUSER, running_postgres

from benchmarks import client, cluster_growth, freshness, kafka, orders, peers, reopen, simulation
from benchmarks.measure import Peer, Result, compare, console, report
from lossless.contract import load_contract
from lossless.engines import cluster
from lossless.jars import jars
from lossless.pipeline.audit import audit
from lossless.pipeline.audit.model import Verdict
from lossless.pipeline.events import Committed, Event, unobserved
from lossless.pipeline.pipeline import Pipeline
from lossless.pipeline.session import build_session
from lossless.pipeline.sinks.delta import DeltaSink
from lossless.pipeline.source import IN_BULK

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TOPIC = "orders"


@dataclass(frozen=True, slots=True, kw_only=True)
class Bench:
    spark: SparkSession
    bootstrap_servers: str
    folder: Path
    records: int
    runs: int
    most: int

    def files(self, format_: str) -> list[Result]:
        """(a) with validation, hash and 0.1 % dead letters, against a bare connector job."""
        folder = self.folder / format_

        def ours(_run: int) -> None:
            shutil.rmtree(folder / "ours", ignore_errors=True)
            sink = f'type = "{format_}"\npath = "./table"'
            self.run_pipeline(folder / "ours", TOPIC, sink)

        def theirs(_run: int) -> None:
            records = peers.stream(self.spark, self.bootstrap_servers, TOPIC)
            peers.files(records, format_, folder / "theirs")

        def tuned(_run: int) -> None:
            records = peers.stream(self.spark, self.bootstrap_servers, TOPIC, IN_BULK)
            peers.files(records, format_, folder / "tuned")

        return compare(
            f"pipeline into {format_}",
            ours,
            [
                Peer(name=f"bare connector job into {format_}", work=theirs, bar=0.85),
                Peer(name="the same with our consumer settings", work=tuned),
            ],
            records=self.records,
            runs=self.runs,
        )

    def postgres(self) -> list[Result]:
        """(b) exactly-once append against foreachBatch and df.write.jdbc."""
        folder = self.folder / "postgres"
        with running_postgres(max_wal_size="4GB") as server:
            database = server.create_database()
            dsn = server.dsn(database)

            def ours(run: int) -> None:
                sink = f'type = "postgres"\ndsn = "{dsn}"\ntable = "ours_{run + 2}"'
                self.run_pipeline(folder / f"ours-{run + 2}", TOPIC, sink)
                table = f"ours_{run + 2}"
                drop(table, f"{table}_dlt", "lossless_ledger", "lossless_ledger_history")

            def theirs(run: int) -> None:
                table = f"theirs_{run + 2}"
                peers.jdbc(
                    peers.stream(self.spark, self.bootstrap_servers, TOPIC),
                    f"jdbc:postgresql://127.0.0.1:{server.port}/{database}",
                    {"user": SUPERUSER, "password": server.password},
                    table,
                    folder / table,
                )
                drop(table)

            def drop(*tables: str) -> None:
                with psycopg.connect(dsn, autocommit=True) as connection:
                    for table in tables:
                        connection.execute(f'DROP TABLE IF EXISTS "{table}" CASCADE')
                    connection.execute("CHECKPOINT")

            return compare(
                "pipeline into postgres",
                ours,
                [Peer(name="foreachBatch + df.write.jdbc", work=theirs, bar=0.9)],
                records=self.records,
                runs=self.runs,
            )

    def audit(self) -> list[Result]:
        """(c) the audit against a bare scan of both sides."""
        folder = self.folder / "audited"
        contract = load_contract(
            self.run_pipeline(folder, TOPIC, 'type = "delta"\npath = "./table"')
        )
        table = str(folder / "table")

        def ours(_run: int) -> None:
            found = audit(
                self.spark,
                pipeline=contract.pipelines["orders"],
                sink=DeltaSink(self.spark, "orders", table),
                client_settings={"bootstrap.servers": self.bootstrap_servers},
            )
            if found.verdict is not Verdict.BALANCED:
                raise RuntimeError(f"{contract.path}: the audit does not balance")

        def theirs(_run: int) -> None:
            peers.scan_log(self.spark, self.bootstrap_servers, TOPIC)
            peers.scan_table(self.spark, table)

        return compare(
            "audit of a delta table",
            ours,
            [Peer(name="bare scan sum(offset) of both sides", work=theirs, bar=0.8)],
            records=self.records,
            runs=self.runs,
        )

    def bulk(self) -> list[Result]:
        """The cost per record into delta, with so many that start and commit no longer weigh."""
        topic = "orders-bulk"
        orders.fill(self.bootstrap_servers, topic, self.most)
        folder = self.folder / "bulk"

        def ours(_run: int) -> None:
            shutil.rmtree(folder / "ours", ignore_errors=True)
            self.run_pipeline(folder / "ours", topic, 'type = "delta"\npath = "./table"')

        def theirs(_run: int) -> None:
            records = peers.stream(self.spark, self.bootstrap_servers, topic)
            peers.files(records, "delta", folder / "theirs")

        def tuned(_run: int) -> None:
            records = peers.stream(self.spark, self.bootstrap_servers, topic, IN_BULK)
            peers.files(records, "delta", folder / "tuned")

        return compare(
            f"{self.most:,} records into delta",
            ours,
            [
                Peer(name="bare connector job into delta", work=theirs, bar=0.85),
                Peer(name="the same with our consumer settings", work=tuned),
            ],
            records=self.most,
            runs=min(self.runs, BULK_RUNS_MAX),
        )

    def freshness(self) -> list[Result]:
        """(d) how old a row is when it is committed, against the same job by hand."""
        return freshness.measure(
            self.spark,
            self.bootstrap_servers,
            self.folder,
            runs=min(self.runs, FRESHNESS_RUNS_MAX),
        )

    def ledger_overhead(self) -> list[Result]:
        """What a commit with its ledger takes, apart from staging: small batches, many of them."""
        results = []
        for sink in ("delta", "parquet"):
            commits: list[float] = []
            self.run_pipeline(
                self.folder / f"small-{sink}",
                TOPIC,
                f'type = "{sink}"\npath = "./table"',
                batch=self.records // 20,
                observe=_commit_times(commits),
            )
            results.append(
                Result(
                    name=f"commit with ledger, {sink}, per batch",
                    value=round(statistics.median(commits) * 1000, 1),
                    unit="ms",
                )
            )
        return results

    def growth(self) -> list[Result]:
        """How time grows with the number of records, into delta."""
        results = []
        size = 10_000
        while size <= self.most:
            topic = f"orders-{size}"
            orders.fill(self.bootstrap_servers, topic, size)
            folder = self.folder / f"growth-{size}"
            began = time.perf_counter()
            self.run_pipeline(folder, topic, 'type = "delta"\npath = "./table"')
            took = time.perf_counter() - began
            console.print(f"  {size:,} records: {took:.2f} s")
            results.append(
                Result(name=f"{size:,} records into delta", value=round(took, 2), unit="s")
            )
            size *= 10
        return results

    def run_pipeline(
        self,
        folder: Path,
        topic: str,
        sink: str,
        *,
        batch: int | None = None,
        observe: Callable[[Event], None] = unobserved,
    ) -> Path:
        contract = orders.write_contract(folder, self.bootstrap_servers, topic, sink, batch=batch)
        Pipeline("orders", contract=contract, spark=self.spark).run(once=True, observe=observe)
        return contract


def _commit_times(commits: list[float]) -> Callable[[Event], None]:
    def observe(event: Event) -> None:
        if isinstance(event, Committed):
            commits.append(event.commit_s)

    return observe


ON_SPARK = ("parquet", "delta", "postgres", "audit", "bulk", "freshness", "ledger", "growth")
PARTS = (*ON_SPARK, "kafka", "cluster-growth", "client", "simulation", "detection", "reopen")
BULK_RUNS_MAX = 3  # each takes minutes
FRESHNESS_RUNS_MAX = 3
KAFKA_RUNS_LEAST = 9  # pairs: the machines that this runs on are noisy


@click.command()
@click.argument("parts", nargs=-1, type=click.Choice(PARTS))
@click.option("--records", default=2_000_000, show_default=True)
@click.option("--runs", default=5, show_default=True)
@click.option(
    "--most",
    default=10_000_000,
    show_default=True,
    help="Records of bulk and of the end of growth.",
)
@click.option("--seconds", default=simulation.SEARCH_S_MAX, show_default=True, help="Of a search.")
@click.option("--gigabytes", default=10, show_default=True, help="Of logs to open again.")
def main(
    parts: tuple[str, ...], records: int, runs: int, most: int, seconds: int, gigabytes: int
) -> None:
    """Measure PARTS (all of them unless named)."""
    chosen = parts or PARTS
    results: list[Result] = []
    on_spark = tuple(part for part in chosen if part in ON_SPARK)
    if on_spark:
        results += _on_spark(on_spark, records, runs, most)
    if "kafka" in chosen:
        console.print("kafka …")
        results += kafka.measure(records, max(runs, KAFKA_RUNS_LEAST))
    if "cluster-growth" in chosen:
        console.print("cluster-growth …")
        results += cluster_growth.growth()
    if "client" in chosen:
        console.print("client …")
        results += client.measure(records, runs)
    if "simulation" in chosen:
        console.print("simulation …")
        results += simulation.speed(runs)
    if "detection" in chosen:
        console.print("detection …")
        results += simulation.detection(seconds)
    if "reopen" in chosen:
        console.print("reopen …")
        results += reopen.reopening(gigabytes)
    report(results, Path("build/bench.json"))


def _on_spark(chosen: tuple[str, ...], records: int, runs: int, most: int) -> list[Result]:
    # A broker that lives as long as this one is worth compiling fully, as in production.
    os.environ.setdefault("KAFKA_JVM_PERFORMANCE_OPTS", "-server")
    files = [str(path) for name in ("spark", "jdbc") for path in jars(name)]
    spark = build_session(
        "benchmarks",
        master="local[2]",
        settings={
            "spark.driver.memory": "4g",
            "spark.ui.enabled": "false",
            "spark.log.level": "ERROR",
            "spark.sql.shuffle.partitions": "2",
            "spark.jars": ",".join(files),
            "spark.driver.extraClassPath": ":".join(files),
        },
    )
    results: list[Result] = []
    with tempfile.TemporaryDirectory() as folder, cluster(kafka="apache", brokers=1) as apache:
        console.print(f"producing {records:,} records …")
        orders.fill(apache.bootstrap_servers, TOPIC, records)
        bench = Bench(
            spark=spark,
            bootstrap_servers=apache.bootstrap_servers,
            folder=Path(folder),
            records=records,
            runs=runs,
            most=most,
        )
        for part in chosen:
            console.print(f"{part} …")
            match part:
                case "parquet" | "delta":
                    results.extend(bench.files(part))
                case "postgres":
                    results.extend(bench.postgres())
                case "audit":
                    results.extend(bench.audit())
                case "bulk":
                    results.extend(bench.bulk())
                case "freshness":
                    results.extend(bench.freshness())
                case "ledger":
                    results.extend(bench.ledger_overhead())
                case "growth":
                    results.extend(bench.growth())
    spark.stop()
    return results


main()
