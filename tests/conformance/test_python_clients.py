"""Clients that are written in Python: kafka-python and aiokafka."""

from __future__ import annotations

import asyncio
import itertools
import time
import warnings
from collections.abc import Awaitable, Callable
from contextlib import ExitStack, closing
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, ConsumerRecord
from aiokafka import TopicPartition as AsyncPartition
from subject import TIMEOUT_S, Subject

from lossless.engines.waiting import wait_until
from lossless.log.compression import Compression

with warnings.catch_warnings():
    # It reads its schemas in a way that Python 3.11 has deprecated.
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka import KafkaConsumer, KafkaProducer, TopicPartition
    from kafka import codec as codec_module  # some codecs need libraries of their own
    from kafka.admin import KafkaAdminClient, NewTopic
    from kafka.errors import (
        MessageSizeTooLargeError,
        RebalanceInProgressError,
        UnknownTopicOrPartitionError,
    )

pytestmark = pytest.mark.filterwarnings("ignore:.*is deprecated:DeprecationWarning")

CODECS = ("gzip", "snappy", "lz4", "zstd")
FIRST_MS = 1_700_000_000_000
HEADERS = [("a", b"1"), ("a", b""), ("b", b"\xff")]


# kafka-python. Its clients have threads, so each is closed whatever becomes of its test.


def servers(kafka: Subject) -> dict[str, Any]:
    return {"bootstrap_servers": kafka.servers.split(",")}


def consumer_of(kafka: Subject, **settings: Any) -> KafkaConsumer:
    quick = {"auto_offset_reset": "earliest", "fetch_max_wait_ms": 50, "metadata_max_age_ms": 500}
    return KafkaConsumer(**servers(kafka), enable_auto_commit=False, **{**quick, **settings})


def member_of(kafka: Subject, topic: str, **settings: Any) -> KafkaConsumer:
    """Subscribed, and knows the topic before it joins: kafka-python's leader of a group assigns
    nothing of a topic it has not heard of yet, and when it hears in that moment, never does."""
    member = consumer_of(kafka, **settings)
    member.partitions_for_topic(topic)
    member.subscribe([topic])
    return member


def poll(consumer: KafkaConsumer, count: int) -> list[Any]:
    records: list[Any] = []

    def is_enough() -> bool:
        for some in consumer.poll(timeout_ms=200).values():
            records.extend(some)
        return len(records) >= count

    assert wait_until(is_enough, timeout_s=TIMEOUT_S, poll_s=0), f"{len(records)} of {count} came"
    return records


def commit(consumer: KafkaConsumer) -> None:
    """Whoever is asked to join anew in that moment is refused, and told to poll and try again."""

    def is_committed() -> bool:
        try:
            consumer.commit()
        except RebalanceInProgressError:
            consumer.poll(timeout_ms=2_000)  # in which it has to join
            return False
        return True

    assert wait_until(is_committed, timeout_s=TIMEOUT_S, poll_s=0), "no offset could be committed"


def test_kafka_python_reads_back_what_it_sends_in_every_codec_that_it_has(kafka: Subject) -> None:
    codecs = [None, *(codec for codec in CODECS if getattr(codec_module, f"has_{codec}")())]
    assert "gzip" in codecs
    topic = kafka.topic(len(codecs))
    for partition, codec in enumerate(codecs):
        settings = {"compression_type": codec, "linger_ms": 50}
        with closing(KafkaProducer(**servers(kafka), **settings)) as producer:
            sent = [
                producer.send(topic, b"v" * 500, b"k", HEADERS, partition, FIRST_MS + number)
                for number in range(3)
            ]
            assert [future.get(TIMEOUT_S).offset for future in sent] == [0, 1, 2]
        (stored, *_) = kafka.stored(topic, partition)
        assert stored.compression is Compression[(codec or "none").upper()]
    with closing(consumer_of(kafka)) as consumer:
        consumer.assign([TopicPartition(topic, number) for number in range(len(codecs))])
        records = poll(consumer, 3 * len(codecs))
    assert {(one.key, one.value, tuple(one.headers)) for one in records} == {
        (b"k", b"v" * 500, tuple(HEADERS))
    }
    assert {one.timestamp for one in records} == {FIRST_MS + number for number in range(3)}


def test_kafka_pythons_consumers_share_a_group_and_go_on_where_it_was(kafka: Subject) -> None:
    topic, group = kafka.topic(2), kafka.name()
    kafka.send(topic, *({"value": str(number), "partition": number % 2} for number in range(6)))
    settings = {"group_id": group, "heartbeat_interval_ms": 200, "session_timeout_ms": 6000}
    with ExitStack() as both:
        first = both.enter_context(closing(member_of(kafka, topic, **settings)))
        assert sorted(one.value for one in poll(first, 6)) == [b"0", b"1", b"2", b"3", b"4", b"5"]
        commit(first)
        second = both.enter_context(closing(member_of(kafka, topic, **settings)))

        def are_both_assigned() -> bool:
            for consumer in (first, second):
                consumer.poll(timeout_ms=100)
            return len(first.assignment()) == len(second.assignment()) == 1

        assert wait_until(are_both_assigned, timeout_s=TIMEOUT_S, poll_s=0)
        partition = TopicPartition(topic, 0)
        assert second.committed(partition) == 3
        assert second.beginning_offsets([partition]) == {partition: 0}
        assert second.end_offsets([partition]) == {partition: 3}
        found = second.offsets_for_times({partition: 0})[partition]
        assert found.offset == 0
        later_ms = int(time.time() * 1000) + 100_000
        assert second.offsets_for_times({partition: later_ms}) == {partition: None}
    with closing(member_of(kafka, topic, **settings)) as third:
        kafka.send(topic, {"value": "new", "partition": 1})
        assert [one.value for one in poll(third, 1)] == [b"new"]


def test_kafka_pythons_producer_is_refused_what_is_too_large(kafka: Subject) -> None:
    topic = kafka.topic(max_message_bytes="1000")
    with closing(KafkaProducer(**servers(kafka))) as producer:
        assert producer.send(topic, bytes(500)).get(TIMEOUT_S).offset == 0
        with pytest.raises(MessageSizeTooLargeError):
            producer.send(topic, bytes(2000)).get(TIMEOUT_S)


def test_kafka_pythons_administrator_makes_and_describes_and_deletes(kafka: Subject) -> None:
    name, group = kafka.name(), kafka.name()
    with closing(KafkaAdminClient(**servers(kafka))) as admin:
        admin.create_topics([NewTopic(name, 2, 3)])
        kafka.knows(name, 2)
        assert name in admin.list_topics()
        (described,) = admin.describe_topics([name])
        assert {len(one["replica_nodes"]) for one in described["partitions"]} == {3}
        partition = TopicPartition(name, 0)
        kafka.send(name, {"value": "a", "partition": 0})
        with closing(consumer_of(kafka, group_id=group)) as consumer:
            consumer.assign([partition])
            poll(consumer, 1)
            consumer.commit()
        assert group in {one["group_id"] for one in admin.list_groups()}
        offsets = admin.list_group_offsets([group])[group]
        assert {one: offset.offset for one, offset in offsets.items()} == {partition: 1}
        admin.delete_groups([group])
        assert group not in {one["group_id"] for one in admin.list_groups()}
        admin.delete_topics([name])
        with pytest.raises(UnknownTopicOrPartitionError):
            admin.delete_topics([kafka.name()])


# aiokafka


def run(work: Callable[[], Awaitable[None]]) -> None:
    async def limited() -> None:
        await asyncio.wait_for(work(), TIMEOUT_S * 2)

    asyncio.run(limited())


async def many(consumer: AIOKafkaConsumer, count: int) -> list[ConsumerRecord]:
    records: list[ConsumerRecord] = []
    while len(records) < count:
        for some in (await consumer.getmany(timeout_ms=200)).values():
            records.extend(some)
    return records


def test_aiokafka_reads_back_what_it_sends_in_every_codec(kafka: Subject) -> None:
    codecs = (None, *CODECS)
    topic = kafka.topic(2 * len(codecs))
    partitions = range(2 * len(codecs))

    async def work() -> None:
        # It is not idempotent by default, and writes a sequence all the same.
        for partition, (codec, is_idempotent) in enumerate(
            itertools.product(codecs, (True, False))
        ):
            async with AIOKafkaProducer(
                bootstrap_servers=kafka.servers,
                compression_type=codec,
                enable_idempotence=is_idempotent,
            ) as producer:
                sent = await producer.send_and_wait(
                    topic, b"v" * 500, b"k", partition, timestamp_ms=5, headers=HEADERS
                )
                assert sent.offset == 0
        consumer = AIOKafkaConsumer(bootstrap_servers=kafka.servers, fetch_max_wait_ms=50)
        await consumer.start()
        try:
            consumer.assign([AsyncPartition(topic, number) for number in partitions])
            await consumer.seek_to_beginning()
            records = await many(consumer, len(partitions))
        finally:
            await consumer.stop()
        assert {(one.key, one.value, one.timestamp) for one in records} == {(b"k", b"v" * 500, 5)}
        assert {tuple(one.headers) for one in records} == {tuple(HEADERS)}

    run(work)
    for partition in partitions:
        (stored,) = kafka.stored(topic, partition)
        assert stored.compression is Compression[(codecs[partition // 2] or "none").upper()]


def test_aiokafkas_consumers_share_a_group_and_go_on_where_it_was(kafka: Subject) -> None:
    topic, group = kafka.topic(2), kafka.name()
    kafka.send(topic, *({"value": str(number), "partition": number % 2} for number in range(6)))

    def member() -> AIOKafkaConsumer:
        return AIOKafkaConsumer(
            topic,
            bootstrap_servers=kafka.servers,
            group_id=group,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            fetch_max_wait_ms=50,
            heartbeat_interval_ms=200,
        )

    async def work() -> None:
        first, second = member(), member()
        await first.start()
        assert sorted(one.value for one in await many(first, 6)) == [
            str(number).encode() for number in range(6)
        ]
        await first.commit()
        await second.start()
        while not len(first.assignment()) == len(second.assignment()) == 1:
            await asyncio.gather(first.getmany(timeout_ms=50), second.getmany(timeout_ms=50))
        assert await second.committed(AsyncPartition(topic, 0)) == 3
        await first.stop()
        while len(second.assignment()) < 2:
            await second.getmany(timeout_ms=50)
        await asyncio.to_thread(kafka.send, topic, {"value": "new", "partition": 1})
        assert [one.value for one in await many(second, 1)] == [b"new"]
        await second.stop()

    run(work)
