"""What Delta itself, or somebody else with it, does to the table."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from delta_driver import SOURCES, Driver, before_commit, outcomes, parquet_files

from lossless.errors import Fenced, PromiseBroken
from lossless.pipeline.ledger import Position
from lossless.pipeline.outcomes import DEAD_LETTER, IS_DEAD
from lossless.pipeline.sinks import delta_log

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# The traps


@pytest.mark.parametrize(
    "commits_read_max", [delta_log.COMMITS_READ_MAX, pytest.param(0, marks=pytest.mark.full)]
)
def test_restore_to_before_our_last_commit_is_refused_until_it_is_undone(
    spark: SparkSession,
    driver: Driver,
    path: str,
    monkeypatch: pytest.MonkeyPatch,
    commits_read_max: int,
) -> None:
    monkeypatch.setattr(delta_log, "COMMITS_READ_MAX", commits_read_max)
    driver.write([(0, 0)])
    driver.write([(0, 1)])
    staged = driver.stage([(0, 2)])
    spark.sql(f"RESTORE TABLE delta.`{path}` TO VERSION AS OF 1")
    with pytest.raises(PromiseBroken, match="RESTORE"):
        driver.commit(staged)
    with pytest.raises(PromiseBroken, match="RESTORE") as refused:
        driver.sink.ledger()
    assert refused.value.hint is not None
    assert "TO VERSION AS OF 2" in refused.value.hint
    assert driver.contents == ([(0, 0)], [])

    spark.sql(f"RESTORE TABLE delta.`{path}` TO VERSION AS OF 2")
    assert driver.sink.ledger() == driver.head
    driver.commit(staged)
    assert driver.contents == ([(0, 0), (0, 1), (0, 2)], [])


def commit_file(path: str, version: int) -> Path:
    return Path(path) / "_delta_log" / f"{version:020}.json"


@pytest.mark.full
def test_the_ledger_is_followed_without_a_job_over_the_whole_log(
    spark: SparkSession, driver: Driver, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def asked(self: delta_log.Snapshot) -> dict[str, int]:
        raise AssertionError(f"version {self.version} was asked for all its transactions")

    with monkeypatch.context() as patch:
        patch.setattr(delta_log.Snapshot, "all_transactions", asked)
        driver.write([(0, 0)], [(0, 1)])
        driver.write([(0, 2)], [(0, 3)])
        assert Driver(spark, path).head == driver.head  # of a short log all is read
    for limit in ("COMMITS_READ_MAX", "COMMIT_BYTES_MAX"):
        with monkeypatch.context() as patch:
            patch.setattr(delta_log, limit, 0)
            assert Driver(spark, path).head == driver.head
            driver.write([(1, 0)])


def test_a_commit_whose_place_somebody_else_took_is_noticed(driver: Driver, path: str) -> None:
    """A writer that knows no lock, on a local disk: its rename comes after ours."""
    driver.write([(0, 0)])
    driver.write([(0, 1)])
    ours = commit_file(path, 2)
    actions = ours.read_text().splitlines(keepends=True)
    ours.with_name(f".{ours.name}.crc").unlink()
    ours.write_text("".join(each for each in actions if "commitInfo" in each))
    with pytest.raises(Fenced, match="is at sequence 1, and this one had read 2"):
        driver.write([(0, 2)])


@pytest.mark.full
def test_a_log_that_was_put_back_and_written_on_is_not_taken_for_the_one_that_was_read(
    spark: SparkSession, driver: Driver, path: str
) -> None:
    driver.write([(0, 0)])
    shutil.copytree(path, f"{path}.backup")
    driver.write([(0, 1)])
    assert driver.sink.dead_letters().isEmpty()  # it has read the log up to here
    staged = driver.stage([(0, 2)])
    staging = next(Path(path).glob("*.3.rows"))
    shutil.move(staging, f"{path}.backup")
    shutil.rmtree(path)
    shutil.copytree(f"{path}.backup", path)
    foreign = outcomes(spark, [(1, 99)]).drop(DEAD_LETTER, IS_DEAD)
    jvm: Any = spark._jvm
    jvm.org.apache.spark.sql.delta.DeltaLog.clearCache()
    for _ in range(3):
        foreign.write.format("delta").mode("append").save(path)
    with pytest.raises(Fenced, match="is at sequence 1, and this one had read 2"):
        driver.commit(staged)


def test_restore_between_check_and_commit_does_not_go_unnoticed(
    spark: SparkSession, driver: Driver, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver.write([(0, 0)])
    staged = driver.stage([(0, 1)])

    def restore() -> None:
        spark.sql(f"RESTORE TABLE delta.`{path}` TO VERSION AS OF 0")

    with before_commit(monkeypatch, restore), pytest.raises(PromiseBroken, match="RESTORE"):
        driver.commit(staged)
    with pytest.raises(PromiseBroken, match="RESTORE"):
        driver.sink.ledger()


def test_a_table_that_forgets_transactions_is_refused(
    spark: SparkSession, driver: Driver, path: str
) -> None:
    staged = driver.stage([(0, 0)])
    spark.sql(
        f"ALTER TABLE delta.`{path}` SET TBLPROPERTIES "
        "('delta.setTransactionRetentionDuration' = 'interval 1 day')"
    )
    with pytest.raises(PromiseBroken, match="setTransactionRetentionDuration"):
        driver.sink.ledger()
    with pytest.raises(PromiseBroken, match="setTransactionRetentionDuration"):
        driver.commit(staged)


def test_a_batch_that_was_filtered_whole_moves_the_ledger_only(driver: Driver) -> None:
    staged = driver.stage([])
    assert staged.receipts == {}
    moved = driver.head.successor({SOURCES[0]: Position(start_offset=0, next_offset=5)})
    driver.sink.commit(driver.head, moved, staged)
    assert driver.sink.ledger() == moved
    assert driver.contents == ([], [])


@pytest.mark.full
def test_log_clean_up_forgets_the_history_and_keeps_the_ledger(
    spark: SparkSession, driver: Driver, path: str
) -> None:
    driver.write([(0, 0)], [(0, 1)])
    driver.write([(0, 2)])
    jvm: Any = spark._jvm
    log = jvm.org.apache.spark.sql.delta.DeltaLog.forTable(spark._jsparkSession, path)
    log.checkpoint()
    long_ago = time.time() - 60 * 86_400  # the log is kept for 30 days
    for file in (Path(path) / "_delta_log").glob("*.json"):
        os.utime(file, (long_ago, long_ago))
    none = getattr(getattr(jvm.scala, "None$"), "MODULE$")
    to_the_day = getattr(log, "cleanUpExpiredLogs$default$4")()
    log.cleanUpExpiredLogs(log.update(False, none, none), none, none, to_the_day)
    assert not (Path(path) / "_delta_log" / f"{1:020}.json").exists()

    successor = Driver(spark, path)
    assert successor.head == driver.head
    # The version of the checkpoint itself is kept.
    assert [entry.sequence for entry in successor.sink.history()] == [2]
    successor.write([(0, 3)])
    assert successor.contents == ([(0, 0), (0, 2), (0, 3)], [(0, 1)])


@pytest.mark.full
def test_optimize_and_vacuum_keep_rows_and_ledger(
    spark: SparkSession, driver: Driver, path: str
) -> None:
    driver.write([(0, 0)], [(0, 1)])
    driver.write([(0, 2)])
    with vacuum_at_once(spark):
        spark.sql(f"VACUUM delta.`{path}` RETAIN 0 HOURS")
        assert driver.contents == ([(0, 0), (0, 2)], [(0, 1)])
        spark.sql(f"OPTIMIZE delta.`{path}`")
        driver.sink.sweep()  # what OPTIMIZE replaced is still needed for time travel
        assert len(parquet_files(path)) == 3
        spark.sql(f"VACUUM delta.`{path}` RETAIN 0 HOURS")
    assert len(parquet_files(path)) == 1
    assert driver.sink.ledger() == driver.head
    driver.write([(0, 3)])
    assert driver.contents == ([(0, 0), (0, 2), (0, 3)], [(0, 1)])


@contextmanager
def vacuum_at_once(spark: SparkSession) -> Iterator[None]:
    settings = {
        "spark.databricks.delta.retentionDurationCheck.enabled": "false",
        # Its listing is a job of ten thousand tasks otherwise.
        "spark.sql.sources.parallelPartitionDiscovery.parallelism": "2",
    }
    for name, value in settings.items():
        spark.conf.set(name, value)
    yield
    for name in settings:
        spark.conf.unset(name)
