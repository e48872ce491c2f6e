"""A cluster that is a part of a program does not survive it, however it ends."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from lossless.engines.waiting import wait_until

PROGRAM = """
import json, time
import lossless

with lossless.cluster(kafka={engine!r}, brokers=2, processes=True, data={data!r}) as kafka:
    kafka.kill(2)
    kafka.restart(2)
    print(json.dumps([row.pid for row in kafka.status()]), flush=True)
    time.sleep(600)
"""


def runs(process: psutil.Process) -> bool:
    """One that has ended stays listed until somebody asks for it: not everywhere does the first
    process do so."""
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


@pytest.mark.parametrize("engine", ["embedded", pytest.param("apache", marks=pytest.mark.full)])
def test_brokers_of_a_program_that_is_killed_end_in_order(engine: str, tmp_path: Path) -> None:
    program = PROGRAM.format(engine=engine, data=str(tmp_path / "kafka"))
    owner = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE)
    assert owner.stdout is not None
    with owner.stdout:
        brokers = [psutil.Process(pid) for pid in json.loads(owner.stdout.readline())]
    assert len(brokers) == 2
    os.kill(owner.pid, signal.SIGKILL)
    owner.wait()
    try:
        assert wait_until(lambda: not any(map(runs, brokers)), timeout_s=60)
    finally:
        for broker in filter(runs, brokers):
            broker.kill()
    if engine == "embedded":
        for number in (1, 2):
            said = (tmp_path / "kafka" / f"broker-{number}" / "log" / "output.log").read_text()
            assert f"node {number} stopped\n" in said.replace(" (lossless.broker)", "")
