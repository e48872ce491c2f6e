"""CreateAcls (30), served by the active controller: each entry has its own answer."""

from __future__ import annotations

from typing import Any

from lossless.core.messages import AdminAnswer, Error
from lossless.core.security.messages import CreateAcl
from lossless.wire.acl_messages import AUTHORIZER, NO_AUTHORIZER, acl_of
from lossless.wire.codec import Fields
from lossless.wire.context import Call, Controller

KEY = 30


async def serve(call: Call, controller: Controller) -> Fields:
    answers = [await _create(said, controller) for said in call.request.creations]
    return {
        "results": [
            {"error_code": answer.error, "error_message": answer.what or None} for answer in answers
        ]
    }


async def _create(said: Any, controller: Controller) -> AdminAnswer:
    if not controller.settings.properties.get(AUTHORIZER):
        return AdminAnswer(Error.SECURITY_DISABLED, NO_AUTHORIZER)
    try:
        acl = acl_of(said)
    except ValueError as error:
        return AdminAnswer(Error.INVALID_REQUEST, str(error))
    answer: AdminAnswer = await controller.ask(CreateAcl(acl))
    return answer
