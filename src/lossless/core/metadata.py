"""What the cluster has agreed on: brokers, topics, partitions, settings.

The quorum's log holds records; an image is what they amount to. Only `apply` changes an image, on
the active controller, on the others and on brokers alike, live and in recovery.
"""

from __future__ import annotations

import json
from typing import NamedTuple

from lossless.core.messages import NO_LEADER, TopicPartition

MIN_ISR = "min.insync.replicas"
UNCLEAN = "unclean.leader.election.enable"


class BrokerRegistered(NamedTuple):
    """Its offset in the log becomes the broker's epoch."""

    broker: int
    incarnation: int
    rack: str | None


class BrokerChanged(NamedTuple):
    broker: int
    fenced: bool
    stopping: bool  # in controlled shutdown


class TopicCreated(NamedTuple):
    topic: str
    topic_id: int


class TopicRemoved(NamedTuple):
    topic: str


class PartitionState(NamedTuple):
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    leader: int
    leader_epoch: int = 0
    partition_epoch: int = 0
    elr: tuple[int, ...] = ()  # eligible leaders: out of sync, with all that is committed
    last_known_leader: int = NO_LEADER  # who led when nobody was left

    @property
    def preferred(self) -> int:
        return self.replicas[0]


class PartitionChanged(NamedTuple):
    """The whole of a partition's state, new or changed."""

    topic: str
    partition: int
    state: PartitionState


class ConfigChanged(NamedTuple):
    topic: str  # "" for the default of all topics
    key: str
    value: str | None


MetadataRecord = (
    BrokerRegistered
    | BrokerChanged
    | TopicCreated
    | TopicRemoved
    | PartitionChanged
    | ConfigChanged
)

_KINDS: dict[str, type] = {
    kind.__name__: kind
    for kind in (
        BrokerRegistered,
        BrokerChanged,
        TopicCreated,
        TopicRemoved,
        PartitionChanged,
        ConfigChanged,
    )
}


def encode(record: MetadataRecord) -> bytes:
    return json.dumps([type(record).__name__, *record], separators=(",", ":")).encode()


def decode(data: bytes) -> MetadataRecord:
    name, *fields = json.loads(data)
    if name == "PartitionChanged":
        topic, partition, (replicas, isr, leader, leader_epoch, partition_epoch, elr, last) = fields
        state = PartitionState(
            tuple(replicas), tuple(isr), leader, leader_epoch, partition_epoch, tuple(elr), last
        )
        return PartitionChanged(topic, partition, state)
    record: MetadataRecord = _KINDS[name](*fields)
    return record


class Broker(NamedTuple):
    epoch: int
    incarnation: int
    rack: str | None
    fenced: bool = True
    stopping: bool = False

    @property
    def is_active(self) -> bool:
        """May lead, and may be in sync (KIP-841)."""
        return not (self.fenced or self.stopping)


class Image:
    """Records up to `end_offset`, applied."""

    __slots__ = ("brokers", "configs", "end_offset", "partitions", "topics")

    def __init__(self) -> None:
        self.brokers: dict[int, Broker] = {}
        self.topics: dict[str, int] = {}
        self.partitions: dict[TopicPartition, PartitionState] = {}
        self.configs: dict[tuple[str, str], str] = {}
        self.end_offset = 0

    def copy(self) -> Image:
        copied = Image()
        copied.brokers = dict(self.brokers)
        copied.topics = dict(self.topics)
        copied.partitions = dict(self.partitions)
        copied.configs = dict(self.configs)
        copied.end_offset = self.end_offset
        return copied

    def config(self, topic: str, key: str, otherwise: str) -> str:
        return self.configs.get((topic, key), self.configs.get(("", key), otherwise))

    def min_isr(self, partition: TopicPartition) -> int:
        """More than there are replicas means all of them (since Kafka 3.7)."""
        asked = int(self.config(partition.topic, MIN_ISR, "1"))
        return min(asked, len(self.partitions[partition].replicas))

    def may_elect_unclean(self, partition: TopicPartition) -> bool:
        return self.config(partition.topic, UNCLEAN, "false") == "true"

    def is_active(self, broker: int) -> bool:
        known = self.brokers.get(broker)
        return known is not None and known.is_active

    def apply(self, record: MetadataRecord, offset: int) -> None:
        match record:
            case PartitionChanged():
                self.partitions[TopicPartition(record.topic, record.partition)] = record.state
            case BrokerChanged():
                self.brokers[record.broker] = self.brokers[record.broker]._replace(
                    fenced=record.fenced, stopping=record.stopping
                )
            case BrokerRegistered():
                self.brokers[record.broker] = Broker(offset, record.incarnation, record.rack)
            case TopicCreated():
                self.topics[record.topic] = record.topic_id
            case TopicRemoved():
                self._remove(record.topic)
            case ConfigChanged():
                if record.value is None:
                    self.configs.pop((record.topic, record.key), None)
                else:
                    self.configs[record.topic, record.key] = record.value
        self.end_offset = offset + 1

    def _remove(self, topic: str) -> None:
        del self.topics[topic]
        self.partitions = {
            partition: state
            for partition, state in self.partitions.items()
            if partition.topic != topic
        }
        self.configs = {key: value for key, value in self.configs.items() if key[0] != topic}
