"""SaslHandshake (17): which mechanism a client wants to log in with.

A listener with SASL answers it before anything else is served; here is what a client is told who
asks at the wrong time, or where nobody logs in. After version 0 tokens would come without frames of
their own: that has been out of use since Kafka 1.0, and is refused.
"""

from __future__ import annotations

from collections.abc import Sequence

from lossless.core.messages import Error
from lossless.wire.codec import Fields
from lossless.wire.context import Call, Node

KEY = 17
WITH_FRAMES = 1  # from this version on SaslAuthenticate follows


async def serve(_call: Call, _node: Node) -> Fields:
    return {"error_code": Error.ILLEGAL_SASL_STATE}


def told(mechanism: str, version: int, enabled: Sequence[str]) -> Fields:
    error = Error.NONE
    if version < WITH_FRAMES:
        error = Error.UNSUPPORTED_VERSION
    elif mechanism not in enabled:
        error = Error.UNSUPPORTED_SASL_MECHANISM
    return {"error_code": error, "mechanisms": enabled}
