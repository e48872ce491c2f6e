"""The cluster commands on real brokers: `up`, `status`, `kill`, `restart`, `pause`, `down` …

No test leaves a process running, however the cluster ends.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import psutil
import pytest
from command import LOSSLESS, lossless

from lossless.engines.choose import connect
from lossless.engines.metadata import read_metadata
from lossless.engines.waiting import wait_until

CONTRACT = """
[guarantee]
survives = {}  # what two brokers can promise

[cluster]
brokers = 2
config.broker.session.timeout.ms = 1000

[topics."shop.orders"]
partitions = 4
replication_factor = 2
config.min.insync.replicas = 1
"""


def processes_in(folder: Path, *, main_class: str = "") -> list[int]:
    """Returns all processes, of any parent, with the folder in their command line."""
    return [
        process.pid
        for process in psutil.process_iter(["cmdline"])
        if str(folder) in (line := " ".join(process.info["cmdline"] or ())) and main_class in line
    ]


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path
    left = processes_in(tmp_path)
    for pid in left:
        os.kill(pid, signal.SIGKILL)
    assert not left, "a broker was left running"


def status(folder: Path) -> dict[str, Any]:
    answer = lossless(folder, "status", "--format", "json")
    assert answer.returncode == 0, answer.stderr
    status: dict[str, Any] = json.loads(answer.stdout)
    return status


def states(folder: Path) -> dict[int, str]:
    return {row["broker"]: row["state"] for row in status(folder)["brokers"]}


def test_commands_work_on_a_detached_cluster_until_down(folder: Path) -> None:
    (folder / "lossless.toml").write_text(CONTRACT)
    below = folder / "a" / "b"  # commands work from any folder below the contract
    below.mkdir(parents=True)

    up = lossless(below, "up", "--detach")
    assert up.returncode == 0, up.stderr
    (line,) = up.stdout.splitlines()
    name, _, address = line.partition("=")
    assert name == "bootstrap.servers"
    topics = read_metadata({"bootstrap.servers": address}).topics
    assert len(topics["shop.orders"].partitions) == 4
    assert states(below) == {1: "running", 2: "running"}
    pids = [row["pid"] for row in status(below)["brokers"]]
    assert [os.getsid(pid) for pid in pids] == pids  # closing a terminal does not end them

    second = lossless(below, "up", "--detach")
    assert second.returncode == 2
    assert f"already running: bootstrap.servers={address}" in second.stderr

    assert lossless(below, "kill", "2").stdout == f"broker 2: process {pids[1]} is gone (SIGKILL)\n"
    assert states(folder) == {1: "running", 2: "dead"}
    assert status(folder)["controller"] == 1
    again = lossless(below, "kill", "2")
    assert (again.returncode, again.stdout) == (4, "")
    assert "broker 2 is not running" in again.stderr
    restarted = lossless(below, "restart", "2")
    assert restarted.stdout.endswith(f" on {address.split(',')[1]}, back in the cluster\n")
    assert "is stopped (SIGSTOP)" in lossless(below, "pause", "2").stdout
    assert states(folder) == {1: "running", 2: "paused"}
    assert "runs again (SIGCONT)" in lossless(below, "resume", "2").stdout
    unknown = lossless(below, "pause", "7")
    assert unknown.returncode == 2
    assert "choose one of 1, 2" in unknown.stderr

    assert lossless(below, "down").stdout == "stopped 2 processes\n"
    assert processes_in(folder) == []
    assert not (folder / ".lossless").exists()
    down = lossless(below, "down")
    assert (down.returncode, down.stdout) == (0, "no cluster is running\n")


def test_requested_ports_are_consecutive_and_permanent(folder: Path) -> None:
    port = first_of_free_ports(2)
    data = ["--brokers", "2", "--data", str(folder / "data")]
    with socket.create_server(("127.0.0.1", port + 1)):
        taken = lossless(folder, "up", "--detach", *data, "--port", str(port))
        assert taken.returncode == 4
        assert f"port {port + 1} of broker 2 is taken" in taken.stderr
        assert "choose other ports with --port" in taken.stderr
    up = lossless(folder, "up", "--detach", *data, "--port", str(port))
    assert up.stdout == f"bootstrap.servers=127.0.0.1:{port},127.0.0.1:{port + 1}\n", up.stderr
    assert lossless(folder, "down").returncode == 0
    moved = lossless(folder, "up", "--detach", *data, "--port", str(port + 1))
    assert moved.returncode == 2
    assert f"whose first port is {port}, not {port + 1}" in moved.stderr
    assert lossless(folder, "up", "--detach", *data).stdout == up.stdout
    assert lossless(folder, "down").returncode == 0


def first_of_free_ports(count: int) -> int:
    for first in range(32_000, 32_700):
        with suppress(OSError), ExitStack() as held:
            for port in range(first, first + count):
                held.enter_context(socket.create_server(("127.0.0.1", port)))
            return first
    raise AssertionError(f"no {count} free ports in a row")


def test_a_host_name_opens_the_cluster_to_other_machines_with_a_warning(folder: Path) -> None:
    name = "127.0.0.2"  # stands for any address other than 127.0.0.1
    up = lossless(folder, "up", "--detach", "--brokers", "1", "--host", name)
    assert up.returncode == 0, up.stderr
    assert up.stdout.startswith(f"bootstrap.servers={name}:")
    assert f"warning: whoever reaches {name} may read and change everything" in up.stderr
    assert lossless(folder, "down").returncode == 0


def test_a_cluster_with_a_data_folder_is_found_even_after_every_broker_died(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = ["--data", str(folder / "data")]
    first = lossless(folder, "up", "--detach", "--brokers", "1", *data)
    assert first.returncode == 0, first.stderr
    assert lossless(folder, "kill", "1").returncode == 0
    assert states(folder) == {1: "dead"}
    assert "back in the cluster" in lossless(folder, "restart", "1").stdout
    monkeypatch.chdir(folder)
    assert f"bootstrap.servers={connect(None, None).bootstrap_servers}\n" == first.stdout
    assert lossless(folder, "down").returncode == 0
    assert (folder / "data" / "broker-1" / "log" / "output.log").stat().st_size > 0

    # In the foreground this time. The folder contains the number of brokers and their ports.
    with subprocess.Popen(
        [*LOSSLESS, "up", *data], cwd=folder, stdout=subprocess.PIPE, text=True
    ) as up:
        assert up.stdout is not None
        assert up.stdout.readline() == first.stdout
        assert states(folder) == {1: "running"}
        up.send_signal(signal.SIGINT)
        assert up.wait(60) == 130  # the exit code of an interrupted command
    assert processes_in(folder) == []


@pytest.mark.parametrize("engine", ["embedded", pytest.param("apache", marks=pytest.mark.full)])
def test_a_foreground_cluster_that_is_killed_leaves_no_broker_behind(
    folder: Path, engine: str
) -> None:
    with subprocess.Popen(
        [*LOSSLESS, "up", "--brokers", "2", "--kafka", engine],
        cwd=folder,
        stdout=subprocess.PIPE,
        text=True,
    ) as up:
        assert up.stdout is not None
        assert up.stdout.readline().startswith("bootstrap.servers=")
        assert lossless(folder, "restart", "2").returncode == 0  # started by another process
        up.kill()
        up.wait(60)
    assert wait_until(lambda: processes_in(folder) == [], timeout_s=60)
    assert lossless(folder, "status").returncode == 4
    assert not (folder / ".lossless" / "kafka").exists()


def test_a_foreground_cluster_exits_with_0_when_another_terminal_stops_it(folder: Path) -> None:
    with subprocess.Popen(
        [*LOSSLESS, "up", "--brokers", "1", "--config", "foo=bar", "--config", "log.dirs.x=1"],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as up:
        assert up.stdout is not None
        assert up.stdout.readline().startswith("bootstrap.servers=")
        below = folder / "a" / "b"
        below.mkdir(parents=True)
        assert states(below) == {1: "running"}  # found in a parent folder, without a contract
        assert lossless(below, "down").stdout == "stopped 1 process\n"
        _, warnings = up.communicate(timeout=60)
    assert up.returncode == 0
    for name in ("foo", "log.dirs.x"):
        assert f"warning: {name} is not a setting of Kafka 4.1: ignored" in warnings
    assert not (folder / ".lossless").exists()


def test_a_second_cluster_needs_its_own_folder(folder: Path) -> None:
    one = ["--data", str(folder / "one")]
    two = ["--data", str(folder / "two")]
    first = lossless(folder, "up", "--detach", "--brokers", "1", *one)
    assert first.returncode == 0, first.stderr
    address = first.stdout.strip()
    for again in ([], one):
        refused = lossless(folder, "up", "--detach", "--brokers", "1", *again)
        assert refused.returncode == 2
        assert f"already running: {address}" in refused.stderr
    second = lossless(folder, "up", "--detach", "--brokers", "1", *two)
    assert second.returncode == 0, second.stderr
    assert second.stdout != first.stdout
    which = lossless(folder, "status")
    assert which.returncode == 2
    assert "2 clusters were started here" in which.stderr
    assert f"--data {folder / 'one'}, --data {folder / 'two'}" in " ".join(which.stderr.split())
    assert address in lossless(folder, "status", *one).stdout
    assert lossless(folder, "down", *one).stdout == "stopped 1 process\n"
    assert second.stdout.strip() in lossless(folder, "status").stdout  # the remaining one
    assert lossless(folder, "down").returncode == 0
    assert not (folder / ".lossless").exists()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize(
    ("engine", "moment"),
    [("embedded", "spawned"), ("apache", "spawned"), ("apache", "starting")],
)
def test_an_interrupted_start_leaves_no_process_and_no_file(
    folder: Path, number: signal.Signals, engine: str, moment: str
) -> None:
    main_class = {"embedded": "lossless.broker", "apache": "kafka.Kafka"}[engine]
    logs = [folder / f".lossless/kafka/broker-{n}/log/server.log" for n in (1, 2, 3)]
    with subprocess.Popen(
        [*LOSSLESS, "up", "--kafka", engine, "--detach"],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as up:

        def reached() -> bool:
            if moment == "spawned":
                return processes_in(folder, main_class=main_class) != []
            return all(log.exists() and "Starting broker" in log.read_text() for log in logs)

        assert wait_until(reached, timeout_s=60, poll_s=0.01)
        up.send_signal(number)
        output, complaint = up.communicate(timeout=60)
    assert up.returncode == 130, complaint
    assert output == b""
    assert processes_in(folder) == []
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["status"], 4, "no cluster is running here"),
        (["kill", "1"], 4, "no cluster is running here"),
        (["restart", "1", "--data", "nowhere"], 4, "no cluster is running here (nowhere)"),
        (
            ["kill", "1", "--data", "no where"],
            4,
            "start one: lossless up --detach --data 'no where'",
        ),
        (["kill", "one"], 2, "not a valid integer"),
        (["up", "--brokers", "0"], 2, "between 1 and 16"),
        (["up", "--brokers", "1", "--rack", "a,b"], 2, "2 racks for 1 brokers"),
        (["up", "--rack", "a,,b"], 2, "contains an empty rack name"),
        (["up", "--port", "65534"], 2, "3 brokers from port 65534 on: ports are from 1 to 65535"),
        (["up", "--host", "here:9092"], 2, "'here:9092' is no name of a machine"),
        (["up", "--host", "0.0.0.0"], 2, "none that others can call"),
        (["up", "--config", "num.partitions"], 2, "write NAME=VALUE"),
        (["up", "--config", "listeners=x"], 2, "listeners cannot be configured"),
        (["cut", "1"], 2, "does not name two brokers"),
        (["isolate", "1"], 4, "no cluster is running here"),
        (["up", "--kafka", "127.0.0.1:9092"], 2, "choose embedded or apache"),
        (["up", "--contract", "nowhere.toml"], 2, "no contract at nowhere.toml"),
    ],
)
def test_a_refused_command_prints_one_message_and_returns_its_exit_code(
    folder: Path, arguments: list[str], code: int, message: str
) -> None:
    answer = lossless(folder, *arguments)
    assert answer.returncode == code
    assert message in answer.stderr
    assert "Traceback" not in answer.stderr
    assert answer.stdout == ""
    assert list(folder.iterdir()) == []


def test_without_java_the_message_says_what_to_install(folder: Path) -> None:
    answer = lossless(folder, "up", "--kafka", "apache", PATH="", JAVA_HOME="")
    assert answer.returncode == 4
    assert "Java is not installed" in answer.stderr
    assert "install Java 17" in answer.stderr
    assert list(folder.iterdir()) == []
