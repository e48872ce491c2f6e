"""A Spark driver in a process group of its own: Python, its JVM and whatever they start.

It tells what it does on stderr, one JSON object a line (`lossless run --log-format json`); other
lines, the JVM's above all, only go to its log.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import IO, Self

import psutil

from lossless.engines.waiting import wait_until

TAIL_LINES = 15
FAREWELL_S = 10.0  # what the system may take to end a process that was killed


class Driver:
    """Started at once. Use as a context: whatever happens, nothing of it is left running."""

    def __init__(
        self, command: Sequence[str], *, folder: Path, environment: Mapping[str, str], log: Path
    ) -> None:
        self.batches = 0
        self.records = 0  # that this driver, or the ones before it, brought into the table
        self.log = log
        self._swept = False
        self._process = subprocess.Popen(
            command,
            cwd=folder,
            env={**os.environ, **environment},
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        if self._process.stderr is None:
            raise AssertionError("stderr was asked for as a pipe")
        self._listener = threading.Thread(
            target=self._listen, args=(self._process.stderr,), daemon=True
        )
        self._listener.start()

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def exit_code(self) -> int | None:
        """Below zero: the signal that ended it. When it is gone, so is its family."""
        code = self._process.poll()
        if code is not None and not self._swept:
            self._sweep()
        return code

    def go(self) -> None:
        """Ends its standard input, which is what a driver that was started early waits for."""
        if self._process.stdin is not None:
            self._process.stdin.close()

    def tail(self) -> str:
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-TAIL_LINES:])

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._sweep()
        self._process.wait()

    def _sweep(self) -> None:
        """Ends whoever of the family is left, and returns when nobody writes any more."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        wait_until(lambda: not self._family(), timeout_s=FAREWELL_S)
        self._listener.join()
        with contextlib.suppress(BrokenPipeError):
            self.go()
        self._swept = True

    def _family(self) -> list[psutil.Process]:
        """Everybody in the process group that is not dead already."""
        living = []
        for process in psutil.process_iter():
            with contextlib.suppress(ProcessLookupError, psutil.NoSuchProcess):
                if (
                    os.getpgid(process.pid) == self._process.pid
                    and process.status() != psutil.STATUS_ZOMBIE
                ):
                    living.append(process)
        return living

    def _listen(self, stderr: IO[bytes]) -> None:
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
