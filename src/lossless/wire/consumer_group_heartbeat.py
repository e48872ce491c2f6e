"""ConsumerGroupHeartbeat (68): everything that a member of a consumer group says (KIP-848)."""

from __future__ import annotations

import uuid
from collections.abc import Iterable

from lossless.core.groups.messages import ConsumerGroupHeartbeat, TopicPartitions
from lossless.core.messages import Error
from lossless.wire.codec import Fields, milliseconds
from lossless.wire.context import Broker, Call

KEY = 68


async def serve(call: Call, broker: Broker) -> Fields:
    asked = call.request
    if not is_enabled(broker):
        return {
            "error_code": Error.UNSUPPORTED_VERSION,
            "member_epoch": 0,
            "heartbeat_interval": 0,
        }
    names, owned = asked.subscribed_topic_names, asked.topic_partitions
    answer = await broker.ask(
        ConsumerGroupHeartbeat(
            asked.group_id,
            asked.member_id,
            asked.member_epoch,
            asked.instance_id,
            asked.rack_id,
            milliseconds(asked.rebalance_timeout),
            None if names is None else tuple(names),
            getattr(asked, "subscribed_topic_regex", None),
            asked.server_assignor,
            None
            if owned is None
            else tuple(
                TopicPartitions(said.topic_id.int if said.topic_id else 0, tuple(said.partitions))
                for said in owned
            ),
            call.client_id or "",
            f"/{call.client_host}",
            call.version,
        )
    )
    assignment = answer.assignment
    return {
        "error_code": answer.error,
        "error_message": answer.error_message,
        "member_id": answer.member_id,
        "member_epoch": answer.member_epoch,
        "heartbeat_interval": answer.heartbeat_interval_ms,
        "assignment": None if assignment is None else {"topic_partitions": _told(assignment)},
    }


def is_enabled(broker: Broker) -> bool:
    """Whether brokers take groups of this protocol."""
    return "consumer" in broker.settings.groups.group_coordinator_rebalance_protocols


def _told(assignment: Iterable[TopicPartitions]) -> list[Fields]:
    return [
        {"topic_id": uuid.UUID(int=topic_id), "partitions": partitions}
        for topic_id, partitions in assignment
    ]
