"""The proxy's own life, and what no real broker does on demand."""

from __future__ import annotations

import socket
import threading

import psutil
import pytest
from scripted_broker import ScriptedBroker, answer_of, read_frame, request_of

from lossless.errors import BadInput, Unavailable, Undecided
from lossless.proxy import Proxy
from lossless.proxy.address import Address, addresses_of

LARGE = 64 * 1024 * 1024
UNKNOWN = 999  # an API that passes as it is


def metadata_of(node_id: int, port: int) -> dict[str, object]:
    return {"brokers": [{"node_id": node_id, "host": "127.0.0.1", "port": port}]}


class Lone:
    """A broker of which Metadata says what the test wants."""

    def __init__(self) -> None:
        self.told: dict[str, object] = {"brokers": []}
        self.broker = ScriptedBroker(self._answer)

    def _answer(
        self, _connection: socket.socket, key: int, version: int, correlation_id: int
    ) -> bytes | None:
        if key == 18:
            return answer_of(18, 0, correlation_id, {})
        return answer_of(3, version, correlation_id, self.told)


def dial(servers: str) -> socket.socket:
    host, port = servers.split(",")[0].split(":")
    return socket.create_connection((host, int(port)), timeout=20)


def ask_metadata(client: socket.socket, number: int) -> bytes:
    client.sendall(request_of(3, 1, number, {"topics": []}))
    frame = read_frame(client)
    assert frame is not None
    return frame


def test_a_broker_that_moves_keeps_its_port() -> None:
    first, second = Lone(), Lone()
    with first.broker, second.broker:
        first.told = second.told = metadata_of(1, first.broker.port)
        with Proxy([("127.0.0.1", first.broker.port)]) as proxy:
            at, where = proxy.brokers[1]
            assert where == ("127.0.0.1", first.broker.port)
            # The address that clients begin with is this broker's: one port is enough for both.
            assert proxy.bootstrap_servers == str(at)
            first.told = second.told = metadata_of(1, second.broker.port)
            with dial(proxy.bootstrap_servers) as client:
                assert ask_metadata(client, 1) == answer_of(3, 1, 1, metadata_of(1, at.port))
            assert proxy.brokers[1] == (at, ("127.0.0.1", second.broker.port))
            seen = second.broker.connections
            with dial(proxy.bootstrap_servers) as client:
                ask_metadata(client, 2)
            assert second.broker.connections == seen + 1


def test_a_broker_that_appears_later_gets_a_port() -> None:
    first, second = Lone(), Lone()
    with first.broker, second.broker, Proxy(f"127.0.0.1:{first.broker.port}") as proxy:
        assert proxy.brokers == {}
        first.told = metadata_of(7, second.broker.port)
        with dial(proxy.bootstrap_servers) as client:
            ask_metadata(client, 1)
        at, where = proxy.brokers[7]
        assert where.port == second.broker.port
        assert str(at) not in proxy.bootstrap_servers
        with socket.create_connection(at, timeout=10) as client:
            ask_metadata(client, 1)
        assert proxy.counters_of(7).requests == {"metadata": 1}


def test_a_listener_that_answers_with_a_tls_alert_is_refused_by_name() -> None:
    def answer(connection: socket.socket, *_: int) -> None:
        connection.sendall(b"\x15\x03\x03\x00\x02\x02\x46")

    threads = threading.active_count()
    told = "answers with a TLS alert\nThe proxy has to read"
    with ScriptedBroker(answer) as broker, pytest.raises(BadInput, match=told):
        Proxy(f"127.0.0.1:{broker.port}").start()
    assert threading.active_count() == threads


def test_a_listener_that_says_nothing_may_expect_tls() -> None:
    told = "Perhaps it expects TLS"
    with ScriptedBroker(lambda *_: None) as broker, pytest.raises(BadInput, match=told):
        Proxy(f"127.0.0.1:{broker.port}").start()


def test_a_client_that_starts_tls_is_refused_and_told_of() -> None:
    lone = Lone()
    with lone.broker, Proxy(f"127.0.0.1:{lone.broker.port}") as proxy:
        with dial(proxy.bootstrap_servers) as client:
            client.sendall(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03")
            with pytest.raises(ConnectionResetError):
                client.recv(1)
        (told,) = proxy.troubles
        assert "a client sends a TLS handshake" in told
        assert "does not do TLS" in told


def test_a_broker_that_wants_to_know_first_who_asks_becomes_known_by_its_clients() -> None:
    """SASL: Metadata is not answered before that, ApiVersions is."""

    def answer(_connection: socket.socket, key: int, _: int, number: int) -> bytes | None:
        return answer_of(18, 0, number, {}) if key == 18 else None

    with ScriptedBroker(answer) as broker, Proxy(f"127.0.0.1:{broker.port}") as proxy:
        assert proxy.brokers == {}
        assert proxy.troubles == ()
        with pytest.raises(BadInput, match="It knows none yet"):
            proxy.cut(broker=1)


def test_without_a_broker_there_is_no_proxy() -> None:
    with socket.create_server(("127.0.0.1", 0)) as held:
        port = held.getsockname()[1]
    with pytest.raises(Unavailable, match=f"no broker can be reached .127.0.0.1:{port}"):
        Proxy(f"127.0.0.1:{port}").start()


def test_a_broker_that_is_gone_closes_its_clients_connections() -> None:
    lone = Lone()
    with lone.broker:
        proxy = Proxy(f"127.0.0.1:{lone.broker.port}").start()
    try:
        # It may be so quick that not even the connecting succeeds.
        with pytest.raises(ConnectionResetError), dial(proxy.bootstrap_servers) as client:
            client.recv(1)
        assert proxy.counters.unreachable == 1
    finally:
        proxy.stop()


def test_a_client_that_does_not_read_stops_the_broker_and_loses_nothing() -> None:
    pattern = bytes(range(256)) * (LARGE // 256)
    sent = 0
    is_stuck = threading.Event()

    def answer(connection: socket.socket, key: int, version: int, number: int) -> bytes | None:
        nonlocal sent
        if key != UNKNOWN:
            return answer_of(key, version, number, {})
        connection.sendall((LARGE + 4).to_bytes(4, "big") + number.to_bytes(4, "big"))
        connection.settimeout(0.5)
        while sent < LARGE:
            try:
                sent += connection.send(pattern[sent : sent + (1 << 20)])
            except TimeoutError:
                connection.settimeout(None)
                is_stuck.set()
        return b""

    with ScriptedBroker(answer) as broker, Proxy(f"127.0.0.1:{broker.port}") as proxy:
        with dial(proxy.bootstrap_servers) as client:
            client.sendall(unknown_request(3))
            assert is_stuck.wait(20)
            assert sent < LARGE // 2
            frame = read_frame(client)
        assert frame is not None
        assert frame[8:] == pattern


def test_a_broker_that_does_not_read_stops_the_client_and_loses_nothing() -> None:
    pattern = bytes(range(256)) * (LARGE // 256)
    may_read = threading.Event()
    received: list[bytes] = []

    def answer(connection: socket.socket, key: int, version: int, number: int) -> bytes | None:
        if key != UNKNOWN:
            return answer_of(key, version, number, {})
        assert may_read.wait(20)
        frame = read_frame(connection)
        assert frame is not None
        received.append(frame)
        return b"\0\0\0\4" + number.to_bytes(4, "big")

    frame = unknown_request(4, pattern)
    sent = 0
    with (
        ScriptedBroker(answer) as broker,
        Proxy(f"127.0.0.1:{broker.port}") as proxy,
        dial(proxy.bootstrap_servers) as client,
    ):
        client.sendall(unknown_request(3))
        client.settimeout(0.5)
        while sent < len(frame):
            try:
                sent += client.send(frame[sent : sent + (1 << 20)])
            except TimeoutError:
                assert sent < LARGE // 2
                client.settimeout(20)
                may_read.set()
        assert may_read.is_set()
        assert read_frame(client) == b"\0\0\0\4\0\0\0\3"
    assert received == [frame]


def unknown_request(number: int, body: bytes = b"") -> bytes:
    header = UNKNOWN.to_bytes(2, "big") + bytes(2) + number.to_bytes(4, "big") + b"\0\1c"
    return (len(header) + len(body)).to_bytes(4, "big") + header + body


def test_what_a_client_sends_before_it_closes_arrives() -> None:
    arrived: list[int] = []
    is_there = threading.Event()

    def answer(_connection: socket.socket, key: int, version: int, number: int) -> bytes | None:
        if key != UNKNOWN:
            return answer_of(key, version, number, {})
        arrived.append(number)
        if number == 50:
            is_there.set()
        return b""

    with ScriptedBroker(answer) as broker, Proxy(f"127.0.0.1:{broker.port}") as proxy:
        proxy.delay(50)
        with dial(proxy.bootstrap_servers) as client:
            for number in range(1, 51):
                client.sendall(unknown_request(number, bytes(1000)))
        assert is_there.wait(10)
        assert arrived == list(range(1, 51))
        proxy.wait_until(lambda counters: counters.open == 0)


def test_an_answer_in_a_version_that_nobody_offered_passes_and_is_told_of() -> None:
    answer = b"\0\0\0\x08\0\0\0\5what"

    def broker_answer(_: socket.socket, key: int, version: int, number: int) -> bytes | None:
        return answer if version == 99 else answer_of(key, version, number, {})

    with ScriptedBroker(broker_answer) as broker, Proxy(f"127.0.0.1:{broker.port}") as proxy:
        with dial(proxy.bootstrap_servers) as client:
            client.sendall(b"\0\0\0\x0b" + b"\0\3\0\x63\0\0\0\5\0\1c")
            assert read_frame(client) == answer
        (told,) = proxy.troubles
        assert "metadata version 99" in told


def test_stopping_leaves_no_thread_and_no_socket() -> None:
    lone = Lone()
    with lone.broker:
        threads = set(threading.enumerate())
        sockets = open_sockets()
        proxy = Proxy(f"127.0.0.1:{lone.broker.port}").start()
        clients = [dial(proxy.bootstrap_servers) for _ in range(5)]
        for client in clients:
            ask_metadata(client, 1)
        proxy.delay(100_000)
        clients[0].sendall(request_of(3, 1, 2, {"topics": []}))
        proxy.stop()
        for client in clients:
            with pytest.raises(ConnectionResetError):
                client.recv(1)
            client.close()
        assert "lossless-proxy" not in {thread.name for thread in threading.enumerate()}
        for thread in set(threading.enumerate()) - threads:
            thread.join(10)  # the broker's, which have lost their client
        assert open_sockets() == sockets
        assert proxy.counters.connections == 5
        with pytest.raises(BadInput, match="has been stopped"):
            proxy.cut()
        proxy.stop()


def open_sockets() -> set[int]:
    found = psutil.Process().net_connections("tcp")
    return {connection.fd for connection in found if connection.fd >= 0}


def test_an_interrupt_within_the_block_stops_the_proxy() -> None:
    lone = Lone()
    with lone.broker, pytest.raises(KeyboardInterrupt), Proxy(f"127.0.0.1:{lone.broker.port}"):
        raise KeyboardInterrupt
    assert "lossless-proxy" not in {thread.name for thread in threading.enumerate()}


def test_what_does_not_happen_is_undecided() -> None:
    lone = Lone()
    with lone.broker, Proxy(f"127.0.0.1:{lone.broker.port}") as proxy:
        never = pytest.raises(Undecided, match=r"did not pass in 0\.01 s")
        with never:
            proxy.wait_until(lambda counters: counters.dropped == {"produce": 1}, timeout_s=0.01)


def test_a_proxy_that_does_not_run_has_no_address() -> None:
    with pytest.raises(BadInput, match="has not been started"):
        _ = Proxy("127.0.0.1:9092").bootstrap_servers


def test_addresses_are_read_as_clients_write_them() -> None:
    assert addresses_of("a:1, PLAINTEXT://b:2") == (Address("a", 1), Address("b", 2))
    assert addresses_of(["[::1]:3", ("c", 4)]) == (Address("::1", 3), Address("c", 4))
    assert str(Address("::1", 3)) == "[::1]:3"
    for wrong in ("", "a", "a:b", ":1", "a:70000"):
        with pytest.raises(BadInput):
            addresses_of(wrong)
    with pytest.raises(BadInput, match="at least one"):
        addresses_of([])
