"""OAUTHBEARER with unsecured tokens: the subject is the user, and nothing else is believed."""

from __future__ import annotations

import asyncio
import base64
import json
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.abc import AbstractTokenProvider
from confluent_kafka import KafkaError
from secured import PATIENCE_S, USERS, LoneNode, admin_of, is_refused, sent

from lossless.broker.security.sasl import LoginRefused, exchange
from lossless.engines.local import embedded
from lossless.jars import jars
from lossless.jars.java import java

NOW_S = time.time()
HEADER, CLAIMS = {"alg": "none"}, {"sub": "alice", "iat": NOW_S - 10, "exp": NOW_S + 3600}


def token(header: Any = HEADER, claims: Any = CLAIMS, signature: str = "") -> str:
    parts = (base64.urlsafe_b64encode(json.dumps(one).encode()) for one in (header, claims))
    return ".".join([*(part.decode().rstrip("=") for part in parts), signature])


def first(given: str, identity: str = "") -> bytes:
    return f"n,{identity},\x01auth=Bearer {given}\x01\x01".encode()


def begun() -> Any:
    return exchange("OAUTHBEARER", {}, lambda _user, _mechanism: None)


def test_the_subject_of_a_token_is_the_user() -> None:
    for message in (first(token()), first(token(), "a=alice"), first(token())[:-1] + b"k=v\1\1"):
        login = begun()
        assert login.answer(message) == b""
        assert (login.user, login.is_complete) == ("alice", True)


REFUSED = {
    "expired": token(claims={**CLAIMS, "exp": NOW_S - 1}),
    "issued in the future": token(claims={**CLAIMS, "iat": NOW_S + 3600}),
    "expiry not a number": token(claims={**CLAIMS, "exp": "soon"}),
    "expiry NaN": token(claims={**CLAIMS, "exp": float("nan")}),
    "no expiry": token(claims={"sub": "alice"}),
    "blank subject": token(claims={**CLAIMS, "sub": " "}),
    "subject not a text": token(claims={**CLAIMS, "sub": 7}),
    "claims not an object": token(claims=[1]),
    "signed": token(header={"alg": "RS256"}),
    "no algorithm": token(header={}),
    "a signature beside none": token(signature="c2lnbmVk"),
    "two parts": token().rstrip("."),
    "not base64": "a.b.",
    "five parts": "....",
}


@pytest.mark.parametrize("refused", REFUSED.values(), ids=REFUSED)
def test_any_other_token_is_refused_after_the_reason_was_told(refused: str) -> None:
    login = begun()
    assert login.answer(first(refused)) == b'{"status":"invalid_token"}'
    with pytest.raises(LoginRefused, match="invalid_token"):
        login.answer(b"\x01")
    with pytest.raises(LoginRefused):
        login.answer(first(token()))
    assert not login.is_complete


NO_LOGINS = {
    "empty": b"",
    "one byte": b"\x01",
    "no token": b"n,,",
    "empty token": first(""),
    "another identity": first(token(), "a=bob"),
    "cut off": first(token())[:-1],
    "not text": b"\xff" * 20,
}


@pytest.mark.parametrize("message", NO_LOGINS.values(), ids=NO_LOGINS)
def test_what_is_not_a_login_is_refused(message: bytes) -> None:
    login = begun()
    with pytest.raises(LoginRefused):
        login.answer(message)
    assert not login.is_complete


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LoneNode]:
    started = LoneNode(
        tmp_path_factory.mktemp("bearer"),
        ["PLAINTEXT", "TOKENS"],
        listener_security_protocol_map="PLAINTEXT:PLAINTEXT,TOKENS:SASL_PLAINTEXT",
        inter_broker_listener_name="PLAINTEXT",
        listener_name_tokens_sasl_enabled_mechanisms="OAUTHBEARER",
        authorizer_class_name="StandardAuthorizer",
        super_users="User:ANONYMOUS;User:alice",
    )
    yield started
    started.stop()


def settings(node: LoneNode, principal: str) -> dict[str, str]:
    return {
        "bootstrap.servers": node.addresses["TOKENS"],
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "OAUTHBEARER",
        "enable.sasl.oauthbearer.unsecure.jwt": "true",
        "sasl.oauthbearer.config": f"principal={principal}",
    }


def test_librdkafka_logs_in_and_has_the_rights_of_its_subject(node: LoneNode) -> None:
    assert sent(settings(node, "alice"), "by-token", "a") == [None]
    (refused,) = sent(settings(node, "bob"), "by-token", "a")
    assert refused is not None
    assert refused.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED


def test_aiokafka_logs_in_with_a_token(node: LoneNode) -> None:
    class Tokens(AbstractTokenProvider):  # type: ignore[misc]
        async def token(self) -> str:
            return token()

    async def send() -> int:
        producer = AIOKafkaProducer(
            bootstrap_servers=node.addresses["TOKENS"],
            security_protocol="SASL_PLAINTEXT",
            sasl_mechanism="OAUTHBEARER",
            sasl_oauth_token_provider=Tokens(),
        )
        try:
            await producer.start()
            return int((await producer.send_and_wait("aiokafka-by-token", b"a")).offset)
        finally:
            await producer.stop()

    assert asyncio.run(send()) == 0


def test_other_mechanisms_are_refused_where_tokens_are_wanted(node: LoneNode) -> None:
    plain = {"sasl.mechanism": "PLAIN", "sasl.username": "alice", "sasl.password": USERS["alice"]}
    shared = ("bootstrap.servers", "security.protocol")
    known = settings(node, "alice")
    assert is_refused({**{name: known[name] for name in shared}, **plain})
    assert admin_of(known).list_topics(timeout=PATIENCE_S).brokers


@pytest.mark.full
def test_java_logs_in_with_a_token(node: LoneNode, tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    file.write_text(
        "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=OAUTHBEARER\nsasl.jaas.config="
        "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required "
        'unsecuredLoginStringClaim_sub="alice";\n'
    )
    ran = subprocess.run(
        [
            str(java()), "-XX:TieredStopAtLevel=1", "-cp", ":".join(map(str, jars("kafka"))),
            "org.apache.kafka.tools.TopicCommand", "--list",
            "--bootstrap-server", node.addresses["TOKENS"], "--command-config", str(file),
        ],
        capture_output=True, text=True, timeout=2 * PATIENCE_S, check=False,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stdout + ran.stderr


def test_a_cluster_that_takes_tokens_says_what_they_are_worth() -> None:
    (warning,) = embedded.warnings({"sasl.enabled.mechanisms": "OAUTHBEARER"})
    assert "everybody can be anybody" in warning
