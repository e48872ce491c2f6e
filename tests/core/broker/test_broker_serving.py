"""A broker and its clients: who waits, for what, and until when."""

from __future__ import annotations

from typing import Any

import pytest
from brokers import (
    NOWHERE,
    SESSION_MS,
    consume,
    create,
    error_of,
    produce,
    read,
    state,
)
from instant_host import Host
from machines import PARTITION, records, values

from lossless.core.groups.messages import Heartbeat
from lossless.core.messages import (
    CONSUMER,
    INTERNAL_TOPICS,
    NO_LEADER,
    UNKNOWN_EPOCH,
    AlterConfig,
    BrokerHeartbeat,
    DeleteRecords,
    DeleteRecordsAnswer,
    DeleteTopic,
    Error,
    Fetch,
    FetchPartition,
    ListOffsets,
    ListOffsetsAnswer,
    Metadata,
    OffsetForLeaderEpoch,
    OffsetKind,
    PartitionLeader,
    Produce,
    ProduceAnswer,
    Produced,
    TopicPartition,
    WriteTxnMarker,
)
from lossless.core.metadata import MIN_ISR
from lossless.core.replica import ALL
from lossless.log.leader_epochs import EpochEnd

# Producing


@pytest.mark.parametrize("acks", [1, ALL])
def test_a_producer_is_told_where_its_records_are(three: Host, acks: int) -> None:
    produce(three, b"a", b"b")
    assert produce(three, b"c", acks=acks) == ProduceAnswer(
        (Produced(PARTITION, Error.NONE, 2, 0),)
    )


def test_a_producer_that_waits_for_nobody_is_told_nothing(three: Host) -> None:
    """P1: not even that the records are lost."""
    produce(three, b"a", acks=0)
    produce(three, b"b", acks=0, to=2)
    three.wait(1_000)
    assert three.answers == {}
    assert values(three.replica(1, PARTITION).log) == [b"a"]


def test_a_producer_that_waits_for_all_waits_until_who_does_not_fetch_has_left(
    three: Host,
) -> None:
    """R8, R17."""
    three.kill(3)
    token = produce(three, b"a")
    assert error_of(produce(three, b"b", acks=1)) is Error.NONE
    three.wait(SESSION_MS - 3_000)
    assert three.answers == {}
    three.wait(3_000)
    assert error_of(three.answers[token]) is Error.NONE
    assert state(three).isr == (1, 2)


def test_a_producer_is_told_when_nobody_has_acknowledged_in_time(three: Host) -> None:
    three.kill(3)
    token = produce(three, b"a", timeout_ms=100)
    three.wait(99)
    assert three.answers == {}
    three.wait(1)
    assert error_of(three.answers[token]) is Error.REQUEST_TIMED_OUT
    three.wait(SESSION_MS)
    assert read(consume(three, 0)) == [b"a"]  # and yet it was written


def test_a_producer_is_told_when_too_few_are_in_sync(three: Host) -> None:
    """B4: before the append, and after it."""
    three.ask(100, AlterConfig("", MIN_ISR, "2"))
    three.wait(1_000)
    three.kill(3)
    three.wait(SESSION_MS)
    three.kill(2)
    token = produce(three, b"a", timeout_ms=SESSION_MS)
    three.wait(SESSION_MS)
    assert error_of(three.answers[token]) is Error.REQUEST_TIMED_OUT
    assert error_of(produce(three, b"b")) is Error.NOT_ENOUGH_REPLICAS
    assert error_of(produce(three, b"c", acks=1)) is Error.NONE
    assert read(consume(three, 0, wait_ms_max=0)) == []  # readable, and nothing is committed
    three.start(2)
    three.wait(1_000)
    assert error_of(produce(three, b"d")) is Error.NONE
    assert read(consume(three, 0)) == [b"a", b"c", b"d"]


def test_what_is_sent_again_and_committed_does_not_wait_for_what_came_in_between(
    three: Host,
) -> None:
    sent_again = records(b"a", producer_id=7, epoch=0, sequence=0)
    in_between = records(b"b", producer_id=7, epoch=0, sequence=1)
    assert error_of(three.ask(1, Produce(ALL, 60_000, ((PARTITION, sent_again),)))) is Error.NONE
    three.kill(3)
    between = three.ask(1, Produce(ALL, 60_000, ((PARTITION, in_between),)))
    answer = three.ask(1, Produce(ALL, 60_000, ((PARTITION, sent_again),)))
    assert answer == ProduceAnswer((Produced(PARTITION, Error.NONE, 0, 0),))
    assert between not in three.answers
    three.wait(SESSION_MS)
    assert error_of(three.answers[between]) is Error.NONE
    assert read(consume(three, 0)) == [b"a", b"b"]


def test_a_producer_that_waits_is_told_that_another_leads_now(three: Host) -> None:
    three.cut_off = {3}
    token = produce(three, b"a")
    assert three.answers == {}
    beat = BrokerHeartbeat(1, three.broker(1).broker_epoch, 0, want_shut_down=True)
    assert three.ask(100, beat).should_shut_down
    assert error_of(three.answers[token]) is Error.NOT_LEADER_OR_FOLLOWER


def test_a_producer_that_waits_is_told_that_the_topic_is_gone(three: Host) -> None:
    three.kill(3)
    token = produce(three, b"a")
    three.ask(100, DeleteTopic("orders"))
    assert error_of(three.answers[token]) is Error.UNKNOWN_TOPIC_OR_PARTITION
    assert error_of(produce(three, b"b")) is Error.UNKNOWN_TOPIC_OR_PARTITION


def test_who_wants_no_answer_hears_of_a_refusal_only(two: Host) -> None:
    """Its host closes the connection, and the producer looks for the leader."""
    produce(two, b"a", to=1, acks=0)
    assert two.answers == {}
    assert error_of(produce(two, b"a", to=2, acks=0)) is Error.NOT_LEADER_OR_FOLLOWER


@pytest.mark.parametrize("topic", INTERNAL_TOPICS)
def test_nobody_but_a_coordinator_writes_to_an_internal_topic(alone: Host, topic: str) -> None:
    create(alone, (1,), topic=topic)
    partition = TopicPartition(topic, 0)
    answer = alone.ask(1, Produce(1, 1_000, ((partition, records(b"nonsense")),)))
    assert error_of(answer) is Error.INVALID_TOPIC_EXCEPTION
    assert alone.broker(1).replicas[partition].log.log_end_offset == 0


def test_one_answer_tells_of_every_partition(three: Host) -> None:
    create(three, (1, 2), (1, 3), (2,), topic="payments")
    three.kill(3)
    partitions = [TopicPartition("payments", n) for n in range(3)]
    asked = [*partitions, NOWHERE]
    token = three.ask(1, Produce(ALL, 60_000, tuple((p, records(b"a")) for p in asked)))
    assert three.answers == {}  # 3 is in sync
    three.wait(SESSION_MS)
    found = {one.partition: one.error for one in three.answers[token].partitions}
    assert found == {
        partitions[0]: Error.NONE,
        partitions[1]: Error.NONE,
        partitions[2]: Error.NOT_LEADER_OR_FOLLOWER,
        NOWHERE: Error.UNKNOWN_TOPIC_OR_PARTITION,
    }


# Consuming


def test_a_consumer_that_is_behind_is_answered_at_once(two: Host) -> None:
    produce(two, b"a", b"b")
    assert read(consume(two, 0)) == [b"a", b"b"]


def test_a_consumer_at_the_end_waits_for_what_is_committed_next(two: Host) -> None:
    token = consume(two, 0)
    assert two.answers == {}
    produce(two, b"a")
    assert read(two.answers[token]) == [b"a"]


def test_a_consumer_at_the_end_is_answered_with_nothing_when_its_time_is_up(two: Host) -> None:
    token = consume(two, 0, wait_ms_max=500)
    two.wait(499)
    assert two.answers == {}
    two.wait(1)
    assert read(two.answers[token]) == []
    assert read(consume(two, 0, wait_ms_max=0)) == []


def test_what_is_not_committed_is_no_news_for_a_consumer(two: Host) -> None:
    """R4."""
    token = consume(two, 0, wait_ms_max=60_000)
    two.kill(2)
    produce(two, b"a", acks=1)
    two.wait(1_000)
    assert two.answers == {}
    two.wait(SESSION_MS)
    assert read(two.answers[token]) == [b"a"]


def test_a_consumer_that_wants_more_bytes_than_there_are_waits(two: Host) -> None:
    produce(two, b"a")
    token = consume(two, 0, bytes_min=1_000)
    two.wait(499)
    assert two.answers == {}
    two.wait(1)
    assert read(two.answers[token]) == [b"a"]


def test_a_consumer_that_wants_more_bytes_goes_on_waiting_when_there_are_some_more(
    two: Host,
) -> None:
    token = consume(two, 0, bytes_min=1_000)
    produce(two, b"a")
    assert two.answers == {}
    produce(two, b"b" * 1_000)
    assert len(read(two.answers[token])) == 2


def test_a_consumer_of_committed_transactions_waits_for_the_marker(alone: Host) -> None:
    """C14."""
    token = consume(alone, 0, read_committed=True, wait_ms_max=60_000)
    sent = records(b"a", producer_id=7, epoch=0, sequence=0, transactional=True)
    alone.ask(1, Produce(ALL, 1_000, ((PARTITION, sent),)))
    assert alone.answers == {}
    assert alone.ask(1, WriteTxnMarker(PARTITION, 7, 0, 0, True)).error is Error.NONE
    assert len(alone.answers[token].partitions[0].data) > len(sent)


def test_a_consumer_is_told_at_once_what_is_wrong(two: Host) -> None:
    assert error_of(consume(two, 0, partition=NOWHERE)) is Error.UNKNOWN_TOPIC_OR_PARTITION
    assert error_of(consume(two, 7)) is Error.OFFSET_OUT_OF_RANGE


def test_a_consumer_that_waits_is_told_that_the_topic_is_gone(two: Host) -> None:
    token = consume(two, 0)
    two.ask(100, DeleteTopic("orders"))
    assert error_of(two.answers[token]) is Error.UNKNOWN_TOPIC_OR_PARTITION


def test_a_consumer_that_waits_is_told_that_nobody_leads(alone: Host) -> None:
    token = consume(alone, 0)
    beat = BrokerHeartbeat(1, alone.broker(1).broker_epoch, 0, want_shut_down=True)
    alone.ask(100, beat)
    assert state(alone).leader == NO_LEADER
    assert error_of(alone.answers[token]) is Error.NOT_LEADER_OR_FOLLOWER


def test_a_fetch_of_several_partitions_is_answered_for_all_when_one_has_news(two: Host) -> None:
    create(two, (1, 2), topic="payments")
    asked = tuple(FetchPartition(TopicPartition(name, 0), 0) for name in ("payments", "orders"))
    token = two.ask(1, Fetch(CONSUMER, -1, 500, 1, asked))
    produce(two, b"a")
    sizes = [len(one.data) > 0 for one in two.answers[token].partitions]
    assert sizes == [False, True]
    two.ask(100, DeleteTopic("payments"))  # where it waited too, and is over


def test_a_fetch_that_is_answered_is_not_kept_where_nothing_happens(two: Host) -> None:
    create(two, (1, 2), topic="payments")
    two.wait(1_000)
    for _ in range(20):
        produce(two, b"a")
    waiting = two.broker(1)._serving._fetches[TopicPartition("payments", 0)]
    assert len(waiting) == 1  # the follower's next


def test_who_is_answered_is_not_kept_until_the_time_is_up(alone: Host) -> None:
    for _ in range(20):
        produce(alone, b"a")
    assert len(alone.broker(1)._serving._deadlines) <= 1


def test_a_consumer_may_ask_a_follower(two: Host) -> None:
    """KIP-392: which its own fetch tells what is committed, when it has waited long enough."""
    produce(two, b"a")
    token = consume(two, 0, broker=2, wait_ms_max=1_000)
    two.wait(1_000)
    assert read(two.answers[token]) == [b"a"]


# Other requests


def test_a_broker_tells_who_leads(two: Host) -> None:
    answer = two.ask(2, Metadata(("orders", "nowhere")))
    assert answer.partitions == (PartitionLeader(PARTITION, 1, 0),)


def test_a_broker_answers_for_the_partitions_that_it_has(alone: Host) -> None:
    produce(alone, b"a", b"b")
    listed = alone.ask(1, ListOffsets(PARTITION, UNKNOWN_EPOCH, OffsetKind.LATEST))
    assert listed == ListOffsetsAnswer(PARTITION, Error.NONE, 2, 0)
    ended = alone.ask(1, OffsetForLeaderEpoch(PARTITION, UNKNOWN_EPOCH, 0))
    assert ended.end == EpochEnd(0, 2)
    deleted = alone.ask(1, DeleteRecords(PARTITION, 1))
    assert deleted == DeleteRecordsAnswer(PARTITION, Error.NONE, 1)


# Deleting records


def starts(host: Host) -> list[int]:
    return [host.replica(broker, PARTITION).log.log_start_offset for broker in (1, 2, 3)]


def test_records_are_deleted_once_all_live_replicas_have_deleted_them(three: Host) -> None:
    """At once: a fetch that waits is answered when the log starts later."""
    produce(three, b"a", b"b")
    deleted = three.ask(1, DeleteRecords(PARTITION, 2))
    assert deleted == DeleteRecordsAnswer(PARTITION, Error.NONE, 2)
    assert starts(three) == [2, 2, 2]


def test_deleted_records_stay_deleted_when_every_broker_loses_power(three: Host) -> None:
    produce(three, b"a", b"b")
    assert three.ask(1, DeleteRecords(PARTITION, 2)).error is Error.NONE
    three.lose_power(1, 2, 3)
    for broker in (3, 2, 1):
        three.start(broker)
    three.wait(SESSION_MS)
    assert starts(three) == [2, 2, 2]


def test_a_deletion_is_not_confirmed_while_a_live_replica_may_have_the_records(
    three: Host,
) -> None:
    produce(three, b"a", b"b")
    three.cut_off = {3}
    token = three.ask(1, DeleteRecords(PARTITION, 2, timeout_ms=100))
    other = three.ask(1, DeleteRecords(PARTITION, 1, timeout_ms=60_000))
    three.wait(99)
    assert three.answers == {}
    three.wait(1)
    assert three.answers[token] == DeleteRecordsAnswer(PARTITION, Error.REQUEST_TIMED_OUT, 0)
    three.cut_off = set()
    three.wait(1_000)
    assert three.answers[other] == DeleteRecordsAnswer(PARTITION, Error.NONE, 2)


def test_a_deletion_does_not_wait_for_a_replica_that_is_dead(three: Host) -> None:
    produce(three, b"a", b"b")
    three.kill(3)
    token = three.ask(1, DeleteRecords(PARTITION, 2, timeout_ms=60_000))
    assert three.answers == {}
    three.wait(SESSION_MS)
    assert three.answers[token] == DeleteRecordsAnswer(PARTITION, Error.NONE, 2)


def test_a_deletion_that_waits_is_refused_when_another_leads_or_the_topic_is_gone(
    three: Host,
) -> None:
    produce(three, b"a", b"b")
    three.cut_off = {3}
    token = three.ask(1, DeleteRecords(PARTITION, 1))
    beat = BrokerHeartbeat(1, three.broker(1).broker_epoch, 0, want_shut_down=True)
    assert three.ask(100, beat).should_shut_down
    assert three.answers[token].error is Error.NOT_LEADER_OR_FOLLOWER
    token = three.ask(2, DeleteRecords(PARTITION, 2))
    assert three.ask(100, DeleteTopic("orders")).error is Error.NONE
    assert three.answers[token].error is Error.UNKNOWN_TOPIC_OR_PARTITION


@pytest.mark.parametrize(
    "request_",
    [
        ListOffsets(NOWHERE, UNKNOWN_EPOCH, OffsetKind.LATEST),
        OffsetForLeaderEpoch(NOWHERE, UNKNOWN_EPOCH, 0),
        DeleteRecords(NOWHERE, 1),
        WriteTxnMarker(NOWHERE, 7, 0, 0, True),
    ],
    ids=lambda one: type(one).__name__,
)
def test_a_broker_does_not_answer_for_partitions_that_it_does_not_have(
    alone: Host, request_: Any
) -> None:
    assert alone.ask(1, request_).error is Error.UNKNOWN_TOPIC_OR_PARTITION


def test_a_broker_without_a_replica_of_a_partition_does_not_lead_it(two: Host) -> None:
    create(two, (2,), topic="elsewhere")
    two.wait(500)
    elsewhere = TopicPartition("elsewhere", 0)
    listed = two.ask(1, ListOffsets(elsewhere, UNKNOWN_EPOCH, OffsetKind.LATEST))
    assert listed.error is Error.NOT_LEADER_OR_FOLLOWER
    sent = two.ask(1, Produce(ALL, 1_000, ((elsewhere, records(b"a")),)))
    asked = FetchPartition(elsewhere, 0, 1)
    fetched = two.ask(1, Fetch(CONSUMER, UNKNOWN_EPOCH, 0, 0, (asked,)))
    assert error_of(sent) is error_of(fetched) is Error.NOT_LEADER_OR_FOLLOWER


def test_nobody_has_to_coordinate_a_group_without_a_name_to_refuse_it(alone: Host) -> None:
    assert alone.ask(1, Heartbeat("", 1, "member")).error is Error.INVALID_GROUP_ID
    assert alone.ask(1, Heartbeat("group", 1, "member")).error is Error.NOT_COORDINATOR
