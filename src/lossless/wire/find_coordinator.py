"""FindCoordinator (10): who coordinates a group, or a transaction. The topic that coordinators live
on comes into being when the first of them is looked for."""

from __future__ import annotations

from lossless.core.coordinator import partition_for
from lossless.core.messages import (
    NO_LEADER,
    OFFSETS_TOPIC,
    TRANSACTIONS_TOPIC,
    Error,
    TopicPartition,
)
from lossless.wire.codec import Fields
from lossless.wire.context import Broker, Call
from lossless.wire.metadata import create

KEY = 10
BATCHED = 4  # from this version on several are asked for at once
_TOPICS = {0: OFFSETS_TOPIC, 1: TRANSACTIONS_TOPIC}


async def serve(call: Call, broker: Broker) -> Fields:
    topic = _TOPICS.get(getattr(call.request, "key_type", 0))
    keys = call.request.coordinator_keys if call.version >= BATCHED else (call.request.key,)
    found = [await _find(topic, key, call, broker) for key in keys]
    return {"coordinators": found} if call.version >= BATCHED else found[0]


async def _find(topic: str | None, key: str, call: Call, broker: Broker) -> Fields:
    said = {"key": key} if call.version >= BATCHED else {}
    nobody = {**said, "node_id": -1, "host": "", "port": -1}
    if topic is None or (not key and topic == TRANSACTIONS_TOPIC):
        return {**nobody, "error_code": Error.INVALID_REQUEST}
    count = broker.image.partition_count(topic)
    if not count:
        await create(broker, [topic])
        return {**nobody, "error_code": Error.COORDINATOR_NOT_AVAILABLE}
    partition = TopicPartition(topic, partition_for(key, count))
    leader = broker.image.partitions[partition].leader
    endpoint = broker.endpoints(call.listener).get(leader)
    if leader == NO_LEADER or endpoint is None:
        return {**nobody, "error_code": Error.COORDINATOR_NOT_AVAILABLE}
    return {**said, "node_id": leader, "host": endpoint.host, "port": endpoint.port}
