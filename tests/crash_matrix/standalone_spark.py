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
DEPLOY = "org.apache.spark.deploy"


@contextmanager
def standalone_spark(folder: Path) -> Iterator[str]:
    """Gives the master's address, once both workers have registered."""
    processes: list[subprocess.Popen[bytes]] = []
    try:
        master_log = folder / "master.log"
        processes.append(
            _start(f"{DEPLOY}.master.Master", master_log, "--host", "127.0.0.1", "--port", "0")
        )
        (address,) = _wait_for(master_log, r"Starting Spark master at (spark://\S+)", 1)
        processes += [
            _start(
                f"{DEPLOY}.worker.Worker",
                folder / f"worker-{number}.log",
                *("--host", "127.0.0.1", "--port", "0", "--cores", "1", "--memory", "1g"),
                *("--work-dir", str(folder / f"work-{number}"), "--webui-port", "0"),
                address,
            )
            for number in range(2)
        ]
        _wait_for(master_log, r"Registering worker (\S+)", 2)
        yield address
    finally:
        for process in reversed(processes):
            process.terminate()
        for process in processes:
            try:
                process.wait(15)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _start(role: str, log: Path, *arguments: str) -> subprocess.Popen[bytes]:
    with log.open("wb") as output:
        return subprocess.Popen(
            [str(SPARK_HOME / "bin" / "spark-class"), role, *arguments],
            env={
                **os.environ,
                "SPARK_HOME": str(SPARK_HOME),
                "SPARK_LOCAL_IP": "127.0.0.1",
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
