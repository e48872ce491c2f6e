"""Topics with records in them, for tests: made, filled and acknowledged, and read again."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import closing

from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic

from lossless.engines.waiting import wait_until


def create_new(admin: AdminClient, new: NewTopic) -> None:
    """One whose name nobody else has. It may exist already: when a controller resigns after it has
    written it, its successor is asked once more (so it is in Apache Kafka)."""
    try:
        admin.create_topics([new])[new.topic].result()  # the client itself gives up in time
    except KafkaException as error:
        if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
            raise


def create_topic(
    bootstrap_servers: str, topic: str, *, partitions: int = 2, replicas: int = 3, **config: str
) -> None:
    settings = {name.replace("_", "."): value for name, value in config.items()}
    new = NewTopic(topic, partitions, replication_factor=replicas, config=settings)
    try:
        _create(bootstrap_servers, new)
    except KafkaException as error:
        # A client that takes a broker for the controller which is gone waits for that one, for a
        # minute; another client asks anew. Nothing was sent by then.
        if "waiting for controller" not in error.args[0].str():
            raise
        _create(bootstrap_servers, new)


def _create(bootstrap_servers: str, new: NewTopic) -> None:
    create_new(AdminClient({"bootstrap.servers": bootstrap_servers}), new)


def grow_topic(bootstrap_servers: str, topic: str, partitions: int) -> None:
    """Returns when every broker knows of them: a producer that asks one that does not fails at
    once (librdkafka's "unknown partition")."""
    admin = AdminClient({"bootstrap.servers": bootstrap_servers})
    for future in admin.create_partitions([NewPartitions(topic, partitions)]).values():
        future.result()
    wait_until_known(bootstrap_servers, topic, partitions)


def wait_until_known(bootstrap_servers: str, topic: str, partitions: int) -> None:
    """To every broker: a controller answers before they know."""
    for address in bootstrap_servers.split(","):

        def is_known(address: str = address) -> bool:
            told = AdminClient({"bootstrap.servers": address}).list_topics(topic, timeout=10)
            return len(told.topics[topic].partitions) == partitions

        assert wait_until(is_known, timeout_s=30)


def produce(
    bootstrap_servers: str, topic: str, records: Iterable[tuple[int, bytes | None, bytes | None]]
) -> None:
    """Each record is (partition, key, value); returns when all of them are acknowledged."""
    producer = Producer({"bootstrap.servers": bootstrap_servers, "enable.idempotence": "true"})
    failed: list[str] = []
    for partition, key, value in records:
        producer.produce(
            topic,
            key=key,
            value=value,
            partition=partition,
            on_delivery=lambda error, _: failed.append(str(error)) if error else None,
        )
    producer.flush()
    assert not failed


def _partitions(consumer: Consumer, topic: str) -> list[int]:
    """As soon as the broker that is asked knows of the topic: it may hear of it last."""
    found: list[int] = []

    def is_known() -> bool:
        told = consumer.list_topics(topic, timeout=30).topics[topic]
        found[:] = sorted(told.partitions)
        return told.error is None

    assert wait_until(is_known, timeout_s=30), f"nobody knows of {topic}"
    return found


def read_all(
    bootstrap_servers: str,
    topic: str,
    *,
    partitions: Iterable[int] | None = None,
    isolation: str = "read_committed",
) -> list[Message]:
    """Every record, by partition and offset. Where a partition ends is asked of its leader first:
    one just elected may tell those who fetch of an end that comes too soon (claim R19)."""
    found: list[Message] = []
    settings = {
        "bootstrap.servers": bootstrap_servers,
        "group.id": "reads-all",
        "isolation.level": isolation,
        "auto.offset.reset": "error",
        "enable.auto.commit": False,
        "enable.partition.eof": True,
        "log_level": 0,
    }
    with closing(Consumer(settings)) as consumer:
        if partitions is None:
            partitions = _partitions(consumer, topic)
        places = [TopicPartition(topic, number, OFFSET_BEGINNING) for number in partitions]
        unread = {
            place.partition: consumer.get_watermark_offsets(place, timeout=30)[1]
            for place in places
        }
        consumer.assign(places)
        while unread:
            message = consumer.poll(30)
            assert message is not None, f"nothing came, and {unread} were not reached"
            error, partition = message.error(), message.partition()
            if error is None:
                found.append(message)
            elif error.code() != KafkaError._PARTITION_EOF:
                assert error.retriable(), error
            elif (message.offset() or 0) >= unread.get(partition or 0, 0):
                unread.pop(partition or 0, None)
    return sorted(found, key=lambda each: (each.partition() or 0, each.offset() or 0))
