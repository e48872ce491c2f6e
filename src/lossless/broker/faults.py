"""Faults that a node brings upon itself, because nobody outside could: a cut network, a bad disk.

    cut            nothing goes to these nodes, and nothing of theirs is heard; clients are not cut
    disk_is_full   nothing more can be written, and the node stops, as it does when a real one fails
    disk_delay_ms  every write and every flush takes so much longer

Of a node in a process of its own they are told by a file and SIGUSR1: `faults.json` beside its data
says what is to be, and `faults.applied.json` what is.
"""

from __future__ import annotations

import json
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from lossless.log.batch import Data
from lossless.log.files import FileStore
from lossless.log.store import StoreFailed

ASKED, APPLIED = "faults.json", "faults.applied.json"


@dataclass(slots=True)
class Faults:
    cut: tuple[int, ...] = ()  # numbers of brokers and of controllers
    disk_is_full: bool = False
    disk_delay_ms: int = 0


def ask(folder: Path, faults: Faults) -> None:
    _write(folder / ASKED, faults)


def read_asked(folder: Path) -> Faults:
    return _read(folder / ASKED)


def note_applied(folder: Path, faults: Faults) -> None:
    _write(folder / APPLIED, faults)


def applied(folder: Path) -> Faults:
    return _read(folder / APPLIED) if (folder / APPLIED).exists() else Faults()


def is_applied(folder: Path, faults: Faults) -> bool:
    return (folder / APPLIED).exists() and _read(folder / APPLIED) == faults


def forget(folder: Path) -> None:
    """A process that starts has no faults."""
    for name in (ASKED, APPLIED):
        (folder / name).unlink(missing_ok=True)


def _write(file: Path, faults: Faults) -> None:
    part = file.with_suffix(".part")
    part.touch(0o600)
    part.write_text(json.dumps(asdict(faults)))
    part.rename(file)


def _read(file: Path) -> Faults:
    said = json.loads(file.read_text())
    return Faults(tuple(said["cut"]), said["disk_is_full"], said["disk_delay_ms"])


class FaultyStore(FileStore):
    """A folder on a disk that may be full, or slow."""

    def __init__(self, folder: Path, faults: Faults) -> None:
        super().__init__(folder)
        self._faults = faults

    def append(self, name: str, data: Data) -> None:
        if self._faults.disk_is_full or self._faults.disk_delay_ms:
            self._suffer(name)
        super().append(name, data)

    def flush(self, name: str) -> None:
        self._suffer(name)
        super().flush(name)

    def replace(self, name: str, data: bytes) -> None:
        self._suffer(name)
        super().replace(name, data)

    def _suffer(self, name: str) -> None:
        faults = self._faults
        if faults.disk_is_full:
            raise StoreFailed(f"{name}: No space left on device")
        if faults.disk_delay_ms:
            time.sleep(faults.disk_delay_ms / 1000)
