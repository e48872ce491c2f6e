"""Dead letters go back to where they came from, each once, on a real cluster."""

from __future__ import annotations

import itertools
import random
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, KafkaError, Message, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)
from dead_letter_topics import delete_before, failed, values, write_letters
from failed_records import THEN_MS

from lossless.client.errors import Refused
from lossless.client.producing.producer import Producer
from lossless.client.retrying.letters import DeadLetter
from lossless.client.retrying.reading import End, LetterReader, Wanted, _found, letters_of
from lossless.client.retrying.replayed import Replayed
from lossless.client.retrying.replaying import ReplayReport, group_of, replay
from lossless.engines.local.planned import PlannedCluster
from lossless.errors import BadInput, Unavailable, Undecided
from topics import create_topic, read_all

_numbers = itertools.count()


@pytest.fixture
def servers(lossless_cluster: PlannedCluster) -> str:
    return lossless_cluster.bootstrap_servers


@pytest.fixture
def orders(servers: str) -> str:
    """A topic of two partitions, with one for its dead letters."""
    topic = f"orders-{next(_numbers)}"
    create_topic(servers, topic, partitions=2)
    create_topic(servers, f"{topic}-dlt", partitions=1)
    return topic


@pytest.fixture(scope="module")
def sender(lossless_cluster: PlannedCluster) -> Iterator[Producer]:
    settings = {"bootstrap.servers": lossless_cluster.bootstrap_servers}
    with Producer(settings, audit=False) as producer:
        yield producer


def back(servers: str, orders: str, sender: Producer | None, **how: object) -> ReplayReport:
    return replay(
        {"bootstrap.servers": servers},
        f"{orders}-dlt",
        sender=sender,
        **how,  # type: ignore[arg-type]
    )


def committed(servers: str, topic: str) -> int:
    consumer = Consumer({"bootstrap.servers": servers, "group.id": group_of(topic)})
    try:
        [position] = consumer.committed([TopicPartition(topic, 0)], timeout=10)
        return position.offset
    finally:
        consumer.close()


def remember(servers: str, topic: str, replayed: Replayed) -> None:
    """As an earlier replay would have."""
    consumer = Consumer({"bootstrap.servers": servers, "group.id": group_of(topic)})
    position = TopicPartition(topic, 0, replayed.next_offset, metadata=replayed.metadata())
    try:
        consumer.commit(offsets=[position], asynchronous=False)
    finally:
        consumer.close()


def configure(servers: str, topic: str, name: str, value: str) -> None:
    entry = ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
    admin = AdminClient({"bootstrap.servers": servers})
    admin.incremental_alter_configs([resource])[resource].result(30)


def test_a_record_comes_back_as_it_was(servers: str, orders: str, sender: Producer) -> None:
    own = [("colour", b"red"), ("empty", None), ("lossless-operation-id", b"abc-7")]
    letter = failed(orders, 42, partition=1, value=b"\x00\xff", headers=own)
    write_letters(servers, f"{orders}-dlt", [letter])
    report = back(servers, orders, sender)
    assert (report.sent, report.matched, report.unknown) == (1, 1, [])
    [record] = read_all(servers, orders)
    assert (record.partition(), record.key(), record.value()) == (1, b"k", b"\x00\xff")
    assert record.timestamp()[1] == THEN_MS
    headers = record.headers()
    assert headers is not None
    names = [name for name, _ in headers]
    assert not [name for name in names if name.startswith(("kafka_", "retry_topic"))]
    assert names.count("lossless-operation-id") == 1
    assert set(own) <= set(headers)


def test_a_record_of_time_zero_comes_back_as_near_to_it_as_librdkafka_can(
    servers: str, orders: str, sender: Producer
) -> None:
    key, value, headers = failed(orders, 42)
    zero = [
        (name, bytes(8) if name == "kafka_dlt-original-timestamp" else given)
        for name, given in headers
    ]
    write_letters(servers, f"{orders}-dlt", [(key, value, zero)])
    assert back(servers, orders, sender).sent == 1
    [record] = read_all(servers, orders)
    assert record.timestamp()[1] == 1


def test_a_second_replay_repeats_nothing_and_takes_what_came_since(
    servers: str, orders: str, sender: Producer
) -> None:
    write_letters(servers, f"{orders}-dlt", [failed(orders, number) for number in range(1200)])
    assert back(servers, orders, sender).sent == 1200
    assert back(servers, orders, sender).sent == 0
    write_letters(servers, f"{orders}-dlt", [failed(orders, 1200)])
    assert back(servers, orders, sender).sent == 1
    assert values(servers, orders) == [b"value %d" % number for number in range(1201)]
    assert committed(servers, f"{orders}-dlt") == 1201


def test_what_a_filter_left_goes_back_later_and_nothing_twice(
    servers: str, orders: str, sender: Producer
) -> None:
    errors = [ValueError("v"), TimeoutError("t"), KeyError("k")]
    letters = [failed(orders, number, error=errors[number % 3]) for number in range(9)]
    write_letters(servers, f"{orders}-dlt", letters)

    report = back(servers, orders, sender, wanted=Wanted(exception="TimeoutError"))
    assert (report.sent, report.others) == (3, 6)
    assert values(servers, orders) == [b"value 1", b"value 4", b"value 7"]
    assert committed(servers, f"{orders}-dlt") == 0

    report = back(servers, orders, sender, wanted=Wanted(exception="*Error"), limit=4)
    assert (report.sent, report.more) == (4, True)
    report = back(servers, orders, sender)
    assert (report.sent, report.before) == (2, 1)
    assert sorted(map(str, values(servers, orders))) == [str(b"value %d" % n) for n in range(9)]
    assert committed(servers, f"{orders}-dlt") == 9


KILLED = """
import os, signal, sys
from lossless.client.errors import Refused
from lossless.client.producing.producer import Producer
from lossless.client.retrying.replaying import replay

servers, topic = sys.argv[1:]
with Producer({"bootstrap.servers": servers}, audit=False) as sender:
    replay(
        {"bootstrap.servers": servers},
        topic,
        sender=sender,
        on_letter=lambda letter: letter.offset == 2 and os.kill(os.getpid(), signal.SIGKILL),
    )
"""


def test_a_replay_killed_before_it_committed_repeats_with_the_same_operation_ids(
    servers: str, orders: str, sender: Producer
) -> None:
    write_letters(servers, f"{orders}-dlt", [failed(orders, number) for number in range(3)])
    killed = subprocess.run(
        [sys.executable, "-c", KILLED, servers, f"{orders}-dlt"], timeout=60, check=False
    )
    assert killed.returncode == -signal.SIGKILL
    assert len(values(servers, orders)) == 3
    assert back(servers, orders, sender).sent == 3
    ids = [
        dict(each.headers() or [])["lossless-operation-id"] for each in read_all(servers, orders)
    ]
    assert ids == [b"id-0", b"id-1", b"id-2"] * 2
    assert back(servers, orders, sender).sent == 0


def test_two_replays_at_once_are_noticed_by_the_second_to_commit(
    servers: str, orders: str, sender: Producer
) -> None:
    write_letters(servers, f"{orders}-dlt", [failed(orders, 0)])

    def meanwhile(_: DeadLetter) -> None:
        back(servers, orders, sender)

    with pytest.raises(Undecided, match="another replay"):
        back(servers, orders, sender, on_letter=meanwhile)


def test_without_a_sender_it_only_shows_what_would_go(servers: str, orders: str) -> None:
    write_letters(servers, f"{orders}-dlt", [failed(orders, number) for number in range(5)])
    seen: list[DeadLetter] = []
    report = back(servers, orders, None, limit=3, on_letter=seen.append)
    assert (report.matched, report.sent, report.more) == (3, 0, True)
    assert [letter.original_offset for letter in seen] == [0, 1, 2]
    assert values(servers, orders) == []
    assert committed(servers, f"{orders}-dlt") < 0


def test_letters_that_cannot_go_back_are_named_and_stay_for_others(
    servers: str, orders: str, sender: Producer
) -> None:
    share = [
        ("__dlq.errors.topic", orders.encode()),
        ("__dlq.errors.partition", b"0"),
        ("__dlq.errors.offset", b"3"),
    ]
    connect = [("__connect.errors.exception.class.name", b"DataException")]
    letters = [failed(orders, 0), (b"k", b"from nowhere", connect), (None, None, share)]
    write_letters(servers, f"{orders}-dlt", [*letters, failed(orders, 1), (b"k", b"other", [])])
    report = back(servers, orders, sender)
    assert (report.sent, report.unknown) == (2, [f"{orders}-dlt-0@1", f"{orders}-dlt-0@2"])
    assert report.strangers == 1
    assert values(servers, orders) == [b"value 0", b"value 1"]
    assert back(servers, orders, sender).sent == 0


def test_the_marks_of_transactions_between_letters_are_no_letters(
    servers: str, orders: str, sender: Producer
) -> None:
    for number in range(2):
        write_letters(
            servers, f"{orders}-dlt", [failed(orders, number)], transactional_id=f"{orders}-writer"
        )
    assert [
        each.offset for each in letters_of({"bootstrap.servers": servers}, f"{orders}-dlt")
    ] == [
        0,
        2,
    ]
    assert back(servers, orders, sender).sent == 2
    assert committed(servers, f"{orders}-dlt") == 4
    assert back(servers, orders, sender).sent == 0


def test_a_partition_that_is_no_longer_there_gives_way_to_the_key(
    servers: str, orders: str, sender: Producer
) -> None:
    write_letters(servers, f"{orders}-dlt", [failed(orders, 0, partition=7)])
    assert back(servers, orders, sender).sent == 1
    assert values(servers, orders) == [b"value 0"]


def test_a_topic_that_is_no_longer_there_is_not_made_again(
    servers: str, orders: str, sender: Producer
) -> None:
    write_letters(servers, f"{orders}-dlt", [failed(orders, 0), failed("gone", 1)])
    with pytest.raises(BadInput, match=r"is from gone, and there is no such topic"):
        back(servers, orders, sender)
    assert values(servers, orders) == []
    only = Wanted(original_topic=orders)
    assert back(servers, orders, sender, wanted=only).sent == 1


def test_letters_that_retention_took_before_they_went_back_are_counted(
    servers: str, orders: str, sender: Producer
) -> None:
    write_letters(servers, f"{orders}-dlt", [failed(orders, number) for number in range(6)])
    assert back(servers, orders, sender, limit=1).sent == 1
    delete_before(servers, f"{orders}-dlt", 4)
    report = back(servers, orders, sender)
    assert (report.sent, report.deleted) == (2, 3)
    assert values(servers, orders) == [b"value 0", b"value 4", b"value 5"]


def test_letters_of_all_partitions_are_read_once_each(servers: str) -> None:
    topic = f"many-{next(_numbers)}-dlt"
    create_topic(servers, topic, partitions=3)
    for partition in range(3):
        letters = [failed("orders", partition * 700 + number) for number in range(700)]
        write_letters(servers, topic, letters, partition=partition)
    found = list(letters_of({"bootstrap.servers": servers}, topic))
    assert sorted(letter.original_offset or 0 for letter in found) == list(range(2100))
    empty = f"none-{next(_numbers)}-dlt"
    create_topic(servers, empty, partitions=1)
    assert list(letters_of({"bootstrap.servers": servers}, empty)) == []


def test_what_went_back_before_one_is_refused_is_noted(servers: str, orders: str) -> None:
    letters = [failed(orders, 0), failed(orders, 1, value=bytes(3_000)), failed(orders, 2)]
    write_letters(servers, f"{orders}-dlt", letters)
    small = {"bootstrap.servers": servers, "message.max.bytes": "2000"}
    with Producer(small, audit=False) as sender, pytest.raises(Refused):
        back(servers, orders, sender)
    assert values(servers, orders) == [b"value 0"]
    with Producer({"bootstrap.servers": servers}, audit=False) as sender:
        assert back(servers, orders, sender).sent == 2
    assert values(servers, orders) == [b"value 0", bytes(3_000), b"value 2"]


def test_a_letter_that_the_broker_refuses_stays_for_the_next_replay(
    servers: str, sender: Producer
) -> None:
    topic = f"orders-{next(_numbers)}"
    create_topic(servers, topic, partitions=2, max_message_bytes="2000")
    create_topic(servers, f"{topic}-dlt", partitions=1)
    # In a partition of its own: a batch is refused as a whole.
    large = failed(topic, 1, partition=1, value=bytes(3_000))
    write_letters(servers, f"{topic}-dlt", [failed(topic, 0), large, failed(topic, 2)])
    with pytest.raises(Refused, match="too large"):
        back(servers, topic, sender)
    assert values(servers, topic) == [b"value 0", b"value 2"]
    assert committed(servers, f"{topic}-dlt") == 1
    configure(servers, topic, "max.message.bytes", "10000")
    report = back(servers, topic, sender)
    assert (report.sent, report.before) == (1, 1)
    assert values(servers, topic) == [b"value 0", b"value 2", bytes(3_000)]


def test_what_could_not_be_remembered_is_not_sent(
    servers: str, orders: str, sender: Producer
) -> None:
    letters = [failed(orders, n, error=OSError() if n % 2 else ValueError()) for n in range(10)]
    write_letters(servers, f"{orders}-dlt", letters)
    chance = random.Random(1)
    full = Replayed()
    at = 1_000
    while True:
        at += chance.randint(2, 200)
        fuller = full.copy()
        fuller.add(at)
        if not fuller.fits:
            break
        full = fuller
    remember(servers, f"{orders}-dlt", full)
    with pytest.raises(BadInput, match="too scattered to be remembered; 0 letters were sent"):
        back(servers, orders, sender, wanted=Wanted(exception="OSError"))
    assert values(servers, orders) == []
    # More at once makes fewer gaps.
    assert back(servers, orders, sender).sent == 10
    assert committed(servers, f"{orders}-dlt") == 10


def test_a_topic_that_nobody_knows_of_is_not_taken_for_an_empty_one(servers: str) -> None:
    """A broker may not have heard of it yet."""
    settings = {"bootstrap.servers": servers}
    with pytest.raises(Unavailable, match="UNKNOWN_TOPIC_OR_PART"):
        replay(settings, "unheard-of-dlt", sender=None)
    with pytest.raises(Unavailable, match="UNKNOWN_TOPIC_OR_PART"):
        list(letters_of(settings, "unheard-of-dlt"))


def test_an_end_that_comes_too_soon_is_none() -> None:
    """Claim R19: a new leader may not know yet how far all have come."""
    left = {0: 5}
    eof = KafkaError(KafkaError._PARTITION_EOF)
    assert _found(Message(topic="orders-dlt", partition=0, offset=3, error=eof), left) == []
    assert left == {0: 5}
    found = _found(Message(topic="orders-dlt", partition=0, offset=5, error=eof), left)
    assert (found, left) == ([End(0, 5)], {})


def test_letters_that_come_while_others_are_read_are_left_to_the_next_time(servers: str) -> None:
    topic = f"growing-{next(_numbers)}-dlt"
    create_topic(servers, topic, partitions=2)
    write_letters(servers, topic, [failed("orders", 0)])
    for number in range(1, 21):  # in batches of their own, so that they can be read one by one
        write_letters(servers, topic, [failed("orders", number, value=bytes(2_000))], partition=1)
    # So that what comes later is read before the other partition ends.
    settings = {
        "bootstrap.servers": servers,
        "fetch.message.max.bytes": 2_000,
        "queued.min.messages": 1,
        "queued.max.messages.kbytes": 1,
        "fetch.queue.backoff.ms": 20,  # a second if nothing is said
    }
    found: list[DeadLetter | End] = []
    with LetterReader(settings, topic, group="reading") as reader:
        for number, chunk in enumerate(reader.read({0: 0, 1: 0})):
            found += chunk
            if number == 0:
                write_letters(servers, topic, [failed("orders", 1_000 + n) for n in range(10)])
    read = [letter.original_offset or 0 for letter in found if isinstance(letter, DeadLetter)]
    assert sorted(read) == list(range(21))
    ends = {(end.partition, end.next_offset) for end in found if isinstance(end, End)}
    assert ends == {(0, 1), (1, 20)}
