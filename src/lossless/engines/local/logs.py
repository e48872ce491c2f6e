"""Why a node did not start, or why it ended, from what it wrote."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Mapping
from pathlib import Path

from lossless.errors import BadInput, LosslessError, Unavailable

_FILES = ("format.log", "output.log", "server.log")
_CAUSE = re.compile(r"(?P<kind>\w*(?:Exception|Error)|InvalidSetting): (?P<why>.+)")
_SETTINGS = ("ConfigException", "InvalidSetting")

# The last words of a node, embedded or Apache Kafka, and the line that says that it runs.
_LAST_WORDS = re.compile(
    r"(?:CRITICAL|FATAL) (?:this node cannot (?:go on|start): )?(?P<why>.+?)(?: \([\w.$]+\))?$"
    r"|ERROR (?P<apache>(?:Shutdown broker because|Exiting Kafka).+?)(?: \([\w.$]+\))?$"
)
_RUNS = re.compile(r"node \d+ runs|Kafka Server started")
_NO_SPACE = "No space left on device"
_LAST_BYTES = 256 << 10  # of a log, where the last words are
_FULL_BYTES = 64 << 10  # less than that is a full disk


def why_ended(place: Path) -> str | None:
    """Why the node of this folder ended; None if it did not say so."""
    for file in (place / "log" / name for name in _FILES[1:]):
        why = None
        for line in _last_lines(file):
            if _RUNS.search(line):
                why = None
            elif match := _LAST_WORDS.search(line):
                why = match["why"] or match["apache"]
        if why is not None:
            return _explained(why, place)
    try:
        is_full = shutil.disk_usage(place).free < _FULL_BYTES
    except OSError:
        return None
    return f"it left no message; {place.parent} has no space left" if is_full else None


def _last_lines(file: Path) -> list[str]:
    try:
        with file.open("rb") as log:
            log.seek(max(0, log.seek(0, os.SEEK_END) - _LAST_BYTES))
            return log.read().decode(errors="replace").splitlines()
    except OSError:
        return []


def _explained(why: str, place: Path) -> str:
    return f"no space left in {place.parent}" if _NO_SPACE in why else why.strip()


def ended(reasons: Mapping[str, str | None]) -> str:
    """Which nodes ended, and why: one clause for each reason."""
    by_reason: dict[str | None, list[str]] = {}
    for name, reason in reasons.items():
        by_reason.setdefault(reason, []).append(name)
    return "; ".join(
        f"{', '.join(names)} ended" + (f": {reason}" if reason else "")
        for reason, names in by_reason.items()
    )


class LogTail:
    """Made before the start, asked after the failure."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._paths = [folder / "log" / file for file in _FILES]
        self._start = {path: path.stat().st_size if path.exists() else 0 for path in self._paths}

    def failure(self, name: str) -> LosslessError:
        lines = self._lines()
        for line in lines:  # the first is the cause; those that follow came of it
            if match := _CAUSE.search(line):
                kind = BadInput if match["kind"] in _SETTINGS else Unavailable
                return kind(f"{name} did not start: {match['why'].strip()}")
        for line in lines:
            if match := _LAST_WORDS.search(line):
                why = _explained(match["why"] or match["apache"], self._folder)
                return Unavailable(f"{name} did not start: {why}")
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
