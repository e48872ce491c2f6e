"""Replays, zombies and crashes; outcomes that are not known; disks that are full."""

from __future__ import annotations

import errno
import os
import resource
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from parquet_writer import (
    ROWS,
    SOURCE,
    after,
    commit_directory,
    deliver,
    everything,
    ids,
    outcomes,
    staging_directories,
)
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from lossless.errors import BadInput, Fenced, LosslessError
from lossless.pipeline.ledger import Ledger, Position
from lossless.pipeline.sinks import parquet
from lossless.pipeline.sinks.folder import LocalFolder
from lossless.pipeline.sinks.interface import CommitUnknown, SinkUnavailable, Staged
from lossless.pipeline.sinks.parquet import ParquetSink
from lossless.pipeline.sinks.parquet_staging import Staging

# Replays, zombies and crashes


def test_a_replayed_commit_is_fenced_and_changes_nothing(
    spark: SparkSession, sink: ParquetSink, path: Path
) -> None:
    staged = sink.stage(outcomes(spark, [0, 1]), may_expand=False)
    successor = after(Ledger(), staged, next_offset=2)
    sink.commit(Ledger(), successor, staged)
    before = everything(path)

    with pytest.raises(Fenced):
        sink.commit(Ledger(), successor, staged)
    again = sink.stage(outcomes(spark, [0, 1]), may_expand=False)
    with pytest.raises(Fenced, match="stands at commit 1"):
        sink.commit(Ledger(), successor, again)

    assert everything(path) == before
    assert staging_directories(path) == []


@pytest.mark.parametrize(
    "expected",
    [
        Ledger(sequence=1, positions={SOURCE: Position(start_offset=0, next_offset=9)}),
        Ledger(sequence=7),
    ],
    ids=["other-content", "ahead"],
)
def test_a_commit_from_a_ledger_that_is_not_the_stored_one_is_fenced(
    spark: SparkSession, sink: ParquetSink, path: Path, expected: Ledger
) -> None:
    deliver(sink, outcomes(spark, [0]), next_offset=1)
    before = everything(path)

    with pytest.raises(Fenced):
        sink.commit(expected, expected.successor({}), None)

    assert everything(path) == before


@pytest.mark.parametrize("winner", ["first", "second"])
def test_of_two_drivers_that_staged_the_same_batch_one_commits(
    spark: SparkSession, sink: ParquetSink, another_driver: ParquetSink, path: Path, winner: str
) -> None:
    drivers = [sink, another_driver] if winner == "first" else [another_driver, sink]
    staged = {id(d): d.stage(outcomes(spark, [0, 1]), may_expand=False) for d in drivers}
    fast, zombie = drivers
    successor = after(Ledger(), staged[id(fast)], next_offset=2)
    fast.commit(Ledger(), successor, staged[id(fast)])
    before = everything(path)

    with pytest.raises(Fenced):
        zombie.commit(Ledger(), successor, staged[id(zombie)])

    assert everything(path) == before
    assert ids(fast.rows()) == [100, 101]


def test_of_two_drivers_that_commit_at_the_same_moment_one_is_fenced(
    spark: SparkSession, sink: ParquetSink, another_driver: ParquetSink
) -> None:
    start = threading.Barrier(2)
    results: list[str] = []

    def commit(driver: ParquetSink, staged: Staged) -> None:
        start.wait()
        try:
            driver.commit(Ledger(), after(Ledger(), staged, next_offset=1), staged)
            results.append("committed")
        except Fenced:
            results.append("fenced")

    threads = [
        threading.Thread(target=commit, args=(d, d.stage(outcomes(spark, [0]), may_expand=False)))
        for d in (sink, another_driver)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert sorted(results) == ["committed", "fenced"]
    assert ids(sink.rows()) == [100]


def test_what_a_dead_driver_staged_is_invisible_and_swept(
    spark: SparkSession, sink: ParquetSink, another_driver: ParquetSink, path: Path
) -> None:
    deliver(sink, outcomes(spark, [0]), next_offset=1)
    before = everything(path)
    sink.stage(outcomes(spark, [1], dead=[2]), may_expand=False)  # and dies

    assert everything(path) == before
    assert ids(spark.read.parquet(str(path))) == [100]
    assert len(staging_directories(path)) == 1
    another_driver.sweep()
    assert staging_directories(path) == []
    assert everything(path) == before


def test_a_driver_whose_staging_was_swept_publishes_nothing(
    spark: SparkSession, sink: ParquetSink, another_driver: ParquetSink, path: Path
) -> None:
    staged = sink.stage(outcomes(spark, [0, 1]), may_expand=False)
    another_driver.sweep()

    with pytest.raises(Fenced, match="removed what this one had staged"):
        sink.commit(Ledger(), after(Ledger(), staged, next_offset=2), staged)

    assert another_driver.ledger() == Ledger()
    assert not commit_directory(path, 1).exists()


def test_a_batch_that_is_swept_while_its_tasks_write_is_not_taken_for_whole(
    spark: SparkSession, sink: ParquetSink, path: Path
) -> None:
    work = str(path / "_lossless")

    @F.udf("long")
    def sweep_at_the_tenth(identifier):
        if identifier == 110:
            for name in os.listdir(work):
                if name.startswith("staging-"):
                    os.rename(f"{work}/{name}", f"{work}/swept-{name}")
        return identifier

    # What tasks wrote until then is gone; those that start later write under the old name again.
    batch = outcomes(spark, range(20)).repartitionByRange(8, "id")
    with pytest.raises(Fenced, match="removed what this one had staged"):
        sink.stage(batch.withColumn("id", sweep_at_the_tenth("id")), may_expand=False)

    sink.sweep()
    assert staging_directories(path) == []


def test_a_batch_that_fails_leaves_nothing_behind(
    spark: SparkSession, sink: ParquetSink, path: Path
) -> None:
    batch = outcomes(spark, range(10)).withColumn(
        "name", F.when(F.col("id") == 109, F.raise_error(F.lit("broken record"))).otherwise("ok")
    )
    with pytest.raises(Exception, match="broken record") as failure:
        sink.stage(batch, may_expand=False)

    assert not isinstance(failure.value, LosslessError)  # the runner must see what Spark said
    assert staging_directories(path) == []


def test_what_was_staged_is_on_disk_before_it_is_published(
    spark: SparkSession, sink: ParquetSink, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    events: list[tuple[str, int]] = []
    fsync, rename = os.fsync, os.rename

    def recording_fsync(descriptor: int) -> None:
        fsync(descriptor)
        events.append(("flushed", os.fstat(descriptor).st_ino))

    def recording_rename(source: str, target: str) -> None:
        rename(source, target)
        if target == str(commit_directory(path, 1)):
            events.append(("published", os.stat(target).st_ino))

    monkeypatch.setattr(os, "fsync", recording_fsync)
    monkeypatch.setattr(os, "rename", recording_rename)
    deliver(sink, outcomes(spark, [0, 1], dead=[2]), next_offset=3)

    published = commit_directory(path, 1)
    at = events.index(("published", published.stat().st_ino))
    must_be_flushed = {entry.stat().st_ino for entry in [published, *published.rglob("*")]}
    assert must_be_flushed <= {inode for _, inode in events[:at]}
    assert ("flushed", path.stat().st_ino) in events[at:]


# Outcomes that are not known, and sinks that cannot be written


class FailingFolder(LocalFolder):
    """Publishing fails, before or after it took effect."""

    def __init__(self, path: str, *, takes_effect: bool) -> None:
        super().__init__(path, lock_name="_lossless/lock")
        self.takes_effect = takes_effect
        self.broken = True

    def rename(self, source: str, target: str) -> None:
        publishing = self.broken and target.startswith("lossless_commit=")
        if not publishing or self.takes_effect:
            super().rename(source, target)
        if publishing:
            raise OSError(errno.EIO, os.strerror(errno.EIO))


@pytest.mark.parametrize("takes_effect", [True, False])
def test_after_an_error_while_publishing_the_ledger_tells_the_outcome(
    spark: SparkSession, path: Path, monkeypatch: pytest.MonkeyPatch, takes_effect: bool
) -> None:
    folder = FailingFolder(str(path), takes_effect=takes_effect)
    monkeypatch.setattr(parquet, "open_folder", lambda *_, **__: folder)
    sink = ParquetSink(spark, "orders", str(path))
    sink.prepare(ROWS, add_columns=False)
    staged = sink.stage(outcomes(spark, [0, 1]), may_expand=False)
    successor = after(Ledger(), staged, next_offset=2)

    with pytest.raises(CommitUnknown, match="Input/output error"):
        sink.commit(Ledger(), successor, staged)

    assert sink.ledger() == (successor if takes_effect else Ledger())
    if not takes_effect:
        folder.broken = False
        sink.commit(Ledger(), successor, staged)  # what was staged is still good
    assert sink.ledger() == successor
    assert ids(sink.rows()) == [100, 101]


@pytest.fixture
def jvm_file_size_limit(spark: SparkSession) -> Iterator[Callable[[int], None]]:
    """A disk that is full after so many bytes, for Spark's files."""
    pid = spark._jvm.java.lang.ProcessHandle.current().pid()
    before = resource.prlimit(pid, resource.RLIMIT_FSIZE)
    yield lambda size: resource.prlimit(pid, resource.RLIMIT_FSIZE, (size, before[1])) and None
    resource.prlimit(pid, resource.RLIMIT_FSIZE, before)


def test_a_full_disk_while_staging_says_so_and_the_next_try_succeeds(
    spark: SparkSession,
    sink: ParquetSink,
    path: Path,
    jvm_file_size_limit: Callable[[int], None],
) -> None:
    before = everything(path)
    jvm_file_size_limit(100)
    with pytest.raises(SinkUnavailable, match="File too large"):
        sink.stage(outcomes(spark, range(50)), may_expand=False)
    jvm_file_size_limit(resource.RLIM_INFINITY)

    assert everything(path) == before
    assert staging_directories(path) == []
    deliver(sink, outcomes(spark, [0]), next_offset=1)
    assert ids(sink.rows()) == [100]


def test_a_path_that_is_a_file_is_refused(spark: SparkSession, path: Path) -> None:
    path.write_text("not a directory")
    sink = ParquetSink(spark, "orders", str(path))

    with pytest.raises(BadInput, match="Not a directory"):
        sink.ledger()
    with pytest.raises(BadInput, match="must be a directory"):
        sink.prepare(ROWS, add_columns=False)
    assert path.read_text() == "not a directory"


def test_a_path_below_a_file_is_refused(spark: SparkSession, path: Path) -> None:
    path.write_text("not a directory")

    with pytest.raises(BadInput, match="Not a directory"):
        ParquetSink(spark, "orders", f"{path}/below").prepare(ROWS, add_columns=False)


@pytest.mark.parametrize("scheme", ["s3a", "gs", "abfss", "oss"])
def test_an_object_store_is_refused_with_the_way_out(spark: SparkSession, scheme: str) -> None:
    with pytest.raises(BadInput, match="atomic rename") as refusal:
        ParquetSink(spark, "orders", f"{scheme}://bucket/orders")
    assert "delta" in str(refusal.value)


def test_a_path_that_spark_would_take_for_a_pattern_is_refused(spark: SparkSession) -> None:
    with pytest.raises(BadInput, match="pattern"):
        ParquetSink(spark, "orders", "/data/orders-[eu]")


@pytest.mark.parametrize("seen", ["all", "some"])
def test_on_a_cluster_a_path_that_machines_do_not_share_is_refused(
    spark: SparkSession, path: Path, seen: str
) -> None:
    class DriversDisk(LocalFolder):
        def sizes(self, name: str) -> dict[str, int]:
            found = dict(super().sizes(name))
            return found if seen == "all" else dict(list(found.items())[1:])

    cluster: Any = SimpleNamespace(
        sparkContext=SimpleNamespace(master="spark://host:7077", defaultParallelism=2),
        range=spark.range,
        _jvm=spark._jvm,
        _jsc=spark._jsc,
    )
    staging = Staging(cluster, DriversDisk(str(path), lock_name="_lossless/lock"))
    if seen == "all":
        staging.check_that_executors_share_the_path()
    else:
        with pytest.raises(BadInput, match="of 4 tasks only 3 wrote"):
            staging.check_that_executors_share_the_path()
    assert staging_directories(path) == []


def test_the_sessions_committer_settings_do_not_matter(
    spark: SparkSession, sink: ParquetSink
) -> None:
    settings = spark._jsc.hadoopConfiguration()
    settings.set("mapreduce.fileoutputcommitter.marksuccessfuljobs", "false")
    try:
        deliver(sink, outcomes(spark, [0]), next_offset=1)
    finally:
        settings.unset("mapreduce.fileoutputcommitter.marksuccessfuljobs")
    assert ids(sink.rows()) == [100]
