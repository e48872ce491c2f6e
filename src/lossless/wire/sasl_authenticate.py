"""SaslAuthenticate (36): what the two ends of a SASL mechanism say to each other.

A login lasts as long as its connection: sessions have no lifetime, and nobody logs in again
(KIP-368 is left out).
"""

from __future__ import annotations

from lossless.core.messages import Error
from lossless.wire.codec import Fields
from lossless.wire.context import Call, Node

KEY = 36


async def serve(_call: Call, _node: Node) -> Fields:
    return {
        "error_code": Error.ILLEGAL_SASL_STATE,
        "error_message": "SaslAuthenticate request received after successful authentication",
    }


def told(token: bytes) -> Fields:
    return {"error_code": Error.NONE, "auth_bytes": token, "session_lifetime": 0}


def refused(what: str) -> Fields:
    return {"error_code": Error.SASL_AUTHENTICATION_FAILED, "error_message": what}
