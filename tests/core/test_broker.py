"""A broker among others: who waits, who is asked, and its standing with the controller.

The host of these tests delivers at once; what takes time here is what a broker itself waits for.
"""

from __future__ import annotations

from typing import Any

import pytest
from instant_host import Host
from machines import PARTITION, records, values, without

from lossless.core.broker import CHECKPOINT, CLEAN_SHUTDOWN, NODE, Broker, Phase
from lossless.core.groups.messages import Heartbeat
from lossless.core.in_sync import Phase as IsrPhase
from lossless.core.machine import Effects
from lossless.core.messages import (
    CONSUMER,
    INTERNAL_TOPICS,
    NO_LEADER,
    UNKNOWN_EPOCH,
    AlterConfig,
    AlterPartition,
    AlterPartitionAnswer,
    BrokerHeartbeat,
    BrokerHeartbeatAnswer,
    BrokerRegistration,
    BrokerRegistrationAnswer,
    CreateTopic,
    DeleteRecords,
    DeleteRecordsAnswer,
    DeleteTopic,
    ElectLeader,
    Error,
    Fetch,
    FetchAnswer,
    Fetched,
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
from lossless.core.metadata import MIN_ISR, PartitionState
from lossless.core.quorum_messages import BeginQuorumEpoch, QuorumFetch, Vote
from lossless.core.replica import ALL, Role
from lossless.log.batch import parse_all
from lossless.log.leader_epochs import EpochEnd
from lossless.log.memory import MemoryStore

SESSION_MS = 9_000
NOWHERE = TopicPartition("nowhere", 0)


def a_cluster(*brokers: int, **settings: Any) -> Host:
    """A controller, brokers, and a topic of one partition that the first of them leads."""
    host = Host(brokers=brokers, **settings)
    host.wait(500)
    create(host, brokers)
    return host


def create(host: Host, *assignment: tuple[int, ...], topic: str = "orders") -> None:
    request = CreateTopic(topic, len(assignment), 1, assignment=assignment)
    assert host.ask(100, request).error is Error.NONE


@pytest.fixture
def three() -> Host:
    return a_cluster(1, 2, 3)


@pytest.fixture
def two() -> Host:
    return a_cluster(1, 2)


@pytest.fixture
def alone() -> Host:
    return a_cluster(1)


def produce(
    host: Host, *data: bytes, to: int = 1, acks: int = ALL, timeout_ms: int = 60_000
) -> Any:
    """The answer, or a token for it."""
    return host.ask(to, Produce(acks, timeout_ms, ((PARTITION, records(*data)),)))


def error_of(answer: Any) -> Error:
    assert isinstance(answer, ProduceAnswer | FetchAnswer)
    (only,) = answer.partitions
    return only.error


def consume(
    host: Host,
    offset: int,
    *,
    broker: int = 1,
    partition: TopicPartition = PARTITION,
    wait_ms_max: int = 500,
    bytes_min: int = 1,
    read_committed: bool = False,
) -> Any:
    asked = FetchPartition(partition, offset)
    fetch = Fetch(CONSUMER, -1, wait_ms_max, bytes_min, (asked,), read_committed)
    return host.ask(broker, fetch)


def read(answer: Any) -> list[bytes]:
    assert error_of(answer) is Error.NONE
    return [
        record.value or b""
        for fetched in answer.partitions
        for batch in parse_all(fetched.data)
        for record in batch.records()
    ]


def state(host: Host, partition: TopicPartition = PARTITION) -> PartitionState:
    return host.controller().image.partitions[partition]


def stop(broker: Broker, now_ms: int) -> Any:
    return broker.stop(now_ms)


# Standing with the controller


def test_a_broker_registers_and_runs_as_soon_as_it_has_seen_its_own_registration() -> None:
    host = Host()
    host.instead[BrokerHeartbeat] = lambda _: BrokerHeartbeatAnswer(Error.NONE, is_fenced=True)
    host.start(1, rack="a")
    assert host.broker(1).phase is Phase.FENCED
    host.instead.clear()
    host.wait(100)
    assert host.broker(1).phase is Phase.RUNNING
    seen = [one.metadata_offset for one in host.sent if isinstance(one, BrokerHeartbeat)]
    assert seen[0] <= host.broker(1).broker_epoch < seen[1]
    known = host.controller().image.brokers[1]
    assert (known.is_active, known.rack, known.epoch) == (True, "a", host.broker(1).broker_epoch)


def test_a_fenced_broker_says_at_once_that_it_knows_more() -> None:
    host = Host()
    host.instead[BrokerHeartbeat] = lambda _: BrokerHeartbeatAnswer(Error.NONE, is_fenced=True)
    host.start(1)

    def said() -> list[int]:
        beats = [one for one in host.sent if isinstance(one, BrokerHeartbeat)]
        return [one.metadata_offset for one in beats if one.broker == 1]

    before = said()
    host.sent.clear()
    host.start(2)  # it registers, and no time passes
    news = said()
    assert news
    assert min(news) > max(before)


def test_heartbeats_keep_a_broker_running(two: Host) -> None:
    two.wait(5 * SESSION_MS)
    assert {two.broker(broker).phase for broker in (1, 2)} == {Phase.RUNNING}
    assert two.controller().image.is_active(1)


def test_a_broker_asks_the_controller_one_thing_at_a_time() -> None:
    host = Host()
    host.delivers_flushes = False
    host.start(1)
    host.wait(5_000)
    registrations = [one for one in host.sent if isinstance(one, BrokerRegistration)]
    assert len(registrations) == 1


def test_a_broker_that_was_cut_off_is_fenced_and_runs_again(two: Host) -> None:
    two.cut_off = {2}
    two.wait(SESSION_MS)
    assert not two.controller().image.is_active(2)
    two.instead[BrokerHeartbeat] = lambda _: BrokerHeartbeatAnswer(Error.NONE, is_fenced=True)
    two.cut_off = set()
    two.wait(500)
    assert two.broker(2).phase is Phase.FENCED
    two.instead.clear()
    two.wait(500)
    assert two.broker(2).phase is Phase.RUNNING


def test_a_broker_asks_again_when_the_controller_is_none_or_does_not_answer() -> None:
    host = Host()
    host.instead[BrokerRegistration] = lambda _: BrokerRegistrationAnswer(Error.NOT_CONTROLLER)
    host.start(1)
    host.wait(1_000)
    assert host.broker(1).phase is Phase.STARTING
    host.instead = {BrokerRegistration: lambda _: None}
    host.wait(1_000)
    host.instead = {BrokerHeartbeat: lambda _: BrokerHeartbeatAnswer(Error.NOT_CONTROLLER)}
    host.wait(1_000)
    assert host.broker(1).phase is Phase.FENCED
    host.instead = {BrokerHeartbeat: lambda _: None}
    host.wait(1_000)
    assert host.broker(1).phase is Phase.FENCED
    host.instead.clear()
    host.wait(1_000)
    assert host.broker(1).phase is Phase.RUNNING


def test_a_broker_that_knows_no_controller_waits_until_it_does() -> None:
    host = Host()
    host.kill(100)
    host.start(1)
    wakes = 0
    for host.now_ms in range(100):
        if host.wake_ms[1] == host.now_ms:
            wakes += 1
            host.do(1, lambda broker, now_ms: broker.on_timer(now_ms))
    assert wakes <= 10  # it asks voters, a while apart


def test_a_process_that_lost_its_name_to_another_registers_anew_and_catches_up(two: Host) -> None:
    """What was decided about it in the meantime counts, also what it did not look at then."""
    two.cut_off = {1}
    two.wait(SESSION_MS)
    assert state(two).leader == 2
    assert two.ask(100, BrokerRegistration(1, 999)).error is Error.NONE
    two.cut_off = set()
    two.wait(1_000)
    assert two.broker(1).phase is Phase.STARTING
    two.wait(SESSION_MS)
    assert two.broker(1).phase is Phase.RUNNING
    replica = two.replica(1, PARTITION)
    assert (replica.role, replica.leader) == (Role.FOLLOWER, 2)
    assert state(two).isr == (2, 1)


def test_a_broker_acts_only_on_metadata_with_its_own_registration(two: Host) -> None:
    """Else it would take up a leadership that was given to its predecessor."""
    two.kill(1)
    two.start(1)
    two.wait(500)
    assert state(two).leader == 1  # its predecessor's session has not ended
    assert two.broker(1).replicas == {}
    two.wait(SESSION_MS)
    assert two.replica(1, PARTITION).role is Role.FOLLOWER


def test_a_broker_that_hears_of_its_epoch_after_the_metadata_begins_then() -> None:
    host = Host(brokers=(1,))
    host.wait(500)
    create(host, (1,))
    host.do(1, stop)
    host.kill(1)
    host.unheard = {BrokerRegistration}
    host.start(1)
    host.wait(50)
    assert host.broker(1).image.brokers[1].epoch > 1
    assert host.broker(1).replicas == {}
    host.unheard = set()
    host.wait(500)
    assert host.replica(1, PARTITION).role is Role.LEADER


# Stopping


def test_a_broker_that_stops_hands_over_and_says_so_when_it_is_back(two: Host) -> None:
    """B7: nothing is lost, and it stays eligible."""
    two.ask(100, AlterConfig("orders", MIN_ISR, "2"))
    assert error_of(produce(two, b"a")) is Error.NONE
    epoch = two.broker(1).broker_epoch
    two.do(1, stop)
    assert two.broker(1).phase is Phase.STOPPED
    assert two.wake_ms[1] is None
    assert two.store(1, NODE).read(CLEAN_SHUTDOWN, 0, 20) == str(epoch).encode()
    assert (state(two).leader, state(two).isr, state(two).elr) == (2, (2,), (1,))
    two.lose_power(1)
    two.start(1)
    assert state(two).elr == (1,)
    two.wait(1_000)
    assert (state(two).leader, state(two).isr) == (2, (2, 1))
    assert values(two.replica(1, PARTITION).log) == [b"a"]


def test_a_broker_that_dies_is_not_taken_to_have_stopped(two: Host) -> None:
    """KIP-966."""
    two.ask(100, AlterConfig("orders", MIN_ISR, "2"))
    two.do(1, stop)
    two.kill(1)
    two.start(1)
    two.kill(1)
    two.wait(SESSION_MS)
    assert state(two).elr == (1,)
    two.start(1)
    assert state(two).elr == ()


def test_a_broker_goes_on_until_it_may_stop(two: Host) -> None:
    two.instead[BrokerHeartbeat] = lambda _: BrokerHeartbeatAnswer(Error.NONE, is_fenced=False)
    two.do(1, stop)
    assert two.broker(1).phase is Phase.STOPPING
    two.do(1, stop)
    assert error_of(produce(two, b"a")) is Error.NONE
    two.instead.clear()
    two.wait(500)
    assert two.broker(1).phase is Phase.STOPPED


def test_a_broker_that_is_asked_to_stop_before_it_is_registered_stops_then(two: Host) -> None:
    refused = BrokerRegistrationAnswer(Error.DUPLICATE_BROKER_REGISTRATION)
    two.instead[BrokerRegistration] = lambda _: refused
    two.kill(1)
    two.start(1)
    two.do(1, stop)
    assert two.broker(1).phase is Phase.STARTING
    two.instead.clear()
    two.wait(SESSION_MS + 1_000)
    assert two.broker(1).phase is Phase.STOPPED


def test_a_broker_has_no_vote(alone: Host) -> None:
    """It observes the quorum; whoever asks it is told what it knows."""
    answer = alone.ask(1, Vote(9, 100, 9, 99, False))
    assert (answer.granted, answer.leader) == (False, 100)


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


# Following


def test_followers_have_everything_and_know_what_is_committed(three: Host) -> None:
    produce(three, b"a")
    three.wait(500)
    for broker in (1, 2, 3):
        replica = three.replica(broker, PARTITION)
        assert values(replica.log) == [b"a"]
        assert replica.high_watermark == 1


def test_a_follower_learns_with_the_next_records_what_its_own_fetch_has_committed(
    two: Host,
) -> None:
    """And when its fetch has waited long enough, if there are none."""
    produce(two, b"a")
    assert [two.replica(broker, PARTITION).high_watermark for broker in (1, 2)] == [1, 0]
    produce(two, b"b")
    assert [two.replica(broker, PARTITION).high_watermark for broker in (1, 2)] == [2, 1]
    two.wait(500)
    assert [two.replica(broker, PARTITION).high_watermark for broker in (1, 2)] == [2, 2]


def test_a_follower_asks_a_leader_that_does_not_answer_again_after_a_while(two: Host) -> None:
    two.instead[Fetch] = lambda _: None
    two.wait(600)  # the fetch that waited is answered
    produce(two, b"a", acks=1)
    two.wait(1_000)
    assert values(two.replica(2, PARTITION).log) == []
    two.instead.clear()
    two.wait(100)
    assert values(two.replica(2, PARTITION).log) == [b"a"]


def test_a_follower_that_is_refused_asks_again_after_a_while(two: Host) -> None:
    asked = []

    def refuse(fetch: Fetch) -> FetchAnswer:
        asked.append(two.now_ms)
        refusal = Error.UNKNOWN_LEADER_EPOCH
        return FetchAnswer(tuple(Fetched(one.partition, refusal) for one in fetch.partitions))

    two.wait(600)
    asked.clear()
    two.instead[Fetch] = refuse
    two.wait(1_000)
    assert 5 <= len(asked) <= 11
    two.instead.clear()
    produce(two, b"a", acks=1)
    two.wait(200)
    assert values(two.replica(2, PARTITION).log) == [b"a"]


def test_an_answer_of_a_leader_that_is_followed_no_more_is_not_used(three: Host) -> None:
    """3 waits for an answer of 1 when 2 begins to lead."""
    three.do(1, stop)
    assert state(three).leader == 2
    assert three.replica(3, PARTITION).leader == 2
    three.kill(1)
    assert error_of(produce(three, b"a", to=2)) is Error.NONE
    assert values(three.replica(3, PARTITION).log) == [b"a"]


def test_one_fetch_to_a_leader_is_under_way_at_a_time(two: Host) -> None:
    two.sent.clear()
    for _ in range(10):
        two.do(2, lambda broker, now_ms: broker.on_timer(now_ms))
    assert two.sent == []
    two.wait(5_000)
    assert 9 <= sum(isinstance(request, Fetch) for request in two.sent) <= 11


def test_after_a_failover_the_old_leader_follows_and_cuts_what_nobody_else_has(two: Host) -> None:
    """B8, R6, R18: an isolated leader goes on acknowledging to who waits for nobody else."""
    assert error_of(produce(two, b"a")) is Error.NONE
    two.cut_off = {1}
    assert error_of(produce(two, b"lost", acks=1)) is Error.NONE
    token = produce(two, b"unacknowledged")
    two.wait(SESSION_MS)
    assert state(two).leader == 2
    assert two.answers == {}
    assert error_of(produce(two, b"b", to=2)) is Error.NONE
    two.cut_off = set()
    two.wait(2_000)
    assert error_of(two.answers[token]) is Error.NOT_LEADER_OR_FOLLOWER
    assert values(two.replica(1, PARTITION).log) == [b"a", b"b"]
    assert (state(two).leader, state(two).isr) == (2, (2, 1))
    assert two.ask(100, ElectLeader(PARTITION)).error is Error.NONE
    assert two.replica(1, PARTITION).role is Role.LEADER


# Changing who is in sync


def test_a_follower_that_lags_leaves_and_comes_back(two: Host) -> None:
    """R7, R9."""
    two.instead[Fetch] = lambda _: None
    two.wait(600)
    produce(two, b"a", acks=1)
    two.wait(30_000)
    assert (state(two).isr, two.controller().image.is_active(2)) == ((1, 2), True)
    two.wait(30_000)
    assert state(two).isr == (1,)
    assert two.replica(1, PARTITION).high_watermark == 1
    two.instead.clear()
    two.wait(1_000)
    assert state(two).isr == (1, 2)


def shut_out(host: Host, broker: int) -> None:
    """The broker is back and has caught up, and nothing was said to the controller about it."""
    host.kill(broker)
    host.wait(SESSION_MS)
    assert broker not in state(host).isr
    host.start(broker)
    host.wait(1_000)


def test_a_change_of_unknown_outcome_stays_pending_and_is_asked_for_again(two: Host) -> None:
    """It may have happened, so whoever was to join is waited for."""
    two.unheard = {AlterPartition}
    asked = []
    two.instead[AlterPartition] = lambda request: asked.append(request)
    shut_out(two, 2)
    assert len(asked) > 3
    assert len(set(map(id, asked))) == 1
    replica = two.replica(1, PARTITION)
    assert (replica.in_sync.phase, replica.in_sync.maximal) == (IsrPhase.EXPANDING, (1, 2))
    two.instead.clear()
    two.wait(100)
    assert state(two).isr == (1, 2)
    assert replica.in_sync.phase is IsrPhase.SETTLED  # by the metadata


def answer_alterations(host: Host, error: Error) -> list[AlterPartition]:
    asked = []

    def answer(request: AlterPartition) -> AlterPartitionAnswer:
        asked.append(request)
        return AlterPartitionAnswer(request.partition, error)

    host.instead[AlterPartition] = answer
    return asked


def test_a_change_is_asked_for_again_when_the_controller_was_none(two: Host) -> None:
    asked = answer_alterations(two, Error.NOT_CONTROLLER)
    shut_out(two, 2)
    assert len(asked) > 3
    assert two.replica(1, PARTITION).in_sync.phase is IsrPhase.EXPANDING


def test_a_change_that_is_refused_is_taken_back_and_proposed_anew(two: Host) -> None:
    asked = answer_alterations(two, Error.INELIGIBLE_REPLICA)
    shut_out(two, 2)
    assert asked
    assert len(set(map(id, asked))) == len(asked)
    assert two.replica(1, PARTITION).in_sync.phase is IsrPhase.SETTLED
    two.instead.clear()
    two.wait(1_000)
    assert state(two).isr == (1, 2)


@pytest.mark.parametrize(
    "error",
    [Error.FENCED_LEADER_EPOCH, Error.INVALID_UPDATE_VERSION, Error.NEW_LEADER_ELECTED],
)
def test_a_change_of_something_else_stays_pending_until_the_metadata_comes(
    two: Host, error: Error
) -> None:
    asked = answer_alterations(two, error)
    shut_out(two, 2)
    assert len(asked) == 1
    assert two.replica(1, PARTITION).in_sync.maximal == (1, 2)


def test_a_change_of_a_topic_that_is_gone_is_not_asked_for_again(two: Host) -> None:
    asked = answer_alterations(two, Error.NOT_CONTROLLER)
    shut_out(two, 2)
    two.ask(100, DeleteTopic("orders"))
    asked_before = len(asked)
    late = AlterPartitionAnswer(PARTITION, Error.NONE, (1, 2), 0, 9)
    two.do(1, lambda broker, now_ms: broker.on_answer(100, asked[-1], late, now_ms))
    two.wait(1_000)
    assert len(asked) == asked_before


def test_a_change_counts_as_soon_as_the_controller_answers(two: Host) -> None:
    two.instead[AlterPartition] = lambda _: None
    shut_out(two, 2)
    two.instead = {AlterPartition: lambda _: None, QuorumFetch: lambda _: None}
    two.wait(600)
    two.instead = {QuorumFetch: lambda _: None}
    two.wait(100)
    replica = two.replica(1, PARTITION)
    assert two.broker(1).image.partitions[PARTITION].isr == (1,)
    assert (replica.in_sync.isr, replica.in_sync.phase) == ((1, 2), IsrPhase.SETTLED)


def test_a_change_is_answered_directly_or_by_the_metadata(two: Host) -> None:
    shut_out(two, 2)
    replica = two.replica(1, PARTITION)
    assert (replica.in_sync.isr, replica.in_sync.phase) == ((1, 2), IsrPhase.SETTLED)
    assert replica.partition_epoch == state(two).partition_epoch


# What a restart finds


def test_a_broker_remembers_what_was_committed(two: Host) -> None:
    produce(two, b"a", b"b")
    two.wait(5_000)
    assert two.store(2, NODE).read(CHECKPOINT, 0, 100) == b"orders 0 2"
    two.kill(2)
    two.wait(SESSION_MS)
    two.instead[Fetch] = lambda _: None
    two.start(2)
    two.wait(500)
    assert two.replica(2, PARTITION).role is Role.FOLLOWER
    assert two.replica(2, PARTITION).high_watermark == 2


def test_without_a_flush_a_loss_of_power_takes_what_everybody_acknowledged(two: Host) -> None:
    """R15."""
    assert error_of(produce(two, b"a")) is Error.NONE
    two.lose_power(1, 2)
    for broker in (1, 2):
        two.start(broker)
    two.wait(2 * SESSION_MS)
    leader = state(two).leader
    assert leader in (1, 2)
    assert read(consume(two, 0, broker=leader, wait_ms_max=0)) == []


def test_a_setting_reaches_the_replicas_of_all_topics(two: Host) -> None:
    create(two, (1, 2), topic="payments")
    two.ask(100, AlterConfig("", MIN_ISR, "2"))
    replicas = two.broker(1).replicas.values()
    assert [replica.min_isr for replica in replicas] == [2, 2]
    two.ask(100, AlterConfig("payments", MIN_ISR, "1"))
    assert [replica.min_isr for replica in replicas] == [2, 1]


def test_a_topic_that_is_created_again_begins_empty(two: Host) -> None:
    produce(two, b"old")
    two.ask(100, DeleteTopic("orders"))
    create(two, (1, 2))
    assert read(consume(two, 0, wait_ms_max=0)) == []


def test_a_broker_opens_only_the_partitions_that_it_has_a_replica_of(three: Host) -> None:
    create(three, (1,), topic="payments")
    assert three.broker(3).replicas.keys() == {PARTITION}


# Rules that are split in two


def test_what_a_rule_that_is_off_has_split_is_finished_by_the_timer() -> None:
    """R12: the follower has everything now, and joins a little later."""
    host = a_cluster(1, 2, rules=without("check_and_act_at_once"))
    host.kill(2)
    host.wait(SESSION_MS)
    host.start(2)
    host.wait(300)
    assert host.broker(2).phase is Phase.RUNNING
    produce(host, b"a", acks=1)  # whereupon 2 fetches it and asks for what follows
    replica = host.replica(1, PARTITION)
    assert replica.is_unfinished
    assert state(host).isr == (1,)
    host.wait(500)
    assert not replica.is_unfinished
    host.wait(500)
    assert state(host).isr == (1, 2)


# A controller that stands still


def a_broker_that_follows(controller: int) -> Broker:
    stores: dict[str, MemoryStore] = {}
    broker = Broker(
        1,
        voters=(101, 102),
        stores=lambda name: stores.setdefault(name, MemoryStore()),
        incarnation=7,
        draw=lambda _: 0,
    )
    broker.on_start(0)
    broker.on_request(controller, "told", BeginQuorumEpoch(1, controller), 1)
    return broker


def asked_of(effects: Effects) -> list[int]:
    return [to for to, request in effects.send if isinstance(request, BrokerRegistration)]


def test_a_broker_turns_to_the_next_controller_when_the_last_one_never_answers() -> None:
    broker = a_broker_that_follows(101)
    effects = broker.on_request(102, "told", BeginQuorumEpoch(2, 102), 50)
    assert asked_of(effects) == [102]


def test_a_broker_makes_itself_known_to_the_next_controller_at_once() -> None:
    broker = a_broker_that_follows(101)
    broker.on_answer(101, BrokerRegistration(1, 7), BrokerRegistrationAnswer(Error.NONE, 9), 10)
    running = BrokerHeartbeatAnswer(Error.NONE, is_fenced=False)
    broker.on_answer(101, BrokerHeartbeat(1, 9, 0, False), running, 20)
    effects = broker.on_request(102, "told", BeginQuorumEpoch(2, 102), 50)
    assert [to for to, asked in effects.send if isinstance(asked, BrokerHeartbeat)] == [102]


def test_what_a_former_controller_answers_late_is_not_heard() -> None:
    broker = a_broker_that_follows(101)
    broker.on_request(102, "told", BeginQuorumEpoch(2, 102), 50)
    late = BrokerRegistrationAnswer(Error.NONE, 5)
    broker.on_answer(101, BrokerRegistration(1, 7), late, 60)
    assert (broker.phase, broker.broker_epoch) == (Phase.STARTING, -1)
    broker.on_answer(102, BrokerRegistration(1, 7), BrokerRegistrationAnswer(Error.NONE, 9), 70)
    assert (broker.phase, broker.broker_epoch) == (Phase.FENCED, 9)
