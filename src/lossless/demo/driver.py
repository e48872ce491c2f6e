"""A Spark driver as a family of processes: Python, its JVM and whatever they start.

The JVM has a session of its own, so that the family is recognised by a variable that all of them
inherit and not by their process group.

It tells what it does on stderr, one JSON object a line (`lossless run --log-format json`); other
lines, the JVM's above all, only go to its log.
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
FAMILY_VARIABLE = "LOSSLESS_DEMO_DRIVER"
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
        self._name = secrets.token_hex(8)
        self._process = subprocess.Popen(
            command,
            cwd=folder,
            env={**os.environ, **environment, FAMILY_VARIABLE: self._name},
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
        wait_until(self._is_gone, timeout_s=FAREWELL_S)
        self._listener.join()
        with contextlib.suppress(BrokenPipeError):
            self.go()
        self._swept = True

    def _is_gone(self) -> bool:
        """Kills what is left of the family; whether there was nothing left."""
        family = self._family()
        for process in family:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        return not family

    def _family(self) -> list[psutil.Process]:
        """Every process of the family that is not dead already."""
        living = []
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):  # gone, or another user's
                if (
                    process.environ().get(FAMILY_VARIABLE) == self._name
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
