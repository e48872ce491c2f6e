"""One message for each cause for which no broker takes a record, with what to do about it.

The listeners are sockets of this test: what they answer comes before anything that Kafka says.
"""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from issued_certificates import Certificates
from lossless.client.errors import NotDelivered
from lossless.client.producing.producer import Producer
from lossless.engines.local.planned import PlannedCluster
from lossless.errors import BadInput


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture
def listen() -> Iterator[Callable[[Path | None], str]]:
    """Makes a listener, of TLS if it has a certificate; gives its address."""
    opened: list[socket.socket] = []

    def listen(certificate: Path | None) -> str:
        listener = socket.create_server(("127.0.0.1", 0))
        opened.append(listener)

        def serve(client: socket.socket) -> None:
            with client:
                try:
                    if certificate is not None:
                        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
                        context.load_cert_chain(certificate)
                        client = context.wrap_socket(client, server_side=True)
                    client.recv(1_000)
                except OSError:
                    pass
                finally:
                    client.close()

        def accept() -> None:
            while True:
                try:
                    client, _ = listener.accept()
                except OSError:
                    return
                threading.Thread(target=serve, args=(client,), daemon=True).start()

        threading.Thread(target=accept, daemon=True).start()
        return f"127.0.0.1:{listener.getsockname()[1]}"

    yield listen
    for listener in opened:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()


def error_of(address: str, **settings: object) -> NotDelivered:
    given = {name.replace("_", "."): value for name, value in settings.items()}
    given |= {"bootstrap.servers": address, "delivery.timeout.ms": 1_000}
    with Producer(given, audit=False) as producer, pytest.raises(NotDelivered) as raised:
        producer.send("orders", b"v").result(30)
    assert raised.value.record is not None
    return raised.value


@pytest.mark.parametrize(
    ("by", "name", "days", "what", "hint"),
    [
        ("unknown", "IP:127.0.0.1", 2, "of an unknown authority", "ssl.ca.location"),
        ("known", "IP:127.0.0.1", -1, "has expired", "renew"),
        ("known", "DNS:elsewhere.example", 2, "another name than 127.0.0.1", "subjectAltName"),
    ],
)
def test_each_fault_of_a_certificate_has_a_message_of_its_own(
    certificates: Certificates,
    listen: Callable[[Path | None], str],
    by: str,
    name: str,
    days: int,
    what: str,
    hint: str,
) -> None:
    address = listen(certificates.issued(by, name, days))
    trusted = certificates.folder / "known.pem"
    error = error_of(address, security_protocol="SSL", ssl_ca_location=str(trusted))
    assert f"{address} (the certificate of the broker" in error.what
    assert what in error.what
    assert hint in (error.hint or "")


@pytest.mark.parametrize("protocol", ["PLAINTEXT", "SASL_PLAINTEXT"])
def test_a_plain_client_of_a_tls_listener_is_told_to_use_tls(
    certificates: Certificates, listen: Callable[[Path | None], str], protocol: str
) -> None:
    address = listen(certificates.issued("known", "IP:127.0.0.1", 2))
    login = {"sasl_mechanism": "PLAIN", "sasl_username": "a", "sasl_password": "b"}
    more = login if protocol.startswith("SASL") else {}
    error = error_of(address, security_protocol=protocol, **more)
    assert f"{address} (the listener there expects TLS" in error.what
    wanted = "SASL_SSL" if more else "SSL"
    assert (error.hint or "").startswith(f"set security.protocol = {wanted},")


def test_a_tls_client_of_a_plain_listener_is_told_so(
    certificates: Certificates, kafka: PlannedCluster
) -> None:
    trusted = str(certificates.folder / "known.pem")
    error = error_of(kafka.bootstrap_servers, security_protocol="SSL", ssl_ca_location=trusted)
    assert "the listener does not speak TLS" in (error.hint or "")


def test_a_listener_that_only_closes_connections_is_not_called_plain(
    certificates: Certificates, listen: Callable[[Path | None], str]
) -> None:
    """A TLS listener that is stopping does that too."""
    trusted = str(certificates.folder / "known.pem")
    error = error_of(listen(None), security_protocol="SSL", ssl_ca_location=trusted)
    assert "PLAINTEXT" not in error.what
    assert "TLS" not in (error.hint or "")


def test_a_host_that_has_no_address_is_named() -> None:
    error = error_of("nowhere.invalid:9092")
    assert "nowhere.invalid:9092 (Failed to resolve" in error.what
    assert "bootstrap.servers" in (error.hint or "")


@pytest.mark.parametrize("name", ["ssl.ca.location", "ssl.certificate.location"])
def test_a_file_that_is_missing_is_named(tmp_path: Path, name: str) -> None:
    settings = {
        "bootstrap.servers": "127.0.0.1:1",
        "security.protocol": "SSL",
        name: str(tmp_path / "missing.pem"),
    }
    with pytest.raises(BadInput, match=r"missing\.pem cannot be read: No such file") as refused:
        Producer(settings, audit=False)
    assert name in refused.value.what


def test_a_truststore_that_is_missing_is_named(tmp_path: Path) -> None:
    settings = {
        "bootstrap.servers": "127.0.0.1:1",
        "security.protocol": "SSL",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(tmp_path / "missing.pem"),
    }
    with pytest.raises(BadInput, match=r"missing\.pem cannot be read"):
        Producer(settings, audit=False)
