"""Why a cluster takes no records from a client, or gives it none: one message for each cause.

The cluster demands TLS, a login and permissions, and its certificate is not for its address.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewTopic,
    ResourcePatternType,
    ResourceType,
)

from issued_certificates import Certificates
from lossless.client.consuming import Consumer, reaching
from lossless.client.errors import ClientError, ClientFailed, NotDelivered, Refused
from lossless.client.producing import Callback, Park, Producer
from lossless.engines import cluster
from lossless.engines.waiting import wait_until
from topics import create_new

PATIENCE_S = 60
ENGINES = ["embedded", pytest.param("apache", marks=pytest.mark.full)]
PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule required"


class Guarded:
    def __init__(self, servers: str, certificates: Certificates) -> None:
        self.certificates = certificates
        self.servers = servers

    def settings(self, user: str = "shop", **changed: str) -> dict[str, object]:
        return {
            "bootstrap.servers": self.servers,
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "PLAIN",
            "sasl.username": user,
            "sasl.password": f"{user}-secret",
            "ssl.ca.location": str(self.certificates.folder / "known.pem"),
            "ssl.endpoint.identification.algorithm": "none",
            **{name.replace("_", "."): value for name, value in changed.items()},
        }

    def allow(self, kind: ResourceType, name: str, operation: AclOperation) -> None:
        admin = AdminClient(self.settings("admin"))
        literal, allow = ResourcePatternType.LITERAL, AclPermissionType.ALLOW
        binding = AclBinding(kind, name, literal, "User:shop", "*", operation, allow)
        admin.create_acls([binding])[binding].result(PATIENCE_S)

    def topic(self, name: str) -> str:
        create_new(AdminClient(self.settings("admin")), NewTopic(name, 1, 1))
        return name


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module", params=ENGINES)
def guarded(request: pytest.FixtureRequest, certificates: Certificates) -> Iterator[Guarded]:
    config = {
        "security.inter.broker.protocol": "SASL_SSL",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(certificates.issued("known", "DNS:broker.example", 2)),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(certificates.folder / "known.pem"),
        "ssl.endpoint.identification.algorithm": "",
        "sasl.enabled.mechanisms": "PLAIN",
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
        "listener.name.sasl_ssl.plain.sasl.jaas.config": (
            f'{PLAIN} username="admin" password="admin-secret"'
            ' user_admin="admin-secret" user_shop="shop-secret";'
        ),
        "connection.failed.authentication.delay.ms": "10",
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:admin;User:ANONYMOUS",  # the controller listener has no login
        "auto.create.topics.enable": "false",
    }
    with cluster(kafka=request.param, brokers=1, config=config) as started:
        yield Guarded(started.bootstrap_servers, certificates)


def error_in_sending(settings: dict[str, object], topic: str = "orders") -> ClientError:
    settings = {**settings, "delivery.timeout.ms": 2_000}
    with Producer(settings, audit=False) as producer, pytest.raises(ClientError) as raised:
        producer.send(topic, b"v").result(PATIENCE_S)
    return raised.value


def error_in_reading(settings: dict[str, object], topic: str = "orders") -> ClientError:
    with (
        Consumer(topic, settings, group="billing", connect_timeout_s=2) as consumer,
        pytest.raises(ClientError) as raised,
    ):
        next(iter(consumer))
    return raised.value


@pytest.mark.parametrize(
    ("changed", "what", "hint"),
    [
        ({"ssl_ca_location": "unknown.pem"}, "of an unknown authority", "ssl.ca.location"),
        (
            {"ssl_endpoint_identification_algorithm": "https"},
            "for another name than 127.0.0.1",
            "subjectAltName",
        ),
        ({"security_protocol": "SASL_PLAINTEXT"}, "expects TLS", "SASL_SSL"),
        ({"security_protocol": "PLAINTEXT"}, "expects TLS", "set security.protocol = SSL"),
        ({"sasl_password": "wrong"}, "uthentication", "check the user name, the password"),
    ],
    ids=["unknown authority", "another name", "login without TLS", "plain", "wrong password"],
)
def test_each_cause_has_a_message_of_its_own_for_producers_and_consumers(
    guarded: Guarded,
    changed: dict[str, Any],
    what: str,
    hint: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(reaching, "ASK_S", 0.1)
    if "ssl_ca_location" in changed:
        changed = {"ssl_ca_location": str(guarded.certificates.folder / "unknown.pem")}
    settings = guarded.settings(**changed)
    with ThreadPoolExecutor() as threads:
        both = [threads.submit(each, settings) for each in (error_in_sending, error_in_reading)]
    sending, reading = [each.result() for each in both]
    assert isinstance(sending, NotDelivered)
    assert isinstance(reading, ClientFailed)
    for error in (sending, reading):
        assert f"no connection to a broker was ever made: tried {guarded.servers} (" in error.what
        assert what in error.what
        assert hint in (error.hint or "")


def test_records_are_given_up_soon_when_no_broker_accepts_the_login(
    guarded: Guarded, tmp_path: Path
) -> None:
    """Long before the delivery timeout of two minutes, by every policy."""
    given_up: list[ClientError] = []
    policies = [Callback(lambda _, error: given_up.append(error)), Park(tmp_path)]
    settings = guarded.settings(sasl_password="wrong")
    with ExitStack() as closing:
        producers = [
            closing.enter_context(Producer(settings, giving_up=policy, audit=False))
            for policy in policies
        ]
        failing, parking = (producer.send("orders", b"v") for producer in producers)
        with pytest.raises(NotDelivered, match="no broker accepts the login") as raised:
            failing.result(PATIENCE_S)
        assert "check the user name" in (raised.value.hint or "")
        assert wait_until(lambda: parking.parked, timeout_s=PATIENCE_S)
        again = producers[0].send("orders", b"v")
        with pytest.raises(NotDelivered, match="no broker accepts the login"):
            again.result(PATIENCE_S)
    assert [error.record and error.record.value for error in given_up] == [b"v", b"v"]


def test_a_transaction_and_a_consumer_fail_soon_when_no_broker_accepts_the_login(
    guarded: Guarded,
) -> None:
    settings = guarded.settings(sasl_password="wrong")
    with Consumer("orders", settings, group="billing") as consumer:
        with (
            Producer({**settings, "transactional.id": "shop"}) as producer,
            pytest.raises(NotDelivered, match="no broker accepts the login"),
            producer.transaction(),
        ):
            pass
        with pytest.raises(ClientFailed, match="no broker accepts the login") as raised:
            next(iter(consumer))
    assert "check the user name" in (raised.value.hint or "")


def test_a_client_without_a_permission_is_told_which_one_it_needs(guarded: Guarded) -> None:
    topic = guarded.topic("secrets")
    guarded.allow(ResourceType.TOPIC, topic, AclOperation.DESCRIBE)
    sending = error_in_sending(guarded.settings(), topic)
    assert isinstance(sending, ClientFailed)
    assert f"{topic}, key none: Failed to acquire idempotence PID" in sending.what
    assert (sending.hint or "").startswith("grant this client's user WRITE on a topic")
    guarded.allow(ResourceType.TOPIC, guarded.topic("diary"), AclOperation.WRITE)
    sending = error_in_sending(guarded.settings(), topic)
    assert isinstance(sending, Refused)
    assert sending.hint == "grant this client's user WRITE on the topic"
    group = error_in_reading(guarded.settings(), topic)
    assert isinstance(group, Refused)
    assert group.hint == "grant this client's user READ on the group"
    guarded.allow(ResourceType.GROUP, "billing", AclOperation.READ)
    reading = error_in_reading(guarded.settings(), topic)
    assert isinstance(reading, Refused)
    assert reading.hint == "grant this client's user READ on the topic"
