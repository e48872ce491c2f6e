"""LeaveGroup (13): members of a classic group go; from version 3 on several at once."""

from __future__ import annotations

from lossless.core.groups.messages import LeaveGroup, MemberIdentity
from lossless.core.messages import Error
from lossless.wire.codec import Fields
from lossless.wire.context import Broker, Call

KEY = 13
BATCHED = 3


async def serve(call: Call, broker: Broker) -> Fields:
    asked = call.request
    if call.version >= BATCHED:
        leaving = tuple(
            MemberIdentity(member.member_id, member.group_instance_id) for member in asked.members
        )
    else:
        leaving = (MemberIdentity(asked.member_id),)
    answer = await broker.ask(LeaveGroup(asked.group_id, leaving))
    if call.version < BATCHED:
        # There was one, and whatever is wrong is wrong with it.
        errors = [left.error for left in answer.members]
        return {"error_code": answer.error or (errors[0] if errors else Error.NONE)}
    return {
        "error_code": answer.error,
        "members": [
            {
                "member_id": left.member.member_id,
                "group_instance_id": left.member.group_instance_id,
                "error_code": left.error,
            }
            for left in answer.members
        ],
    }
