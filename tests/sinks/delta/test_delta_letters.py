"""Dead letters in the table beside: visible with the commit that they belong to."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from delta_driver import Driver, _unlocked, all_letters, before_commit

from lossless.errors import Fenced, PromiseBroken
from lossless.pipeline.sinks import delta_letters, delta_log
from lossless.pipeline.sinks.delta import DeltaSink

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

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


@pytest.mark.full
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


@pytest.mark.full
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


@pytest.mark.full
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


@pytest.mark.full
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
