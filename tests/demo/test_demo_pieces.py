"""The parts of the demo that need no cluster."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from lossless.contract import load_contract
from lossless.contract.rules.judging import judge_all
from lossless.demo.comparison import JudgedOrder, compare, read_acknowledged
from lossless.demo.driver import Driver
from lossless.demo.folder import PIPELINE, demo_folder
from lossless.demo.orders import SCHEMA, order_key, order_number, order_value
from lossless.demo.result import DemoResult
from lossless.engines.waiting import wait_until
from lossless.errors import BadInput

PATIENCE_S = 30.0


def test_an_order_number_determines_all_bytes_of_the_order() -> None:
    value = json.loads(order_value(123_456))
    assert value["order_id"] == order_number(order_key(123_456).decode()) == 123_456
    assert order_value(123_456) == order_value(123_456) != order_value(123_457)
    assert set(value) == set(SCHEMA["properties"])
    assert 150 < len(order_value(123_456)) < 250


def test_a_comparison_names_missing_and_duplicated_orders() -> None:
    acknowledged = {1: (0, 10), 2: (1, 20), 3: (2, 30), 4: (0, 11)}
    found = compare(acknowledged, {1: 1, 3: 3, 9: 1})
    assert found.lost == [
        JudgedOrder(order=2, partition=1, offset=20, copies=0),
        JudgedOrder(order=4, partition=0, offset=11, copies=0),
    ]
    assert found.duplicated == [JudgedOrder(order=3, partition=2, offset=30, copies=3)]
    assert (found.acknowledged, found.stored, found.copies_too_many) == (4, 3, 2)


def test_one_lost_and_one_duplicated_order_do_not_cancel_out() -> None:
    found = compare({1: (0, 0), 2: (0, 1)}, {1: 2})
    assert (len(found.lost), found.copies_too_many) == (1, 1)


def test_only_a_send_success_counts_as_acknowledged(tmp_path: Path) -> None:
    events = tmp_path / "producer-0.jsonl"
    lines = [
        {"name": "startup_complete"},
        {"name": "producer_send_success", "key": "5", "partition": 1, "offset": 7},
        {"name": "producer_send_error", "key": "6", "message": "timed out"},
    ]
    events.write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert read_acknowledged([events]) == {5: (1, 7)}


@pytest.mark.parametrize(
    ("acknowledged", "stored", "lost", "duplicated", "balanced", "kept"),
    [
        (100, 100, 0, 0, True, True),
        (100, 99, 1, 0, False, False),
        (100, 100, 0, 1, False, False),
        (99, 99, 0, 0, True, False),  # one order was never acknowledged
        (100, 100, 0, 0, False, False),  # the audit found another discrepancy
    ],
)
def test_the_promise_is_kept_only_if_every_order_is_stored_once(
    acknowledged: int, stored: int, lost: int, duplicated: int, balanced: bool, kept: bool
) -> None:
    result = DemoResult(
        variant="careful",
        orders=100,
        acknowledged=acknowledged,
        stored=stored,
        lost=lost,
        duplicated=duplicated,
        balanced=balanced,
        faults=(),
        seconds=1.0,
    )
    assert result.kept is kept
    assert result.last_line == (
        f"{acknowledged} acknowledged, {stored} stored, {lost} lost, {duplicated} duplicated"
    )


def test_the_contract_of_the_demo_is_valid() -> None:
    with demo_folder(None) as folder:
        folder.write_contract(client={"bootstrap.servers": "127.0.0.1:1"}, records_per_batch=1_000)
        contract = load_contract(folder.contract)
        pipeline = contract.pipelines[PIPELINE]
        assert pipeline.records_per_batch_max == 1_000
        assert pipeline.spark["spark.local.dir"] == str(folder.scratch)
        assert contract.cluster.client["bootstrap.servers"] == "127.0.0.1:1"
        assert judge_all(contract) == []


def test_a_temporary_folder_is_deleted_even_after_a_failure() -> None:
    used: list[Path] = []

    def fails() -> None:
        with demo_folder(None) as folder:
            used.append(folder.path)
            (folder.scratch / "leftover").write_text("x")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fails()
    assert not used[0].exists()


def test_a_kept_folder_is_not_deleted_and_not_used_twice(tmp_path: Path) -> None:
    with demo_folder(tmp_path / "kept") as folder:
        pass
    assert folder.scratch.is_dir()
    with pytest.raises(BadInput, match="is not empty"), demo_folder(tmp_path / "kept"):
        pass


def test_a_folder_that_cannot_be_created_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(BadInput, match="cannot be"), demo_folder(tmp_path / "file" / "kept"):
        pass


def start(code: str, tmp_path: Path) -> Driver:
    return Driver(
        [sys.executable, "-c", code],
        folder=tmp_path,
        environment={},
        log=tmp_path / "driver.log",
    )


def test_a_driver_reports_its_progress(tmp_path: Path) -> None:
    code = """if True:
        import sys
        print("24/01/01 WARN a line of the JVM's", file=sys.stderr)
        print('{"event": "started", "offsets": {"t-0": 10, "t-1": 5}}', file=sys.stderr)
        print('{"event": "committed", "records": 3}', file=sys.stderr)
        print('{ not JSON', file=sys.stderr)
        sys.exit(3)
    """
    with start(code, tmp_path) as driver:
        assert wait_until(lambda: driver.exit_code is not None, timeout_s=PATIENCE_S)
        assert (driver.exit_code, driver.records, driver.batches) == (3, 18, 1)
        assert "a line of the JVM's" in driver.tail()


def test_a_driver_started_early_waits_until_begin(tmp_path: Path) -> None:
    code = "import pathlib, sys; sys.stdin.read(); pathlib.Path('done').touch()"
    with start(code, tmp_path) as driver:
        assert driver.exit_code is None
        assert not (tmp_path / "done").exists()
        driver.begin()
        assert wait_until(lambda: driver.exit_code == 0, timeout_s=PATIENCE_S)
    assert (tmp_path / "done").exists()


# A child that shares no pipe with its parent.
WITH_CHILD = """if True:
    import pathlib, subprocess, sys, time
    nothing = subprocess.DEVNULL
    child = subprocess.Popen(
        [sys.executable, "-c", "import time; time.sleep(600)"],
        stdin=nothing, stdout=nothing, stderr=nothing,
    )
    pathlib.Path("child.part").write_text(str(child.pid))
    pathlib.Path("child.part").rename("child")
    time.sleep(600)
"""


def child_of(tmp_path: Path) -> psutil.Process:
    assert wait_until((tmp_path / "child").exists, timeout_s=PATIENCE_S)
    return psutil.Process(int((tmp_path / "child").read_text()))


def is_gone(process: psutil.Process) -> bool:
    try:
        return process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def test_leaving_the_context_of_a_driver_kills_all_its_processes(tmp_path: Path) -> None:
    with start(WITH_CHILD, tmp_path) as driver:
        child = child_of(tmp_path)
        assert not is_gone(child)
    assert driver.exit_code == -signal.SIGKILL
    assert wait_until(lambda: is_gone(child), timeout_s=PATIENCE_S)


def test_killing_a_driver_ends_all_its_processes(tmp_path: Path) -> None:
    with start(WITH_CHILD, tmp_path) as driver:
        child = child_of(tmp_path)
        os.kill(driver.pid, signal.SIGKILL)
        assert wait_until(lambda: driver.exit_code == -signal.SIGKILL, timeout_s=PATIENCE_S)
        assert wait_until(lambda: is_gone(child), timeout_s=PATIENCE_S)


def test_bad_input_is_refused_before_anything_starts(tmp_path: Path) -> None:
    (tmp_path / "occupied").write_text("x")
    for options, says in (
        (["--keep", str(tmp_path)], "is not empty"),
        (["--records", "10"], "1000"),
    ):
        answer = subprocess.run(
            [sys.executable, "-m", "lossless", "demo", *options], capture_output=True, text=True
        )
        assert answer.returncode == 2
        assert says in answer.stderr
        assert "Traceback" not in answer.stderr
