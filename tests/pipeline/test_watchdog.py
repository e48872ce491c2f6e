"""A batch that waits says so, a stop always returns, and a lost cluster manager is noticed."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import pytest

from lossless.engines.waiting import wait_until
from lossless.pipeline.events import Event, Warned
from lossless.pipeline.session import setting
from lossless.pipeline.sinks.parquet import ParquetSink
from lossless.pipeline.watchdog import (
    BatchWatch,
    ClusterManagerLost,
    ManagerWatch,
    Standing,
    standing,
)
from shop import MakeShop

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PATIENCE_S = 60.0


def test_a_slow_step_is_reported_at_20_s_and_then_at_twice_the_time() -> None:
    seconds = iter(range(101))
    watch = BatchWatch(clock=lambda: next(seconds))
    watch.begin("committing batch 7")
    warned = [watch.warning(lambda: ": no executors") for _ in range(100)]
    assert [warning for warning in warned if warning is not None] == [
        f"committing batch 7 has taken {after} s so far: no executors" for after in (20, 40, 80)
    ]


def test_every_step_has_its_own_time_and_none_is_reported_between_batches() -> None:
    now = 0.0
    watch = BatchWatch(clock=lambda: now)
    watch.begin("staging batch 1")
    now = 19.0
    watch.begin("committing batch 1")
    now = 38.0
    assert watch.warning(str) is None
    watch.end()
    now = 1000.0
    assert watch.warning(str) is None


class ScriptedManager:
    """Gives the answers of a script, and repeats the last one."""

    def __init__(self, *script: Standing) -> None:
        self._script = script
        self.questions = 0

    def __call__(self) -> Standing:
        self.questions += 1
        return self._script[min(self.questions, len(self._script)) - 1]


def test_a_manager_that_has_forgotten_the_application_is_lost() -> None:
    manager = ScriptedManager(Standing.KNOWN, Standing.SILENT, Standing.FORGOTTEN)

    def is_lost() -> bool:
        try:
            watch.raise_if_lost()
        except ClusterManagerLost:
            return True
        return False

    with ManagerWatch(manager, interval_s=0.001) as watch:
        assert wait_until(is_lost, timeout_s=PATIENCE_S)


@pytest.mark.parametrize("answer", [Standing.KNOWN, Standing.SILENT])
def test_a_manager_that_is_away_is_not_lost(answer: Standing) -> None:
    """Executors go on without their master, which may come back with what it has stored."""
    manager = ScriptedManager(Standing.FORGOTTEN, answer)
    with ManagerWatch(manager, interval_s=0.001) as watch:
        assert wait_until(lambda: manager.questions > 10, timeout_s=PATIENCE_S)
        watch.raise_if_lost()


def test_a_master_that_does_not_answer_decides_nothing(spark: SparkSession) -> None:
    assert standing(spark, [("127.0.0.1", 1)]) is Standing.SILENT


def test_a_run_returns_after_a_stop_although_its_sink_hangs(
    shop: MakeShop, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    orders = shop()
    orders.produce(range(5))
    hanging, released = threading.Event(), threading.Event()
    commit = ParquetSink.commit

    def hang(sink: ParquetSink, expected: Any, successor: Any, staged: Any) -> None:
        if staged is not None:
            hanging.set()
            released.wait(PATIENCE_S)
        commit(sink, expected, successor, staged)

    monkeypatch.setattr(ParquetSink, "commit", hang)
    pipeline = orders.pipeline("retry_max_s = 1")
    warnings: list[str] = []

    def observe(event: Event) -> None:
        if isinstance(event, Warned):
            warnings.append(event.message)

    run = threading.Thread(target=lambda: pipeline.run(observe=observe), daemon=True)
    with setting(spark, "spark.sql.streaming.stopTimeout", "1s"):
        run.start()
        assert hanging.wait(PATIENCE_S)
        pipeline.stop()
        run.join(PATIENCE_S)
    try:
        assert not run.is_alive()
        assert "did not finish within 1 s of the request to stop" in warnings[0]
    finally:
        released.set()
