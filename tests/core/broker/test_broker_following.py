"""Brokers among each other: who follows whom, who is in sync, what a restart finds."""

from __future__ import annotations

import struct
from typing import Any

import pytest
from brokers import (
    SESSION_MS,
    a_cluster,
    consume,
    create,
    error_of,
    produce,
    read,
    state,
    stop,
)
from instant_host import Host
from machines import PARTITION, records, values, without

from default_batches import sealed
from lossless.core.broker import CHECKPOINT, NODE, Phase
from lossless.core.in_sync import Phase as IsrPhase
from lossless.core.messages import (
    AlterConfig,
    AlterPartition,
    AlterPartitionAnswer,
    DeleteTopic,
    ElectLeader,
    Error,
    Fetch,
    FetchAnswer,
    Fetched,
    Produce,
    TopicPartition,
)
from lossless.core.metadata import MIN_ISR
from lossless.core.quorum_messages import QuorumFetch
from lossless.core.replica import ALL, Role

# Following


def test_followers_have_everything_and_know_what_is_committed(three: Host) -> None:
    produce(three, b"a")
    three.wait(500)
    for broker in (1, 2, 3):
        replica = three.replica(broker, PARTITION)
        assert values(replica.log) == [b"a"]
        assert replica.high_watermark == 1


def test_a_replica_that_cannot_append_is_set_aside_and_its_broker_serves_on(two: Host) -> None:
    create(two, (1, 2), topic="other")
    warnings: list[str] = []
    follower: Any = two.nodes[2]
    follower._warn = warnings.append
    backwards = bytearray(records(b"v"))
    struct.pack_into(">i", backwards, 23, -2)  # where it ends, from where it begins

    def poisoned(request: Fetch) -> FetchAnswer:
        poison = Fetched(PARTITION, Error.NONE, 0, 0, 0, data=bytes(sealed(backwards).data))
        return FetchAnswer(
            tuple(
                poison
                if asked.partition == PARTITION
                else Fetched(asked.partition, Error.NOT_LEADER_OR_FOLLOWER)  # asked again later
                for asked in request.partitions
            )
        )

    two.instead[Fetch] = poisoned
    two.wait(600)  # until the fetch that waits is answered
    two.instead.clear()
    (warning,) = warnings
    assert warning.startswith(
        "broker 2 no longer follows broker 1 in orders-0: batch 0 ends before it begins, at -2"
    )
    other = TopicPartition("other", 0)
    two.ask(1, Produce(ALL, 60_000, ((other, records(b"a")),)))
    produce(two, b"b", acks=1)
    two.wait(1_000)
    assert values(two.replica(2, other).log) == [b"a"]
    assert values(two.replica(2, PARTITION).log) == []
    two.kill(2)
    two.wait(SESSION_MS)
    two.start(2)
    two.wait(1_000)
    assert values(two.replica(2, PARTITION).log) == [b"b"]
    assert len(warnings) == 1


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
