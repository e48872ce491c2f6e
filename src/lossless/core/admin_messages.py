"""What administrators ask of the controller, beyond creating and deleting a topic.

One message is about one resource, topic or partition: each has its own answer, and what is wrong
with one does not concern the others.
"""

from __future__ import annotations

import enum
from typing import NamedTuple

from lossless.core.error_codes import Error
from lossless.core.messages import TopicPartition
from lossless.core.quotas.limits import Client, Entity, QuotaChange


class ResourceKind(enum.IntEnum):
    """What has settings, with the protocol's numbers."""

    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


class Resource(NamedTuple):
    kind: ResourceKind
    name: str  # of a broker its number


ALL_BROKERS = Resource(ResourceKind.BROKER, "")  # what counts for brokers that say nothing else


def topic_resource(topic: str) -> Resource:
    return Resource(ResourceKind.TOPIC, topic)


def broker_resource(broker: int) -> Resource:
    return Resource(ResourceKind.BROKER, str(broker))


class ConfigOperation(enum.IntEnum):
    SET = 0
    DELETE = 1
    APPEND = 2  # to a list
    SUBTRACT = 3


class ConfigChange(NamedTuple):
    key: str
    value: str | None
    operation: ConfigOperation = ConfigOperation.SET


class AlterConfigs(NamedTuple):
    resource: Resource
    changes: tuple[ConfigChange, ...]
    replaces_all: bool = False  # what is not named is deleted (AlterConfigs, the older API)
    validate_only: bool = False


class AlterQuotas(NamedTuple):
    """Limits of one entity are set and removed, all of them or none."""

    entity: Entity
    changes: tuple[QuotaChange, ...]
    validate_only: bool = False


class UnregisterBroker(NamedTuple):
    broker: int


class CreatePartitions(NamedTuple):
    topic: str
    partitions: int  # all of them, afterwards
    assignment: tuple[tuple[int, ...], ...] | None = None  # of the new ones
    validate_only: bool = False
    client: Client | None = None  # whose limit counts


class AlterReassignment(NamedTuple):
    """Where the replicas of a partition should be; None: where they were."""

    partition: TopicPartition
    replicas: tuple[int, ...] | None
    may_change_replication_factor: bool = True


class ListReassignments(NamedTuple):
    partitions: tuple[TopicPartition, ...] | None  # None: of all


class Reassignment(NamedTuple):
    partition: TopicPartition
    replicas: tuple[int, ...]
    adding: tuple[int, ...]
    removing: tuple[int, ...]


class ListReassignmentsAnswer(NamedTuple):
    error: Error
    found: tuple[Reassignment, ...] = ()
