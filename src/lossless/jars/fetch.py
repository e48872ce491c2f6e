"""Fetches a set of jars with the Apache Ivy that PySpark ships.

Ivy uses its default repositories, or those of `LOSSLESS_IVY_SETTINGS` for mirrors, so this code
names no host. Ivy writes into `<folder>.part`, which is renamed after its checksums were verified:
a process that dies in between leaves nothing that is used later.
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

STALL_S_MAX = 60  # without output or data from Ivy for this long, the network is considered down


def ivy_file(name: str) -> Path:
    """Returns the file with the Ivy coordinates of a set."""
    return Path(__file__).parent / f"{name}.xml"


def fetch(name: str, folder: Path, *, megabytes: float) -> None:
    """Fetches a set into the folder. Raises Unavailable, without leaving files, if it fails.

    Concurrent processes take turns.
    """
    command = _ivy_command(name, folder)
    part = _part(folder)
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with _lock(folder) as lock, Progress(name, len(expected(name)), megabytes) as progress:
            if not problems(name, folder):
                return  # another process fetched them while this one waited
            shutil.rmtree(part, ignore_errors=True)
            try:
                ivy_error = _run_ivy(command, part, lock, progress)
                wrong = problems(name, part / "jars")
                if wrong:
                    raise _refusal(name, ivy_error, wrong)
                _publish(part / "jars", folder)
            finally:
                shutil.rmtree(part, ignore_errors=True)
            progress.done(folder)
    except OSError as error:
        raise Unavailable(
            f"the {name} jars cannot be stored in {folder}: {error.strerror or error}",
            hint="set XDG_CACHE_HOME to use another cache folder",
        ) from error


def _part(folder: Path) -> Path:
    return folder.with_name(f"{folder.name}.part")


def _ivy_command(name: str, folder: Path) -> list[str]:
    spec = importlib.util.find_spec("pyspark")
    homes = spec.submodule_search_locations if spec else None
    ivy = sorted(Path(homes[0]).glob("jars/ivy-*.jar")) if homes else []
    if not ivy:
        raise Unavailable(
            f"the {name} jars cannot be fetched: PySpark, which ships Apache Ivy, is not installed",
            hint="pip install 'lossless[spark]', or set LOSSLESS_JARS to a folder that contains "
            f"{name}/*.jar",
        )
    part = _part(folder)
    settings = os.environ.get("LOSSLESS_IVY_SETTINGS")
    if settings and not Path(settings).is_file():
        raise Unavailable(f"LOSSLESS_IVY_SETTINGS: file {settings} does not exist")
    return [
        str(java()),
        *("-jar", str(ivy[0])),
        *("-ivy", str(ivy_file(name))),
        # A separate cache: Ivy's default cache is not safe for concurrent processes.
        *("-cache", str(part / "ivy")),
        *("-retrieve", str(part / "jars" / "[artifact]-[revision](-[classifier]).[ext]")),
        *(("-settings", settings) if settings else ()),
    ]


@contextlib.contextmanager
def _lock(folder: Path) -> Iterator[IO[str]]:
    """Locks the folder for this process and for Ivy, which inherits the lock.

    If this process is killed, the next fetch waits until its Ivy has ended, then deletes the
    partial files.
    """
    with folder.with_name(f"{folder.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield lock


def _run_ivy(command: list[str], part: Path, lock: IO[str], progress: Progress) -> str | None:
    """Runs Ivy to its end and returns its first error, if any."""
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
    found, fetched, size, ivy_error, alive_at = 0, 0, 0, None, time.monotonic()
    try:
        while True:
            try:
                line = lines.get(timeout=0.25)
            except queue.Empty:
                line = ""
            if line is None:
                return ivy_error
            grown = _size(part)
            if line or grown != size:
                alive_at = time.monotonic()
            size = grown
            found += line.startswith("\tfound ")
            fetched += "[SUCCESSFUL ]" in line
            if ivy_error is None:
                ivy_error = _error_in(line)
            progress.update(found=found, fetched=fetched, size=size)
            if time.monotonic() - alive_at > STALL_S_MAX:
                return ivy_error or f"no response for {STALL_S_MAX} s"
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


def _error_in(line: str) -> str | None:
    """Returns the error in a line of Ivy's output (unknown host, unknown module …), or None."""
    match = re.search(r"Host \S+ not found|Server access error.*|module not found: \S+", line)
    return match[0].strip() if match else None


def _size(part: Path) -> int:
    """Returns the bytes downloaded so far, including unfinished jars."""
    total = 0
    for root, _, files in os.walk(part / "ivy"):
        for file in (file for file in files if ".jar" in file):
            with contextlib.suppress(FileNotFoundError):  # renamed by Ivy meanwhile
                total += os.stat(os.path.join(root, file)).st_size
    return total


def _refusal(name: str, ivy_error: str | None, wrong: list[str]) -> Unavailable:
    if ivy_error:
        return Unavailable(
            f"the {name} jars could not be fetched: {ivy_error}",
            hint="check the network; to use a mirror, set LOSSLESS_IVY_SETTINGS to an "
            "ivysettings.xml; without a network, set LOSSLESS_JARS to a folder that contains "
            f"{name}/*.jar",
        )
    return Unavailable(
        f"the fetched {name} jars failed verification: {wrong[0]}",
        hint="the repository or a mirror serves different files from those this release pins; "
        "the files were deleted",
    )


def _publish(jars: Path, folder: Path) -> None:
    """Flushes the jars to disk, then renames the folder: a power cut leaves no empty files."""
    for path in [*jars.iterdir(), jars]:
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
    shutil.rmtree(folder, ignore_errors=True)  # its files failed verification
    jars.rename(folder)
