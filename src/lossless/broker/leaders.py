"""Who leads what this broker does not: told with the refusal, so that clients need not ask
(KIP-951)."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from lossless.broker.connection import Slot
from lossless.core.messages import NO_LEADER, Endpoint, TopicPartition
from lossless.core.metadata import Image
from lossless.wire.codec import Fields


class Leaders:
    def __init__(
        self, image: Callable[[], Image], endpoints: Callable[[str], dict[int, Endpoint]]
    ) -> None:
        self._image = image
        self._endpoints = endpoints

    def instead(
        self, partitions: Iterable[TopicPartition], slot: Slot
    ) -> tuple[dict[TopicPartition, Fields], list[Fields]]:
        image = self._image()
        endpoints = self._endpoints(slot.connection.listener)
        leaders: dict[TopicPartition, Fields] = {}
        nodes: dict[int, Fields] = {}
        for partition in partitions:
            state = image.partitions.get(partition)
            if state is None or state.leader == NO_LEADER or state.leader not in endpoints:
                continue
            endpoint = endpoints[state.leader]
            leaders[partition] = {"leader_id": state.leader, "leader_epoch": state.leader_epoch}
            nodes[state.leader] = {
                "node_id": state.leader,
                "host": endpoint.host,
                "port": endpoint.port,
                "rack": image.brokers[state.leader].rack,
            }
        return leaders, list(nodes.values())
