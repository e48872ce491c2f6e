"""What the cluster has agreed on: brokers, topics, partitions, settings, users, access.

The quorum's log holds records; an image is what they amount to. Only `apply` changes an image, on
the active controller, on the others and on brokers alike, live and in recovery.

A record is written as it was when it had fewer fields, as long as the later ones say nothing: logs
of before are read, and a cluster that does not use what is new has the same log as ever.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NamedTuple

from lossless.core.admin_messages import (
    ALL_BROKERS,
    Resource,
    ResourceKind,
    broker_resource,
    topic_resource,
)
from lossless.core.messages import NO_LEADER, Endpoint, TopicPartition
from lossless.core.quotas.limits import Entity, changed
from lossless.core.security.acls import Acls
from lossless.core.security.records import (
    AclCreated,
    AclRemoved,
    ScramCredentialChanged,
    acl_of,
    credential_changed,
    fields_of,
)
from lossless.core.security.scram import ScramCredential, ScramMechanism
from lossless.core.settings.brokers import effective

MIN_ISR = "min.insync.replicas"
UNCLEAN = "unclean.leader.election.enable"

_NOTHING: Mapping[str, str] = {}


class BrokerRegistered(NamedTuple):
    """Its offset in the log becomes the broker's epoch."""

    broker: int
    incarnation: int
    rack: str | None
    endpoints: tuple[Endpoint, ...] = ()


class BrokerChanged(NamedTuple):
    broker: int
    fenced: bool
    stopping: bool  # in controlled shutdown


class BrokerRemoved(NamedTuple):
    """It is not expected back; should it come, it registers as if it were new."""

    broker: int


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
    # While replicas move (reassignment.py); both are among `replicas`.
    adding: tuple[int, ...] = ()
    removing: tuple[int, ...] = ()

    @property
    def preferred(self) -> int:
        return self.replicas[0]


class PartitionChanged(NamedTuple):
    """The whole of a partition's state, new or changed."""

    topic: str
    partition: int
    state: PartitionState


class ConfigChanged(NamedTuple):
    """Settings of a topic, and without a name those that count for all brokers; of one broker or
    group, whose kind is said."""

    name: str
    key: str
    value: str | None
    kind: ResourceKind = ResourceKind.TOPIC

    @classmethod
    def of(cls, resource: Resource, key: str, value: str | None) -> ConfigChanged:
        kind = ResourceKind.TOPIC if resource == ALL_BROKERS else resource.kind
        return cls(resource.name, key, value, kind)

    @property
    def resource(self) -> Resource:
        return Resource(self.kind, self.name) if self.name else ALL_BROKERS

    @property
    def topic(self) -> str | None:
        """Whose partitions are concerned: "" for those of all topics, None for no partitions."""
        if self.kind is ResourceKind.GROUP:
            return None
        return self.name if self.kind is ResourceKind.TOPIC else ""


class ProducerIdsAllocated(NamedTuple):
    """Ids below `end` have been given to brokers, and are not given again."""

    end: int


class QuotaChanged(NamedTuple):
    """A limit of clients was set, or without a value removed."""

    entity: Entity
    key: str
    value: float | None


MetadataRecord = (
    BrokerRegistered
    | BrokerChanged
    | BrokerRemoved
    | TopicCreated
    | TopicRemoved
    | PartitionChanged
    | ConfigChanged
    | ProducerIdsAllocated
    | QuotaChanged
    | ScramCredentialChanged
    | AclCreated
    | AclRemoved
)

_KINDS: dict[str, type] = {
    kind.__name__: kind
    for kind in (
        BrokerRegistered,
        BrokerChanged,
        BrokerRemoved,
        TopicCreated,
        TopicRemoved,
        PartitionChanged,
        ConfigChanged,
        ProducerIdsAllocated,
    )
}


def encode(record: MetadataRecord) -> bytes:
    fields: list[Any] = [type(record).__name__, *record]
    if isinstance(record, PartitionChanged) and not (record.state.adding or record.state.removing):
        fields[-1] = record.state[:_PLACED_FIELDS]
    elif isinstance(record, ConfigChanged) and record.kind is ResourceKind.TOPIC:
        del fields[-1]
    elif isinstance(record, ScramCredentialChanged):
        fields[1:] = fields_of(record)
    return json.dumps(fields, separators=(",", ":")).encode()


_PLACED_FIELDS = PartitionState._fields.index("adding")


def decode(data: bytes) -> MetadataRecord:
    name, *fields = json.loads(data)
    if name == "PartitionChanged":
        topic, partition, (replicas, isr, *rest) = fields
        leader, leader_epoch, partition_epoch, elr, last, *moving = rest
        state = PartitionState(
            tuple(replicas), tuple(isr), leader, leader_epoch, partition_epoch, tuple(elr), last
        )
        if moving:
            adding, removing = moving
            state = state._replace(adding=tuple(adding), removing=tuple(removing))
        return PartitionChanged(topic, partition, state)
    if name == "BrokerRegistered":
        broker, incarnation, rack, endpoints = fields
        return BrokerRegistered(
            broker, incarnation, rack, tuple(Endpoint(*endpoint) for endpoint in endpoints)
        )
    if name == "ConfigChanged":
        of, key, value, *kind = fields
        return ConfigChanged(of, key, value, *map(ResourceKind, kind))
    if name == "QuotaChanged":
        entity, key, value = fields
        return QuotaChanged(tuple((kind, of) for kind, of in entity), key, value)
    if name == "ScramCredentialChanged":
        return credential_changed(*fields)
    if name in ("AclCreated", "AclRemoved"):
        return (AclCreated if name == "AclCreated" else AclRemoved)(acl_of(*fields))
    record: MetadataRecord = _KINDS[name](*fields)
    return record


class Broker(NamedTuple):
    epoch: int
    incarnation: int
    rack: str | None
    fenced: bool = True
    stopping: bool = False
    endpoints: tuple[Endpoint, ...] = ()

    @property
    def is_active(self) -> bool:
        """May lead, and may be in sync (KIP-841)."""
        return not (self.fenced or self.stopping)


class Image:
    """Records up to `end_offset`, applied.

    `properties` are the static settings of whoever decides by this image: what counts where nobody
    has agreed on anything. They are no part of what was agreed.
    """

    __slots__ = (
        "_partition_counts",
        "acls",
        "brokers",
        "configs",
        "end_offset",
        "next_producer_id",
        "partitions",
        "properties",
        "quotas",
        "scram",
        "topic_names",
        "topics",
    )

    def __init__(self, properties: Mapping[str, str] = _NOTHING) -> None:
        self.properties = properties
        self.brokers: dict[int, Broker] = {}
        self.topics: dict[str, int] = {}
        self.topic_names: dict[int, str] = {}
        self.partitions: dict[TopicPartition, PartitionState] = {}
        self._partition_counts: dict[str, int] = {}
        self.configs: dict[Resource, Mapping[str, str]] = {}
        self.next_producer_id = 0
        # None: there was one, and it was taken away.
        self.scram: dict[tuple[str, ScramMechanism], ScramCredential | None] = {}
        self.acls = Acls()
        self.quotas: Mapping[Entity, Mapping[str, float]] = {}
        self.end_offset = 0

    def copy(self) -> Image:
        copied = Image(self.properties)
        copied.brokers = dict(self.brokers)
        copied.topics = dict(self.topics)
        copied.topic_names = dict(self.topic_names)
        copied.partitions = dict(self.partitions)
        copied._partition_counts = dict(self._partition_counts)
        copied.configs = dict(self.configs)
        copied.next_producer_id = self.next_producer_id
        copied.scram = dict(self.scram)
        copied.acls = self.acls
        copied.quotas = self.quotas
        copied.end_offset = self.end_offset
        return copied

    # Settings

    def overrides(self, resource: Resource) -> Mapping[str, str]:
        """What was set for it, and for nothing else."""
        return self.configs.get(resource, _NOTHING)

    def effective_properties(self, broker: int | None = None) -> dict[str, str]:
        """What a broker goes by, or any broker: what is static, then what was set for all, then
        what was set for it."""
        own = _NOTHING if broker is None else self.overrides(broker_resource(broker))
        return effective(self.properties, self.overrides(ALL_BROKERS), own)

    def config(self, topic: str, key: str, otherwise: str) -> str:
        """Of a setting that topics and brokers have under one name."""
        for texts in (
            self.overrides(topic_resource(topic)),
            self.overrides(ALL_BROKERS),
            self.properties,
        ):
            if key in texts:
                return texts[key]
        return otherwise

    def partition_count(self, topic: str) -> int:
        return self._partition_counts.get(topic, 0)

    def min_isr(self, partition: TopicPartition) -> int:
        """More than there are replicas means all of them (since Kafka 3.7)."""
        asked = int(self.config(partition.topic, MIN_ISR, "1"))
        return min(asked, len(self.partitions[partition].replicas))

    def may_elect_unclean(self, partition: TopicPartition) -> bool:
        return self.config(partition.topic, UNCLEAN, "false").strip().lower() == "true"

    # Brokers and partitions

    def is_active(self, broker: int) -> bool:
        known = self.brokers.get(broker)
        return known is not None and known.is_active

    def apply(self, record: MetadataRecord, offset: int) -> None:
        match record:
            case PartitionChanged():
                self.partitions[TopicPartition(record.topic, record.partition)] = record.state
                count = max(self.partition_count(record.topic), record.partition + 1)
                self._partition_counts[record.topic] = count
            case BrokerChanged():
                self.brokers[record.broker] = self.brokers[record.broker]._replace(
                    fenced=record.fenced, stopping=record.stopping
                )
            case BrokerRegistered():
                self.brokers[record.broker] = Broker(
                    offset, record.incarnation, record.rack, endpoints=record.endpoints
                )
            case BrokerRemoved():
                del self.brokers[record.broker]
            case TopicCreated():
                self.topics[record.topic] = record.topic_id
                self.topic_names[record.topic_id] = record.topic
            case TopicRemoved():
                self._remove(record.topic)
            case ProducerIdsAllocated():
                self.next_producer_id = record.end
            case ConfigChanged():
                self._configure(record.resource, record.key, record.value)
            case QuotaChanged():
                self.quotas = changed(self.quotas, *record)
            case ScramCredentialChanged():
                self.scram[record.user, record.mechanism] = record.credential
            case AclCreated():
                self.acls = self.acls.with_entry(record.acl)
            case AclRemoved():
                self.acls = self.acls.without_entry(record.acl)
        self.end_offset = offset + 1

    def _configure(self, resource: Resource, key: str, value: str | None) -> None:
        """With another mapping: copies of this image have the old one."""
        texts = {name: text for name, text in self.overrides(resource).items() if name != key}
        if value is not None:
            texts[key] = value
        if texts:
            self.configs[resource] = texts
        else:
            self.configs.pop(resource, None)

    def _remove(self, topic: str) -> None:
        del self.topic_names[self.topics.pop(topic)]
        self._partition_counts.pop(topic, None)
        self.partitions = {
            partition: state
            for partition, state in self.partitions.items()
            if partition.topic != topic
        }
        self.configs.pop(topic_resource(topic), None)
