"""Tokens of OAUTHBEARER: to whom one belongs, if it is valid.

Without a key set tokens are unsecured (RFC 7515, `alg` none), as in Kafka by default: anybody can
write one, so they are for tests of clients. With `sasl.oauthbearer.jwks.endpoint.url` they must be
signed by RSA (RS256, RS384, RS512) with a key of that set, and hold what the settings expect.

To verify such a signature takes a public key and one power of integers, nothing that has to be kept
secret: the standard library has all of it.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import threading
import time
import urllib.request
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from lossless.core.settings.kinds import InvalidSetting

Settings = Callable[[str, str | None], str | None]
UserOf = Callable[[str, float], str | None]  # of a token, at a time; None: it is not valid

PREFIX = "sasl.oauthbearer."
ENDPOINT = f"{PREFIX}jwks.endpoint.url"
HANDLER = "sasl.server.callback.handler.class"
FETCH_S_MAX = 5.0
KEY_SET_BYTES_MAX = 1 << 20
RSA_BITS_MIN = 2048
_HASHES = {"RS256": "sha256", "RS384": "sha384", "RS512": "sha512"}
# What goes before a hash in a signature of PKCS #1 (RFC 8017, 9.2): which hash it is.
_PREFIXES = {
    "sha256": bytes.fromhex("3031300d060960864801650304020105000420"),
    "sha384": bytes.fromhex("3041300d060960864801650304020205000430"),
    "sha512": bytes.fromhex("3051300d060960864801650304020305000440"),
}


def user_of_unsecured(token: str, now_s: float) -> str | None:
    parts = token.split(".")
    if len(parts) != 3 or parts[2]:
        return None
    try:
        header, claims = (json.loads(_decoded(part)) for part in parts[:2])
        until_s, issued_s = float(claims["exp"]), float(claims.get("iat", 0))
        user = claims["sub"]
        is_valid = header["alg"] == "none" and issued_s <= now_s < until_s
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None
    return user if is_valid and isinstance(user, str) and user.strip() else None


def user_of_token(get: Settings) -> UserOf:
    """As the settings of a listener say. Raises InvalidSetting if the keys cannot be read."""
    url = get(ENDPOINT, None)
    if url is None:
        if get(HANDLER, None):
            raise InvalidSetting(
                f"{HANDLER}: classes cannot be loaded. Set {ENDPOINT} to verify signed tokens; "
                "without it, unsecured tokens are accepted"
            )
        return user_of_unsecured
    expected = Expected(
        audiences=_listed(get(f"{PREFIX}expected.audience", None)),
        issuer=get(f"{PREFIX}expected.issuer", None),
        user_claim=get(f"{PREFIX}sub.claim.name", "sub") or "sub",
        scope_claim=get(f"{PREFIX}scope.claim.name", "scope") or "scope",
        skew_s=int(get(f"{PREFIX}clock.skew.seconds", "30") or 30),
    )
    refresh_ms = int(get(f"{PREFIX}jwks.endpoint.refresh.ms", "3600000") or 3_600_000)
    backoff_ms = int(get(f"{PREFIX}jwks.endpoint.retry.backoff.ms", "100") or 100)
    return SignedTokens(KeySet(url, refresh_ms / 1000, backoff_ms / 1000), expected)


def _listed(text: str | None) -> frozenset[str]:
    return frozenset(one.strip() for one in (text or "").split(",") if one.strip())


@dataclass(frozen=True, slots=True, kw_only=True)
class Expected:
    """What a token must hold, beyond a valid signature and time."""

    audiences: frozenset[str] = frozenset()  # one of them; none: any
    issuer: str | None = None
    user_claim: str = "sub"
    scope_claim: str = "scope"
    skew_s: int = 30


class RsaKey(NamedTuple):
    modulus: int
    exponent: int

    def verifies(self, signed: bytes, signature: bytes, hash_name: str) -> bool:
        """RSASSA-PKCS1-v1_5 (RFC 8017, 8.2.2): the encoded message is built and compared as a
        whole, so that nothing of it is left to interpretation."""
        size = (self.modulus.bit_length() + 7) // 8
        number = int.from_bytes(signature, "big")
        if len(signature) != size or number >= self.modulus:
            return False
        info = _PREFIXES[hash_name] + hashlib.new(hash_name, signed).digest()
        encoded = b"\0\1" + b"\xff" * (size - len(info) - 3) + b"\0" + info
        opened = pow(number, self.exponent, self.modulus).to_bytes(size, "big")
        return hmac.compare_digest(opened, encoded)


@dataclass(slots=True)
class KeySet:
    """The keys at an address, by their ids. They are read when the node starts, and again in a
    thread when they are old or when a token names another key."""

    url: str
    refresh_s: float = 3600.0
    backoff_s: float = 0.1
    keys: Mapping[str, RsaKey] = field(init=False)
    _read_s: float = field(init=False)
    _reading: threading.Thread | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        if urlsplit(self.url).scheme not in ("file", "http", "https"):
            raise InvalidSetting(f"{ENDPOINT}: {self.url} is not a file:, http: or https: URL")
        try:
            self._read()
        except (OSError, ValueError) as error:
            raise InvalidSetting(f"{ENDPOINT}: no keys from {self.url}: {error}") from error

    def find(self, key_id: str | None) -> RsaKey | None:
        """Without an id, the only key there is."""
        if key_id is None:
            found = next(iter(self.keys.values())) if len(self.keys) == 1 else None
        else:
            found = self.keys.get(key_id)
        age_s = time.monotonic() - self._read_s
        if age_s > self.refresh_s or (found is None and age_s > self.backoff_s):
            self._read_soon()
        return found

    def _read_soon(self) -> None:
        """The login that needs it fails, and its client tries again."""
        if self._reading is None or not self._reading.is_alive():
            self._reading = threading.Thread(target=self._read_again, daemon=True)
            self._reading.start()

    def _read_again(self) -> None:
        try:
            self._read()
        except (OSError, ValueError):  # the keys that are known stay
            self._read_s = time.monotonic()

    def _read(self) -> None:
        with urllib.request.urlopen(self.url, timeout=FETCH_S_MAX) as response:
            document = json.loads(response.read(KEY_SET_BYTES_MAX))
        self.keys = _rsa_keys(document)
        self._read_s = time.monotonic()


def _rsa_keys(document: Any) -> dict[str, RsaKey]:
    """Raises ValueError if the document holds no usable key. Keys of other kinds are left out."""
    keys: dict[str, RsaKey] = {}
    try:
        for one in document["keys"]:
            if one.get("kty") != "RSA" or one.get("use", "sig") != "sig":
                continue
            key = RsaKey(*(int.from_bytes(_decoded(one[part]), "big") for part in ("n", "e")))
            if key.modulus.bit_length() >= RSA_BITS_MIN and key.exponent > 1:
                keys[one.get("kid", "")] = key
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError("not a JSON web key set") from error
    if not keys:
        raise ValueError(f"no RSA key of at least {RSA_BITS_MIN} bits")
    return keys


class SignedTokens:
    """JSON web tokens that are signed by RSA, checked as Kafka's DefaultJwtValidator does."""

    def __init__(self, keys: KeySet, expected: Expected) -> None:
        self._keys = keys
        self._expected = expected

    def __call__(self, token: str, now_s: float) -> str | None:
        try:
            signed, _, signature = token.rpartition(".")
            header, claims = (json.loads(_decoded(part)) for part in signed.split("."))
            if header["alg"] not in _HASHES or "crit" in header:
                return None
            key = self._keys.find(header.get("kid"))
            if key is None or not key.verifies(
                signed.encode("ascii"), _decoded(signature), _HASHES[header["alg"]]
            ):
                return None
            return self._user(claims, now_s)
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            return None

    def _user(self, claims: Mapping[str, Any], now_s: float) -> str | None:
        expected = self._expected
        issued_s, until_s = float(claims["iat"]), float(claims["exp"])
        from_s = float(claims.get("nbf", issued_s))
        is_timely = from_s - expected.skew_s <= now_s < until_s + expected.skew_s
        audience = claims.get("aud", [])
        audiences = {audience} if isinstance(audience, str) else set(audience)
        is_for_us = not expected.audiences or not expected.audiences.isdisjoint(audiences)
        is_from_issuer = expected.issuer is None or claims.get("iss") == expected.issuer
        scope = claims.get(expected.scope_claim, [])
        scopes = [scope] if isinstance(scope, str) else list(scope)
        has_scopes = all(isinstance(one, str) and one.strip() for one in scopes)
        user = claims[expected.user_claim]
        is_valid = is_timely and until_s > issued_s and is_for_us and is_from_issuer and has_scopes
        return user if is_valid and isinstance(user, str) and user.strip() else None


def _decoded(part: str) -> bytes:
    """Raises ValueError for what is not base64 of the kind for URLs."""
    bare = part.rstrip("=")
    if not bare.isascii() or "+" in bare or "/" in bare:
        raise ValueError("not base64url")
    return base64.b64decode(bare + "=" * (-len(bare) % 4), b"-_", validate=True)
