"""Heartbeat (12): a member of a classic group lives."""

from __future__ import annotations

from lossless.core.groups.messages import Heartbeat
from lossless.wire.codec import Fields
from lossless.wire.context import Broker, Call

KEY = 12


async def serve(call: Call, broker: Broker) -> Fields:
    asked = call.request
    instance = getattr(asked, "group_instance_id", None)
    answer = await broker.ask(
        Heartbeat(asked.group_id, asked.generation_id, asked.member_id, instance)
    )
    return {"error_code": answer.error}
