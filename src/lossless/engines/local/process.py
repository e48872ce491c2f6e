"""One process of a cluster: started in a session of its own, recognised by pid and start time."""

from __future__ import annotations

import contextlib
import signal
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil

from lossless.engines.private import make_private, open_privately, write_private
from lossless.engines.waiting import wait_until

# A pid is used again one day; never within this time of the first start. Not zero, because the
# system tells when it booted to the second, and may round it otherwise from one time to the next.
_SAME_START_S = 2.0
_UMASK = 0o077  # what a node writes is for the account that started it


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    pid: int
    started_s: float  # after the machine booted: what the clock shows moves when it slept


# Processes that this program started. They must be waited for, or they stay behind as zombies.
_children: dict[int, subprocess.Popen[bytes]] = {}


def write_node_folder(folder: Path, properties: Mapping[str, str]) -> None:
    make_private(folder)
    make_private(folder / "log")
    write_private(
        folder / "server.properties",
        "".join(f"{name}={_escaped(value)}\n" for name, value in sorted(properties.items())),
    )


def format_storage(command: Sequence[str], folder: Path) -> subprocess.Popen[bytes]:
    """What is wrong stands in log/format.log."""
    with open(folder / "log" / "format.log", "wb", opener=open_privately) as output:
        return subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            umask=_UMASK,
        )


def start(command: Sequence[str], folder: Path) -> Identity:
    """In a session of its own: it survives the terminal, and Ctrl-C reaches us alone."""
    with open(folder / "log" / "output.log", "ab", opener=open_privately) as output:
        child = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            cwd=folder,  # where a JVM that crashes leaves its report
            start_new_session=True,
            umask=_UMASK,
        )
    _children[child.pid] = child
    try:
        return Identity(pid=child.pid, started_s=_started_s(psutil.Process(child.pid)))
    except BaseException:
        child.kill()
        child.wait()
        raise


def state(identity: Identity | None) -> str:
    """running | paused | dead"""
    process = _process(identity)
    if process is None:
        return "dead"
    with contextlib.suppress(psutil.NoSuchProcess):
        status = process.status()
        if status == psutil.STATUS_STOPPED:
            return "paused"
        if status not in (psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD):
            return "running"
    child = _children.pop(process.pid, None)
    if child is not None:
        child.wait()  # it has ended: this only clears it away
    return "dead"


def is_alive(identity: Identity) -> bool:
    return state(identity) != "dead"


def kill(identity: Identity) -> None:
    """SIGKILL; returns when the process is gone."""
    _signal(identity, signal.SIGKILL)
    wait_until(lambda: state(identity) == "dead", timeout_s=30)


def send_terminate(identity: Identity) -> None:
    """Asks for a controlled shutdown and does not wait, so that several can be asked at once."""
    _signal(identity, signal.SIGCONT)
    _signal(identity, signal.SIGTERM)


def terminate(identity: Identity, *, timeout_s: float) -> bool:
    """Controlled shutdown; whether it ended by itself in time. If not, it is killed."""
    send_terminate(identity)
    if wait_until(lambda: state(identity) == "dead", timeout_s=timeout_s):
        return True
    kill(identity)
    return False


def send_user_signal(identity: Identity) -> None:
    """There is something to read in the node's folder."""
    _signal(identity, signal.SIGUSR1)


def pause(identity: Identity) -> bool:
    _signal(identity, signal.SIGSTOP)
    return wait_until(lambda: state(identity) == "paused", timeout_s=10)


def resume(identity: Identity) -> bool:
    _signal(identity, signal.SIGCONT)
    return wait_until(lambda: state(identity) == "running", timeout_s=10)


def _signal(identity: Identity, number: signal.Signals) -> None:
    process = _process(identity)
    if process is not None:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.send_signal(number)


def _process(identity: Identity | None) -> psutil.Process | None:
    """The process if it is still the one that was started, and not another with its number."""
    if identity is None:
        return None
    child = _children.get(identity.pid)
    if child is not None and child.poll() is not None:
        del _children[identity.pid]
        return None
    try:
        process = psutil.Process(identity.pid)
        same = abs(_started_s(process) - identity.started_s) < _SAME_START_S
    except psutil.NoSuchProcess:
        return None
    return process if same else None


def _started_s(process: psutil.Process) -> float:
    booted = psutil.boot_time()
    return process.create_time() - booted


def _escaped(value: str) -> str:
    """For a Java properties file, where a backslash starts an escape."""
    return value.replace("\\", "\\\\").replace("\n", "\\n")
