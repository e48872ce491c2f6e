"""SCRAM, by the example of RFC 7677 and by what must not work."""

from __future__ import annotations

import base64

import pytest

from lossless.core.security.scram import (
    ScramClient,
    ScramCredential,
    ScramFailed,
    ScramMechanism,
    ScramServer,
    credential,
    salted_password,
)

SHA_256, SHA_512 = ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512
SALT = base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
CLIENT_NONCE, SERVER_NONCE = "rOprNGfwEbeRWgbNEkqO", "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
CHALLENGE = f"r={CLIENT_NONCE}{SERVER_NONCE},s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096".encode()
PROOF = (
    f"c=biws,r={CLIENT_NONCE}{SERVER_NONCE},p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
).encode()
SIGNATURE = b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="


def known(
    password: str = "pencil", mechanism: ScramMechanism = SHA_256, user: str = "user"
) -> dict[str, ScramCredential]:
    salted = salted_password(mechanism, password, SALT, 4096)
    return {user: credential(mechanism, salted, SALT, 4096)}


def server(mechanism: ScramMechanism = SHA_256, user: str = "user") -> ScramServer:
    return ScramServer(mechanism, known(mechanism=mechanism, user=user).get, SERVER_NONCE)


def logged_in(client: ScramClient, asked: ScramServer) -> None:
    message: bytes | None = client.first()
    while message is not None:
        message = client.answer(asked.answer(message))


def test_the_client_says_what_rfc_7677_has() -> None:
    client = ScramClient(SHA_256, "user", "pencil", CLIENT_NONCE)
    assert client.first() == f"n,,n=user,r={CLIENT_NONCE}".encode()
    assert client.answer(CHALLENGE) == PROOF
    assert client.answer(SIGNATURE) is None
    assert client.is_complete


def test_the_server_says_what_rfc_7677_has() -> None:
    asked = server()
    assert asked.answer(f"n,,n=user,r={CLIENT_NONCE}".encode()) == CHALLENGE
    assert asked.answer(PROOF) == SIGNATURE
    assert asked.is_complete
    assert asked.user == "user"


@pytest.mark.parametrize("mechanism", ScramMechanism)
@pytest.mark.parametrize("user", ["alice", "a=b,c", "Élise"])
def test_both_ends_agree(mechanism: ScramMechanism, user: str) -> None:
    asked = server(mechanism, user)
    client = ScramClient(mechanism, user, "pencil", "nonce")
    logged_in(client, asked)
    assert asked.is_complete
    assert client.is_complete
    assert asked.user == user


def test_a_wrong_password_is_refused() -> None:
    asked = server()
    with pytest.raises(ScramFailed):
        logged_in(ScramClient(SHA_256, "user", "pen", "nonce"), asked)
    assert not asked.is_complete


def test_an_unknown_user_is_refused() -> None:
    with pytest.raises(ScramFailed):
        logged_in(ScramClient(SHA_256, "nobody", "pencil", "nonce"), server())


def test_a_server_that_does_not_know_the_password_is_found_out() -> None:
    client = ScramClient(SHA_256, "user", "pencil", CLIENT_NONCE)
    client.answer(CHALLENGE)
    with pytest.raises(ScramFailed):
        client.answer(b"v=" + base64.b64encode(bytes(32)))
    assert not client.is_complete


def test_a_proof_is_of_no_use_in_another_exchange() -> None:
    asked = ScramServer(SHA_256, known().get, "another nonce".replace(" ", ""))
    asked.answer(f"n,,n=user,r={CLIENT_NONCE}".encode())
    with pytest.raises(ScramFailed):
        asked.answer(PROOF)


def test_nobody_logs_in_twice_on_one_exchange() -> None:
    asked = server()
    asked.answer(f"n,,n=user,r={CLIENT_NONCE}".encode())
    asked.answer(PROOF)
    with pytest.raises(ScramFailed):
        asked.answer(PROOF)


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"\xff\xfe",
        b"n,,r=nonce",
        b"n,,n=,r=nonce",
        b"p=tls-unique,,n=user,r=nonce",  # channel binding
        b"n,a=admin,n=user,r=nonce",  # for somebody else
        b"n,,n=us=er,r=nonce",
        PROOF,  # before the challenge
    ],
)
def test_what_is_no_first_message_is_refused(message: bytes) -> None:
    with pytest.raises(ScramFailed):
        server().answer(message)


@pytest.mark.parametrize(
    "message",
    [
        b"",
        PROOF.replace(b"c=biws", b"c=cD10bHM="),
        PROOF[:-8],
        PROOF + b"!",
        PROOF.replace(b",p=", b",p=AAAA"),
        f"c=biws,r={CLIENT_NONCE},p=AAAA".encode(),
    ],
)
def test_what_is_no_proof_is_refused(message: bytes) -> None:
    asked = server()
    asked.answer(f"n,,n=user,r={CLIENT_NONCE}".encode())
    with pytest.raises(ScramFailed):
        asked.answer(message)
    assert not asked.is_complete


def test_a_client_does_not_compute_for_ever() -> None:
    client = ScramClient(SHA_256, "user", "pencil", CLIENT_NONCE)
    with pytest.raises(ScramFailed):
        client.answer(CHALLENGE.replace(b"i=4096", b"i=99999999"))
