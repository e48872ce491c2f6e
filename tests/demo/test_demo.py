"""The complete demo with few orders: its last line, its exit code, and its cleanup."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import psutil
import pytest

from lossless.engines.waiting import wait_until

RECORDS = 20_000
# One minute on an idle machine, many times that on a busy one.
DEMO_S_MAX = 900
pytestmark = pytest.mark.timeout(DEMO_S_MAX + 60)
LAST_LINE = re.compile(r"(\d+) acknowledged, (\d+) stored, (\d+) lost, (\d+) duplicated")
# An environment variable that every process of the demo inherits.
MARK = "LOSSLESS_DEMO_TEST"


@dataclass(frozen=True, slots=True)
class Marked:
    """A demo whose processes and temporary files can be identified."""

    mark: str
    temporary: Path
    started: list[subprocess.Popen[str]] = field(default_factory=list)

    def start(self, *options: str) -> subprocess.Popen[str]:
        demo = subprocess.Popen(
            [sys.executable, "-m", "lossless", "demo", "--records", str(RECORDS), *options],
            env={**os.environ, MARK: self.mark, "TMPDIR": str(self.temporary)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        self.started.append(demo)
        return demo

    def processes(self) -> dict[psutil.Process, str]:
        """Returns the processes with their command lines. Skips processes that end meanwhile."""
        found = {}
        for process in psutil.process_iter():
            try:
                if process.environ().get(MARK) == self.mark:
                    found[process] = " ".join(process.cmdline())
            except (psutil.NoSuchProcess, psutil.AccessDenied):
                continue
        return found

    def stop(self) -> None:
        for process in self.processes():
            process.kill()
        for demo in self.started:
            with demo:
                demo.kill()

    def assert_nothing_left(self) -> None:
        assert self.processes() == {}
        assert list(self.temporary.iterdir()) == []


@pytest.fixture
def marked(tmp_path: Path) -> Iterator[Marked]:
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    demo = Marked(uuid.uuid4().hex, temporary)
    yield demo
    demo.stop()


def test_acknowledged_orders_are_stored_once_although_leader_and_driver_die(
    marked: Marked,
) -> None:
    demo = marked.start()
    out, progress = demo.communicate(timeout=DEMO_S_MAX)
    assert demo.returncode == 0, progress
    assert out.splitlines()[-1] == f"{RECORDS} acknowledged, {RECORDS} stored, 0 lost, 0 duplicated"
    assert re.search(
        r"kill -9 of broker \d, leader of shop.orders-0\n.* is gone \(SIGKILL\)", progress
    )
    left = re.search(r"its checkpoint has (\d+) batches planned and (\d+) finished", progress)
    assert left, progress
    assert int(left[1]) == int(left[2]) + 1
    marked.assert_nothing_left()


@pytest.mark.full
def test_careless_settings_lose_and_duplicate_orders_and_each_is_named(
    marked: Marked, tmp_path: Path
) -> None:
    kept = tmp_path / "kept"
    demo = marked.start("--careless", "--keep", str(kept))
    out, progress = demo.communicate(timeout=DEMO_S_MAX)
    assert demo.returncode == 1, progress
    matched = LAST_LINE.fullmatch(out.splitlines()[-1])
    assert matched, out
    acknowledged, stored, lost, duplicated = map(int, matched.groups())
    assert acknowledged == RECORDS
    assert lost > 0
    assert duplicated > 0
    assert stored == acknowledged - lost
    judged = json.loads((kept / "judged.json").read_text())
    assert len(judged["lost"]) == lost
    assert sum(order["copies"] - 1 for order in judged["duplicated"]) == duplicated
    # Each lost order was acknowledged at the partition and offset that are printed.
    lines = [line for file in kept.glob("producers/*") for line in file.read_text().splitlines()]
    events = [json.loads(line) for line in lines]
    places = {
        (int(e["key"]), e["partition"], e["offset"])
        for e in events
        if e["name"] == "producer_send_success"
    }
    for order in judged["lost"]:
        assert (order["order"], order["partition"], order["offset"]) in places
    first = judged["lost"][0]
    assert re.search(rf"{first['order']} +{first['partition']} +{first['offset']} +0", out)
    marked.assert_nothing_left()


def wait_until_in_the_middle(demo: subprocess.Popen[str], marked: Marked) -> None:
    """Returns when three brokers, and a driver with its JVM, are running."""

    def in_the_middle() -> bool:
        assert demo.poll() is None
        commands = marked.processes().values()
        brokers = sum("lossless.broker" in command for command in commands)
        return brokers == 3 and any("org.apache.spark" in command for command in commands)

    assert wait_until(in_the_middle, timeout_s=DEMO_S_MAX)


def test_ctrl_c_leaves_no_process_and_no_file(marked: Marked) -> None:
    demo = marked.start()
    wait_until_in_the_middle(demo, marked)
    demo.send_signal(signal.SIGINT)
    out, progress = demo.communicate(timeout=DEMO_S_MAX)
    assert demo.returncode == 130, progress
    assert out == ""
    assert "Traceback" not in progress
    marked.assert_nothing_left()


def test_a_killed_demo_leaves_no_process(marked: Marked) -> None:
    demo = marked.start("--careless")
    wait_until_in_the_middle(demo, marked)
    demo.kill()
    demo.wait()
    assert wait_until(lambda: not marked.processes(), timeout_s=DEMO_S_MAX), marked.processes()
