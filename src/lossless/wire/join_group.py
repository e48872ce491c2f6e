"""JoinGroup (11): become a member, or one of a new generation. Answered when all have joined."""

from __future__ import annotations

from lossless.core.groups.messages import JoinGroup
from lossless.wire.codec import Fields, milliseconds
from lossless.wire.context import Broker, Call

KEY = 11


async def serve(call: Call, broker: Broker) -> Fields:
    asked = call.request
    rebalance_timeout = getattr(asked, "rebalance_timeout", None)
    answer = await broker.ask(
        JoinGroup(
            asked.group_id,
            asked.member_id,
            milliseconds(asked.session_timeout),
            -1 if rebalance_timeout is None else milliseconds(rebalance_timeout),
            asked.protocol_type,
            tuple((protocol.name, protocol.metadata) for protocol in asked.protocols),
            getattr(asked, "group_instance_id", None),
            call.client_id or "",
            f"/{call.client_host}",
            call.version,
        )
    )
    # Before version 7 a text cannot be missing.
    absent = None if call.version >= 7 else ""
    return {
        "error_code": answer.error,
        "generation_id": answer.generation_id,
        "protocol_type": answer.protocol_type,
        "protocol_name": absent if answer.protocol_name is None else answer.protocol_name,
        "leader": answer.leader,
        "skip_assignment": answer.skip_assignment,
        "member_id": answer.member_id,
        "members": [member._asdict() for member in answer.members],
    }
