"""A standalone Spark cluster, a master and two workers, from PySpark's own scripts."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyspark

from lossless.engines.waiting import wait_until

START_TIMEOUT_S = 60
SPARK_HOME = Path(pyspark.__file__).parent
WORKERS = ("127.0.0.1", "127.0.0.2")
DEPLOY = "org.apache.spark.deploy"


class StandaloneSpark:
    """A master, which can be restarted, and two workers."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._masters: list[subprocess.Popen[bytes]] = []
        self._workers: list[subprocess.Popen[bytes]] = []
        self.address = self._start_master(port=0)

    def start_workers(self) -> None:
        """Each at an address of its own. Returns when both have registered."""
        self._workers = [
            _start(
                f"{DEPLOY}.worker.Worker",
                self._folder / f"worker-{number}.log",
                *("--host", WORKERS[number], "--port", "0", "--cores", "1", "--memory", "1g"),
                *("--work-dir", str(self._folder / f"work-{number}"), "--webui-port", "0"),
                self.address,
                host=WORKERS[number],
            )
            for number in range(len(WORKERS))
        ]
        _wait_for(self._master_log, r"Registering worker (\S+)", len(WORKERS))

    def restart_master(self) -> None:
        """Kills it; the new one, at the same address, has no memory of any application."""
        master = self._masters[-1]
        master.kill()
        master.wait()
        self._start_master(port=int(self.address.rpartition(":")[2]))

    def dead_workers(self) -> int:
        return sum(worker.poll() is not None for worker in self._workers)

    def stop(self) -> None:
        processes = [*self._workers, *self._masters]
        for process in processes:
            process.terminate()
        for process in processes:
            try:
                process.wait(15)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    @property
    def _master_log(self) -> Path:
        return self._folder / f"master-{len(self._masters)}.log"

    def _start_master(self, *, port: int) -> str:
        arguments = ("--host", "127.0.0.1", "--port", str(port))
        log = self._folder / f"master-{len(self._masters) + 1}.log"
        self._masters.append(_start(f"{DEPLOY}.master.Master", log, *arguments))
        (address,) = _wait_for(log, r"Starting Spark master at (spark://\S+)", 1)
        return address


@contextmanager
def standalone_spark(folder: Path) -> Iterator[StandaloneSpark]:
    cluster = StandaloneSpark(folder)
    try:
        cluster.start_workers()
        yield cluster
    finally:
        cluster.stop()


def _start(
    role: str, log: Path, *arguments: str, host: str = "127.0.0.1"
) -> subprocess.Popen[bytes]:
    with log.open("wb") as output:
        return subprocess.Popen(
            [str(SPARK_HOME / "bin" / "spark-class"), role, *arguments],
            env={
                **os.environ,
                "SPARK_HOME": str(SPARK_HOME),
                "SPARK_LOCAL_IP": host,
                "SPARK_MASTER_WEBUI_PORT": "0",
                "PYSPARK_PYTHON": sys.executable,
                "SPARK_DAEMON_MEMORY": "256m",
            },
            stdout=output,
            stderr=subprocess.STDOUT,
        )


def _wait_for(log: Path, pattern: str, times: int) -> list[str]:
    def found() -> list[str]:
        return re.findall(pattern, log.read_text(errors="replace"))

    if not wait_until(lambda: len(found()) >= times, timeout_s=START_TIMEOUT_S):
        raise TimeoutError(f"{log}: {pattern!r} not seen {times} times:\n{log.read_text()}")
    return found()
