"""One cell's worth of delivery: a topic with numbered records, a pipeline, and the table it fills.

What is in the table is read by other means than the sink's own: Spark's readers and SQL.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import psycopg
import pytest

from lossless.pipeline.events import Event, unobserved
from lossless.pipeline.ledger import Ledger
from lossless.pipeline.outcomes import DEAD_LETTER, opened
from lossless.pipeline.pipeline import Pipeline
from topics import create_topic, produce

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

RECORDS = 600
PARTITIONS = 2
RECORDS_PER_BATCH = 200
BATCHES = RECORDS // RECORDS_PER_BATCH
BAD_EVERY = 50  # every fiftieth record is not JSON
SINKS = ("delta", "postgres", "parquet")


def each_time_on(sink: str) -> pytest.MarkDecorator:
    """Of every row one cell, so that each sink gets its share; the others by `make test-all`."""
    return pytest.mark.parametrize(
        "sink",
        [one if one == sink else pytest.param(one, marks=pytest.mark.full) for one in SINKS],
    )


@dataclass(slots=True, kw_only=True)
class Delivery:
    folder: Path
    topic: str
    sink: str
    bootstrap_servers: str
    spark: SparkSession
    dsn: str
    transform: str | None = None
    produced: int = 0
    retry_max_s: int = 60
    drivers: list[subprocess.Popen[bytes]] = field(default_factory=list)

    @property
    def table(self) -> str:
        return f"{self.folder}/table" if self.sink != "postgres" else self.topic.replace("-", "_")

    @property
    def contract(self) -> Path:
        return self.folder / "lossless.toml"

    @property
    def crash_log(self) -> Path:
        return self.folder / "crashes.log"

    def begin(self) -> None:
        """A topic with records in it, and a contract."""
        create_topic(
            self.bootstrap_servers, self.topic, partitions=PARTITIONS, min_insync_replicas="2"
        )
        self.produce(RECORDS)
        self.write_contract()

    def produce(self, count: int) -> None:
        produce(
            self.bootstrap_servers,
            self.topic,
            (record(number) for number in range(self.produced, self.produced + count)),
        )
        self.produced += count

    def write_contract(self, *, dsn: str | None = None) -> None:
        where = (
            f'dsn = "{dsn or self.dsn}"\ntable = "{self.table}"'
            if self.sink == "postgres"
            else f'path = "{self.table}"'
        )
        transform = f'transform = "{self.transform}"' if self.transform else ""
        self.contract.write_text(
            f"""
[cluster]
client.bootstrap.servers = "{self.bootstrap_servers}"

[pipelines.cell]
topics = ["{self.topic}"]
format = "json"
schema = "number BIGINT NOT NULL, text STRING"
records_per_batch_max = {RECORDS_PER_BATCH}
retry_max_s = {self.retry_max_s}
spark.executor.extraJavaOptions = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
spark.sql.shuffle.partitions = 2
{transform}

[pipelines.cell.sink]
type = "{self.sink}"
{where}
"""
        )

    def run(self, observe: Callable[[Event], None] = unobserved) -> Ledger:
        """A driver of this process, new but for the JVM: it knows only what the sink tells it."""
        return Pipeline("cell", contract=self.contract, spark=self.spark).run(
            once=True, observe=observe
        )

    def driver(
        self, crash_points: str = "", *, master: str = "local[2]"
    ) -> subprocess.Popen[bytes]:
        """A driver in a process of its own, with a JVM of its own."""
        with (self.folder / f"driver-{len(self.drivers)}.log").open("wb") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "lossless", "run", "--once", "--master", master],
                cwd=self.folder,
                env={
                    **os.environ,
                    "LOSSLESS_CRASH_POINTS": crash_points,
                    "LOSSLESS_CRASH_LOG": str(self.crash_log),
                    "TMPDIR": str(self.folder),
                },
                stderr=log,
                stdout=subprocess.DEVNULL,
                start_new_session=True,  # what is sent to its process group reaches nobody else
            )
        self.drivers.append(process)
        return process

    def crashes(self) -> list[str]:
        """The faults that fired, as the drivers wrote them down before they did."""
        if not self.crash_log.exists():
            return []
        return [line.partition(" ")[0] for line in self.crash_log.read_text().splitlines()]

    def driver_log(self) -> str:
        logs = sorted(self.folder.glob("driver-*.log"))
        return "\n".join(log.read_text(errors="replace")[-3000:] for log in logs)

    def assert_exactly_once(self, ledger: Ledger) -> None:
        """Stored equals produced, each once; the bad ones are dead letters, each once."""
        good = Counter(n for n in range(self.produced) if not is_bad(n))
        bad = Counter(n for n in range(self.produced) if is_bad(n))
        assert _difference(self._stored(), good) == ({}, {})
        assert _difference(self._dead(), bad) == ({}, {})
        positions = ledger.positions.values()
        assert sum(p.next_offset for p in positions) == self.produced
        assert sum(p.stored.count for p in positions) == good.total()
        assert sum(p.dead.count for p in positions) == bad.total()

    def _stored(self) -> Counter[int]:
        if self.sink == "postgres":
            return self._query(f"SELECT number FROM {self.table}")
        rows = self.spark.read.format(self.sink).load(self.table).select("number").collect()
        return Counter(row["number"] for row in rows)

    def _dead(self) -> Counter[int]:
        if self.sink == "postgres":
            return self._query(f"SELECT convert_from(key, 'UTF8')::bigint FROM {self.table}_dlt")
        if self.sink == "parquet":
            paths = [
                str(p) for p in Path(self.table).glob("lossless_commit=*/_dead_letters/*.parquet")
            ]
            if not paths:
                return Counter()
            letters = self.spark.read.parquet(*paths)
            rows = letters.select(opened(letters[DEAD_LETTER])["key"].alias("key")).collect()
        else:
            from lossless.pipeline.sinks.delta import DeltaSink

            # Letters of attempts that lost are in the table until they are swept: only the sink
            # knows which are named by a commit.
            rows = DeltaSink(self.spark, "cell", self.table).dead_letters().select("key").collect()
        return Counter(int(bytes(row["key"])) for row in rows)

    def _query(self, sql: str) -> Counter[int]:
        with psycopg.connect(self.dsn) as connection:
            return Counter(row[0] for row in connection.execute(sql).fetchall())


MakeDelivery = Callable[..., Delivery]


def record(number: int) -> tuple[int, bytes, bytes]:
    """Partition, key and value of a numbered record."""
    value = json.dumps({"number": number, "text": f"record {number}"})
    return (
        number % PARTITIONS,
        str(number).encode(),
        b"{broken" if is_bad(number) else value.encode(),
    )


def is_bad(number: int) -> bool:
    return number % BAD_EVERY == 7


def _difference(
    found: Counter[int], wanted: Counter[int]
) -> tuple[Mapping[int, int], Mapping[int, int]]:
    """(missing, surplus): both empty when they agree."""
    return dict(wanted - found), dict(found - wanted)
