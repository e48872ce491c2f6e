"""A pipeline that a cluster does not let in learns it at once, and no message shows a secret."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from issued_certificates import Certificates
from lossless.contract import load_contract
from lossless.engines import cluster
from lossless.engines.choose import connect
from lossless.errors import LosslessError

PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule required"
REFUSED_WITHIN_S = 5


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def servers(certificates: Certificates) -> Iterator[str]:
    """The certificate is for another name than the address."""
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
    }
    with cluster(kafka="embedded", brokers=1, config=config) as started:
        yield started.bootstrap_servers


def reach(folder: Path, servers: str, authority: Path, password: str, name: str) -> None:
    file = folder / "lossless.toml"
    file.write_text(
        f"""
[cluster.client]
bootstrap.servers = "{servers}"
security.protocol = "SASL_SSL"
sasl.mechanism = "PLAIN"
sasl.jaas.config = '{PLAIN} username="shop" password="{password}";'
ssl.truststore.type = "PEM"
ssl.truststore.location = "{authority}"
ssl.endpoint.identification.algorithm = "{name}"
"""
    )
    connect(None, load_contract(file))


@pytest.mark.parametrize(
    ("authority", "password", "name", "said"),
    [
        ("known.pem", "a-wrong-secret", "", "refused the login of shop"),
        ("unknown.pem", "shop-secret", "", "certificate"),
        ("known.pem", "shop-secret", "https", "certificate"),
    ],
    ids=["wrong password", "unknown authority", "another host name"],
)
def test_a_client_that_is_not_let_in_is_refused_at_once_without_its_secret(
    tmp_path: Path,
    servers: str,
    certificates: Certificates,
    authority: str,
    password: str,
    name: str,
    said: str,
) -> None:
    begun = time.monotonic()
    with pytest.raises(LosslessError) as raised:
        reach(tmp_path, servers, certificates.folder / authority, password, name)
    assert time.monotonic() - begun < REFUSED_WITHIN_S
    assert said in str(raised.value)
    assert password not in str(raised.value)


def test_a_client_with_the_right_settings_is_let_in(
    tmp_path: Path, servers: str, certificates: Certificates
) -> None:
    reach(tmp_path, servers, certificates.folder / "known.pem", "shop-secret", "")
