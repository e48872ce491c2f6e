"""DeleteGroups (42): groups without members, and how far they had come."""

from __future__ import annotations

from lossless.core.groups.messages import DeleteGroup
from lossless.wire.codec import Fields
from lossless.wire.context import Broker, Call

KEY = 42


async def serve(call: Call, broker: Broker) -> Fields:
    answers = await broker.ask_all([DeleteGroup(group) for group in call.request.groups_names])
    return {
        "results": [{"group_id": answer.group_id, "error_code": answer.error} for answer in answers]
    }
