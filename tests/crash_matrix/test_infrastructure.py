"""What a driver depends on dies, fills up or is cut off: executors, brokers, sinks, disks."""

from __future__ import annotations

import resource
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import pytest

from cutting_proxy import CuttingProxy
from delivery import SINKS, Delivery, MakeDelivery, each_time_on
from lossless.engines.waiting import wait_until
from lossless.pipeline.events import Committed, Event, Retrying
from lossless.pipeline.source import SourceLog
from postgres_server import running_postgres
from standalone_spark import standalone_spark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DRIVER_TIMEOUT_S = 300


@pytest.fixture(scope="module")
def spark_master(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with standalone_spark(tmp_path_factory.mktemp("spark")) as cluster:
        yield cluster.address


@each_time_on("parquet")
def test_an_executor_killed_in_the_middle_of_a_task(
    sink: str, make_delivery: MakeDelivery, spark_master: str
) -> None:
    """A real master with two workers; the record in the middle kills the executor that meets it."""
    delivery = make_delivery(sink, transform="deadly:transform")
    fired = delivery.folder / "fired"
    (delivery.folder / "deadly.py").write_text(_KILLS_EXECUTOR.format(fired=str(fired)))
    process = delivery.driver(master=spark_master)
    assert process.wait(DRIVER_TIMEOUT_S) == 0, delivery.driver_log()
    assert fired.read_text() == "300"
    delivery.assert_exactly_once(delivery.run())


# The executor is looked for first: if that fails, nothing says that the fault was fired.
_KILLS_EXECUTOR = """
import pathlib
import psutil
from pyspark.sql import functions as F

@F.udf("bigint")
def deadly(number):
    fired = pathlib.Path({fired!r})
    if number == 300 and not fired.exists():
        executor = next(p for p in psutil.Process().parents() if p.name() == "java")
        fired.write_text("300")
        executor.kill()
    return number

def transform(rows):
    return rows.withColumn("number", deadly("number"))
"""


@pytest.mark.full
@pytest.mark.parametrize("sink", SINKS)
def test_a_worker_killed_in_the_middle_of_a_batch(
    sink: str, make_delivery: MakeDelivery, tmp_path: Path
) -> None:
    """The worker and its executor die by kill -9; the worker at the other address takes over."""
    delivery = make_delivery(sink, transform="deadly:transform")
    fired = delivery.folder / "fired"
    (delivery.folder / "deadly.py").write_text(_KILLS_WORKER.format(fired=str(fired)))
    with standalone_spark(tmp_path) as cluster:
        process = delivery.driver(master=cluster.address)
        assert process.wait(DRIVER_TIMEOUT_S) == 0, delivery.driver_log()
        assert fired.read_text() == "300"
        assert cluster.dead_workers() == 1
    delivery.assert_exactly_once(delivery.run())


_KILLS_WORKER = """
import pathlib
import psutil
from pyspark.sql import functions as F

@F.udf("bigint")
def deadly(number):
    fired = pathlib.Path({fired!r})
    if number == 300 and not fired.exists():
        executor, worker = [p for p in psutil.Process().parents() if p.name() == "java"][:2]
        assert "org.apache.spark.deploy.worker.Worker" in worker.cmdline()
        fired.write_text("300")
        worker.kill()
        executor.kill()
    return number

def transform(rows):
    return rows.withColumn("number", deadly("number"))
"""


@pytest.mark.full
def test_a_master_that_restarts_without_recovery_ends_the_run_and_the_next_one_completes_it(
    make_delivery: MakeDelivery, tmp_path: Path
) -> None:
    """In the middle of a batch: its job would wait for executors that nobody will grant."""
    delivery = make_delivery("parquet", transform="waiting:transform", retry_max_s=3600)
    begun, released = delivery.folder / "begun", delivery.folder / "released"
    (delivery.folder / "waiting.py").write_text(
        _WAITS.format(begun=str(begun), released=str(released))
    )
    with standalone_spark(tmp_path) as cluster:
        process = delivery.driver(master=cluster.address)
        assert wait_until(begun.exists, timeout_s=DRIVER_TIMEOUT_S), delivery.driver_log()
        cluster.restart_master()
        assert process.wait(DRIVER_TIMEOUT_S) == 4, delivery.driver_log()
        assert "does not have this application any more" in delivery.driver_log()
        released.touch()
    delivery.assert_exactly_once(delivery.run())


_WAITS = """
import pathlib, time
from pyspark.sql import functions as F

@F.udf("bigint")
def waiting(number):
    deadline = time.monotonic() + 600
    while number == 300 and not pathlib.Path({released!r}).exists():
        assert time.monotonic() < deadline
        pathlib.Path({begun!r}).touch()
        time.sleep(0.1)
    return number

def transform(rows):
    return rows.withColumn("number", waiting("number"))
"""


@each_time_on("delta")
def test_a_partition_leader_killed_between_batches(
    sink: str, make_delivery: MakeDelivery, lossless_cluster: Any
) -> None:
    delivery = make_delivery(sink)
    killed: list[int] = []

    def kill_the_leader(event: Event) -> None:
        if isinstance(event, Committed) and not killed:
            killed.append(lossless_cluster.leader_of(delivery.topic, 0))
            lossless_cluster.kill(killed[0])

    try:
        ledger = delivery.run(kill_the_leader)
        assert lossless_cluster.leader_of(delivery.topic, 0) != killed[0]
    finally:
        for broker in killed:
            lossless_cluster.restart(broker)
    delivery.assert_exactly_once(ledger)


def test_questions_about_the_log_are_answered_though_the_broker_to_ask_has_died(
    make_delivery: MakeDelivery, lossless_cluster: Any
) -> None:
    """A driver must not wait for the broker that it took for the controller before."""
    delivery = make_delivery("parquet")
    source = SourceLog({"bootstrap.servers": delivery.bootstrap_servers})
    asked = source._admin.list_topics(timeout=15).controller_id
    lossless_cluster.kill(asked)
    try:
        partitions = source.partitions([delivery.topic])
        latest = source.latest(partitions)
    finally:
        lossless_cluster.restart(asked)
    assert sum(latest.values()) == delivery.produced


@pytest.mark.parametrize("cut", ["before", "after"])
def test_a_connection_cut_during_commit(
    cut: Literal["before", "after"], make_delivery: MakeDelivery, postgres_server: Any
) -> None:
    delivery = make_delivery("postgres")
    with CuttingProxy(postgres_server.port) as proxy:
        delivery.write_contract(dsn=f"{delivery.dsn} port={proxy.port}")

        def arm(event: Event) -> None:
            if isinstance(event, Committed) and event.ledger.sequence == 2:
                proxy.arm(cut)

        ledger = delivery.run(arm)
        assert proxy.fired == 1
    delivery.assert_exactly_once(ledger)


@each_time_on("postgres")
def test_a_sink_that_is_down_and_comes_back(
    sink: str, make_delivery: MakeDelivery, postgres_server: Any
) -> None:
    delivery = make_delivery(sink)
    away = _Outage(delivery, postgres_server)
    retries: list[str] = []

    def down_then_up(event: Event) -> None:
        if isinstance(event, Committed) and not away.happened:
            away.begin()
        elif isinstance(event, Retrying):
            retries.append(event.why)
            away.end()

    try:
        ledger = delivery.run(down_then_up)
    finally:
        away.end()
    assert away.happened
    assert retries
    delivery.assert_exactly_once(ledger)


class _Outage:
    """A database server that is stopped; a table whose folder is out of reach."""

    def __init__(self, delivery: Delivery, server: Any) -> None:
        self._delivery = delivery
        self._server = server
        self._aside = Path(f"{delivery.table}.aside")
        self.happened = False
        self._lasts = False

    def begin(self) -> None:
        self.happened = self._lasts = True
        if self._delivery.sink == "postgres":
            self._server.stop()
            return
        # A file where the folder was: whoever wants to list or write there fails, root or not.
        Path(self._delivery.table).rename(self._aside)
        Path(self._delivery.table).write_text("out of reach")

    def end(self) -> None:
        if not self._lasts:
            return
        self._lasts = False
        if self._delivery.sink == "postgres":
            self._server.start()
            return
        Path(self._delivery.table).unlink()
        self._aside.rename(self._delivery.table)


@pytest.mark.parametrize("sink", [pytest.param("delta", marks=pytest.mark.full), "parquet"])
def test_a_disk_that_is_full_and_has_room_again(
    sink: str, make_delivery: MakeDelivery, spark: SparkSession
) -> None:
    """No file that the JVM writes may grow, until the first retry."""
    delivery = make_delivery(sink)
    java: int = spark.sparkContext._gateway.proc.pid  # type: ignore[union-attr]
    before = resource.prlimit(java, resource.RLIMIT_FSIZE)

    def limit(file_bytes_max: int | None) -> None:
        soft = before[0] if file_bytes_max is None else file_bytes_max
        resource.prlimit(java, resource.RLIMIT_FSIZE, (soft, before[1]))

    assert full_until_the_first_retry(delivery, lambda: limit(0), lambda: limit(None))


def test_a_database_whose_disk_is_full_and_has_room_again(make_delivery: MakeDelivery) -> None:
    """The server's own files (1 MB of WAL each, the catalog) stay below the limit, and what a
    batch stages does not: 200 rows of 20 kB that do not compress."""
    delivery = make_delivery("postgres", transform="wide:transform")
    (delivery.folder / "wide.py").write_text(_WIDENS)
    with running_postgres(wal_segment_mb=1, fsync="off") as server:
        delivery.dsn = server.dsn(server.create_database())
        delivery.write_contract()
        [why] = full_until_the_first_retry(
            delivery, lambda: server.limit_files(2 << 20), lambda: server.limit_files(None)
        )
        assert "File too large" in why


_WIDENS = """
from pyspark.sql import functions as F

def transform(rows):
    digests = "transform(sequence(1, 320), i -> sha2(concat(number, '-', i), 256))"
    return rows.withColumn("wide", F.expr(f"array_join({digests}, '')"))
"""


def full_until_the_first_retry(
    delivery: Delivery, fill: Callable[[], None], free: Callable[[], None]
) -> list[str]:
    """Delivers, with the disk full after the first batch; gives what the retries were for."""
    filled: list[Event] = []
    retries: list[str] = []

    def fill_then_free(event: Event) -> None:
        if isinstance(event, Committed) and not filled:
            filled.append(event)
            fill()
        elif isinstance(event, Retrying):
            retries.append(event.why)
            free()

    try:
        ledger = delivery.run(fill_then_free)
    finally:
        free()
    delivery.assert_exactly_once(ledger)
    return retries
