"""Why a node did not start, from what it wrote since."""

from __future__ import annotations

import re
from pathlib import Path

from lossless.errors import BadInput, LosslessError, Unavailable

_FILES = ("format.log", "output.log", "server.log")
_CAUSE = re.compile(r"(?P<kind>\w*(?:Exception|Error)|InvalidSetting): (?P<why>.+)")
_SETTINGS = ("ConfigException", "InvalidSetting")


class LogTail:
    """Made before the start, asked after the failure."""

    def __init__(self, folder: Path) -> None:
        self._paths = [folder / "log" / file for file in _FILES]
        self._start = {path: path.stat().st_size if path.exists() else 0 for path in self._paths}

    def failure(self, name: str) -> LosslessError:
        lines = self._lines()
        for line in lines:  # the first is the cause; those that follow came of it
            if match := _CAUSE.search(line):
                kind = BadInput if match["kind"] in _SETTINGS else Unavailable
                return kind(f"{name} did not start: {match['why'].strip()}")
        return Unavailable(f"{name} did not start", hint="\n".join(lines[-3:]) or None)

    def _lines(self) -> list[str]:
        lines = []
        for path in self._paths:
            if not path.exists():
                continue
            with path.open(errors="replace") as file:
                # format.log is written anew each time, so it may be shorter than it was.
                file.seek(min(self._start[path], path.stat().st_size))
                lines += [line.rstrip() for line in file if line.strip()]
        return lines
