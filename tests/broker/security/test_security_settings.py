"""What listeners demand, read from Kafka's settings; and settings that cannot be."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from certificates import Authority

from lossless.broker.security.listeners import (
    NodeSecurity,
    SecurityProtocol,
    node_security,
)
from lossless.broker.security.tls import distinguished_name
from lossless.core.settings.broker_settings import BrokerSettings
from lossless.core.settings.broker_tables import security as security_table
from lossless.core.settings.brokers import BESIDES_KAFKA, BROKERS, synonyms_of
from lossless.core.settings.kinds import InvalidSetting
from lossless.core.settings.table import read_table
from lossless.engines.interface import ClusterSpec
from lossless.engines.local.plan import Plan, make_plan
from lossless.errors import BadInput

JAAS = "listener.name.inside.plain.sasl.jaas.config"
AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
LOGIN = 'PlainLoginModule required username="admin" password="secret" user_admin="secret";'
INSIDE = {
    "listener.security.protocol.map": "INSIDE:SASL_PLAINTEXT,OUTSIDE:PLAINTEXT",
    "inter.broker.listener.name": "INSIDE",
    "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256",
    "sasl.mechanism.inter.broker.protocol": "PLAIN",
    JAAS: LOGIN,
}


def read(*listeners: str, **changes: str | None) -> NodeSecurity:
    changed = {**INSIDE, **{name.replace("_", "."): text for name, text in changes.items()}}
    properties = {name: text for name, text in changed.items() if text is not None}
    return node_security(properties, listeners or ("INSIDE", "OUTSIDE"))


def test_listeners_have_the_protocols_of_the_map() -> None:
    security = read()
    assert security.listeners["INSIDE"].protocol is SecurityProtocol.SASL_PLAINTEXT
    assert security.listeners["OUTSIDE"].protocol is SecurityProtocol.PLAINTEXT
    assert security.inter_broker_listener == "INSIDE"
    assert (security.inter_broker.mechanism, security.inter_broker.user) == ("PLAIN", "admin")


def test_a_listener_is_known_by_its_protocol_unless_it_is_mapped() -> None:
    security = node_security({}, ["PLAINTEXT"])
    assert security.listeners["PLAINTEXT"].protocol is SecurityProtocol.PLAINTEXT
    assert security.inter_broker_listener == "PLAINTEXT"
    assert security.access is None


def test_the_protocol_among_brokers_names_their_listener() -> None:
    security = read(inter_broker_listener_name=None, security_inter_broker_protocol="PLAINTEXT")
    assert security.inter_broker_listener == "OUTSIDE"


def test_a_setting_of_one_listener_goes_before_the_general_one() -> None:
    security = read(listener_name_inside_sasl_enabled_mechanisms="PLAIN")
    assert security.listeners["INSIDE"].mechanisms == ("PLAIN",)


def test_the_brokers_own_user_is_a_super_user() -> None:
    access = read(
        authorizer_class_name="org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        super_users="User:root;User:CN=broker,O=Lossless",
    ).access
    assert access is not None
    assert access.super_users == {"User:root", "User:CN=broker,O=Lossless", "User:admin"}
    assert not access.is_allowed_unmentioned


def test_passwords_are_not_shown() -> None:
    assert "secret" not in repr(read(lossless_sasl_users="alice:secret"))


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"listener_security_protocol_map": "INSIDE:SASL_PLAINTEXT"}, "OUTSIDE"),
        ({"listener_security_protocol_map": "INSIDE:SECURE"}, "SECURE"),
        ({"inter_broker_listener_name": "ELSEWHERE"}, "ELSEWHERE"),
        ({"security_inter_broker_protocol": "PLAINTEXT"}, "only one of"),
        ({"sasl_enabled_mechanisms": "PLAIN,GSSAPI"}, "GSSAPI"),
        ({"sasl_enabled_mechanisms": None}, "GSSAPI"),
        ({"sasl_mechanism_inter_broker_protocol": "SCRAM-SHA-512"}, "not enabled"),
        ({"sasl_mechanism_inter_broker_protocol": "SCRAM-SHA-256", JAAS: None}, "no username"),
        ({"lossless_sasl_users": "alice"}, "name:password"),
        ({"authorizer_class_name": "my.Authorizer"}, "my.Authorizer"),
        ({"listener_security_protocol_map": "INSIDE:SASL_SSL,OUTSIDE:SSL"}, "certificate"),
    ],
)
def test_what_cannot_be_stops_the_start(changes: dict[str, str | None], why: str) -> None:
    with pytest.raises(InvalidSetting, match=why):
        read(**changes)


# Certificates


def encrypted(**changes: str) -> NodeSecurity:
    return read(
        "INSIDE",
        "OUTSIDE",
        listener_security_protocol_map="INSIDE:SASL_PLAINTEXT,OUTSIDE:SSL",
        **changes,
    )


def test_keys_and_certificates_may_be_given_as_text(app_store: Path, authority: Authority) -> None:
    key, _, certificate = app_store.read_text().partition("-----BEGIN CERTIFICATE")
    security = encrypted(
        ssl_keystore_type="PEM",
        ssl_keystore_key=" ".join(key.split("\n")),  # in one line, as properties often have it
        ssl_keystore_certificate_chain=f"-----BEGIN CERTIFICATE{certificate}",
        ssl_truststore_type="PEM",
        ssl_truststore_certificates=authority.certificate.read_text(),
        ssl_client_auth="required",
    )
    assert security.listeners["OUTSIDE"].tls is not None


@pytest.mark.parametrize("kind", ["JKS", "PKCS12"])
def test_a_key_store_that_only_java_reads_is_refused(kind: str, app_store: Path) -> None:
    with pytest.raises(InvalidSetting, match=f"ssl.keystore.type={kind}.*PEM"):
        encrypted(ssl_keystore_type=kind, ssl_keystore_location=str(app_store))


def test_a_key_store_that_is_not_there_is_named() -> None:
    with pytest.raises(InvalidSetting, match=r"/nowhere\.pem"):
        encrypted(ssl_keystore_type="PEM", ssl_keystore_location="/nowhere.pem")


def test_who_asks_for_certificates_must_trust_somebody(app_store: Path) -> None:
    with pytest.raises(InvalidSetting, match=r"ssl\.truststore\.location"):
        encrypted(
            ssl_keystore_type="PEM",
            ssl_keystore_location=str(app_store),
            ssl_client_auth="required",
        )


def test_a_name_is_written_as_java_writes_it() -> None:
    subject = (
        (("countryName", "CH"),),
        (("organizationName", "A, B + C"),),
        (("organizationalUnitName", "#1"), ("commonName", "x")),
        (("commonName", " ends "),),
    )
    assert distinguished_name({"subject": subject}) == (
        "CN=\\ ends\\ ,OU=\\#1+CN=x,O=A\\, B \\+ C,C=CH"
    )


class Recording(dict[str, str]):
    """Properties that remember which of them were looked for."""

    def __init__(self, properties: Mapping[str, str]) -> None:
        super().__init__(properties)
        self.looked_for: set[str] = set()

    def get(self, name: str, otherwise: Any = None) -> Any:
        self.looked_for.add(name)
        return super().get(name, otherwise)

    def __contains__(self, name: object) -> bool:
        self.looked_for.add(str(name))
        return super().__contains__(name)


def test_settings_of_listeners_are_honoured_if_they_are_read(
    app_store: Path, authority: Authority, tmp_path: Path
) -> None:
    modulus = base64.urlsafe_b64encode(b"\xff" * 256).decode().rstrip("=")
    key_set = {"keys": [{"kty": "RSA", "n": modulus, "e": "AQAB"}]}
    (tmp_path / "keys.json").write_text(json.dumps(key_set))
    properties = Recording(
        {
            **INSIDE,
            "sasl.enabled.mechanisms": f"{INSIDE['sasl.enabled.mechanisms']},OAUTHBEARER",
            "sasl.oauthbearer.jwks.endpoint.url": (tmp_path / "keys.json").as_uri(),
            "listener.security.protocol.map": "INSIDE:SASL_SSL",
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(app_store),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(authority.certificate),
            "authorizer.class.name": AUTHORIZER,
        }
    )
    node_security(properties, ["INSIDE"])
    read = {synonyms_of(name)[-1] for name in properties.looked_for}
    tables = {**BROKERS, **BESIDES_KAFKA}
    assert not {name for name in read if not (tables[name].honoured or tables[name].by_engine)}
    of_security = {*read_table(security_table.TABLE), *BESIDES_KAFKA}
    assert {name for name in of_security if tables[name].honoured} == read & of_security


def test_settings_that_are_honoured_are_not_warned_about() -> None:
    honoured = {
        "ssl.keystore.location": "x",
        "listener.name.inside.ssl.keystore.location": "x",
        JAAS: LOGIN,
        "super.users": "User:root",
        "lossless.sasl.users": "a:b",
    }
    assert BrokerSettings.from_properties(honoured)[1] == []
    _, warnings = BrokerSettings.from_properties({"ssl.cipher.suites": "x"})
    assert warnings == ["ssl.cipher.suites is not honoured by the embedded broker: ignored"]


# The engine


def planned(**config: str) -> dict[str, str]:
    named = {name.replace("_", "."): text for name, text in config.items()}
    plan = make_plan(ClusterSpec(brokers=1, config=named), engine="embedded", temporary=True)
    return plan.properties(plan.brokers[0], Path("/nowhere"))


def test_a_plan_without_security_is_as_ever() -> None:
    properties = planned()
    assert properties["listeners"].startswith("PLAINTEXT://127.0.0.1:")
    assert properties["listener.security.protocol.map"] == (
        "PLAINTEXT:PLAINTEXT,CONTROLLER:SASL_PLAINTEXT"
    )


def test_users_are_all_that_a_plan_with_logins_needs() -> None:
    properties = planned(
        security_inter_broker_protocol="SASL_PLAINTEXT", lossless_sasl_users="admin:secret"
    )
    assert properties["inter.broker.listener.name"] == "SASL_PLAINTEXT"
    assert "security.inter.broker.protocol" not in properties
    security = node_security(properties, ["SASL_PLAINTEXT"])
    assert security.inter_broker.user == "admin"
    assert security.listeners["SASL_PLAINTEXT"].plain_users == {"admin": "secret"}


@pytest.mark.parametrize(
    "config",
    [
        {"security_inter_broker_protocol": "SASL_PLAINTEXT"},
        {"security_inter_broker_protocol": "SECURE"},
        {"listeners": "PLAINTEXT://127.0.0.1:9092"},
    ],
)
def test_a_plan_that_nobody_could_connect_to_is_refused(config: dict[str, str]) -> None:
    with pytest.raises(BadInput):
        planned(**config)


@pytest.mark.parametrize("engine", ["embedded", "apache"])
def test_an_authorizer_without_a_login_is_refused_at_once(engine: str) -> None:
    """Brokers would deny each other what they need, and the start would fail after a minute."""

    def plan(**config: str) -> Plan:
        named = {name.replace("_", "."): text for name, text in config.items()}
        spec = ClusterSpec(config={"authorizer.class.name": AUTHORIZER, **named})
        return make_plan(spec, engine=engine, temporary=True)

    for config in ({}, {"super_users": "User:root"}):
        with pytest.raises(BadInput, match="User:ANONYMOUS") as refused:
            plan(**config)
        assert "super.users = User:ANONYMOUS" in (refused.value.hint or "")
    plan(super_users="User:root; User:ANONYMOUS")
    plan(allow_everyone_if_no_acl_found="true")
    plan(security_inter_broker_protocol="SSL", ssl_client_auth="required")


def test_apache_kafkas_own_nodes_are_super_users() -> None:
    config = {
        "authorizer.class.name": AUTHORIZER,
        "super.users": "User:root",
        "security.inter.broker.protocol": "SASL_PLAINTEXT",
        "listener.name.sasl_plaintext.plain.sasl.jaas.config": (
            'PlainLoginModule required username="brokers" password="secret";'
        ),
    }
    plan = make_plan(ClusterSpec(brokers=1, config=config), engine="apache", temporary=True)
    properties = plan.properties(plan.brokers[0], Path("/nowhere"))
    assert properties["super.users"] == "User:root;User:lossless-node;User:brokers"


def test_a_plan_says_whether_strangers_may_come_in() -> None:
    def is_open(host: str, config: dict[str, str]) -> bool:
        spec = ClusterSpec(brokers=1, config=config, advertised_host=host)
        return make_plan(spec, engine="embedded", temporary=True).is_open_to_others

    login = {
        "security.inter.broker.protocol": "SASL_PLAINTEXT",
        "lossless.sasl.users": "admin:secret",
    }
    assert not is_open("127.0.0.1", {})
    assert is_open("kafka.example", {})
    assert not is_open("kafka.example", login)
    assert is_open("kafka.example", {"security.inter.broker.protocol": "SSL"})
