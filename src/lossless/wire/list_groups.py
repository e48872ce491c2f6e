"""ListGroups (16): the groups that this broker coordinates."""

from __future__ import annotations

from lossless.core.groups.messages import ListGroups
from lossless.wire.codec import Fields
from lossless.wire.context import Broker, Call

KEY = 16


async def serve(call: Call, broker: Broker) -> Fields:
    answer = await broker.ask(
        ListGroups(
            tuple(getattr(call.request, "states_filter", ())),
            tuple(getattr(call.request, "types_filter", ())),
        )
    )
    return {
        "error_code": answer.error,
        "groups": [
            {
                "group_id": group.group_id,
                "protocol_type": group.protocol_type,
                "group_state": group.state,
                "group_type": group.type,
            }
            for group in answer.groups
        ],
    }
