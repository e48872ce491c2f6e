"""DescribeGroups (15): classic groups, with their members."""

from __future__ import annotations

from lossless.core.groups.messages import DescribeGroup
from lossless.wire.codec import Fields
from lossless.wire.context import Broker, Call

KEY = 15


async def serve(call: Call, broker: Broker) -> Fields:
    answers = await broker.ask_all(
        [DescribeGroup(group, call.version) for group in call.request.groups]
    )
    return {
        "groups": [
            {
                "error_code": answer.error,
                "error_message": answer.error_message,
                "group_id": answer.group_id,
                "group_state": answer.state,
                "protocol_type": answer.protocol_type,
                "protocol_data": answer.protocol_data,
                "members": [
                    {
                        "member_id": member.member_id,
                        "group_instance_id": member.group_instance_id,
                        "client_id": member.client_id,
                        "client_host": member.client_host,
                        "member_metadata": member.metadata,
                        "member_assignment": member.assignment,
                    }
                    for member in answer.members
                ],
            }
            for answer in answers
        ]
    }
