"""SCRAM (RFC 5802, RFC 7677): who knows a password, without saying it.

    client                                      server
    n,,n=user,r=nonce                   ──▶
                                        ◀──     r=nonce and more,s=salt,i=iterations
    c=biws,r=nonce and more,p=proof     ──▶
                                        ◀──     v=signature

The server keeps two keys that follow from the password, and could not log in with them. Both ends
are machines without nonces of their own: chance is the host's.

Left out: channel binding, which Kafka's clients do not use, and delegation tokens.
"""

from __future__ import annotations

import base64
import binascii
import enum
import hashlib
import hmac
import re
from collections.abc import Callable
from typing import NamedTuple

ITERATIONS_MIN, ITERATIONS_MAX = 4096, 16384  # what Kafka accepts
NO_CHANNEL_BINDING = "biws"  # "n,,", encoded


class ScramMechanism(enum.IntEnum):
    """With the protocol's numbers."""

    SCRAM_SHA_256 = 1
    SCRAM_SHA_512 = 2

    @property
    def text(self) -> str:
        return self.name.replace("_", "-")

    @property
    def hash_name(self) -> str:
        return "sha256" if self is ScramMechanism.SCRAM_SHA_256 else "sha512"


MECHANISMS = {mechanism.text: mechanism for mechanism in ScramMechanism}


class ScramCredential(NamedTuple):
    salt: bytes
    stored_key: bytes
    server_key: bytes
    iterations: int


class ScramFailed(Exception):
    """Whoever it is does not know the password, or does not speak SCRAM."""


# Keys


def salted_password(
    mechanism: ScramMechanism, password: str, salt: bytes, iterations: int
) -> bytes:
    return hashlib.pbkdf2_hmac(mechanism.hash_name, password.encode(), salt, iterations)


def credential(
    mechanism: ScramMechanism, salted: bytes, salt: bytes, iterations: int
) -> ScramCredential:
    client_key = _hmac(mechanism, salted, b"Client Key")
    stored_key = hashlib.new(mechanism.hash_name, client_key).digest()
    return ScramCredential(salt, stored_key, _hmac(mechanism, salted, b"Server Key"), iterations)


def _hmac(mechanism: ScramMechanism, key: bytes, data: bytes) -> bytes:
    return hmac.digest(key, data, mechanism.hash_name)


def _xor(one: bytes, other: bytes) -> bytes:
    return bytes(a ^ b for a, b in zip(one, other, strict=True))


# The two ends

CredentialOf = Callable[[str], ScramCredential | None]

_FIRST = re.compile(r"n,(?:a=([^,]*))?,(n=([^,]+),r=([\x21-\x2b\x2d-\x7e]+)(?:,.*)?)")
_CHALLENGE = re.compile(r"r=([\x21-\x2b\x2d-\x7e]+),s=([^,]+),i=([1-9]\d{0,8})(?:,.*)?")
_FINAL = re.compile(r"(c=([^,]+),r=([\x21-\x2b\x2d-\x7e]+)(?:,.*)?),p=([^,]+)")


class ScramServer:
    """One exchange. `user` is set from the first message on, and true once it is complete."""

    def __init__(self, mechanism: ScramMechanism, credential_of: CredentialOf, nonce: str) -> None:
        self._mechanism = mechanism
        self._credential_of = credential_of
        self._nonce = nonce
        self._credential: ScramCredential | None = None
        self._said = ""
        self.user = ""
        self.is_complete = False

    def answer(self, message: bytes) -> bytes:
        """The next message to the client. ScramFailed if it is refused, and then for good."""
        if self.is_complete:
            raise ScramFailed("the exchange is over")
        text = _text(message)
        return self._challenge(text) if self._credential is None else self._verify(text)

    def _challenge(self, text: str) -> bytes:
        parts = _FIRST.fullmatch(text)
        if parts is None:
            raise ScramFailed("no first message, or one that asks for channel binding")
        identity, bare, name, nonce = parts.groups()
        self.user = _unescaped(name)
        if identity and _unescaped(identity) != self.user:
            raise ScramFailed("nobody may log in for somebody else")
        found = self._credential_of(self.user)
        if found is None:
            raise ScramFailed("unknown user")
        self._credential = found
        self._nonce = nonce + self._nonce
        challenge = f"r={self._nonce},s={_encoded(found.salt)},i={found.iterations}"
        self._said = f"{bare},{challenge}"
        return challenge.encode()

    def _verify(self, text: str) -> bytes:
        assert self._credential is not None
        parts = _FINAL.fullmatch(text)
        if parts is None:
            raise ScramFailed("no last message")
        without_proof, binding, nonce, proof = parts.groups()
        if _decoded(binding)[:2] != b"n," or nonce != self._nonce:
            raise ScramFailed("an answer to something else")
        said = f"{self._said},{without_proof}".encode()
        signature = _hmac(self._mechanism, self._credential.stored_key, said)
        shown = _decoded(proof)
        if len(shown) != len(signature):
            raise ScramFailed("a proof of another size")
        stored_key = hashlib.new(self._mechanism.hash_name, _xor(shown, signature)).digest()
        if not hmac.compare_digest(stored_key, self._credential.stored_key):
            raise ScramFailed("a wrong password")
        self.is_complete = True
        return b"v=" + _encoded(_hmac(self._mechanism, self._credential.server_key, said)).encode()


class ScramClient:
    """One exchange, of whoever logs in."""

    def __init__(self, mechanism: ScramMechanism, user: str, password: str, nonce: str) -> None:
        self._mechanism = mechanism
        self._password = password
        self._nonce = nonce
        self._bare = f"n={_escaped(user)},r={nonce}"
        self._signature: bytes | None = None
        self.is_complete = False

    def first(self) -> bytes:
        return f"n,,{self._bare}".encode()

    def answer(self, message: bytes) -> bytes | None:
        """The next message to the server; None if it has shown that it knows the password, too."""
        text = _text(message)
        if self._signature is None:
            return self._prove(text)
        self._check(text, self._signature)
        return None

    def _prove(self, challenge: str) -> bytes:
        parts = _CHALLENGE.fullmatch(challenge)
        if parts is None or not parts[1].startswith(self._nonce):
            raise ScramFailed("no challenge, or one to somebody else")
        iterations = int(parts[3])
        if iterations > ITERATIONS_MAX:
            raise ScramFailed(f"{iterations} iterations would take for ever")
        salted = salted_password(self._mechanism, self._password, _decoded(parts[2]), iterations)
        client_key = _hmac(self._mechanism, salted, b"Client Key")
        stored_key = hashlib.new(self._mechanism.hash_name, client_key).digest()
        without_proof = f"c={NO_CHANNEL_BINDING},r={parts[1]}"
        said = f"{self._bare},{challenge},{without_proof}".encode()
        proof = _xor(client_key, _hmac(self._mechanism, stored_key, said))
        server_key = _hmac(self._mechanism, salted, b"Server Key")
        self._signature = _hmac(self._mechanism, server_key, said)
        return f"{without_proof},p={_encoded(proof)}".encode()

    def _check(self, text: str, signature: bytes) -> None:
        if not text.startswith("v="):
            raise ScramFailed("refused")
        if not hmac.compare_digest(_decoded(text[2:].split(",")[0]), signature):
            raise ScramFailed("the server does not know the password")
        self.is_complete = True


# Texts


def _text(message: bytes) -> str:
    try:
        return message.decode()
    except UnicodeDecodeError:
        raise ScramFailed("no text") from None


def _escaped(name: str) -> str:
    return name.replace("=", "=3D").replace(",", "=2C")


def _unescaped(name: str) -> str:
    if re.search("=(?!2C|3D)", name):
        raise ScramFailed("a name that is not written as SCRAM has it")
    return name.replace("=2C", ",").replace("=3D", "=")


def _encoded(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _decoded(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error:
        raise ScramFailed("no base64") from None
