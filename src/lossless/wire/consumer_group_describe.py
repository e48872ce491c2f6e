"""ConsumerGroupDescribe (69): consumer groups, with what their members have and should have."""

from __future__ import annotations

import uuid
from collections.abc import Iterable

from lossless.core.groups.messages import ConsumerGroupDescribe, DescribedConsumer, TopicPartitions
from lossless.core.messages import Error
from lossless.wire.codec import Fields
from lossless.wire.consumer_group_heartbeat import is_enabled
from lossless.wire.context import Broker, Call

KEY = 69
CONSUMER_MEMBER = 1


async def serve(call: Call, broker: Broker) -> Fields:
    if not is_enabled(broker):
        refused = {"error_code": Error.UNSUPPORTED_VERSION}
        return {"groups": [{**refused, "group_id": group} for group in call.request.group_ids]}
    answers = await broker.ask_all(
        [ConsumerGroupDescribe(group) for group in call.request.group_ids]
    )
    return {
        "groups": [
            {
                "error_code": answer.error,
                "error_message": answer.error_message,
                "group_id": answer.group_id,
                "group_state": answer.state,
                "group_epoch": answer.group_epoch,
                "assignment_epoch": answer.assignment_epoch,
                "assignor_name": answer.assignor_name,
                "members": [_member(member) for member in answer.members],
            }
            for answer in answers
        ]
    }


def _member(member: DescribedConsumer) -> Fields:
    return {
        "member_id": member.member_id,
        "instance_id": member.instance_id,
        "rack_id": member.rack_id,
        "member_epoch": member.member_epoch,
        "client_id": member.client_id,
        "client_host": member.client_host,
        "subscribed_topic_names": member.subscribed_topic_names,
        "subscribed_topic_regex": member.subscribed_topic_regex,
        "assignment": {"topic_partitions": _told(member.assignment)},
        "target_assignment": {"topic_partitions": _told(member.target_assignment)},
        "member_type": CONSUMER_MEMBER,
    }


def _told(assignment: Iterable[tuple[str, TopicPartitions]]) -> list[Fields]:
    return [
        {"topic_id": uuid.UUID(int=topic_id), "topic_name": name, "partitions": partitions}
        for name, (topic_id, partitions) in assignment
    ]
