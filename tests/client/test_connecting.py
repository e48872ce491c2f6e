"""librdkafka's lines about connections: condensed in the log, and kept for errors."""

from __future__ import annotations

import logging
import socket
import threading

import pytest

from lossless.client import connecting
from lossless.client.connecting import Connections

FORMAT = "%s [%s] %s"


class Clock:
    def __init__(self) -> None:
        self.now = 1_000.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(connecting, "time", clock)
    return clock


class Lines:
    def __init__(self) -> None:
        self.lines: list[str] = []

    def log(self, level: int, message: str, *arguments: object) -> None:
        assert level == logging.ERROR
        self.lines.append(message % arguments)


def failed(connections: Connections, address: str, why: str, state: str = "CONNECT") -> None:
    text = f"[thrd:{address}/1]: {address}/1: {why} (after 3ms in state {state})"
    connections.log(logging.ERROR, FORMAT, "FAIL", "rdkafka#producer-1", text)


def refused(connections: Connections, port: int) -> None:
    why = f"Connect to ipv4#127.0.0.1:{port} failed: Connection refused"
    failed(connections, f"127.0.0.1:{port}", why)


@pytest.mark.usefixtures("clock")
def test_the_first_failure_of_a_connection_is_logged_as_it_is() -> None:
    lines = Lines()
    refused(Connections(lines), 1)
    (line,) = lines.lines
    assert "Connect to ipv4#127.0.0.1:1 failed: Connection refused" in line
    assert "not logged" not in line


def test_further_failures_are_summed_up_every_ten_seconds(clock: Clock) -> None:
    lines = Lines()
    connections = Connections(lines)
    for _ in range(300):  # 30 s
        refused(connections, 1)
        clock.now += 0.1
    assert 3 <= len(lines.lines) <= 4
    assert "and 99 more failures of connections in the last 10 s, not logged" in lines.lines[1]


@pytest.mark.usefixtures("clock")
def test_lines_about_other_things_are_passed_on() -> None:
    lines = Lines()
    connections = Connections(lines)
    for _ in range(5):
        connections.log(logging.ERROR, FORMAT, "CONFWARN", "rdkafka#producer-1", "unknown")
    assert len(lines.lines) == 5


@pytest.mark.usefixtures("clock")
def test_the_explanation_names_each_address_once_with_its_latest_reason() -> None:
    connections = Connections(Lines())
    assert connections.explanation() is None
    refused(connections, 1)
    refused(connections, 2)
    failed(connections, "127.0.0.1:1", "SSL handshake failed: expired")
    explanation = connections.explanation()
    assert explanation is not None
    assert explanation.what == (
        "no connection to a broker was ever made: tried 127.0.0.1:2 (Connection refused), "
        "127.0.0.1:1 (SSL handshake failed: expired)"
    )
    assert explanation.hint == "no broker listens there: start it, or correct bootstrap.servers"


@pytest.mark.usefixtures("clock")
def test_the_explanation_names_the_first_addresses_of_many() -> None:
    connections = Connections(Lines())
    for port in range(1, 6):
        refused(connections, port)
    explanation = connections.explanation()
    assert explanation is not None
    assert explanation.what.endswith("127.0.0.1:3 (Connection refused), and 2 more")


@pytest.mark.usefixtures("clock")
@pytest.mark.parametrize("by_line", [True, False])
def test_a_connection_that_was_lost_is_told_from_one_that_was_never_made(by_line: bool) -> None:
    connections = Connections(Lines())
    if by_line:
        failed(connections, "127.0.0.1:1", "Disconnected", state="UP")
    else:
        connections.made()
    refused(connections, 1)
    explanation = connections.explanation()
    assert explanation is not None
    assert explanation.what == (
        "connections to brokers were made before, and fail now: 127.0.0.1:1 (Connection refused)"
    )


def test_failures_of_long_ago_explain_nothing(clock: Clock) -> None:
    connections = Connections(Lines())
    refused(connections, 1)
    clock.now += connecting.RECENT_S
    assert connections.explanation() is None


@pytest.mark.usefixtures("clock")
@pytest.mark.parametrize(
    "line",
    [
        "Disconnected: connection reset by peer",
        "SSL handshake failed: Disconnected: connecting to a PLAINTEXT broker listener?",
    ],
)
@pytest.mark.parametrize("answers", [True, False])
def test_a_listener_is_called_plain_if_it_answers_without_tls(line: str, answers: bool) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = f"127.0.0.1:{listener.getsockname()[1]}"
        connections = Connections(Lines(), {"security.protocol": "SSL"})
        failed(connections, address, line, "SSL_HANDSHAKE")
        listener.settimeout(30)

        def serve() -> None:
            client, _ = listener.accept()
            with client:
                request = client.recv(65_536)
                if answers:
                    client.sendall(bytes.fromhex("0000000a") + request[8:12] + bytes(6))

        threading.Thread(target=serve, daemon=True).start()
        explanation = connections.explanation()
    assert explanation is not None
    assert "TLS" in (explanation.hint or "") if answers else explanation.hint is None
    assert answers or "PLAINTEXT" not in explanation.what


@pytest.mark.usefixtures("clock")
def test_an_address_that_is_gone_meanwhile_is_not_called_plain() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = f"127.0.0.1:{listener.getsockname()[1]}"
    connections = Connections(Lines(), {"security.protocol": "SSL"})
    failed(connections, address, "Disconnected", "SSL_HANDSHAKE")
    explanation = connections.explanation()
    assert explanation is not None
    assert explanation.hint is None


LOGIN = "SASL authentication error: Authentication failed"


def test_a_login_is_refused_when_every_address_has_refused_it_for_some_seconds(
    clock: Clock,
) -> None:
    connections = Connections(Lines())
    failed(connections, "127.0.0.1:1", LOGIN, "AUTH_REQ")
    failed(connections, "127.0.0.1:2", LOGIN, "AUTH_REQ")
    assert not connections.is_login_refused  # a broker that starts may not know its users yet
    clock.now += connecting.LOGIN_S
    assert connections.is_login_refused


def test_a_login_is_not_called_refused_when_another_broker_is_unreachable_or_has_accepted_it(
    clock: Clock,
) -> None:
    connections = Connections(Lines())
    failed(connections, "127.0.0.1:1", LOGIN, "AUTH_REQ")
    refused(connections, 2)
    clock.now += connecting.LOGIN_S
    assert not connections.is_login_refused
    failed(connections, "127.0.0.1:2", LOGIN, "AUTH_REQ")
    clock.now += connecting.LOGIN_S
    assert connections.is_login_refused
    connections.made()
    assert not connections.is_login_refused
    failed(connections, "127.0.0.1:1", LOGIN, "AUTH_REQ")
    clock.now += connecting.LOGIN_S
    assert not connections.is_login_refused


@pytest.mark.usefixtures("clock")
def test_a_listener_that_answers_with_a_tls_alert_is_not_called_plain() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = f"127.0.0.1:{listener.getsockname()[1]}"
        connections = Connections(Lines(), {"security.protocol": "SSL"})
        failed(connections, address, "Disconnected", "SSL_HANDSHAKE")
        listener.settimeout(30)

        def refuse() -> None:
            client, _ = listener.accept()
            with client:
                client.recv(65_536)
                client.sendall(bytes.fromhex("15 0303 0002 02 28"))  # fatal: handshake failure

        threading.Thread(target=refuse, daemon=True).start()
        explanation = connections.explanation()
    assert explanation is not None
    assert explanation.hint is None
