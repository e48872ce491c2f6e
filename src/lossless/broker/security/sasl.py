"""The server's end of a login: messages of one mechanism in, messages out, and a user at the end.

PLAIN (RFC 4616) says the password, so it is for TLS or for one machine. Its users are in the
broker's settings; those of SCRAM are in the cluster's metadata. OAUTHBEARER (RFC 7628) carries a
token, which tokens.py checks.
"""

from __future__ import annotations

import hmac
import re
import secrets
import time
from collections.abc import Callable, Mapping
from typing import Protocol

from lossless.broker.security.listeners import OAUTHBEARER, PLAIN
from lossless.broker.security.tokens import UserOf, user_of_unsecured
from lossless.core.security.scram import (
    MECHANISMS,
    ScramCredential,
    ScramFailed,
    ScramMechanism,
    ScramServer,
)

Credentials = Callable[[str, ScramMechanism], ScramCredential | None]


class LoginRefused(Exception):
    """With what the client is told: not whether it was the name or the password."""


class Exchange(Protocol):
    """One login. `user` counts once it is complete."""

    @property
    def user(self) -> str: ...

    @property
    def is_complete(self) -> bool: ...

    def answer(self, message: bytes) -> bytes:
        """LoginRefused, and the connection has no second try."""


def exchange(
    mechanism: str,
    plain_users: Mapping[str, str],
    credentials: Credentials,
    user_of_token: UserOf = user_of_unsecured,
) -> Exchange:
    if mechanism == PLAIN:
        return _Plain(plain_users)
    if mechanism == OAUTHBEARER:
        return _Bearer(user_of_token)
    return _Scram(MECHANISMS[mechanism], credentials)


class _Plain:
    def __init__(self, users: Mapping[str, str]) -> None:
        self._users = users
        self.user = ""
        self.is_complete = False

    def answer(self, message: bytes) -> bytes:
        refusal = LoginRefused("Authentication failed: Invalid username or password")
        try:
            identity, user, password = message.decode().split("\0")
        except ValueError:
            raise LoginRefused("Authentication failed: no message of SASL/PLAIN") from None
        expected = self._users.get(user)
        # Compared in any case, so that the time it takes tells nothing.
        is_known = hmac.compare_digest((expected or "").encode(), password.encode())
        if not (expected and is_known):
            raise refusal
        if identity and identity != user:
            raise LoginRefused(
                "Authentication failed: Client requested an authorization id that is different "
                "from username"
            )
        self.user = user
        self.is_complete = True
        return b""


class _Bearer:
    """A refused token is answered by a reason, and the login fails with the client's next message,
    as RFC 7628 has it."""

    _FIRST = re.compile(
        r"n,(?:a=(?P<identity>[^,]*))?,\x01auth=Bearer +(?P<token>[-_.+/=A-Za-z0-9]+)\x01"
        r"(?:[A-Za-z]+=[^\x01]*\x01)*\x01",
        re.IGNORECASE,
    )
    _REASON = '{"status":"invalid_token"}'

    def __init__(self, user_of: UserOf) -> None:
        self._user_of = user_of
        self._has_failed = False
        self.user = ""
        self.is_complete = False

    def answer(self, message: bytes) -> bytes:
        if self._has_failed:
            raise LoginRefused(self._REASON)
        parts = self._FIRST.fullmatch(message.decode(errors="replace"))
        if parts is None:
            raise LoginRefused("Authentication failed: no message of SASL/OAUTHBEARER")
        user = self._user_of(parts["token"], time.time())
        if user is None:
            self._has_failed = True
            return self._REASON.encode()
        if parts["identity"] not in (None, "", user):
            raise LoginRefused(
                "Authentication failed: Client requested an authorization id that is different "
                "from the token's principal name"
            )
        self.user = user
        self.is_complete = True
        return b""


class _Scram:
    def __init__(self, mechanism: ScramMechanism, credentials: Credentials) -> None:
        self._mechanism = mechanism
        self._machine = ScramServer(
            mechanism, lambda user: credentials(user, mechanism), secrets.token_urlsafe(24)
        )

    def answer(self, message: bytes) -> bytes:
        try:
            return self._machine.answer(message)
        except ScramFailed:
            raise LoginRefused(
                "Authentication failed during authentication due to invalid credentials with SASL "
                f"mechanism {self._mechanism.text}"
            ) from None

    @property
    def user(self) -> str:
        return self._machine.user

    @property
    def is_complete(self) -> bool:
        return self._machine.is_complete
