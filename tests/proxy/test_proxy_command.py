"""`lossless proxy` with faults on standard input and in --fault."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from embedded_brokers import Embedded
from kafka_clients import Sending, stored

from lossless.cli.proxy import parse_fault
from lossless.errors import BadInput

PROXY = [sys.executable, "-m", "lossless", "proxy"]


class Running:
    """A proxy in a process, and its answers to lines."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self.bootstrap_servers = self.answer().removeprefix("bootstrap.servers=")

    def answer(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def say(self, line: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{line}\n")
        self.process.stdin.flush()

    def ask(self, line: str) -> str:
        self.say(line)
        return self.answer()


@contextmanager
def running(folder: Path, kafka: str, *faults: str) -> Iterator[Running]:
    options = [part for fault in faults for part in ("--fault", fault)]
    with subprocess.Popen(
        [*PROXY, "--kafka", kafka, *options],
        cwd=folder,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            yield Running(process)
        finally:
            process.kill()


def test_a_line_loses_an_answer_and_the_next_ones_say_so_and_mend(
    embedded: Embedded, topic: str, leader: int, tmp_path: Path
) -> None:
    with running(tmp_path, embedded.bootstrap_servers) as proxy:
        sending = Sending(proxy.bootstrap_servers, topic, enable_idempotence=False)
        assert proxy.ask(f"drop Produce broker={leader}").startswith("request 1 of produce")
        sending.send("once")
        sending.finish()
        assert json.loads(proxy.ask("counters"))["dropped"] == {"produce": 1}
        assert proxy.ask("mend").startswith("mended to all brokers")
        assert stored(embedded.bootstrap_servers, topic) == ["once", "once"]

        proxy.process.send_signal(signal.SIGINT)
        assert proxy.process.wait(20) == 0
        host, _, port = proxy.bootstrap_servers.split(",")[0].rpartition(":")
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection((host, int(port)), timeout=5)


def test_a_line_that_says_nothing_is_answered_and_changes_nothing(
    embedded: Embedded, topic: str, tmp_path: Path
) -> None:
    with running(tmp_path, embedded.bootstrap_servers) as proxy:
        for line in ("dely 100", "", "cut broker=9", "half-open upwards"):
            proxy.say(line)
        assert proxy.ask("mend") == "mended to all brokers: nothing"
        sending = Sending(proxy.bootstrap_servers, topic)
        sending.send("arrives")
        sending.finish()
        assert sending.delivered == ["arrives"]

        proxy.process.send_signal(signal.SIGTERM)
        _, complaints = proxy.process.communicate(timeout=20)
        assert proxy.process.returncode == 0
        assert "'dely 100' is not a fault" in complaints
        assert "has not heard of broker 9" in complaints
        assert "requests or answers, not 'upwards'" in complaints
        assert "Traceback" not in complaints


def test_a_fault_option_applies_from_the_start_and_a_closed_input_does_not_stop_the_proxy(
    embedded: Embedded, topic: str, tmp_path: Path
) -> None:
    with running(tmp_path, embedded.bootstrap_servers, "delay 20 client=slow") as proxy:
        assert "20 ms longer each way" in proxy.answer()
        assert proxy.process.stdin is not None
        proxy.process.stdin.close()
        sending = Sending(proxy.bootstrap_servers, topic, client_id="slow")
        sending.send("late")
        sending.finish()
        assert sending.delivered == ["late"]
        assert proxy.process.poll() is None


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("", "'' is not a fault"),
        ("delay", "write delay MS [JITTER_MS] [broker=N] [client=ID]"),
        ("delay soon", "'soon' is not a number"),
        ("delay nan", "'nan' is not a number"),
        ("throttle 1 2", "too few or too many arguments"),
        ("cut broker=one", "'one' is not an integer"),
        ("drop Prodce", "Kafka has no API 'Prodce'"),
        ("drop Produce first", "'first' is not an integer"),
        ("counters client=me", "not per client"),
    ],
)
def test_an_invalid_line_is_refused_with_the_accepted_syntax(line: str, message: str) -> None:
    with pytest.raises(BadInput) as raised:
        parse_fault(line)
    assert message in str(raised.value)


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["--kafka", "nowhere"], 2, "neither `embedded`, `apache` nor an address"),
        (["--fault", "dely 1"], 2, "choose one of delay, throttle"),
        ([], 4, "no broker is running here"),
    ],
)
def test_a_proxy_that_cannot_be_had_says_why(
    tmp_path: Path, arguments: list[str], code: int, message: str
) -> None:
    done = subprocess.run(
        [*PROXY, *arguments], cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stdout) == (code, "")
    assert message in done.stderr
