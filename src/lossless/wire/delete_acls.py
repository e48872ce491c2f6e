"""DeleteAcls (31), served by the active controller: every entry that a filter matches goes, and is
told."""

from __future__ import annotations

from typing import Any

from lossless.core.messages import Error
from lossless.core.security.messages import DeleteAcl
from lossless.wire.acl_messages import (
    AUTHORIZER,
    NO_AUTHORIZER,
    entry_told,
    filter_of,
    pattern_told,
)
from lossless.wire.codec import Fields
from lossless.wire.context import Call, Controller

KEY = 31


async def serve(call: Call, controller: Controller) -> Fields:
    return {"filter_results": [await _delete(said, controller) for said in call.request.filters]}


async def _delete(said: Any, controller: Controller) -> Fields:
    if not controller.settings.properties.get(AUTHORIZER):
        return {"error_code": Error.SECURITY_DISABLED, "error_message": NO_AUTHORIZER}
    try:
        asked = filter_of(said)
    except ValueError as error:
        return {"error_code": Error.INVALID_REQUEST, "error_message": str(error)}
    matching = []
    for acl in list(filter(asked.matches, controller.image.acls)):
        answer = await controller.ask(DeleteAcl(acl))
        matching.append(
            {
                "error_code": answer.error,
                "error_message": answer.what or None,
                **pattern_told(acl.pattern),
                **entry_told(acl),
            }
        )
    return {"error_code": Error.NONE, "matching_acls": matching}
