"""A Spark driver and all its processes: Python, the JVM and their children.

The JVM has its own session, so the processes have no common process group. They are found by an
environment variable that all of them inherit.

The driver reports its progress on stderr, one JSON object per line (`lossless run --log-format
json`). Other lines, mostly the JVM's, only go to its log.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import subprocess
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import IO, Self

import psutil

from lossless.engines.waiting import wait_until

TAIL_LINES = 15
DRIVER_VARIABLE = "LOSSLESS_DEMO_DRIVER"
KILL_WAIT_S = 10.0  # time for the system to end killed processes


class Driver:
    """A driver that starts on creation. Leaving its context kills all its processes."""

    def __init__(
        self, command: Sequence[str], *, folder: Path, environment: Mapping[str, str], log: Path
    ) -> None:
        self.batches = 0
        self.records = 0  # in the table, including those of earlier drivers
        self.log = log
        self._killed_all = False
        self._name = secrets.token_hex(8)
        self._process = subprocess.Popen(
            command,
            cwd=folder,
            env={**os.environ, **environment, DRIVER_VARIABLE: self._name},
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        if self._process.stderr is None:
            raise AssertionError("stderr is a pipe")
        self._reader = threading.Thread(
            target=self._read, args=(self._process.stderr,), daemon=True
        )
        self._reader.start()

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def exit_code(self) -> int | None:
        """The exit code, negative for a signal; None while the driver runs.

        Once the driver has ended, kills its remaining processes.
        """
        code = self._process.poll()
        if code is not None and not self._killed_all:
            self._kill_all()
        return code

    def begin(self) -> None:
        """Closes its standard input, for which a driver that was started early waits."""
        if self._process.stdin is not None:
            self._process.stdin.close()

    def tail(self) -> str:
        """Returns the last lines of its log."""
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-TAIL_LINES:])

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._kill_all()
        self._process.wait()

    def _kill_all(self) -> None:
        """Kills all processes of the driver and returns when its log is complete."""
        wait_until(self._kill_remaining, timeout_s=KILL_WAIT_S)
        self._reader.join()
        with contextlib.suppress(BrokenPipeError):
            self.begin()
        self._killed_all = True

    def _kill_remaining(self) -> bool:
        """Kills the processes that still run. Returns whether all had already ended."""
        running = self._processes()
        for process in running:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        return not running

    def _processes(self) -> list[psutil.Process]:
        """Returns the processes of the driver that are not dead."""
        living = []
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):  # the process has ended, or is another user's
                if (
                    process.environ().get(DRIVER_VARIABLE) == self._name
                    and process.status() != psutil.STATUS_ZOMBIE
                ):
                    living.append(process)
        return living

    def _read(self, stderr: IO[bytes]) -> None:
        with stderr, self.log.open("wb") as log:
            for line in stderr:
                log.write(line)
                log.flush()
                self._on_line(line)

    def _on_line(self, line: bytes) -> None:
        if not line.startswith(b"{"):
            return
        try:
            event = json.loads(line)
        except ValueError:
            return
        match event.get("event"):
            case "started":
                self.records = sum(event["offsets"].values())
            case "committed":
                self.records += event["records"]
                self.batches += 1
