"""OAUTHBEARER with signed tokens: openssl signs, a node verifies by the key set in its settings."""

from __future__ import annotations

import asyncio
import base64
import functools
import http.server
import json
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.abc import AbstractTokenProvider
from confluent_kafka import KafkaError
from secured import PATIENCE_S, LoneNode, is_refused, sent

from lossless.broker.security import tokens
from lossless.broker.security.tokens import ENDPOINT, HANDLER, user_of_token, user_of_unsecured
from lossless.core.settings.kinds import InvalidSetting
from lossless.engines.local import embedded
from lossless.engines.waiting import wait_until

NOW_S = int(time.time())
CLAIMS: dict[str, Any] = {
    "sub": "alice",
    "iss": "https://issuer.example",
    "aud": ["kafka", "other"],
    "scope": ["read"],
    "iat": NOW_S - 10,
    "exp": NOW_S + 3600,
}


def text(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


class Issuer:
    """A provider with an RSA key of its own."""

    def __init__(self, folder: Path, key_id: str, bits: int = 2048) -> None:
        self.key_id = key_id
        self._file = folder / f"{key_id}.pem"
        self._openssl("genrsa", "-out", str(self._file), str(bits))

    def _openssl(self, *arguments: str, data: bytes = b"") -> bytes:
        done = subprocess.run(["openssl", *arguments], input=data, capture_output=True, check=True)
        return done.stdout

    @functools.cached_property
    def key(self) -> dict[str, str]:
        shown = self._openssl("rsa", "-in", str(self._file), "-noout", "-modulus").decode()
        modulus = bytes.fromhex(shown.strip().removeprefix("Modulus="))
        exponent = text((65537).to_bytes(3, "big"))
        return {"kty": "RSA", "use": "sig", "kid": self.key_id, "n": text(modulus), "e": exponent}

    def token(self, claims: Any = CLAIMS, *, algorithm: str = "RS256", header: Any = None) -> str:
        header = {"alg": algorithm, "kid": self.key_id} if header is None else header
        signed = ".".join(text(json.dumps(one).encode()) for one in (header, claims))
        bits = algorithm.removeprefix("RS")
        return f"{signed}.{text(self.sign(signed.encode(), bits))}"

    def sign(self, data: bytes, bits: str = "256") -> bytes:
        return self._openssl("dgst", f"-sha{bits}", "-sign", str(self._file), data=data)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("keys")


@pytest.fixture(scope="module")
def issuer(folder: Path) -> Issuer:
    return Issuer(folder, "first")


@pytest.fixture(scope="module")
def stranger(folder: Path) -> Issuer:
    return Issuer(folder, "stranger")


def key_set(file: Path, *keys: dict[str, str]) -> str:
    """Its address, as a setting has it."""
    file.write_text(json.dumps({"keys": [{"kty": "EC", "kid": "elliptic"}, *keys]}))
    return file.as_uri()


@pytest.fixture(scope="module")
def address(folder: Path, issuer: Issuer) -> str:
    return key_set(folder / "keys.json", issuer.key)


def validator(address: str, **settings: str) -> tokens.UserOf:
    known = {f"{tokens.PREFIX}{name.replace('_', '.')}": value for name, value in settings.items()}
    return user_of_token(({ENDPOINT: address} | known).get)  # type: ignore[arg-type]


@pytest.mark.parametrize("algorithm", ["RS256", "RS384", "RS512"])
def test_the_subject_of_a_signed_token_is_the_user(
    issuer: Issuer, address: str, algorithm: str
) -> None:
    user_of = validator(address, expected_audience="x,kafka", expected_issuer=CLAIMS["iss"])
    assert user_of(issuer.token(algorithm=algorithm), NOW_S) == "alice"
    one_audience = issuer.token({**CLAIMS, "aud": "kafka", "scope": "read write"})
    assert user_of(one_audience, NOW_S) == "alice"


def test_settings_name_the_claims_of_the_user_and_the_scope(issuer: Issuer, address: str) -> None:
    user_of = validator(address, sub_claim_name="client", scope_claim_name="scp")
    assert user_of(issuer.token({**CLAIMS, "client": "bob"}), NOW_S) == "bob"
    assert user_of(issuer.token({**CLAIMS, "client": "bob", "scp": [" "]}), NOW_S) is None
    assert user_of(issuer.token(), NOW_S) is None


def test_clocks_may_differ_by_the_skew_of_the_settings(issuer: Issuer, address: str) -> None:
    token = issuer.token({**CLAIMS, "nbf": NOW_S})
    until_s = NOW_S + 3600
    for skew_s in (1, 30):
        user_of = validator(address, clock_skew_seconds=str(skew_s))
        assert user_of(token, until_s + skew_s - 1) == "alice"
        assert user_of(token, until_s + skew_s) is None
        assert user_of(token, NOW_S - skew_s) == "alice"
        assert user_of(token, NOW_S - skew_s - 1) is None


WRONG_CLAIMS: dict[str, Any] = {
    "expired": {**CLAIMS, "exp": NOW_S - 3600},
    "no expiry": {name: value for name, value in CLAIMS.items() if name != "exp"},
    "no time of issue": {name: value for name, value in CLAIMS.items() if name != "iat"},
    "expires before it is issued": {**CLAIMS, "iat": NOW_S + 3601},
    "not valid yet": {**CLAIMS, "nbf": NOW_S + 1000},
    "another audience": {**CLAIMS, "aud": "others"},
    "no audience": {name: value for name, value in CLAIMS.items() if name != "aud"},
    "another issuer": {**CLAIMS, "iss": "https://other.example"},
    "no subject": {name: value for name, value in CLAIMS.items() if name != "sub"},
    "a blank subject": {**CLAIMS, "sub": " "},
    "a subject that is a number": {**CLAIMS, "sub": 7},
    "a scope that is a number": {**CLAIMS, "scope": [7]},
    "claims that are a list": [1],
}


@pytest.mark.parametrize("claims", WRONG_CLAIMS.values(), ids=WRONG_CLAIMS)
def test_a_signed_token_with_wrong_claims_is_refused(
    issuer: Issuer, address: str, claims: Any
) -> None:
    user_of = validator(address, expected_audience="kafka", expected_issuer=CLAIMS["iss"])
    assert user_of(issuer.token(claims), NOW_S) is None


def test_a_token_that_is_not_signed_by_a_known_key_is_refused(
    issuer: Issuer, stranger: Issuer, address: str
) -> None:
    user_of = validator(address)
    good = issuer.token()
    header, claims, signature = good.split(".")
    other = text(json.dumps({**CLAIMS, "sub": "admin"}).encode())
    unsecured = text(json.dumps({"alg": "none"}).encode())
    as_if = {"alg": "RS256", "kid": issuer.key_id}
    hashed = text(json.dumps({"alg": "HS256", "kid": issuer.key_id}).encode())
    refused = [
        stranger.token(),  # its key is not in the set
        stranger.token(header=as_if),  # and does not become another by its name
        f"{header}.{other}.{signature}",
        f"{unsecured}.{claims}.",
        f"{unsecured}.{claims}.{signature}",
        f"{hashed}.{claims}.{signature}",
        f"{header}.{claims}.",
        f"{header}.{claims}.{signature[:-4]}",
        f"{header}.{claims}.{text(bytes(256))}",
        f"{header}.{claims}.{text(bytes(255) + bytes([1]))}",
        f"{header}.{claims}.{text(bytes([255]) * 256)}",
        issuer.token(header={**as_if, "crit": ["exp"]}),
        issuer.token(header={"alg": "RS256", "kid": [1]}),
        issuer.token(header={"alg": "RS512", "kid": issuer.key_id}),  # signed by SHA-256
        issuer.token(header=[1]),
        "a.b.c",
        "..",
        "",
        "\u00fc.\u00fc.\u00fc",
        f"{good}.{signature}",
    ]
    assert [token for token in refused if user_of(token, NOW_S) is not None] == []
    assert user_of(good, NOW_S) == "alice"


def test_a_token_without_a_key_id_is_verified_by_the_only_key(
    folder: Path, issuer: Issuer, stranger: Issuer, address: str
) -> None:
    token = issuer.token(header={"alg": "RS256"})
    assert validator(address)(token, NOW_S) == "alice"
    two = key_set(folder / "two.json", issuer.key, stranger.key)
    assert validator(two)(token, NOW_S) is None


def test_keys_are_read_again_when_a_token_names_one_that_is_not_known(
    folder: Path, issuer: Issuer, stranger: Issuer
) -> None:
    changing = folder / "changing.json"
    user_of = validator(key_set(changing, issuer.key), jwks_endpoint_retry_backoff_ms="1")
    changing.write_text("gone")
    token = stranger.token()
    assert user_of(token, NOW_S) is None
    assert user_of(issuer.token(), NOW_S) == "alice"  # what is known stays
    key_set(changing, issuer.key, stranger.key)
    assert wait_until(lambda: user_of(token, NOW_S) == "alice", timeout_s=PATIENCE_S)


def test_keys_that_are_old_are_read_again(folder: Path, issuer: Issuer, stranger: Issuer) -> None:
    changing = folder / "old.json"
    user_of = validator(key_set(changing, issuer.key), jwks_endpoint_refresh_ms="1")
    key_set(changing, stranger.key)
    token = issuer.token()
    assert wait_until(lambda: user_of(token, NOW_S) is None, timeout_s=PATIENCE_S)


def test_keys_come_from_a_web_server(folder: Path, issuer: Issuer, address: str) -> None:
    assert address
    handler = functools.partial(_Quiet, directory=str(folder))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        user_of = validator(f"http://127.0.0.1:{server.server_port}/keys.json")
        server.shutdown()
    assert user_of(issuer.token(), NOW_S) == "alice"


class _Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_: Any) -> None:
        """Nothing: it would be on the terminal."""


@pytest.mark.parametrize("document", ["", "[]", "{}", '{"keys": 1}', '{"keys": [{"kty": "EC"}]}'])
def test_a_node_does_not_start_without_keys(tmp_path: Path, document: str) -> None:
    (tmp_path / "keys.json").write_text(document)
    with pytest.raises(InvalidSetting, match=r"jwks\.endpoint\.url: no keys from file:"):
        validator((tmp_path / "keys.json").as_uri())


def test_what_cannot_verify_tokens_is_refused(tmp_path: Path) -> None:
    weak = Issuer(tmp_path, "weak", bits=1024)
    for address in (
        key_set(tmp_path / "weak.json", weak.key),
        (tmp_path / "nowhere.json").as_uri(),
        "ftp://127.0.0.1/keys",
        "keys.json",
    ):
        with pytest.raises(InvalidSetting):
            validator(address)
    # Kafka would load the class that verifies tokens. Without keys, everybody could be anybody.
    handler = "org.apache.kafka.common.security.oauthbearer.OAuthBearerValidatorCallbackHandler"
    with pytest.raises(InvalidSetting, match="unsecured tokens are accepted"):
        user_of_token({HANDLER: handler}.get)  # type: ignore[arg-type]
    assert user_of_token({}.get) is user_of_unsecured


def test_only_a_cluster_that_takes_unsecured_tokens_is_warned_about(address: str) -> None:
    settings = {"sasl.enabled.mechanisms": "OAUTHBEARER", ENDPOINT: address}
    assert embedded.warnings(settings) == []


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory, address: str) -> Iterator[LoneNode]:
    started = LoneNode(
        tmp_path_factory.mktemp("signed"),
        ["PLAINTEXT", "TOKENS"],
        listener_security_protocol_map="PLAINTEXT:PLAINTEXT,TOKENS:SASL_PLAINTEXT",
        inter_broker_listener_name="PLAINTEXT",
        listener_name_tokens_sasl_enabled_mechanisms="OAUTHBEARER",
        sasl_oauthbearer_jwks_endpoint_url=address,
        sasl_oauthbearer_expected_audience="kafka",
        authorizer_class_name="StandardAuthorizer",
        super_users="User:ANONYMOUS;User:alice",
    )
    yield started
    started.stop()


def settings(node: LoneNode, token: str, asked: list[str | None]) -> dict[str, Any]:
    """Of a client of librdkafka that gets its token by a callback."""

    def refreshed(config: str | None) -> tuple[str, float]:
        asked.append(config)
        return token, time.time() + 3600

    return {
        "bootstrap.servers": node.addresses["TOKENS"],
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "OAUTHBEARER",
        "oauth_cb": refreshed,
    }


def test_librdkafka_logs_in_with_a_token_of_its_callback(node: LoneNode, issuer: Issuer) -> None:
    asked: list[str | None] = []
    assert sent(settings(node, issuer.token(), asked), "signed", "a") == [None]
    assert len(asked) == 1


def test_librdkafka_is_refused_with_a_token_of_somebody_else(
    node: LoneNode, stranger: Issuer
) -> None:
    assert is_refused(settings(node, stranger.token(), []), KafkaError._AUTHENTICATION)


def test_aiokafka_logs_in_with_a_signed_token(node: LoneNode, issuer: Issuer) -> None:
    class Tokens(AbstractTokenProvider):  # type: ignore[misc]
        async def token(self) -> str:
            return issuer.token()

    async def send() -> int:
        producer = AIOKafkaProducer(
            bootstrap_servers=node.addresses["TOKENS"],
            security_protocol="SASL_PLAINTEXT",
            sasl_mechanism="OAUTHBEARER",
            sasl_oauth_token_provider=Tokens(),
        )
        try:
            await producer.start()
            return int((await producer.send_and_wait("aiokafka-signed", b"a")).offset)
        finally:
            await producer.stop()

    assert asyncio.run(send()) == 0
