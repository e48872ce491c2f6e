"""The client's end of a login: how a node connects to another that wants to know who it is.

`Login` has no connection of its own: frames come in, frames go out. So whoever uses asyncio and
whoever uses a plain socket log in alike.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable
from typing import Any, cast

from lossless.broker.security.listeners import PLAIN, InterBroker
from lossless.core.security.scram import MECHANISMS, ScramClient, ScramFailed
from lossless.wire import frames, sasl_authenticate, sasl_handshake
from lossless.wire.codec import Fields
from lossless.wire.outgoing import Outgoing, outgoing

Address = tuple[str, int]
FRAME_BYTES_MAX = 64 * 1024  # an answer to a login is small


class LoginFailed(OSError):
    """The other node does not let us in, or is not who it should be."""


class Login:
    def __init__(self, mechanism: str, user: str, password: str, client_id: str) -> None:
        self._mechanism = mechanism
        self._client_id = client_id
        self._first = f"\0{user}\0{password}".encode()
        self._scram: ScramClient | None = None
        if mechanism != PLAIN:
            nonce = secrets.token_urlsafe(24)
            self._scram = ScramClient(MECHANISMS[mechanism], user, password, nonce)
            self._first = self._scram.first()
        self._asked: Outgoing | None = None
        self._has_shaken_hands = False

    def first(self) -> bytes:
        return self._frame(sasl_handshake.KEY, 1, {"mechanism": self._mechanism})

    def answer(self, frame: bytes) -> bytes | None:
        """What to send next; None when we are in. LoginFailed if we are not."""
        assert self._asked is not None
        try:
            said = self._asked.read(frame, 5 if self._asked.is_flexible else 4)
        except ValueError as error:
            raise LoginFailed(f"no answer to a login: {error}") from error
        if said.error_code.value:
            what = getattr(said, "error_message", None) or said.error_code.name
            raise LoginFailed(f"login by {self._mechanism}: {what}")
        if not self._has_shaken_hands:
            self._has_shaken_hands = True
            return self._token(self._first)
        if self._scram is None:
            return None
        try:
            token = self._scram.answer(said.auth_bytes)
        except ScramFailed as error:
            raise LoginFailed(f"login by {self._mechanism}: {error}") from error
        return None if token is None else self._token(token)

    def _token(self, token: bytes) -> bytes:
        return self._frame(sasl_authenticate.KEY, 2, {"auth_bytes": token})

    def _frame(self, key: int, version: int, fields: Fields) -> bytes:
        asked = outgoing(key, version, fields)
        self._asked = asked
        return frames.request(
            key, version, 0, self._client_id, asked.message, tagged=asked.is_flexible
        )


class _LoggingIn(asyncio.Protocol):
    """Has the connection until we are in."""

    def __init__(self, login: Login) -> None:
        self._login = login
        self._received = bytearray()
        self._transport: asyncio.Transport | None = None
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._transport.write(self._login.first())

    def data_received(self, data: bytes) -> None:
        self._received += data
        if len(self._received) < frames.LENGTH.size or self.done.done():
            return
        (length,) = frames.LENGTH.unpack_from(self._received)
        if not 0 < length <= FRAME_BYTES_MAX:
            self._fail(LoginFailed("an answer of another protocol"))
            return
        end = frames.LENGTH.size + length
        if len(self._received) < end:
            return
        frame = bytes(self._received[frames.LENGTH.size : end])
        del self._received[:end]
        assert self._transport is not None
        try:
            following = self._login.answer(frame)
        except LoginFailed as error:
            self._fail(error)
            return
        if following is None:
            self.done.set_result(None)
        else:
            self._transport.write(following)

    def connection_lost(self, _error: BaseException | None) -> None:
        self._transport = None
        self._fail(LoginFailed("the connection was closed during the login"))

    @property
    def is_lost(self) -> bool:
        return self._transport is None

    def _fail(self, error: LoginFailed) -> None:
        if not self.done.done():
            self.done.set_exception(error)


def opener(security: InterBroker, client_id: str) -> Callable[[Callable[[], Any], Address], Any]:
    """Opens connections for links: encrypted and logged in, if that is what it takes."""

    async def open_connection(
        factory: Callable[[], asyncio.BaseProtocol], address: Address
    ) -> None:
        loop = asyncio.get_running_loop()
        name = address[0] if security.tls is not None else None
        if security.mechanism is None:
            await loop.create_connection(factory, *address, ssl=security.tls, server_hostname=name)
            return
        login = Login(security.mechanism, security.user, security.password, client_id)
        transport, protocol = await loop.create_connection(
            lambda: _LoggingIn(login), *address, ssl=security.tls, server_hostname=name
        )
        try:
            await protocol.done
            if protocol.is_lost:
                raise LoginFailed("the connection was closed after the login")
        except BaseException:
            transport.abort()
            raise
        link = factory()
        transport.set_protocol(link)
        link.connection_made(transport)

    return open_connection
