"""A disk that can be filled: a file system of a few megabytes, mounted for one test."""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Iterator
from pathlib import Path


class SmallDisk:
    def __init__(self, place: Path) -> None:
        self.place = place
        self._filling = place / "filling"

    def fill(self) -> None:
        """Until nothing more fits."""
        with self._filling.open("wb", buffering=0) as opened, contextlib.suppress(OSError):
            while True:
                opened.write(bytes(4096))

    def make_room(self) -> None:
        self._filling.unlink()

    def unmount(self) -> None:
        _run("umount", "--lazy", str(self.place))


@contextlib.contextmanager
def mounted(place: Path, size: str) -> Iterator[SmallDisk]:
    place.mkdir(parents=True, exist_ok=True)
    done = _run("mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(place))
    assert done.returncode == 0, f"a small disk has to be mounted: {done.stderr.strip()}"
    disk = SmallDisk(place)
    try:
        yield disk
    finally:
        disk.unmount()


def _run(*command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, check=False)
