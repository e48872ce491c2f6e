"""Who may do what on a broker: super users everything, others what the cluster's entries allow.

A request is looked at before it is served, by the rule for its API, and made smaller where only a
part of it may be served. The answer to the smaller one is then completed by what was refused: see
api_rules.py for the rules. What has no rule is refused.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from lossless.broker.beside import encoded
from lossless.broker.connection import Buffers, Connection
from lossless.broker.security.api_rules import RULES
from lossless.broker.security.listeners import Access
from lossless.broker.security.rules import Asking, Verdict
from lossless.core.security.acls import Operation, ResourceType
from lossless.wire.codec import make, read, response_class, write
from lossless.wire.context import Broker
from lossless.wire.frames import LENGTH, BadFrame, Header, has_tagged_answer, response
from lossless.wire.versions import PRODUCE

_logger = logging.getLogger(__name__)


class Authorizer:
    def __init__(self, access: Access, broker: Broker) -> None:
        self._access = access
        self._broker = broker

    def is_super(self, principal: str) -> bool:
        return principal in self._access.super_users

    def admit(
        self, connection: Connection, principal: str, header: Header, entity: Any, frame: bytes
    ) -> bytes | None:
        """The request to serve, as it came or less of it; None if there is nothing to serve."""
        connection.amend = None
        rule = RULES.get(header.key)
        if rule is None:
            raise BadFrame(f"API {header.key} has no rule about who may use it")
        message = read(entity, frame, header.message_at)
        permissions = _Permissions(self._access, self._broker, principal, connection.peer_host)
        verdict = rule(Asking(message, header.version, self._broker, permissions))
        if verdict is None:
            return frame
        if header.key == PRODUCE and message.acks == 0:
            connection.close()  # there is no answer that could say what was refused
        elif verdict.message is None:
            connection.slot().fill([encoded(header, verdict.refused)])
        elif verdict.refused or verdict.edit is not None:
            connection.amend = _amending(connection, header, verdict)
        if verdict.message is None:
            return None
        if verdict.message is message:
            return frame
        return frame[: header.message_at] + write(verdict.message)


class _Permissions:
    """What one principal may do, from where it connects."""

    def __init__(self, access: Access, broker: Broker, principal: str, host: str) -> None:
        self._access = access
        self._acls = broker.image.acls
        self._principal = principal
        self._host = host

    def may(self, operation: Operation, kind: ResourceType, name: str) -> bool:
        said = self._acls.allows(self._principal, self._host, operation, kind, name)
        return self._access.is_allowed_unmentioned if said is None else said

    def may_some(self, operation: Operation, kind: ResourceType) -> bool:
        return self._access.is_allowed_unmentioned or self._acls.allows_some(
            self._principal, self._host, operation, kind
        )


def _amending(
    connection: Connection, header: Header, verdict: Verdict
) -> Callable[[Buffers], Buffers]:
    def amend(buffers: Buffers) -> Buffers:
        if not buffers:
            return buffers
        try:
            return [_amended(b"".join(buffers), header, verdict)]
        except Exception:
            # Within a machine's reply: what goes wrong here must not stop the broker.
            _logger.exception("an answer to API %d cannot be completed", header.key)
            connection.close()
            return []

    return amend


def _amended(frame: bytes, header: Header, verdict: Verdict) -> bytes:
    entity = response_class(header.key, header.version)
    tagged = has_tagged_answer(header.key, header.version)
    answer = read(entity, frame, LENGTH.size + (5 if tagged else 4))
    if verdict.edit is not None:
        answer = verdict.edit(answer)
    refused = make(entity, verdict.refused)
    answer = replace(
        answer,
        **{
            name: getattr(answer, name) + getattr(refused, name)
            for name in verdict.refused
            if hasattr(answer, name)
        },
    )
    return response(header.correlation_id, write(answer), tagged=tagged)
