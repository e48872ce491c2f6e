"""Between a listener and what it serves: nobody passes who is not known, and nothing that they may
not do.

    with SASL      ApiVersions ─▶ SaslHandshake ─▶ SaslAuthenticate, once or more ─▶ anything
    without        anything

Whoever asks for anything else before is let go without an answer, and so is who fails to log in,
after an answer that says so. There is no second try on a connection.

A request that may be served in part is made smaller before it is served, and what was refused is
put into the answer afterwards: what serves it knows nothing of this.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any

from lossless.broker.beside import encoded
from lossless.broker.connection import Connection
from lossless.broker.security.authorizer import Authorizer
from lossless.broker.security.listeners import ListenerSecurity
from lossless.broker.security.sasl import Credentials, Exchange, LoginRefused, exchange
from lossless.broker.security.tls import distinguished_name
from lossless.core.security.acls import ANONYMOUS
from lossless.wire import sasl_authenticate, sasl_handshake
from lossless.wire.codec import Fields, read
from lossless.wire.frames import BadFrame, Header
from lossless.wire.versions import API_VERSIONS

_logger = logging.getLogger(__name__)


class Session:
    """Who a connection belongs to."""

    __slots__ = ("exchange", "is_known", "is_refused", "principal")

    def __init__(self, principal: str, *, is_known: bool) -> None:
        self.principal = principal
        self.is_known = is_known
        self.is_refused = False
        self.exchange: Exchange | None = None


class Gate:
    def __init__(
        self,
        listener: ListenerSecurity,
        credentials: Credentials,
        authorizer: Authorizer | None,
        frame_bytes_max: int,
    ) -> None:
        self._listener = listener
        self._credentials = credentials
        self._authorizer = authorizer
        self._frame_bytes_max = frame_bytes_max

    def on_open(self, connection: Connection) -> None:
        has_login = self._listener.protocol.has_sasl
        principal = ANONYMOUS
        certificate = connection.peer_certificate()
        if certificate and not has_login:
            principal = f"User:{distinguished_name(certificate)}"
        connection.session = Session(principal, is_known=not has_login)
        if has_login:
            # Nobody who is not known yet has to be given much memory.
            connection.frame_bytes_max = self._listener.receive_bytes_max

    def admit(
        self, connection: Connection, header: Header, entity: Any, frame: bytes
    ) -> bytes | None:
        """The request to serve, as it came or less of it; None if there is nothing to serve."""
        session: Session = connection.session
        if session.is_known:
            if self._authorizer is None or self._authorizer.is_super(session.principal):
                return frame
            return self._authorizer.admit(connection, session.principal, header, entity, frame)
        if session.is_refused:
            raise BadFrame("a second try to log in")
        match header.key:
            case int(key) if key == API_VERSIONS:
                return frame
            case sasl_handshake.KEY:
                self._on_handshake(connection, session, header, read_of(entity, header, frame))
            case sasl_authenticate.KEY:
                self._on_token(connection, session, header, read_of(entity, header, frame))
            case key:
                raise BadFrame(f"API {key} before a login")
        return None

    def _on_handshake(
        self, connection: Connection, session: Session, header: Header, message: Any
    ) -> None:
        if session.exchange is not None:
            raise BadFrame("a second handshake")
        enabled = self._listener.mechanisms
        fields = sasl_handshake.told(message.mechanism, header.version, enabled)
        if fields["error_code"]:
            self._refuse(connection, header, fields, f"by {message.mechanism!r}")
            return
        connection.slot().fill([encoded(header, fields)])
        session.exchange = exchange(
            message.mechanism,
            self._listener.plain_users,
            self._credentials,
            self._listener.user_of_token,
        )

    def _on_token(
        self, connection: Connection, session: Session, header: Header, message: Any
    ) -> None:
        if session.exchange is None:
            raise BadFrame("a login without a handshake")
        try:
            token = session.exchange.answer(message.auth_bytes)
        except LoginRefused as error:
            fields: Fields = sasl_authenticate.refused(str(error))
            self._refuse(connection, header, fields, str(error))
            return
        connection.slot().fill([encoded(header, sasl_authenticate.told(token))])
        if session.exchange.is_complete:
            session.principal = f"User:{session.exchange.user}"
            session.is_known = True
            session.exchange = None
            connection.frame_bytes_max = self._frame_bytes_max

    def _refuse(self, connection: Connection, header: Header, fields: Fields, what: str) -> None:
        """Not at once: whoever guesses should not guess often."""
        _logger.info("a login from %s is refused: %s", connection.peer_host, what)
        connection.session.is_refused = True
        slot = connection.slot()

        def refuse() -> None:
            slot.fill([encoded(header, fields)])
            connection.close()

        delay_s = self._listener.refusal_delay_ms / 1000
        asyncio.get_running_loop().call_later(delay_s, refuse)


def read_of(entity: Any, header: Header, frame: bytes) -> Any:
    return read(entity, frame, header.message_at)
