"""DescribeAcls (29): which access control entries there are."""

from __future__ import annotations

from lossless.core.messages import Error
from lossless.core.security.acls import Acl, Pattern
from lossless.wire.acl_messages import (
    AUTHORIZER,
    NO_AUTHORIZER,
    entry_told,
    filter_of,
    pattern_told,
)
from lossless.wire.codec import Fields
from lossless.wire.context import Call, Node

KEY = 29


async def serve(call: Call, node: Node) -> Fields:
    if not node.settings.properties.get(AUTHORIZER):
        return {"error_code": Error.SECURITY_DISABLED, "error_message": NO_AUTHORIZER}
    try:
        asked = filter_of(call.request)
    except ValueError as error:
        return {"error_code": Error.INVALID_REQUEST, "error_message": str(error)}
    found: dict[Pattern, list[Acl]] = {}
    for acl in filter(asked.matches, node.image.acls):
        found.setdefault(acl.pattern, []).append(acl)
    return {
        "error_code": Error.NONE,
        "resources": [
            {**pattern_told(pattern), "acls": [entry_told(acl) for acl in acls]}
            for pattern, acls in found.items()
        ],
    }
