"""SyncGroup (14): the leader of a group says who gets what, and everybody learns it."""

from __future__ import annotations

from lossless.core.groups.messages import SyncGroup
from lossless.core.messages import Error
from lossless.wire.codec import Fields
from lossless.wire.context import Broker, Call

KEY = 14
NAMED = 5  # from this version on members say how they think that they share (KIP-559)


async def serve(call: Call, broker: Broker) -> Fields:
    asked = call.request
    if call.version >= NAMED and None in (asked.protocol_type, asked.protocol_name):
        return {"error_code": Error.INCONSISTENT_GROUP_PROTOCOL}
    answer = await broker.ask(
        SyncGroup(
            asked.group_id,
            asked.generation_id,
            asked.member_id,
            getattr(asked, "group_instance_id", None),
            getattr(asked, "protocol_type", None),
            getattr(asked, "protocol_name", None),
            tuple((given.member_id, given.assignment) for given in asked.assignments),
        )
    )
    return {
        "error_code": answer.error,
        "protocol_type": answer.protocol_type,
        "protocol_name": answer.protocol_name,
        "assignment": answer.assignment,
    }
