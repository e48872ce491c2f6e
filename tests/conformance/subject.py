"""The Kafka that is tested: one of two engines, and what every test asks of it."""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from confluent_kafka import (
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, NewTopic

from lossless.core.error_codes import Error
from lossless.engines.local.planned import PlannedCluster
from lossless.engines.waiting import wait_until
from lossless.log.batch import Batch, Record, build, parse_all
from one_request import ask, error_of
from topics import create_new

TIMEOUT_S = 60.0
PRODUCE, FETCH, LIST_OFFSETS, METADATA = 0, 1, 2, 3

_QUICK: Mapping[str, Any] = {
    "log_level": 0,
    "retry.backoff.ms": 20,
    "reconnect.backoff.ms": 20,
    "reconnect.backoff.max.ms": 100,
}


class Subject:
    def __init__(self, engine: str, cluster: PlannedCluster) -> None:
        self.engine = engine
        self.cluster = cluster
        self.servers = cluster.bootstrap_servers
        self.settings: dict[str, Any] = {"bootstrap.servers": self.servers, **_QUICK}
        self.admin = AdminClient(self.settings)
        self._numbers = itertools.count(1)

    # Topics

    def name(self) -> str:
        """One that nothing in this cluster has yet."""
        return f"n{next(self._numbers)}"

    def topic(self, partitions: int = 1, replicas: int = 3, **config: str) -> str:
        name = self.name()
        settings = {key.replace("_", "."): value for key, value in config.items()}
        new = NewTopic(name, partitions, replication_factor=replicas, config=settings)
        create_new(self.admin, new)
        self.knows(name, partitions)
        return name

    def knows(self, topic: str, partitions: int) -> None:
        """Waits until every broker tells its clients about all partitions of the topic, and those
        who lead them serve them: Apache Kafka tells of a leader before it leads."""
        for address in self.addresses():
            assert wait_until(
                lambda at=address: len(led_partitions(at, topic)) == partitions, timeout_s=TIMEOUT_S
            ), f"{address} does not know {topic}"
        for partition, leader in led_partitions(self.addresses()[0], topic).items():
            asked = (self.address(leader), topic, partition, 0)
            assert wait_until(
                lambda asked=asked: error_of(fetched(*asked)) is Error.NONE, timeout_s=TIMEOUT_S
            ), f"broker {leader} does not serve {topic}-{partition}"

    def topic_id(self, topic: str) -> uuid.UUID:
        described = self.admin.describe_topics(TopicCollection([topic]))[topic].result(TIMEOUT_S)
        name = described.topic_id
        high = name.get_most_significant_bits() % (1 << 64)
        low = name.get_least_significant_bits() % (1 << 64)
        return uuid.UUID(int=high << 64 | low)

    # Brokers

    def addresses(self) -> list[str]:
        return [self.cluster.plan.address(node) for node in self.cluster.plan.brokers]

    def address(self, broker: int) -> str:
        return self.cluster.plan.address(self.cluster.node(broker))

    def leader(self, topic: str, partition: int = 0) -> str:
        """The address of the partition's leader."""
        return self.address(led_partitions(self.addresses()[0], topic)[partition])

    def follower(self, topic: str, partition: int = 0) -> str:
        leader = self.leader(topic, partition)
        return next(address for address in self.addresses() if address != leader)

    # Records

    def send(self, topic: str, *records: Any, **settings: Any) -> list[Message]:
        """Values, or all that `Producer.produce` takes of a record. What was acknowledged, in the
        order in which it was sent; KafkaException for the first that was not."""
        # One of its own: a producer that already runs takes longer to hear of a new topic.
        producer = self.producer(**settings)
        delivered: dict[int, Message] = {}
        errors: list[KafkaError] = []
        for number, record in enumerate(records):

            def done(error: KafkaError | None, message: Message, number: int = number) -> None:
                if error is not None:
                    errors.append(error)
                else:
                    delivered[number] = message

            fields = dict(record) if isinstance(record, Mapping) else {"value": record}
            producer.produce(topic, on_delivery=done, **fields)
        assert producer.flush(TIMEOUT_S) == 0, f"{topic} did not acknowledge in time"
        if errors:
            raise KafkaException(errors[0])
        return [delivered[number] for number in range(len(records))]

    def read(
        self, topic: str, partitions: int = 1, start: int = 0, **settings: Any
    ) -> list[Message]:
        """Everything there is, from one offset of every partition."""
        with self.consumer(enable_partition_eof=True, **settings) as consumer:
            consumer.assign([TopicPartition(topic, number, start) for number in range(partitions)])
            return read_to_the_end(consumer, partitions)

    def values(self, topic: str, partitions: int = 1, **settings: Any) -> list[str]:
        return [text(message) for message in self.read(topic, partitions, **settings)]

    def stored(self, topic: str, partition: int = 0) -> list[Batch]:
        """The batches as the leader has them."""
        answer = self.fetch(topic, partition, 0)
        return parse_all(answer.records or b"")

    def fetch(self, topic: str, partition: int, offset: int, **fields: Any) -> Any:
        """What the leader says of one partition."""
        return fetched(self.leader(topic, partition), topic, partition, offset, **fields)

    # Clients

    def producer(self, **settings: Any) -> Producer:
        named = {name.replace("_", "."): value for name, value in settings.items()}
        return Producer({**self.settings, "linger.ms": 0, **named})

    @contextmanager
    def consumer(self, **settings: Any) -> Iterator[Consumer]:
        named = {name.replace("_", "."): value for name, value in settings.items()}
        named.setdefault("group.id", self.name())
        consumer = Consumer(
            {
                **self.settings,
                "enable.auto.commit": False,
                "fetch.wait.max.ms": 50,
                "topic.metadata.refresh.interval.ms": 500,
                **named,
            }
        )
        try:
            yield consumer
        finally:
            consumer.close()


def text(message: Message) -> str:
    value = message.value()
    assert value is not None
    return value.decode()


def read_to_the_end(consumer: Consumer, partitions: int = 1) -> list[Message]:
    """Until the ends of so many partitions were met. KafkaException for any error but that."""
    messages, ends = [], 0
    while ends < partitions:
        message = consumer.poll(TIMEOUT_S)
        assert message is not None, "nothing came"
        error = message.error()
        if error is None:
            messages.append(message)
        elif error.code() == KafkaError._PARTITION_EOF:
            ends += 1
        else:
            raise KafkaException(error)
    return messages


def take(consumer: Consumer, count: int) -> list[Message]:
    """The next so many messages."""
    messages: list[Message] = []
    while len(messages) < count:
        message = consumer.poll(TIMEOUT_S)
        assert message is not None, f"{len(messages)} of {count} came"
        if message.error() is not None:
            raise KafkaException(message.error())
        messages.append(message)
    return messages


def led_partitions(address: str, topic: str) -> dict[int, int]:
    """The leaders of those partitions that have one, as one broker tells."""
    answer = ask(
        address, METADATA, 12, topics=[{"name": topic}], allow_auto_topic_creation=False
    ).topics[0]
    return {
        one.partition_index: int(one.leader_id) for one in answer.partitions if one.leader_id >= 0
    }


def fetched(address: str, topic: str, partition: int, offset: int, **fields: Any) -> Any:
    """What a broker says of one partition to somebody who fetches. Settings of the request and of
    the partition may be given by their names."""
    asked = {
        "partition": partition,
        "fetch_offset": offset,
        "partition_max_bytes": 1 << 24,
        "log_start_offset": -1,
        "current_leader_epoch": -1,
    }
    whole = {"max_wait": 0, "min_bytes": 0, "max_bytes": 1 << 25, "replica_id": -1}
    whole |= {"session_epoch": -1}
    for name, value in fields.items():
        (asked if name in asked else whole)[name] = value
    topics = [{"topic": topic, "partitions": [asked]}]
    answer = ask(address, FETCH, 12, topics=topics, **whole)
    return answer.responses[0].partitions[0]


def produced(
    address: str,
    topic: str | uuid.UUID,
    data: bytes,
    *,
    partition: int = 0,
    acks: int = -1,
    version: int = 9,
) -> Any:
    """What a broker says of one batch."""
    name = {"topic_id" if isinstance(topic, uuid.UUID) else "name": topic}
    topics = [{**name, "partition_data": [{"index": partition, "records": data}]}]
    answer = ask(address, PRODUCE, version, acks=acks, timeout=10_000, topic_data=topics)
    return answer.responses[0].partition_responses[0]


def new_producer_id(address: str) -> int:
    """For an idempotent producer. A broker that has none left fetches some, and is asked again."""
    given: list[int] = []

    def is_given() -> bool:
        answer = ask(address, 22, 4, transactional_id=None, producer_id=-1, producer_epoch=-1)
        given.append(answer.producer_id)
        return error_of(answer) is Error.NONE

    assert wait_until(is_given, timeout_s=TIMEOUT_S)
    return given[-1]


def batch(*values: str, **fields: Any) -> bytes:
    """A batch with these records, as a producer would send it."""
    records = [Record(number, 0, None, value.encode()) for number, value in enumerate(values)]
    return build(records, **fields).data


def error_code(call: Callable[[], Any]) -> Error:
    """What a client makes of a broker's refusal; NONE if it was none."""
    try:
        call()
    except KafkaException as refused:
        return Error(refused.args[0].code())
    return Error.NONE


def poll_until(
    consumers: Iterable[Consumer], condition: Callable[[], bool], *, timeout_s: float = TIMEOUT_S
) -> list[Message]:
    """Polls all of them in turn, as an application would; what came meanwhile."""
    came: list[Message] = []
    members: Sequence[Consumer] = list(consumers)

    def turn() -> bool:
        for consumer in members:
            message = consumer.poll(0.02)
            if message is not None and message.error() is None:
                came.append(message)
        return condition()

    assert wait_until(turn, timeout_s=timeout_s, poll_s=0), "it did not happen in time"
    return came
