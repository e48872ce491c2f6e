"""The driver dies, is stopped, or comes back to a checkpoint that does not fit the ledger."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from pathlib import Path

import psutil
import pytest

from delivery import SINKS, Delivery, MakeDelivery, each_time_on
from lossless.engines.waiting import wait_until
from lossless.errors import Fenced
from lossless.pipeline.crash_points import CrashPoints, InjectedFailure
from lossless.pipeline.events import Committed, Event
from lossless.pipeline.runner import Runner

DRIVER_TIMEOUT_S = 300


def killed(delivery: Delivery, crash_points: str) -> None:
    """Runs a driver until it is killed where it was told to be."""
    process = delivery.driver(crash_points)
    assert process.wait(DRIVER_TIMEOUT_S) == -signal.SIGKILL, delivery.driver_log()
    assert delivery.crashes() == [crash_points]


@each_time_on("postgres")
@pytest.mark.parametrize(
    "point", [pytest.param("before-staging", marks=pytest.mark.full), "after-staging"]
)
def test_a_driver_killed_before_its_commit(
    point: str, sink: str, make_delivery: MakeDelivery
) -> None:
    delivery = make_delivery(sink)
    killed(delivery, f"{point}@2:kill")
    ledger = delivery.run()
    delivery.assert_exactly_once(ledger)


@pytest.mark.full
@pytest.mark.parametrize("sink", SINKS)
def test_a_driver_whose_process_group_gets_sigterm_finishes_its_batch(
    sink: str, make_delivery: MakeDelivery
) -> None:
    """As from systemd, Airflow or timeout, with the second batch under way."""
    delivery = make_delivery(sink)
    process = delivery.driver()
    assert wait_until(lambda: "batch 2:" in delivery.driver_log(), timeout_s=DRIVER_TIMEOUT_S), (
        delivery.driver_log()
    )
    os.killpg(process.pid, signal.SIGTERM)
    assert process.wait(DRIVER_TIMEOUT_S) == 0, delivery.driver_log()
    log = delivery.driver_log()
    assert "stopped: the batch under way was finished" in log
    assert "Traceback" not in log
    delivery.assert_exactly_once(delivery.run())


@each_time_on("parquet")
def test_a_driver_killed_while_it_stages(sink: str, make_delivery: MakeDelivery) -> None:
    """The transform kills its own driver when it meets a record in the middle of batch two."""
    delivery = make_delivery(sink, transform="deadly:transform")
    fired = delivery.folder / "fired"
    (delivery.folder / "deadly.py").write_text(_KILLS_DRIVER.format(fired=str(fired)))
    process = delivery.driver()
    assert process.wait(DRIVER_TIMEOUT_S) == -signal.SIGKILL, delivery.driver_log()
    assert fired.read_text() == "300"
    delivery.assert_exactly_once(delivery.run())


# The Python worker's ancestors are the JVM and the driver: both die, in the middle of a task.
_KILLS_DRIVER = """
import os, pathlib, signal
import psutil
from pyspark.sql import functions as F

@F.udf("bigint")
def deadly(number):
    fired = pathlib.Path({fired!r})
    if number == 300 and not fired.exists():
        fired.write_text("300")
        ancestors = psutil.Process().parents()
        java = next(p for p in ancestors if p.name() == "java")
        driver = java.parent()
        driver.kill()
        java.kill()
    return number

def transform(rows):
    return rows.withColumn("number", deadly("number"))
"""


@each_time_on("postgres")  # on delta the demonstration shows it
def test_a_driver_that_dies_after_its_commit_leaves_a_checkpoint_nobody_needs(
    sink: str, make_delivery: MakeDelivery
) -> None:
    """The sink committed, the checkpoint did not: `commits/N` is missing, as if deleted."""
    delivery = make_delivery(sink)
    killed(delivery, "after-commit@2:kill")
    (checkpoint,) = delivery.folder.glob("lossless-cell-*")
    planned = {path.name for path in (checkpoint / "offsets").iterdir() if path.name.isdigit()}
    done = {path.name for path in (checkpoint / "commits").iterdir() if path.name.isdigit()}
    assert planned - done == {"1"}
    shutil.rmtree(checkpoint / "commits")
    delivery.assert_exactly_once(delivery.run())
    shutil.rmtree(checkpoint)
    delivery.produce(50)
    delivery.assert_exactly_once(delivery.run())


@each_time_on("parquet")
def test_a_checkpoint_deleted_under_a_running_driver(
    sink: str, make_delivery: MakeDelivery
) -> None:
    delivery = make_delivery(sink)
    deleted: list[Path] = []

    def delete(event: Event) -> None:
        if isinstance(event, Committed) and not deleted:
            deleted.extend(_checkpoints())
            for checkpoint in deleted:
                shutil.rmtree(checkpoint)

    ledger = delivery.run(delete)
    assert deleted
    delivery.assert_exactly_once(ledger)


def _checkpoints() -> list[Path]:
    import tempfile

    return list(Path(tempfile.gettempdir()).glob("lossless-cell-*"))


@each_time_on("postgres")
def test_a_ledger_ahead_of_the_checkpoint(
    sink: str, make_delivery: MakeDelivery, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A driver planned batch two and failed; another one did it; the first one comes back."""
    delivery = make_delivery(sink)
    arm(monkeypatch, delivery, "before-commit@2:raise")
    runner_died = fails(delivery)
    assert runner_died
    disarm(monkeypatch)
    delivery.run()
    delivery.produce(100)
    delivery.assert_exactly_once(delivery.run())


@each_time_on("parquet")
def test_a_ledger_behind_the_checkpoint(sink: str, make_delivery: MakeDelivery) -> None:
    """The sink is restored from a backup taken after the first batch: it is filled again."""
    delivery = make_delivery(sink)
    backup = Backup(delivery)

    def back_up(event: Event) -> None:
        if isinstance(event, Committed) and not backup.taken:
            backup.take()

    delivery.assert_exactly_once(delivery.run(back_up))
    backup.restore()
    ledger = delivery.run()
    assert backup.taken
    delivery.assert_exactly_once(ledger)


class Backup:
    """A copy of the table and everything the sink keeps beside it."""

    def __init__(self, delivery: Delivery) -> None:
        self.delivery = delivery
        self.taken = False

    def take(self) -> None:
        self.taken = True
        if self.delivery.sink == "postgres":
            for table in self._tables():
                self._sql(f"CREATE TABLE {table}_saved AS TABLE {table}")
            return
        for path in self._paths():
            shutil.copytree(path, f"{path}.saved")

    def restore(self) -> None:
        if self.delivery.sink == "postgres":
            for table in self._tables():
                self._sql(f"TRUNCATE {table}; INSERT INTO {table} SELECT * FROM {table}_saved")
            return
        for path in self._paths():
            shutil.rmtree(path)
            if Path(f"{path}.saved").exists():
                shutil.copytree(f"{path}.saved", path)

    def _tables(self) -> list[str]:
        table = self.delivery.table
        return [table, f"{table}_dlt", "lossless_ledger", "lossless_ledger_history"]

    def _paths(self) -> list[str]:
        table = self.delivery.table
        return [path for path in (table, f"{table}_dlt") if Path(path).exists()]

    def _sql(self, script: str) -> None:
        import psycopg

        with psycopg.connect(self.delivery.dsn) as connection:
            connection.execute(script)


@each_time_on("postgres")
def test_a_zombie_that_wakes_after_another_driver_committed(
    sink: str, make_delivery: MakeDelivery
) -> None:
    delivery = make_delivery(sink)
    zombie = stopped(delivery, "before-commit@2:stop")
    ledger = delivery.run()
    delivery.assert_exactly_once(ledger)
    wake(zombie)
    assert zombie.wait(DRIVER_TIMEOUT_S) == Fenced.exit_code, delivery.driver_log()
    assert "another driver" in delivery.driver_log()
    delivery.assert_exactly_once(ledger)


@each_time_on("delta")
def test_a_zombie_that_wakes_before_the_other_driver_commits(
    sink: str, make_delivery: MakeDelivery, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One of them commits and the other is fenced: on parquet already by the second one's start,
    which moves away what the zombie had staged."""
    delivery = make_delivery(sink)
    zombie = stopped(delivery, "before-commit@2:stop")
    woken: list[int] = []

    def the_zombie_goes_first(_points: CrashPoints, point: str) -> None:
        if point == "before-commit" and not woken:
            wake(zombie)
            woken.append(zombie.wait(DRIVER_TIMEOUT_S))

    monkeypatch.setattr(CrashPoints, "reached", the_zombie_goes_first)
    if sink == "parquet":
        ledger = delivery.run()
        assert woken == [Fenced.exit_code], delivery.driver_log()
    else:
        with pytest.raises(Fenced):
            delivery.run()
        assert woken == [0], delivery.driver_log()
        monkeypatch.undo()
        ledger = delivery.run()
    delivery.assert_exactly_once(ledger)


def stopped(delivery: Delivery, crash_points: str) -> subprocess.Popen[bytes]:
    """A driver that ran until it was stopped where it was told to be."""
    process = delivery.driver(crash_points)
    status = psutil.Process(process.pid).status
    is_stopped = wait_until(
        lambda: status() == psutil.STATUS_STOPPED, timeout_s=DRIVER_TIMEOUT_S, poll_s=0.1
    )
    assert is_stopped, f"{process.poll()} {delivery.driver_log()}"
    assert delivery.crashes() == [crash_points]
    return process


def wake(process: subprocess.Popen[bytes]) -> None:
    """The driver and its JVM go on; nothing else of theirs was stopped."""
    driver = psutil.Process(process.pid)
    family = [driver, *driver.children(recursive=True)]
    for one in [one for one in family if one.status() == psutil.STATUS_STOPPED]:
        one.resume()


def arm(monkeypatch: pytest.MonkeyPatch, delivery: Delivery, crash_points: str) -> None:
    monkeypatch.setenv("LOSSLESS_CRASH_POINTS", crash_points)
    monkeypatch.setenv("LOSSLESS_CRASH_LOG", str(delivery.crash_log))
    monkeypatch.setattr(Runner, "run", _run_without_retries)


def disarm(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()


def fails(delivery: Delivery) -> bool:
    with pytest.raises(InjectedFailure):
        delivery.run()
    return len(delivery.crashes()) == 1


def _run_without_retries(runner: Runner, *, once: bool, accept_loss: bool = False) -> None:
    runner._run_query(once=once, accept_loss=accept_loss)
