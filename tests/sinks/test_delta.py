"""The Delta sink: what interface.py promises, and the traps that Delta sets on the way."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import Row
from pyspark.sql import types as T

from lossless.errors import BadInput, Fenced, PromiseBroken, Unavailable
from lossless.pipeline.ledger import Ledger, Position, Receipt, SourcePartition
from lossless.pipeline.outcomes import (
    DEAD_LETTER,
    DEAD_LETTER_TYPE,
    IS_DEAD,
    PROVENANCE,
    PROVENANCE_TYPE,
)
from lossless.pipeline.sinks import delta, delta_letters, delta_log
from lossless.pipeline.sinks.delta import DeltaSink
from lossless.pipeline.sinks.interface import CommitUnknown, SinkUnavailable, Staged
from lossless.tally import Tally, record_hash
from outcomes_from import outcomes_from

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

TOPIC_ID = "q8F7Zc1mQ2eXo9nJ0kLh_w"
SOURCES = {p: SourcePartition("shop.orders", TOPIC_ID, p) for p in (0, 1)}
ROWS = T.StructType(
    [T.StructField("amount", T.LongType()), T.StructField(PROVENANCE, PROVENANCE_TYPE)]
)
At = tuple[int, int]  # partition, offset


def outcomes(
    spark: SparkSession, rows: Iterable[At], dead: Iterable[At] = (), schema: T.StructType = ROWS
) -> DataFrame:
    """Rows whose amount is ten times their offset, and dead letters."""
    wide = T.StructType([*schema.fields, T.StructField(DEAD_LETTER, DEAD_LETTER_TYPE)])
    values: list[dict[str, Any]] = [
        {"amount": offset * 10, PROVENANCE: (TOPIC_ID, partition, offset, None), DEAD_LETTER: None}
        for partition, offset in rows
    ]
    values += [
        {
            PROVENANCE: (TOPIC_ID, partition, offset, None),
            DEAD_LETTER: (b"key", b"{broken", [("h", b"1")], {"kafka_dlt-exception-message": "no"}),
        }
        for partition, offset in dead
    ]
    return outcomes_from(
        spark.createDataFrame(
            [tuple(each.get(name) for name in wide.fieldNames()) for each in values], wide
        )
    )


def after(expected: Ledger, staged: Staged) -> Ledger:
    """The ledger after a batch that read exactly what it stored and buried."""
    changed = {}
    for (_, partition), receipt in staged.receipts.items():
        source = SOURCES[partition]
        before = expected.positions.get(source, Position(start_offset=0, next_offset=0))
        full = replace(receipt, read=receipt.stored + receipt.dead)
        changed[source] = before.advanced(before.next_offset + full.read.count, full)
    return expected.successor(changed)


def tally_of(*records: At) -> Tally:
    total = Tally()
    for partition, offset in records:
        total = total + Tally(1, record_hash(TOPIC_ID, partition, offset))
    return total


def all_letters(spark: SparkSession, path: str) -> list[int]:
    """The sequences of all letters in the table, visible or not."""
    found = spark.read.format("delta").load(f"{path}_dlt").collect()
    return sorted(row["_sequence"] for row in found)


def parquet_files(path: str) -> set[str]:
    return {str(file.relative_to(path)) for file in Path(path).rglob("*.parquet")}


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "orders [eu]")  # what a glob would trip over


class Driver:
    """What a driver does: reads the ledger once, at its start, and goes on from there."""

    def __init__(self, spark: SparkSession, path: str, pipeline: str = "orders") -> None:
        self.spark = spark
        self.sink = DeltaSink(spark, pipeline, path)
        self.head = self.sink.ledger()
        self.sink.sweep()
        self.sink.prepare(ROWS, add_columns=False)

    def stage(self, rows: Iterable[At], dead: Iterable[At] = ()) -> Staged:
        return self.sink.stage(outcomes(self.spark, rows, dead), may_expand=False)

    def commit(self, staged: Staged) -> None:
        successor = after(self.head, staged)
        self.sink.commit(self.head, successor, staged)
        self.head = successor

    def write(self, rows: Iterable[At], dead: Iterable[At] = ()) -> None:
        self.commit(self.stage(rows, dead))

    @property
    def contents(self) -> tuple[list[At], list[At]]:
        """The rows and the dead letters that count."""
        return _records(self.sink.rows()), _records(self.sink.dead_letters())


def _records(frame: DataFrame) -> list[At]:
    found = frame.select(f"{PROVENANCE}.partition", f"{PROVENANCE}.offset").collect()
    return sorted((row["partition"], row["offset"]) for row in found)


@pytest.fixture
def driver(spark: SparkSession, path: str) -> Driver:
    return Driver(spark, path)


@contextmanager
def before_commit(monkeypatch: pytest.MonkeyPatch, act: Callable[[], Any]) -> Iterator[None]:
    """Acts once, between the check of the ledger and the commit of the data table."""
    commit = delta_log.Transaction.commit
    acted: list[bool] = []

    def interrupted(self: delta_log.Transaction, *arguments: Any, **keywords: Any) -> int:
        if keywords.get("user_metadata") is not None and not acted:
            acted.append(True)
            act()
        return commit(self, *arguments, **keywords)

    with monkeypatch.context() as patch:
        patch.setattr(delta_log.Transaction, "commit", interrupted)
        # The other driver may not wait for the lock that this one holds: as on an object store.
        patch.setattr(delta_log.DeltaLog, "locked", _unlocked)
        yield
    assert acted, "nobody came between"


@contextmanager
def _unlocked(self: delta_log.DeltaLog) -> Iterator[None]:  # noqa: ARG001
    yield


# What a sink promises


def test_rows_letters_and_ledger_become_visible_together(
    spark: SparkSession, driver: Driver, path: str
) -> None:
    assert driver.head == Ledger()
    staged = driver.stage([(0, 0), (0, 1), (1, 0)], [(0, 2)])
    assert driver.contents == ([], [])
    assert driver.sink.ledger() == Ledger()

    driver.commit(staged)
    assert driver.contents == ([(0, 0), (0, 1), (1, 0)], [(0, 2)])
    assert DeltaSink(spark, "orders", path).ledger() == driver.head
    rows = driver.sink.rows()
    assert rows.columns == ["amount", PROVENANCE]
    assert sorted(row["amount"] for row in rows.collect()) == [0, 0, 10]
    assert driver.sink.dead_letters().collect() == [
        Row(
            _lossless=Row(topic_id=TOPIC_ID, partition=0, offset=2, timestamp=None),
            key=bytearray(b"key"),
            value=bytearray(b"{broken"),
            record_headers=[Row(key="h", value=bytearray(b"1"))],
            headers={"kafka_dlt-exception-message": "no"},
        )
    ]


def test_receipts_count_what_was_written(driver: Driver) -> None:
    assert driver.stage([(0, 0), (0, 1), (1, 7)], [(1, 8)]).receipts == {
        (TOPIC_ID, 0): Receipt(stored=tally_of((0, 0), (0, 1)), rows=2),
        (TOPIC_ID, 1): Receipt(stored=tally_of((1, 7)), dead=tally_of((1, 8)), rows=1),
    }


def test_an_expanding_transform_stores_more_rows_than_source_offsets(
    spark: SparkSession, driver: Driver
) -> None:
    expanded = outcomes(spark, [(0, 0), (0, 1), (0, 1), (0, 1)], [(1, 0)])
    assert driver.sink.stage(expanded, may_expand=True).receipts == {
        (TOPIC_ID, 0): Receipt(stored=tally_of((0, 0), (0, 1)), rows=4),
        (TOPIC_ID, 1): Receipt(dead=tally_of((1, 0))),
    }


def test_every_field_of_the_ledger_comes_back(driver: Driver) -> None:
    written = Position(
        start_offset=3,
        next_offset=2**62,
        read=Tally(9, 2**64 - 1),
        stored=Tally(5, 2**63),
        dead=Tally(3, 2**63 - 1),
        rows=11,
        lost=2,
        closed=True,
    )
    begun = Position(start_offset=0, next_offset=0)
    first = Ledger().successor({SOURCES[0]: written, SOURCES[1]: begun})
    driver.sink.commit(Ledger(), first, None)
    assert driver.sink.ledger() == first
    second = first.successor({SOURCES[0]: replace(written, closed=False, lost=0)})
    driver.sink.commit(first, second, None)
    assert driver.sink.ledger() == second


def test_a_replayed_batch_is_refused_and_changes_nothing(driver: Driver) -> None:
    before = driver.head
    staged = driver.stage([(0, 0)], [(0, 1)])
    driver.commit(staged)
    with pytest.raises(Fenced):
        driver.sink.commit(before, driver.head, None)
    assert driver.contents == ([(0, 0)], [(0, 1)])


def test_a_zombie_is_fenced_and_leaves_nothing_behind(
    spark: SparkSession, driver: Driver, path: str
) -> None:
    zombie = Driver(spark, path)
    late = zombie.stage([(0, 0), (0, 1)], [(0, 2)])
    driver.write([(0, 0)], [(0, 1)])
    with pytest.raises(Fenced, match=r"is at sequence 1, and this one had read 0"):
        zombie.commit(late)
    assert driver.contents == ([(0, 0)], [(0, 1)])
    assert zombie.sink.ledger() == driver.head
    assert all_letters(spark, path) == [1]
    assert len(parquet_files(path)) == 1  # the winner's


def test_a_zombie_that_checked_in_time_and_commits_too_late_loses(
    spark: SparkSession, driver: Driver, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    zombie = Driver(spark, path)
    late = zombie.stage([(0, 0)], [(0, 1)])

    def overtake() -> None:
        driver.write([(0, 0), (0, 2)], [(0, 1)])

    with before_commit(monkeypatch, overtake), pytest.raises(Fenced):
        zombie.commit(late)
    assert driver.contents == ([(0, 0), (0, 2)], [(0, 1)])
    # Both had written letters for sequence 1; those of the loser are found at the next start.
    assert all_letters(spark, path) == [1, 1]
    driver.sink.sweep()
    assert all_letters(spark, path) == [1]
    assert driver.contents == ([(0, 0), (0, 2)], [(0, 1)])


def test_an_append_by_somebody_else_in_between_disturbs_nobody(
    spark: SparkSession, driver: Driver, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    foreign = outcomes(spark, [(1, 99)]).drop(DEAD_LETTER, IS_DEAD)

    def append() -> None:
        foreign.write.format("delta").mode("append").save(path)

    with before_commit(monkeypatch, append):
        driver.write([(0, 0)])
    driver.write([(0, 1)])
    assert driver.contents == ([(0, 0), (0, 1), (1, 99)], [])
    assert driver.sink.ledger() == driver.head


def test_two_pipelines_share_a_table(spark: SparkSession, driver: Driver, path: str) -> None:
    other = Driver(spark, path, "refunds/eu")
    driver.write([(0, 0)], [(0, 1)])
    other.write([(1, 0)], [(1, 1), (1, 2)])
    driver.sink.sweep()
    other.sink.sweep()
    assert driver.contents == ([(0, 0), (1, 0)], [(0, 1)])
    assert other.contents == ([(0, 0), (1, 0)], [(1, 1), (1, 2)])
    assert (driver.sink.ledger(), other.sink.ledger()) == (driver.head, other.head)
    assert [entry.after for entry in other.sink.history()] == [other.head.positions]


def test_history_tells_each_commit(driver: Driver) -> None:
    driver.write([(0, 0)])
    first = driver.head
    driver.write([(0, 1)])
    entries = driver.sink.history()
    assert [entry.sequence for entry in entries] == [1, 2]
    assert entries[1].before == first.positions
    assert entries[1].after == driver.head.positions


def test_files_of_a_dead_driver_are_removed_once_they_cannot_be_committed(
    spark: SparkSession, driver: Driver, path: str
) -> None:
    driver.stage([(0, 0), (0, 5)], [(0, 6)])  # and then it died
    left = parquet_files(path)
    successor = Driver(spark, path)
    assert parquet_files(path) == left  # it may only be stopped, and could still win
    successor.write([(0, 0)])
    assert not left & parquet_files(path)
    assert successor.contents == ([(0, 0)], [])


def test_what_a_driver_left_between_commit_and_clean_up_is_swept(
    driver: Driver, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(DeltaSink, "_remove_losers", lambda *_: None)
    driver.stage([(0, 8)], [(0, 9)])
    driver.write([(0, 0)], [(0, 1)])
    assert len(parquet_files(path)) == 4
    driver.sink.sweep()
    assert len(parquet_files(path)) == 1
    assert driver.contents == ([(0, 0)], [(0, 1)])


def test_files_are_committed_only_as_the_sequence_they_were_staged_for(driver: Driver) -> None:
    staged = driver.stage([(0, 0)])
    driver.sink.commit(driver.head, driver.head.successor({}), None)
    driver.head = driver.head.successor({})
    with pytest.raises(ValueError, match="cannot be committed as 2"):
        driver.commit(staged)


def test_staged_files_that_vanished_are_not_committed(driver: Driver, path: str) -> None:
    staged = driver.stage([(0, 0)])
    for file in parquet_files(path):
        (Path(path) / file).unlink()
    with pytest.raises(SinkUnavailable, match="are gone"):
        driver.commit(staged)
    assert driver.sink.ledger() == driver.head


def test_copies_of_letters_that_vanished_are_not_committed(driver: Driver, path: str) -> None:
    staged = driver.stage([(0, 0)], [(0, 1)])
    for file in parquet_files(f"{path}_dlt"):
        (Path(f"{path}_dlt") / file).unlink()
    with pytest.raises(SinkUnavailable, match="lost files after the batch was staged"):
        driver.commit(staged)
    assert driver.sink.ledger() == driver.head


def test_letters_for_a_table_that_has_changed_since_are_staged_again(
    spark: SparkSession, driver: Driver, path: str
) -> None:
    staged = driver.stage([(0, 0)], [(0, 1)])
    spark.sql(f"ALTER TABLE delta.`{path}_dlt` ADD COLUMN note STRING")
    with pytest.raises(SinkUnavailable, match="got other columns or properties"):
        driver.commit(staged)
    assert driver.sink.ledger() == driver.head
    driver.commit(driver.stage([(0, 0)], [(0, 1)]))
    assert driver.contents == ([(0, 0)], [(0, 1)])


def test_letters_that_cannot_be_copied_fail_the_batch(driver: Driver, path: str) -> None:
    Path(f"{path}_dlt").write_text("not a folder")
    with pytest.raises(SinkUnavailable, match="staging rows for"):
        driver.stage([(0, 0)], [(0, 1)])
    assert driver.sink.ledger() == driver.head


def test_a_commit_that_fails_on_the_way_is_unknown_and_can_be_tried_again(
    driver: Driver, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    staged = driver.stage([(0, 0)], [(0, 1)])
    log = Path(path) / "_delta_log"

    def take_the_log_away() -> None:
        log.rename(log.with_name("_gone"))
        log.write_text("not a folder")

    with before_commit(monkeypatch, take_the_log_away), pytest.raises(CommitUnknown):
        driver.commit(staged)
    log.unlink()
    log.with_name("_gone").rename(log)
    assert driver.sink.ledger() == driver.head
    driver.commit(staged)
    assert driver.contents == ([(0, 0)], [(0, 1)])


# Dead letters


def die() -> None:
    raise KeyboardInterrupt


def test_letters_of_a_dead_driver_stay_invisible_and_are_swept(
    spark: SparkSession, driver: Driver, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver.write([(0, 0)], [(0, 1)])
    staged = driver.stage([], [(0, 2)])
    with before_commit(monkeypatch, die), pytest.raises(KeyboardInterrupt):
        driver.commit(staged)
    assert all_letters(spark, path) == [1, 2]
    assert driver.contents == ([(0, 0)], [(0, 1)])
    successor = Driver(spark, path)
    assert all_letters(spark, path) == [1, 2]  # it may only be stopped, and could still win
    successor.write([(0, 2)])
    successor.sink.sweep()
    assert all_letters(spark, path) == [1]
    assert successor.contents == ([(0, 0), (0, 2)], [(0, 1)])


def test_abandoned_letters_are_removed_before_others_settle_their_sequence(
    spark: SparkSession, driver: Driver, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    staged = driver.stage([], [(0, 9)])
    with before_commit(monkeypatch, die), pytest.raises(KeyboardInterrupt):
        driver.commit(staged)
    driver.write([(0, 0)], [(0, 1)])
    assert all_letters(spark, path) == [1, 1]
    driver.write([(0, 2)], [(0, 3)])
    assert all_letters(spark, path) == [1, 2]
    assert driver.contents == ([(0, 0), (0, 2)], [(0, 1), (0, 3)])


def test_late_letters_of_a_zombie_are_refused(
    spark: SparkSession, driver: Driver, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It saw the ledger in time, and comes to write its letters when they are settled."""
    zombie = Driver(spark, path)
    late = zombie.stage([], [(0, 0), (0, 1)])
    put_down = delta_letters.DeltaLetters.add
    overtaken: list[bool] = []

    def overtake(self: delta_letters.DeltaLetters, *arguments: Any, **keywords: Any) -> None:
        if not overtaken:
            overtaken.append(True)
            driver.write([(0, 0)])
            driver.write([], [(0, 1)])
        put_down(self, *arguments, **keywords)

    with monkeypatch.context() as patch:
        patch.setattr(delta_letters.DeltaLetters, "add", overtake)
        # Its staged letters are still there to be read: only what is settled can stop it.
        patch.setattr(DeltaSink, "_remove_losers", lambda *_: None)
        patch.setattr(delta_log.DeltaLog, "locked", _unlocked)
        with pytest.raises(Fenced, match="is at sequence 2"):
            zombie.commit(late)
    assert all_letters(spark, path) == [2]
    assert driver.contents == ([(0, 0)], [(0, 1)])


def test_letters_that_came_after_ours_are_looked_for(
    spark: SparkSession, driver: Driver, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver.write([(0, 0)], [(0, 1)])
    zombie = Driver(spark, path)
    late = zombie.stage([], [(0, 2)])
    with before_commit(monkeypatch, die), pytest.raises(KeyboardInterrupt):
        zombie.commit(late)
    assert all_letters(spark, path) == [1, 2]
    driver.write([(0, 2)])
    driver.write([], [(0, 3)])
    assert all_letters(spark, path) == [1, 3]
    assert driver.contents == ([(0, 0), (0, 2)], [(0, 1), (0, 3)])


def test_a_driver_that_wrote_the_last_letters_does_not_look_for_others(
    driver: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked: list[bool] = []
    load = delta_log.DeltaLog.load

    def watched(self: delta_log.DeltaLog, version: int | None = None) -> DataFrame:
        looked.append(True)
        return load(self, version)

    with monkeypatch.context() as patch:
        patch.setattr(delta_log.DeltaLog, "load", watched)
        driver.write([(0, 0)], [(0, 1)])
        driver.write([(0, 2)])
        driver.write([], [(0, 3)])
    assert not looked
    assert driver.contents == ([(0, 0), (0, 2)], [(0, 1), (0, 3)])


def test_a_batch_without_dead_letters_makes_no_table_of_them(driver: Driver, path: str) -> None:
    driver.write([(0, 0)])
    driver.sink.sweep()
    assert driver.contents == ([(0, 0)], [])
    assert not Path(f"{path}_dlt").exists()


def test_a_data_table_put_back_from_a_backup_takes_its_letters_back(
    driver: Driver, path: str
) -> None:
    driver.write([(0, 0)], [(0, 1)])
    shutil.copytree(path, f"{path}.backup")
    driver.write([(0, 2)], [(0, 3)])
    driver.write([(0, 4)], [(0, 5)])
    shutil.rmtree(path)
    shutil.copytree(f"{path}.backup", path)

    driver.head = driver.sink.ledger()
    assert driver.head.sequence == 1
    staged = driver.stage([(0, 2)], [(0, 3)])
    with pytest.raises(PromiseBroken, match="ahead of"):
        driver.commit(staged)
    driver.sink.sweep()
    assert driver.contents == ([(0, 0)], [(0, 1)])
    driver.commit(staged)
    assert driver.contents == ([(0, 0), (0, 2)], [(0, 1), (0, 3)])


# The traps


@pytest.mark.parametrize("commits_read_max", [delta_log.COMMITS_READ_MAX, 0])
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


# The table


def with_columns(*fields: T.StructField) -> T.StructType:
    return T.StructType([*fields, T.StructField(PROVENANCE, PROVENANCE_TYPE)])


def test_columns_are_added_only_when_allowed(spark: SparkSession, driver: Driver) -> None:
    driver.write([(0, 0)])
    sink = driver.sink
    grown = with_columns(
        T.StructField("AMOUNT", T.LongType(), False),
        T.StructField("note", T.StringType(), False),
    )
    difference = sink.schema_difference(grown)
    assert (difference.exists, difference.added) == (True, ("note string",))
    assert not difference.incompatible
    with pytest.raises(BadInput, match="note string"):
        sink.prepare(grown, add_columns=False)
    sink.prepare(grown, add_columns=True)
    frame = spark.createDataFrame(
        [(7, "hi", (TOPIC_ID, 0, 1, None), None)],
        T.StructType([*grown.fields, T.StructField(DEAD_LETTER, DEAD_LETTER_TYPE)]),
    )
    driver.commit(sink.stage(outcomes_from(frame), may_expand=False))
    rows = sink.rows().orderBy("amount").select("amount", "note").collect()
    assert [tuple(row) for row in rows] == [(0, None), (7, "hi")]
    sink.prepare(ROWS, add_columns=False)  # a table may have more columns than the rows


@pytest.mark.parametrize(
    ("properties", "columns"),
    [
        ("", {"amount"}),
        ("'delta.dataSkippingNumIndexedCols' = '1'", {"amount"}),
        ("'delta.dataSkippingNumIndexedCols' = '2'", {"amount", PROVENANCE}),
        ("'delta.dataSkippingNumIndexedCols' = '-1'", {"amount", PROVENANCE}),
        ("'delta.dataSkippingStatsColumns' = 'amount'", {"amount"}),
    ],
)
def test_statistics_are_those_that_the_table_asks_for_and_of_no_dead_letter(
    spark: SparkSession,
    driver: Driver,
    path: str,
    monkeypatch: pytest.MonkeyPatch,
    properties: str,
    columns: set[str],
) -> None:
    driver.write([(0, 0)])
    if properties:
        spark.sql(f"ALTER TABLE delta.`{path}` SET TBLPROPERTIES ({properties})")
    written: list[delta_log.AddedFile] = []
    # As they were written: what the table gets has lost the dead letter's column anyway.
    monkeypatch.setattr(delta, "table_file", lambda file: written.append(file) or file)
    driver.stage([(0, 1)], [(0, 2)])
    assert written
    for file in written:
        assert set(file.statistics["nullCount"]) == columns


def test_a_dead_letter_comes_back_byte_by_byte(spark: SparkSession, path: str) -> None:
    sink = DeltaSink(spark, "orders", path)
    sink.prepare(ROWS, add_columns=False)
    head = sink.ledger()
    letter = (
        None,
        bytes(range(256)),
        [("h", None), ('\x01"é', b"\xff\x00")],
        {"a": '"\n', "b": None},
    )
    frame = spark.createDataFrame(
        [(None, (TOPIC_ID, 0, 0, None), letter)],
        T.StructType([*ROWS.fields, T.StructField(DEAD_LETTER, DEAD_LETTER_TYPE)]),
    )
    staged = sink.stage(outcomes_from(frame), may_expand=False)
    sink.commit(head, after(head, staged), staged)
    [found] = sink.dead_letters().select(*DEAD_LETTER_TYPE.names).collect()
    assert found["key"] is None
    assert bytes(found["value"]) == letter[1]
    assert [tuple(header) for header in found["record_headers"]] == letter[2]
    assert found["headers"] == letter[3]


def test_a_field_inside_a_struct_is_added_too(spark: SparkSession, path: str) -> None:
    def address(*names: str) -> T.StructType:
        inner = T.StructType([T.StructField(name, T.StringType()) for name in names])
        return with_columns(T.StructField("address", inner))

    sink = DeltaSink(spark, "orders", path)
    sink.prepare(address("city"), add_columns=False)
    grown = address("zip", "city")
    assert sink.schema_difference(grown).added == ("address.zip string",)
    sink.prepare(grown, add_columns=True)
    head = sink.ledger()
    frame = spark.createDataFrame(
        [(("8001", "Zurich"), (TOPIC_ID, 0, 0, None), None)],
        T.StructType([*grown.fields, T.StructField(DEAD_LETTER, DEAD_LETTER_TYPE)]),
    )
    staged = sink.stage(outcomes_from(frame), may_expand=False)
    sink.commit(head, after(head, staged), staged)
    assert [r.asDict() for r in sink.rows().select("address.*").collect()] == [
        {"city": "Zurich", "zip": "8001"}
    ]


def test_incompatible_columns_are_listed(driver: Driver) -> None:
    with pytest.raises(BadInput, match="column amount is bigint in the table and string in the"):
        driver.sink.prepare(with_columns(T.StructField("amount", T.StringType())), add_columns=True)


def test_a_table_that_does_not_exist_yet_has_no_difference_ledger_or_letters(
    spark: SparkSession, path: str
) -> None:
    sink = DeltaSink(spark, "orders", path)
    assert sink.ledger() == Ledger()
    assert not sink.schema_difference(ROWS).exists
    assert (list(sink.history()), sink.dead_letters().collect()) == ([], [])
    sink.sweep()
    assert not Path(path).exists()
    with pytest.raises(BadInput, match="no Delta table"):
        sink.rows()


def test_a_folder_with_something_else_in_it_is_refused(spark: SparkSession, path: str) -> None:
    Path(path).mkdir()
    (Path(path) / "holiday.jpg").touch()
    with pytest.raises(BadInput, match=r"holiday\.jpg"):
        DeltaSink(spark, "orders", path).prepare(ROWS, add_columns=True)
    assert [each.name for each in Path(path).iterdir()] == ["holiday.jpg"]


@pytest.mark.parametrize("below", ["", "/orders"])
def test_a_path_at_or_below_a_file_is_refused(
    spark: SparkSession, tmp_path: Path, below: str
) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(BadInput, match="file"):
        DeltaSink(spark, "orders", f"{tmp_path}/file{below}").prepare(ROWS, add_columns=True)


def test_a_partitioned_table_with_deletion_vectors_and_change_feed_takes_rows(
    spark: SparkSession, path: str
) -> None:
    features = "'delta.enableDeletionVectors' = 'true', 'delta.enableChangeDataFeed' = 'true'"
    create(spark, path, "amount BIGINT", features, partitioned_by="amount")
    driver = Driver(spark, path)
    driver.write([(0, 0), (0, 1)], [(0, 2)])
    assert driver.contents == ([(0, 0), (0, 1)], [(0, 2)])
    assert driver.sink.rows().where("amount = 10").count() == 1
    spark.sql(f"DELETE FROM delta.`{path}` WHERE amount = 0")
    assert driver.contents == ([(0, 1)], [(0, 2)])
    changes = spark.read.format("delta").option("readChangeFeed", "true")
    inserted = changes.option("startingVersion", 0).load(path).where("_change_type = 'insert'")
    assert inserted.count() == 2


@pytest.mark.parametrize(
    ("columns", "properties", "named"),
    [
        ("amount BIGINT", "'delta.columnMapping.mode' = 'name'", "column mapping"),
        ("amount BIGINT NOT NULL", "", "NOT NULL (column amount)"),
        ("amount BIGINT", "'delta.constraints.positive' = 'amount > 0'", "CHECK constraint pos"),
        ("amount BIGINT, doubled BIGINT GENERATED ALWAYS AS (amount * 2)", "", "generated column"),
        ("amount BIGINT", "'delta.enableRowTracking' = 'true'", "rowTracking"),
    ],
)
def test_a_feature_that_staged_files_would_go_around_is_refused_by_name(
    spark: SparkSession, path: str, columns: str, properties: str, named: str
) -> None:
    create(spark, path, columns, properties)
    with pytest.raises(BadInput) as refused:
        DeltaSink(spark, "orders", path).prepare(ROWS, add_columns=True)
    assert named in str(refused.value)


def create(
    spark: SparkSession, path: str, columns: str, properties: str, partitioned_by: str = ""
) -> None:
    names = f"{columns}, {PROVENANCE} {PROVENANCE_TYPE.simpleString()}"
    chosen = f"PARTITIONED BY ({partitioned_by}) " if partitioned_by else ""
    chosen += f"TBLPROPERTIES ({properties})" if properties else ""
    spark.sql(f"CREATE TABLE delta.`{path}` ({names}) USING delta {chosen}")


def test_a_table_altered_after_staging_is_not_committed_to(
    spark: SparkSession, driver: Driver, path: str
) -> None:
    staged = driver.stage([(0, 0)])
    spark.sql(f"ALTER TABLE delta.`{path}` ADD CONSTRAINT few CHECK (amount < 0)")
    with pytest.raises(SinkUnavailable, match="other columns or properties"):
        driver.commit(staged)
    assert driver.contents == ([], [])


def test_a_session_without_delta_is_told_what_to_add() -> None:
    class Nothing:
        def __getattr__(self, name: str) -> Nothing:
            return self

    class Session:
        _jvm = Nothing()
        _jsparkSession = Nothing()  # noqa: N815

    with pytest.raises(Unavailable, match="Delta Lake") as refused:
        DeltaSink(Session(), "orders", "somewhere")  # type: ignore[arg-type]
    assert "spark.driver.extraClassPath" in str(refused.value)
