"""DescribeQuorum (55), served by the active controller: who leads, and how far the others are."""

from __future__ import annotations

from lossless.core.messages import Error
from lossless.core.quorum import METADATA
from lossless.wire.codec import Fields
from lossless.wire.context import Call, Controller

KEY = 55


async def serve(call: Call, controller: Controller) -> Fields:
    asked = [(topic.topic_name, len(topic.partitions)) for topic in call.request.topics]
    if asked != [(METADATA, 1)]:
        return {"error_code": Error.INVALID_REQUEST}
    quorum = controller.quorum
    if not quorum.is_leader:
        return {"error_code": Error.NOT_LEADER_OR_FOLLOWER}
    ends = quorum.ends
    voters = [(voter, ends.get(voter, -1)) for voter in quorum.voters]
    observers = [(node, end) for node, end in sorted(ends.items()) if node not in quorum.voters]
    partition = {
        "partition_index": 0,
        "error_code": Error.NONE,
        "leader_id": controller.number,
        "leader_epoch": quorum.epoch,
        "high_watermark": quorum.high_watermark,
        "current_voters": [
            {"replica_id": replica, "log_end_offset": end} for replica, end in voters
        ],
        "observers": [{"replica_id": replica, "log_end_offset": end} for replica, end in observers],
    }
    return {
        "topics": [{"topic_name": METADATA, "partitions": [partition]}],
        "nodes": [],
    }
