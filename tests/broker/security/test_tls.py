"""Encrypted listeners with real clients: certificates of brokers, and of clients."""

from __future__ import annotations

import asyncio
import socket
import ssl
from pathlib import Path

import pytest
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.errors import KafkaConnectionError
from certificates import Authority
from confluent_kafka import KafkaError
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    ResourcePatternType,
    ResourceType,
)
from secured import (
    PATIENCE_S,
    LoneNode,
    Settings,
    admin_of,
    is_refused,
    received,
    result,
    send_error,
    sent,
)

from lossless.contract import librdkafka_settings
from lossless.engines.interface import ClusterSpec
from lossless.engines.local.in_process import InProcessCluster
from lossless.engines.waiting import wait_until

APP = "User:CN=app,OU=Tests,O=Lossless"  # as Java writes it: the last part comes first


def encrypted_settings(
    node: LoneNode, listener: str, authority: Authority, store: Path | None = None
) -> dict[str, str]:
    settings = {
        "bootstrap.servers": node.addresses[listener],
        "security.protocol": "SSL",
        "ssl.ca.location": str(authority.certificate),
    }
    if store is not None:
        settings |= {"ssl.key.location": str(store), "ssl.certificate.location": str(store)}
    return settings


@pytest.fixture
def outside(encrypted: LoneNode, authority: Authority) -> Settings:
    return {
        **encrypted_settings(encrypted, "OUTSIDE", authority),
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.username": "alice",
        "sasl.password": "alice-secret",
    }


def test_a_login_over_tls_needs_no_certificate(outside: Settings) -> None:
    assert sent(outside, "over-tls", "a", "x" * 500_000) == [None, None]
    assert received(outside, "over-tls", 2, "over-tls") == ["a", "x" * 500_000]


def test_a_wrong_password_is_refused_over_tls_as_well(outside: Settings) -> None:
    assert is_refused({**outside, "sasl.password": "wrong"}, KafkaError._AUTHENTICATION)


def test_who_is_asked_for_a_certificate_and_has_none_is_refused(
    encrypted: LoneNode, authority: Authority
) -> None:
    assert is_refused(encrypted_settings(encrypted, "SSL", authority))


def test_a_certificate_of_somebody_elses_authority_is_refused(
    encrypted: LoneNode, authority: Authority, tmp_path: Path
) -> None:
    store = Authority(tmp_path, "Somebody else").issued("app", "/O=Lossless/OU=Tests/CN=app")
    assert is_refused(encrypted_settings(encrypted, "SSL", authority, store))


def test_a_certificate_that_has_expired_is_refused(
    encrypted: LoneNode, authority: Authority
) -> None:
    store = authority.expired("expired-app", "/O=Lossless/OU=Tests/CN=app")
    assert is_refused(encrypted_settings(encrypted, "SSL", authority, store))


def test_a_client_refuses_a_broker_whose_certificate_has_expired(
    authority: Authority, tmp_path: Path
) -> None:
    node = LoneNode(
        tmp_path,
        ["PLAINTEXT", "SSL"],
        listener_security_protocol_map="PLAINTEXT:PLAINTEXT,SSL:SSL",
        inter_broker_listener_name="PLAINTEXT",
        ssl_keystore_type="PEM",
        ssl_keystore_location=str(authority.expired("expired-broker", "/CN=broker")),
    )
    try:
        assert is_refused(encrypted_settings(node, "SSL", authority), KafkaError._SSL)
    finally:
        node.stop()


@pytest.mark.parametrize(
    ("listener", "version", "is_accepted"),
    [
        ("OUTSIDE", ssl.TLSVersion.TLSv1_3, True),
        ("OUTSIDE", ssl.TLSVersion.TLSv1_2, False),  # this one takes 1.3 only
        ("SSL", ssl.TLSVersion.TLSv1_2, True),
        ("SSL", ssl.TLSVersion.TLSv1_1, False),
    ],
)
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_older_versions_of_tls_are_refused(
    encrypted: LoneNode,
    authority: Authority,
    app_store: Path,
    listener: str,
    version: ssl.TLSVersion,
    is_accepted: bool,
) -> None:
    context = ssl.create_default_context(cafile=str(authority.certificate))
    context.set_ciphers("DEFAULT:@SECLEVEL=0")  # this client would take anything
    context.load_cert_chain(app_store)
    context.minimum_version = context.maximum_version = version
    host, _, port = encrypted.addresses[listener].rpartition(":")
    with socket.create_connection((host, int(port)), PATIENCE_S) as connection:
        if is_accepted:
            with context.wrap_socket(connection, server_hostname=host) as spoken:
                assert spoken.version() == version.name.replace("_", ".")
        else:
            with pytest.raises((ssl.SSLError, ConnectionError)):
                context.wrap_socket(connection, server_hostname=host)


def test_a_client_refuses_a_broker_that_it_does_not_trust(
    outside: Settings, tmp_path: Path
) -> None:
    other = Authority(tmp_path, "Somebody else")
    settings = {**outside, "ssl.ca.location": str(other.certificate)}
    assert is_refused(settings, KafkaError._SSL)


def test_a_certificate_says_who_its_holder_is(
    encrypted: LoneNode, authority: Authority, app_store: Path, outside: Settings
) -> None:
    settings = encrypted_settings(encrypted, "SSL", authority, app_store)
    sent(outside, "by-certificate", "first")
    assert send_error(settings, "by-certificate") == KafkaError.TOPIC_AUTHORIZATION_FAILED
    binding = AclBinding(
        ResourceType.TOPIC,
        "by-certificate",
        ResourcePatternType.LITERAL,
        APP,
        "*",
        AclOperation.WRITE,
        AclPermissionType.ALLOW,
    )
    admin = admin_of(outside)
    result(admin.create_acls([binding]))
    assert wait_until(lambda: len(list(encrypted.image.acls)) == 1, timeout_s=PATIENCE_S)
    assert sent(settings, "by-certificate", "second") == [None]


def test_aiokafka_shows_a_certificate_and_is_refused_without_one(
    encrypted: LoneNode, authority: Authority, app_store: Path
) -> None:
    async def brokers(store: Path | None) -> int:
        context = ssl.create_default_context(cafile=str(authority.certificate))
        if store is not None:
            context.load_cert_chain(store)
        admin = AIOKafkaAdminClient(
            bootstrap_servers=encrypted.addresses["SSL"],
            security_protocol="SSL",
            ssl_context=context,
        )
        try:
            await admin.start()
            return len((await admin.describe_cluster())["brokers"])
        finally:
            await admin.close()

    assert asyncio.run(brokers(app_store)) == 1
    with pytest.raises(KafkaConnectionError):
        asyncio.run(brokers(None))


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_kafka_python_connects_with_tls(encrypted: LoneNode, authority: Authority) -> None:
    from kafka import KafkaProducer

    producer = KafkaProducer(
        bootstrap_servers=encrypted.addresses["OUTSIDE"],
        security_protocol="SASL_SSL",
        ssl_cafile=str(authority.certificate),
        sasl_mechanism="SCRAM-SHA-512",
        sasl_plain_username="alice",
        sasl_plain_password="alice-secret",
    )
    assert producer.send("snakes-over-tls", b"a").get(timeout=PATIENCE_S).offset == 0
    producer.close()


def test_every_listener_names_its_own_addresses(encrypted: LoneNode, outside: Settings) -> None:
    plain = {"bootstrap.servers": encrypted.addresses["PLAINTEXT"]}
    for settings, listener in ((plain, "PLAINTEXT"), (outside, "OUTSIDE")):
        (broker,) = admin_of(settings).list_topics(timeout=PATIENCE_S).brokers.values()
        assert f"{broker.host}:{broker.port}" == encrypted.addresses[listener]
    endpoints = encrypted.image.brokers[1].endpoints
    assert {one.listener: one.protocol for one in endpoints} == {
        "PLAINTEXT": 0,
        "SSL": 1,
        "OUTSIDE": 3,
    }


def test_brokers_talk_by_tls_and_the_engine_says_how_to_connect(authority: Authority) -> None:
    store = authority.issued("engine", "/CN=engine")
    config = {
        "security.inter.broker.protocol": "SSL",
        "ssl.client.auth": "required",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(store),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(authority.certificate),
    }
    cluster = InProcessCluster(ClusterSpec(brokers=2, config=config))
    try:
        settings = librdkafka_settings(cluster.client_settings)
        assert sent(settings, "replicated", "a") == [None]
        assert cluster.in_sync_replicas("replicated", 0) == [1, 2]
    finally:
        cluster.stop()
