"""Clients of librdkafka for tests of transactions, and what a topic has for whom."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from typing import Any

from confluent_kafka import (
    Consumer,
    ConsumerGroupTopicPartitions,
    KafkaError,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, NewTopic
from raw_requests import ask

from lossless.core.coordinator import partition_for
from lossless.core.messages import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from lossless.engines.local.cluster import LocalCluster
from lossless.engines.waiting import wait_until
from lossless.errors import BadInput
from topics import create_new, read_all

TIMEOUT_S = 60.0
COMMITTED, UNCOMMITTED = "read_committed", "read_uncommitted"
LIST_OFFSETS, LATEST = 2, -1
_QUIET = {"log_level": 0}
_names = itertools.count()


class Clients:
    """Of one test; they are gone when it ends, so that nobody hears of the next test's faults."""

    def __init__(self, cluster: LocalCluster) -> None:
        self.cluster = cluster
        self.admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers, **_QUIET})
        self._producers: list[Producer] = []
        self._consumers: list[Consumer] = []

    def close(self) -> None:
        for producer in self._producers:
            producer.purge()
        self._producers.clear()  # flushing would raise, once more, what was fatal
        for consumer in self._consumers:
            consumer.close()

    # Topics

    def topic(
        self, partitions: int = 3, *, replicas: int = 3, assignment: list[list[int]] | None = None
    ) -> str:
        """A new one, that every broker knows and whose partitions have leaders."""
        name = f"topic-{next(_names)}"
        if assignment is None:
            new = NewTopic(name, partitions, replicas, config={"min.insync.replicas": "2"})
        else:
            partitions = len(assignment)
            new = NewTopic(name, partitions, replica_assignment=assignment)
        create_new(self.admin, new)
        expected = set(range(partitions))
        assert wait_until(lambda: self._leads(name) == expected, timeout_s=TIMEOUT_S)
        return name

    def _leads(self, topic: str) -> set[int]:
        known = self.cluster.metadata().topics.get(topic)
        partitions = known.partitions if known else {}
        return {number for number, each in partitions.items() if each.leader >= 0}

    def coordinator_of(self, transactional_id: str) -> int:
        return self._internal_leader(TRANSACTIONS_TOPIC, transactional_id)

    def group_coordinator_of(self, group: str) -> int:
        return self._internal_leader(OFFSETS_TOPIC, group)

    def _internal_leader(self, topic: str, key: str) -> int:
        partitions = self.cluster.metadata().topics[topic].partitions
        return int(partitions[partition_for(key, len(partitions))].leader)

    # Producers

    def producer(self, transactional_id: str, **settings: Any) -> Producer:
        """One that has been initialised."""
        producer = self.uninitialised(transactional_id, **settings)
        producer.init_transactions(TIMEOUT_S)
        return producer

    def uninitialised(self, transactional_id: str, **settings: Any) -> Producer:
        given = {name.replace("_", "."): value for name, value in settings.items()}
        producer = Producer(
            {
                "bootstrap.servers": self.cluster.bootstrap_servers,
                "transactional.id": transactional_id,
                **_QUIET,
                **given,
            }
        )
        self._producers.append(producer)
        return producer

    def plain(self) -> Producer:
        servers = self.cluster.bootstrap_servers
        producer = Producer({"bootstrap.servers": servers, "enable.idempotence": True, **_QUIET})
        self._producers.append(producer)
        return producer

    # What there is

    def values(
        self, topic: str, isolation: str, partitions: Sequence[int] = (0, 1, 2)
    ) -> list[str]:
        """Everything up to where a reader of this kind gets, sorted."""
        servers = self.cluster.bootstrap_servers
        found = read_all(servers, topic, partitions=partitions, isolation=isolation)
        return sorted((message.value() or b"").decode() for message in found)

    def end(self, topic: str, partition: int, isolation: str) -> int:
        """The high watermark; or the last stable offset, for readers of what is committed. Asked of
        the leader itself: clients hold on for long to one that has died."""
        found: list[int] = []

        def is_told() -> bool:
            said = self._ask_end(topic, partition, isolation)
            if said is not None:
                found.append(said)
            return said is not None

        assert wait_until(is_told, timeout_s=TIMEOUT_S)
        return found[-1]

    def _ask_end(self, topic: str, partition: int, isolation: str) -> int | None:
        leader = self.cluster.leader_of(topic, partition)
        asked = {"partition_index": partition, "current_leader_epoch": -1, "timestamp": LATEST}
        try:
            answer = ask(
                self.cluster,
                leader,
                LIST_OFFSETS,
                9,
                replica_id=-1,
                isolation_level=int(isolation == COMMITTED),
                topics=[{"name": topic, "partitions": [asked]}],
            )
        except (OSError, BadInput):  # there is no leader, or it has just died
            return None
        (told,) = answer.topics[0].partitions
        return None if told.error_code.value else int(told.offset)

    def is_stable(self, topic: str, partitions: Iterable[int] = (0, 1, 2)) -> bool:
        """No transaction is open anywhere: readers of what is committed get to the end."""
        return all(
            self.end(topic, number, COMMITTED) == self.end(topic, number, UNCOMMITTED)
            for number in partitions
        )

    def becomes_stable(self, topic: str, partitions: Iterable[int] = (0, 1, 2)) -> bool:
        numbers = tuple(partitions)
        return wait_until(lambda: self.is_stable(topic, numbers), timeout_s=TIMEOUT_S)

    def nobody_of(self, group: str) -> Any:
        """As whom a producer commits offsets of a group that it has not joined."""
        servers = self.cluster.bootstrap_servers
        consumer = Consumer({"bootstrap.servers": servers, "group.id": group, **_QUIET})
        self._consumers.append(consumer)
        return consumer.consumer_group_metadata()

    def group_offset(self, group: str, topic: str, partition: int) -> int:
        """What the group has committed, or a negative number; once no transaction is in doubt."""
        found: list[TopicPartition] = []

        def is_stable() -> bool:
            asked = ConsumerGroupTopicPartitions(group, [TopicPartition(topic, partition)])
            answer = self.admin.list_consumer_group_offsets(
                [asked], require_stable=True, request_timeout=30
            )[group].result(TIMEOUT_S)
            found[:] = answer.topic_partitions or []
            error = found[0].error
            return error is None or error.code() != KafkaError.UNSTABLE_OFFSET_COMMIT

        assert wait_until(is_stable, timeout_s=TIMEOUT_S)
        assert found[0].error is None, found[0].error
        return int(found[0].offset)


def send(producer: Producer, topic: str, values: Iterable[str], partitions: int = 3) -> None:
    """Each to the next partition; returns when all of them are acknowledged."""
    failed: list[str] = []
    for at, value in enumerate(values):
        producer.produce(
            topic,
            value.encode(),
            partition=at % partitions,
            on_delivery=lambda error, _: failed.append(str(error)) if error else None,
        )
    assert producer.flush(TIMEOUT_S) == 0
    assert not failed
