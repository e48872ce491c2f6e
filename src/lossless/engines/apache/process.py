"""One JVM of Kafka's: started in a session of its own, recognised by pid and start time."""

from __future__ import annotations

import contextlib
import os
import shlex
import signal
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil

from lossless.engines.waiting import wait_until
from lossless.jars import jars
from lossless.jars.java import java

# A pid is used again one day; never within this time of the first start. Not zero, because the
# system computes start times from the clock, which may be corrected.
_SAME_START_S = 2.0

# A lab cluster is started often and lives briefly: the first compiler and the simplest collector
# make brokers start sooner. Kafka's own environment variables replace them.
_HEAP = "-Xmx512m"
_PERFORMANCE = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"

_LOG4J = """\
appender.file.type = RollingFile
appender.file.name = file
appender.file.fileName = ${sys:lossless.log}/server.log
appender.file.filePattern = ${sys:lossless.log}/server.log.%i
appender.file.layout.type = PatternLayout
appender.file.layout.pattern = [%d{ISO8601}] %p %m (%c{1})%n
appender.file.policies.type = Policies
appender.file.policies.size.type = SizeBasedTriggeringPolicy
appender.file.policies.size.size = 20MB
appender.file.strategy.type = DefaultRolloverStrategy
appender.file.strategy.max = 3
rootLogger.level = INFO
rootLogger.appenderRef.file.ref = file
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    pid: int
    started: float


# Processes that this program started. They must be waited for, or they stay behind as zombies.
_children: dict[int, subprocess.Popen[bytes]] = {}


def write_node_folder(folder: Path, properties: Mapping[str, str]) -> None:
    (folder / "log").mkdir(parents=True, exist_ok=True)
    (folder / "log4j2.properties").write_text(_LOG4J)
    (folder / "server.properties").write_text(
        "".join(f"{name}={_escaped(value)}\n" for name, value in sorted(properties.items()))
    )


def jvm_command() -> list[str]:
    """Java with Kafka on its class path. Raises when either is not to be had."""
    return [
        str(java()),
        *shlex.split(os.environ.get("KAFKA_HEAP_OPTS", _HEAP)),
        *shlex.split(os.environ.get("KAFKA_JVM_PERFORMANCE_OPTS", _PERFORMANCE)),
        "-Djava.awt.headless=true",
        *("-cp", os.pathsep.join(str(path) for path in jars("kafka"))),
    ]


def format_storage(jvm: Sequence[str], folder: Path, cluster_id: str) -> subprocess.Popen[bytes]:
    """Kafka's own tool lays the data folder out; it says what is wrong in log/format.log."""
    with (folder / "log" / "format.log").open("wb") as output:
        return subprocess.Popen(
            [
                *jvm,
                *_logging(folder),
                "kafka.tools.StorageTool",
                "format",
                "--ignore-formatted",
                *("--cluster-id", cluster_id),
                *("--config", str(folder / "server.properties")),
            ],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )


def start(jvm: Sequence[str], folder: Path) -> Identity:
    """In a session of its own: it survives the terminal, and Ctrl-C reaches us alone."""
    with (folder / "log" / "output.log").open("ab") as output:
        child = subprocess.Popen(
            [*jvm, *_logging(folder), "kafka.Kafka", str(folder / "server.properties")],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            cwd=folder,  # where a JVM that crashes leaves its report
            start_new_session=True,
        )
    _children[child.pid] = child
    try:
        return Identity(pid=child.pid, started=psutil.Process(child.pid).create_time())
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
        same = abs(process.create_time() - identity.started) < _SAME_START_S
    except psutil.NoSuchProcess:
        return None
    return process if same else None


def _logging(folder: Path) -> list[str]:
    return [
        f"-Dlossless.log={folder / 'log'}",
        f"-Dlog4j2.configurationFile={(folder / 'log4j2.properties').as_uri()}",
    ]


def _escaped(value: str) -> str:
    """For a Java properties file, where a backslash starts an escape."""
    return value.replace("\\", "\\\\").replace("\n", "\\n")
