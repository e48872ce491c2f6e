"""The Delta sink: what interface.py promises."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from delta_driver import (
    SOURCES,
    TOPIC_ID,
    Driver,
    all_letters,
    before_commit,
    outcomes,
    parquet_files,
    tally_of,
)
from pyspark.sql import Row

from lossless.errors import Fenced
from lossless.pipeline.ledger import AcceptedLoss, Ledger, Position, Receipt
from lossless.pipeline.outcomes import CONTENT_HASH, DEAD_LETTER, IS_DEAD, PROVENANCE
from lossless.pipeline.sinks.delta import DeltaSink
from lossless.pipeline.sinks.interface import CommitUnknown, SinkUnavailable
from lossless.tally import Tally

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

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
    assert rows.columns == ["amount", PROVENANCE, CONTENT_HASH]
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
        (TOPIC_ID, 0): Receipt(
            stored=tally_of((0, 0), (0, 1)),
            rows=4,
            row_hash=tally_of((0, 0), (0, 1), (0, 1), (0, 1)).hash,
        ),
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
        row_hash=2**63,
        accepted_losses=(AcceptedLoss(5, 7),),
        unplaced_losses=2,
        closed=True,
        leader_epoch=7,
    )
    begun = Position(start_offset=0, next_offset=0)
    first = Ledger().successor({SOURCES[0]: written, SOURCES[1]: begun})
    driver.sink.commit(Ledger(), first, None)
    assert driver.sink.ledger() == first
    changed = replace(
        written,
        accepted_losses=(AcceptedLoss(5, 9), AcceptedLoss(12, 13)),
        unplaced_losses=0,
        closed=False,
        leader_epoch=None,
    )
    second = first.successor({SOURCES[0]: changed})
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


@pytest.mark.full
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


@pytest.mark.full
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


@pytest.mark.full
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
