"""Logins with real clients, and by hand with what no client would do."""

from __future__ import annotations

import struct

import pytest
from confluent_kafka import KafkaError
from confluent_kafka.admin import (
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)
from secured import USERS, Raw, admin_of, is_refused, login, received, result, sent

from lossless.contract import librdkafka_settings
from lossless.core.messages import Error
from lossless.core.security.scram import ScramMechanism as Mechanism
from lossless.engines.local.in_process import InProcessCluster
from lossless.engines.waiting import wait_until

MECHANISMS = ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"]
HANDSHAKE, AUTHENTICATE, API_VERSIONS, METADATA = 17, 36, 18, 3


def first(cluster: InProcessCluster) -> str:
    return cluster.bootstrap_servers.split(",")[0]


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_librdkafka_logs_in(guarded: InProcessCluster, mechanism: str) -> None:
    settings = login(guarded.bootstrap_servers, "admin", USERS["admin"], mechanism)
    topic = f"librdkafka-{mechanism}"
    assert sent(settings, topic, "a", "b") == [None, None]
    assert sorted(received(settings, topic, 2, topic)) == ["a", "b"]


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_kafka_python_logs_in(guarded: InProcessCluster, mechanism: str) -> None:
    from kafka import KafkaConsumer, KafkaProducer

    settings = {
        "bootstrap_servers": guarded.bootstrap_servers.split(","),
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": mechanism,
        "sasl_plain_username": "admin",
        "sasl_plain_password": USERS["admin"],
    }
    topic = f"kafka-python-{mechanism}"
    producer = KafkaProducer(**settings)
    producer.send(topic, b"a").get(timeout=20)
    producer.close()
    consumer = KafkaConsumer(
        topic, auto_offset_reset="earliest", consumer_timeout_ms=20000, **settings
    )
    assert next(consumer).value == b"a"
    consumer.close()


def test_the_engine_says_how_to_connect(guarded: InProcessCluster) -> None:
    settings = librdkafka_settings(guarded.client_settings)
    assert sent(settings, "as-the-engine-says", "a") == [None]
    assert guarded.in_sync_replicas("as-the-engine-says", 0) == [1, 2], "brokers log in, too"


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize(
    ("user", "password"), [("admin", "wrong"), ("nobody", "admin-secret"), ("bob", "bob")]
)
def test_who_does_not_know_the_password_is_refused(
    guarded: InProcessCluster, mechanism: str, user: str, password: str
) -> None:
    settings = login(guarded.bootstrap_servers, user, password, mechanism)
    assert is_refused(settings, KafkaError._AUTHENTICATION)


def test_a_user_of_the_jaas_setting_logs_in_by_plain_alone(guarded: InProcessCluster) -> None:
    servers = guarded.bootstrap_servers
    assert admin_of(login(servers, "bob", USERS["bob"], "PLAIN")).list_topics(timeout=20)
    refused = login(servers, "bob", USERS["bob"], "SCRAM-SHA-256")
    assert is_refused(refused, KafkaError._AUTHENTICATION)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_kafka_python_with_a_wrong_password_is_refused(guarded: InProcessCluster) -> None:
    from kafka import KafkaProducer
    from kafka.errors import KafkaError as PythonKafkaError

    with pytest.raises(PythonKafkaError):  # it drops an answer that comes with the end
        KafkaProducer(
            bootstrap_servers=first(guarded),
            security_protocol="SASL_PLAINTEXT",
            sasl_mechanism="PLAIN",
            sasl_plain_username="admin",
            sasl_plain_password="wrong",
            bootstrap_timeout_ms=500,
        )


def test_users_come_and_go_while_brokers_run(guarded: InProcessCluster) -> None:
    admin = admin_of(login(guarded.bootstrap_servers, "admin", USERS["admin"]))
    carol = login(guarded.bootstrap_servers, "carol", "carols")
    info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 8192)
    upsertion = UserScramCredentialUpsertion("carol", info, password=b"carols", salt=b"salt")
    result(admin.alter_user_scram_credentials([upsertion]))
    assert _known_everywhere(guarded, "carol", is_known=True)
    assert admin_of(carol).list_topics(timeout=20)
    described = admin.describe_user_scram_credentials(["carol"])["carol"].result(timeout=20)
    assert [(one.mechanism, one.iterations) for one in described.scram_credential_infos] == [
        (ScramMechanism.SCRAM_SHA_256, 8192)
    ]
    deletion = UserScramCredentialDeletion("carol", ScramMechanism.SCRAM_SHA_256)
    result(admin.alter_user_scram_credentials([deletion]))
    assert _known_everywhere(guarded, "carol", is_known=False)
    assert is_refused(carol, KafkaError._AUTHENTICATION)


def _known_everywhere(cluster: InProcessCluster, user: str, *, is_known: bool) -> bool:
    key = (user, Mechanism.SCRAM_SHA_256)
    images = [node.broker.image for node in cluster._nodes.values() if node.broker]
    return wait_until(
        lambda: all((image.scram.get(key) is not None) is is_known for image in images),
        timeout_s=20,
    )


# By hand


def test_nothing_but_the_login_is_served_before_it(guarded: InProcessCluster) -> None:
    with Raw(first(guarded)) as raw:
        versions = raw.ask(API_VERSIONS, 0, {})
        assert versions is not None
        assert versions.error_code.value == 0
        assert raw.ask(METADATA, 1, {"topics": None}) is None


def test_nothing_is_served_between_handshake_and_login(guarded: InProcessCluster) -> None:
    with Raw(first(guarded)) as raw:
        assert raw.ask(HANDSHAKE, 1, {"mechanism": "PLAIN"}) is not None
        assert raw.ask(METADATA, 1, {"topics": None}) is None


def test_a_token_without_a_handshake_is_not_looked_at(guarded: InProcessCluster) -> None:
    with Raw(first(guarded)) as raw:
        token = b"\0admin\0admin-secret"
        assert raw.ask(AUTHENTICATE, 2, {"auth_bytes": token}) is None


def test_an_unknown_mechanism_is_answered_by_those_there_are(guarded: InProcessCluster) -> None:
    with Raw(first(guarded)) as raw:
        answer = raw.ask(HANDSHAKE, 1, {"mechanism": "GSSAPI"})
        assert answer is not None
        assert answer.error_code.value == Error.UNSUPPORTED_SASL_MECHANISM
        assert list(answer.mechanisms) == MECHANISMS
        assert raw.is_closed


def test_tokens_without_frames_are_refused(guarded: InProcessCluster) -> None:
    with Raw(first(guarded)) as raw:
        answer = raw.ask(HANDSHAKE, 0, {"mechanism": "PLAIN"})
        assert answer is not None
        assert answer.error_code.value == Error.UNSUPPORTED_VERSION
        assert raw.is_closed


def test_a_connection_has_one_try(guarded: InProcessCluster) -> None:
    with Raw(first(guarded)) as raw:
        raw.ask(HANDSHAKE, 1, {"mechanism": "PLAIN"})
        answer = raw.ask(AUTHENTICATE, 2, {"auth_bytes": b"\0admin\0wrong"})
        assert answer is not None
        assert answer.error_code.value == Error.SASL_AUTHENTICATION_FAILED
        assert raw.is_closed


@pytest.mark.parametrize(
    "token",
    [b"", b"admin", b"\0admin", b"\0\0", b"\0admin\0", b"alice\0admin\0admin-secret", b"\xff\0\0"],
)
def test_what_is_no_login_is_refused(guarded: InProcessCluster, token: bytes) -> None:
    with Raw(first(guarded)) as raw:
        raw.ask(HANDSHAKE, 1, {"mechanism": "PLAIN"})
        answer = raw.ask(AUTHENTICATE, 2, {"auth_bytes": token})
        assert answer is not None
        assert answer.error_code.value == Error.SASL_AUTHENTICATION_FAILED


def test_a_login_lasts_as_long_as_its_connection(guarded: InProcessCluster) -> None:
    with Raw(first(guarded)) as raw:
        raw.ask(HANDSHAKE, 1, {"mechanism": "PLAIN"})
        answer = raw.ask(AUTHENTICATE, 2, {"auth_bytes": b"\0admin\0admin-secret"})
        assert answer is not None
        assert (answer.error_code.value, answer.session_lifetime.total_seconds()) == (0, 0)
        assert raw.ask(METADATA, 1, {"topics": None}) is not None
        again = raw.ask(HANDSHAKE, 1, {"mechanism": "PLAIN"})
        assert again is not None
        assert again.error_code.value == Error.ILLEGAL_SASL_STATE


def test_who_is_not_known_may_not_send_much(guarded: InProcessCluster) -> None:
    with Raw(first(guarded)) as raw:
        raw.send(struct.pack(">i", 10 << 20))
        assert raw.is_closed
