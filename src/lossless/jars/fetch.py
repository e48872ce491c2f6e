"""Fetching a set of jars with the Apache Ivy that PySpark ships.

Ivy asks the repositories it knows by itself (or those of `LOSSLESS_IVY_SETTINGS`, for mirrors), so
no host is named here. Everything is written to `<folder>.part` and renamed into place after its
checksums were compared: whatever dies in between leaves nothing that is later trusted.
"""

from __future__ import annotations

import contextlib
import fcntl
import importlib.util
import os
import queue
import re
import shutil
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from lossless.errors import Unavailable
from lossless.jars.checksums import expected, problems
from lossless.jars.java import java
from lossless.jars.progress import Progress

STALL_S_MAX = 60  # neither a line nor a byte from Ivy for this long: the network swallows packets


def ivy_file(name: str) -> Path:
    return Path(__file__).parent / f"{name}.xml"


def fetch(name: str, folder: Path, *, megabytes: float) -> None:
    """Fills the folder, or raises and leaves no trace. Two processes at once take turns."""
    command = _ivy_command(name, folder)
    part = _part(folder)
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with _lock(folder) as lock, Progress(name, len(expected(name)), megabytes) as progress:
            if not problems(name, folder):
                return  # another process fetched them while this one waited
            shutil.rmtree(part, ignore_errors=True)
            try:
                complaint = _run_ivy(command, part, lock, progress)
                wrong = problems(name, part / "jars")
                if wrong:
                    raise _refusal(name, complaint, wrong)
                _publish(part / "jars", folder)
            finally:
                shutil.rmtree(part, ignore_errors=True)
            progress.done(folder)
    except OSError as error:
        raise Unavailable(
            f"the {name} jars cannot be stored in {folder}: {error.strerror or error}",
            hint="XDG_CACHE_HOME chooses another cache folder",
        ) from error


def _part(folder: Path) -> Path:
    return folder.with_name(f"{folder.name}.part")


def _ivy_command(name: str, folder: Path) -> list[str]:
    spec = importlib.util.find_spec("pyspark")
    homes = spec.submodule_search_locations if spec else None
    ivy = sorted(Path(homes[0]).glob("jars/ivy-*.jar")) if homes else []
    if not ivy:
        raise Unavailable(
            f"PySpark, whose Apache Ivy fetches the {name} jars, is not installed",
            hint="pip install 'lossless[spark]', or set LOSSLESS_JARS to a folder that has "
            f"{name}/*.jar",
        )
    part = _part(folder)
    settings = os.environ.get("LOSSLESS_IVY_SETTINGS")
    if settings and not Path(settings).is_file():
        raise Unavailable(f"LOSSLESS_IVY_SETTINGS names no file: {settings}")
    return [
        str(java()),
        *("-jar", str(ivy[0])),
        *("-ivy", str(ivy_file(name))),
        # A cache of its own: Ivy's usual one is not safe for two processes at once.
        *("-cache", str(part / "ivy")),
        *("-retrieve", str(part / "jars" / "[artifact]-[revision](-[classifier]).[ext]")),
        *(("-settings", settings) if settings else ()),
    ]


@contextlib.contextmanager
def _lock(folder: Path) -> Iterator[IO[str]]:
    """Held by this process and by Ivy, which inherits it: if we are killed, the next fetch waits
    until our Ivy has ended as well, and only then clears what it left."""
    with folder.with_name(f"{folder.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield lock


def _run_ivy(command: list[str], part: Path, lock: IO[str], progress: Progress) -> str | None:
    """Runs Ivy to its end and returns what it complained about first, if it did."""
    process = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        pass_fds=[lock.fileno()],
    )
    lines: queue.Queue[str | None] = queue.Queue()
    reader = threading.Thread(target=_read, args=(process, lines), daemon=True)
    reader.start()
    found, fetched, size, complaint, alive_at = 0, 0, 0, None, time.monotonic()
    try:
        while True:
            try:
                line = lines.get(timeout=0.25)
            except queue.Empty:
                line = ""
            if line is None:
                return complaint
            grown = _size(part)
            if line or grown != size:
                alive_at = time.monotonic()
            size = grown
            found += line.startswith("\tfound ")
            fetched += "[SUCCESSFUL ]" in line
            if complaint is None:
                complaint = _complaint(line)
            progress.update(found=found, fetched=fetched, size=size)
            if time.monotonic() - alive_at > STALL_S_MAX:
                return complaint or f"no answer for {STALL_S_MAX} s"
    finally:
        process.kill()
        process.wait()
        reader.join()
        assert process.stdout is not None
        process.stdout.close()


def _read(process: subprocess.Popen[str], lines: queue.Queue[str | None]) -> None:
    assert process.stdout is not None
    for line in process.stdout:
        lines.put(line)
    lines.put(None)


def _complaint(line: str) -> str | None:
    """A line of Ivy's that says why: no such host, no connection, no such module."""
    match = re.search(r"Host \S+ not found|Server access error.*|module not found: \S+", line)
    return match[0].strip() if match else None


def _size(part: Path) -> int:
    """Bytes of jars downloaded so far, the unfinished one included."""
    total = 0
    for root, _, files in os.walk(part / "ivy"):
        for file in (file for file in files if ".jar" in file):
            with contextlib.suppress(FileNotFoundError):  # renamed by Ivy while we look
                total += os.stat(os.path.join(root, file)).st_size
    return total


def _refusal(name: str, complaint: str | None, wrong: list[str]) -> Unavailable:
    if complaint:
        return Unavailable(
            f"the {name} jars could not be fetched: {complaint}",
            hint="check the network; behind a mirror set LOSSLESS_IVY_SETTINGS to an "
            "ivysettings.xml; without a network set LOSSLESS_JARS to a folder that has "
            f"{name}/*.jar",
        )
    return Unavailable(
        f"the {name} jars that were fetched are refused: {wrong[0]}",
        hint="the repository or a mirror serves other files than the ones this release was "
        "tested with; nothing was kept",
    )


def _publish(jars: Path, folder: Path) -> None:
    """Onto the disk, then into place, so that not even a power cut leaves empty files behind."""
    for path in [*jars.iterdir(), jars]:
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
    shutil.rmtree(folder, ignore_errors=True)  # what was there failed its checksums
    jars.rename(folder)
