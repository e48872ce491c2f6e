from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from certificates import Authority
from secured import USERS, LoneNode

from lossless.engines.interface import ClusterSpec
from lossless.engines.local.in_process import InProcessCluster

STANDARD_AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"


@pytest.fixture(scope="package")
def guarded() -> Iterator[InProcessCluster]:
    """Everybody logs in, and only admin may do everything."""
    config = {
        "security.inter.broker.protocol": "SASL_PLAINTEXT",
        "lossless.sasl.users": "admin:admin-secret,alice:alice-secret",
        # One user by Kafka's own setting, with a password that the other cannot have.
        "listener.name.sasl_plaintext.plain.sasl.jaas.config": (
            "org.apache.kafka.common.security.plain.PlainLoginModule required "
            f'username="admin" password="admin-secret" user_bob="{USERS["bob"]}";'
        ),
        "authorizer.class.name": STANDARD_AUTHORIZER,
        "connection.failed.authentication.delay.ms": "10",
    }
    cluster = InProcessCluster(ClusterSpec(brokers=2, config=config))
    yield cluster
    cluster.stop()


@pytest.fixture(scope="package")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"), "Lossless test authority")


@pytest.fixture(scope="package")
def app_store(authority: Authority) -> Path:
    return authority.issued("app", "/O=Lossless/OU=Tests/CN=app")


@pytest.fixture(scope="package")
def encrypted(authority: Authority, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LoneNode]:
    """Several listeners: certificates for clients demanded, not demanded, and no TLS at all."""
    node = LoneNode(
        tmp_path_factory.mktemp("encrypted"),
        ["PLAINTEXT", "SSL", "OUTSIDE"],
        listener_security_protocol_map=(
            "PLAINTEXT:PLAINTEXT,SSL:SSL,OUTSIDE:SASL_SSL,CONTROLLER:SASL_PLAINTEXT"
        ),
        inter_broker_listener_name="PLAINTEXT",
        ssl_keystore_type="PEM",
        ssl_keystore_location=str(authority.issued("broker", "/CN=broker")),
        ssl_truststore_type="PEM",
        ssl_truststore_location=str(authority.certificate),
        listener_name_ssl_ssl_client_auth="required",
        listener_name_outside_ssl_enabled_protocols="TLSv1.3",
        listener_name_outside_sasl_enabled_mechanisms="SCRAM-SHA-512",
        lossless_sasl_users="alice:alice-secret",
        authorizer_class_name=STANDARD_AUTHORIZER,
        super_users="User:ANONYMOUS;User:alice",
    )
    yield node
    node.stop()
