"""A lock on a local file, held around "is the ledger still what I think it is?" and the commit.

Why: a local file system has no "create this unless it exists" that Spark's file layers use. Two
drivers on one machine that publish the same version at the same moment can both be told that they
won, and one of them has then lost its rows. With the lock held around check and publication there
is only ever one of them in between. Object stores and HDFS have the missing operation, so only
`file:` paths need this.

Which: the process that publishes must be the one that holds the lock, because the kernel releases
it the moment that process dies. What Python itself publishes is guarded by `file_lock`. What the
JVM publishes is guarded by `jvm_file_lock`: a driver killed in mid-commit leaves its JVM alive for
a moment, still writing, and a lock of the dead Python process would guard nothing any more.

The lock file stays behind: removing it would let a third driver lock a new file of the same name
while a second one waits on the old.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from lossless.errors import Unavailable

WAIT_S_MAX = 60.0
POLL_S = 0.02


@contextmanager
def file_lock(path: str | Path, *, wait_s_max: float = WAIT_S_MAX) -> Iterator[None]:
    """Holds `path` (created when missing, with its folder) for this process and this block alone.

    Two blocks in one process exclude each other as well. Raises Unavailable when another driver
    keeps the lock for longer than `wait_s_max`: it is stopped, or very slow.
    """
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    try:
        _wait_for(lambda: _try_flock(descriptor), path, wait_s_max)
        yield
    finally:
        os.close(descriptor)  # gives the lock back


@contextmanager
def jvm_file_lock(jvm: Any, path: str | Path, *, wait_s_max: float = WAIT_S_MAX) -> Iterator[None]:
    """The same, held by the driver's JVM (`spark._jvm`) for what the JVM publishes."""
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    file = jvm.java.io.RandomAccessFile(str(path), "rw")
    try:
        _wait_for(lambda: _try_channel_lock(file.getChannel()), path, wait_s_max)
        yield
    finally:
        file.close()  # gives the lock back


def _try_flock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _try_channel_lock(channel: Any) -> bool:
    from py4j.protocol import Py4JJavaError

    try:
        return channel.tryLock() is not None  # null: another process has it
    except Py4JJavaError as error:
        name = error.java_exception.getClass().getName()
        if name == "java.nio.channels.OverlappingFileLockException":  # this JVM has it
            return False
        raise


def _wait_for(acquire: Callable[[], bool], path: str | Path, wait_s_max: float) -> None:
    deadline = time.monotonic() + wait_s_max
    while not acquire():
        if time.monotonic() >= deadline:
            raise Unavailable(
                f"another driver has held the lock {path} for {wait_s_max:g} s",
                hint="a driver of this pipeline is stopped or very slow: end it, then start again",
            )
        time.sleep(POLL_S)
