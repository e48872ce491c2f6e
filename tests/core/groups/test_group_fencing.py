"""Consumer groups: who is believed to be who it says it is."""

from __future__ import annotations

import pytest
from group_host import GROUP, ORDERS_0, ORDERS_1, Host, orders

from lossless.core.groups.config import GroupConfig
from lossless.core.groups.messages import (
    ConsumerGroupDescribe,
    OffsetFetch,
    OffsetToCommit,
    TxnOffsetCommit,
)
from lossless.core.groups.records import (
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMetadataKey,
    ConsumerGroupTargetAssignmentMemberKey,
)
from lossless.core.messages import Error, Producer

SESSION_MS = 45_000
PRODUCER = Producer(7, 0)


# Epochs


def test_a_later_epoch_than_the_coordinators_is_fenced(host: Host) -> None:
    host.consume("a")
    assert host.consume("a", 2).error is Error.FENCED_MEMBER_EPOCH


def test_the_previous_epoch_is_believed_because_the_answer_may_be_lost(host: Host) -> None:
    host.consume("a")
    host.consume("a", 1, subscribed_topic_names=("payments", "orders"))
    answer = host.consume("a", 1, topic_partitions=orders(0, 1, 2))
    assert (answer.error, answer.member_epoch) == (Error.NONE, 2)


@pytest.mark.parametrize("owned", [None, orders(0, 9)])
def test_the_previous_epoch_is_not_believed_with_partitions_that_were_not_given(
    host: Host, owned: object
) -> None:
    host.consume("a")
    host.consume("a", 1, subscribed_topic_names=("payments", "orders"))
    assert host.consume("a", 1, topic_partitions=owned).error is Error.FENCED_MEMBER_EPOCH


def test_an_earlier_epoch_is_fenced(host: Host) -> None:
    host.consume("a")
    host.consume("a", 1, subscribed_topic_names=("payments",))
    host.consume("a", 1, topic_partitions=())
    host.consume("a", 2, subscribed_topic_names=("orders",))
    host.consume("a", 2, topic_partitions=())
    assert host.consume("a", 1, topic_partitions=()).error is Error.FENCED_MEMBER_EPOCH


def test_a_join_that_is_sent_again_is_the_same_member(host: Host) -> None:
    host.consume("a")
    answer = host.consume("a")
    assert (answer.member_epoch, answer.assignment) == (1, orders(0, 1, 2))
    assert len(host.shard._store.consumer[GROUP].members) == 1


def test_a_stranger_is_unknown(host: Host) -> None:
    host.consume("a")
    assert host.consume("b", 1).error is Error.UNKNOWN_MEMBER_ID
    assert host.consume("b", -1).error is Error.UNKNOWN_MEMBER_ID


# Sessions


def test_a_member_that_is_silent_is_removed(host: Host) -> None:
    host.consume("a")
    host.pass_ms(SESSION_MS - 1)
    assert host.consume("a", 1).error is Error.NONE
    host.pass_ms(SESSION_MS)
    assert host.consume("a", 1).error is Error.UNKNOWN_MEMBER_ID
    assert host.state() == "Empty"


def test_the_session_timeout_is_a_setting() -> None:
    host = Host(GroupConfig(consumer_session_timeout_ms=7_000))
    host.consume("a")
    host.pass_ms(7_000)
    assert host.state() == "Empty"


def test_sessions_begin_anew_after_a_failover(host: Host) -> None:
    host.consume("a")
    host.pass_ms(SESSION_MS - 1)
    host.fail_over()
    host.pass_ms(SESSION_MS - 1)
    assert host.state() == "Stable"
    host.pass_ms(1)
    assert host.state() == "Empty"


def test_several_that_are_silent_at_once_go_in_one_epoch(host: Host) -> None:
    host.consume("a")
    host.consume("b")
    host.consume("c")
    host.pass_ms(SESSION_MS)
    assert host.state() == "Empty"
    assert host.shard._store.consumer[GROUP].group_epoch == 4


def test_one_that_is_silent_and_has_not_given_up_is_removed_once(host: Host) -> None:
    host.consume("a", rebalance_timeout_ms=SESSION_MS)
    host.consume("b")
    host.consume("a", 1)
    host.pass_ms(SESSION_MS - 1)
    host.consume("b", 2)
    before = len(host.log)
    host.pass_ms(1)
    assert [key for key, _ in host.written(before)] == [
        ConsumerGroupCurrentMemberAssignmentKey(GROUP, "a"),
        ConsumerGroupTargetAssignmentMemberKey(GROUP, "a"),
        ConsumerGroupMemberMetadataKey(GROUP, "a"),
        ConsumerGroupMetadataKey(GROUP),
    ]


# Leaving


def test_who_leaves_is_answered_with_its_epoch(host: Host) -> None:
    host.consume("a")
    answer = host.consume("a", -1)
    assert (answer.error, answer.member_id, answer.member_epoch) == (Error.NONE, "a", -1)
    assert host.consume("a", 1).error is Error.UNKNOWN_MEMBER_ID


def test_a_group_that_everybody_has_left_remembers_its_epoch(host: Host) -> None:
    host.consume("a")
    host.consume("a", -1)
    host.fail_over()
    assert host.consume("b").member_epoch == 3


# Static members


def test_an_instance_id_belongs_to_one_member_until_it_has_left(host: Host) -> None:
    host.consume("a", instance_id="i")
    assert host.consume("b", instance_id="i").error is Error.UNRELEASED_INSTANCE_ID
    assert host.consume("a", -2, instance_id="i").member_epoch == -2
    assert host.consume("b", instance_id="i").error is Error.NONE


def test_a_static_member_that_is_back_has_what_it_had_and_nobody_rebalances(host: Host) -> None:
    host.consume("a", instance_id="i")
    host.consume("b")
    host.consume("a", 1, instance_id="i", topic_partitions=orders(0, 1))
    host.consume("b", 2)
    host.consume("a", -2, instance_id="i")
    host.fail_over()
    assert host.consume("b", 2).assignment is None
    answer = host.consume("c", instance_id="i")
    assert (answer.member_id, answer.member_epoch) == ("c", 2)
    assert answer.assignment == orders(0, 1)
    host.pass_ms(SESSION_MS - 1)
    assert host.consume("c", 2, instance_id="i").error is Error.NONE


def test_a_static_member_may_come_back_under_its_own_id(host: Host) -> None:
    host.consume("a", instance_id="i")
    host.consume("a", -2, instance_id="i")
    answer = host.consume("a", instance_id="i")
    assert (answer.member_epoch, answer.assignment) == (1, orders(0, 1, 2))
    host.fail_over()
    assert host.consume("a", 1, instance_id="i").error is Error.NONE
    (member,) = host.ask(ConsumerGroupDescribe(GROUP)).members
    assert member.target_assignment == member.assignment


def test_a_static_member_that_is_back_with_other_topics_gets_others(host: Host) -> None:
    host.consume("a", instance_id="i")
    host.consume("a", -2, instance_id="i")
    answer = host.consume("b", instance_id="i", subscribed_topic_names=("payments",))
    assert answer.member_epoch == 2
    assert answer.assignment != orders(0, 1, 2)


def test_a_static_member_that_left_while_it_was_to_give_up_has_given_up(host: Host) -> None:
    host.consume("a", instance_id="i")
    host.consume("b")
    host.consume("a", 1, instance_id="i")
    host.consume("a", -2, instance_id="i")
    assert host.consume("b", 2).assignment == orders(2)
    for _ in range(4):  # it is not thrown out for being late
        host.pass_ms(10_000)
        host.consume("b", 2)
    assert host.consume("c", instance_id="i").assignment == orders(0, 1)


def test_one_that_left_for_a_while_is_not_fenced_for_being_late(host: Host) -> None:
    said = {"rebalance_timeout_ms": 20_000}
    host.consume("a", instance_id="i", **said)
    host.consume("b")
    host.consume("a", 1, instance_id="i")
    host.consume("a", -2, instance_id="i")
    host.pass_ms(30_000)
    assert host.consume("c", instance_id="i", **said).assignment == orders(0, 1)


def test_a_static_member_that_does_not_come_back_is_removed(host: Host) -> None:
    host.consume("a", instance_id="i")
    host.consume("a", -2, instance_id="i")
    host.pass_ms(SESSION_MS)
    assert host.state() == "Empty"
    assert host.consume("b", instance_id="i").error is Error.NONE


def test_a_static_member_may_leave_for_good(host: Host) -> None:
    host.consume("a", instance_id="i")
    assert host.consume("a", -1, instance_id="i").member_epoch == -1
    assert host.state() == "Empty"


def test_whoever_uses_the_former_id_is_fenced(host: Host) -> None:
    host.consume("a", instance_id="i")
    host.consume("a", -2, instance_id="i")
    host.consume("b", instance_id="i")
    for epoch in (1, -1, -2):
        assert host.consume("a", epoch, instance_id="i").error is Error.FENCED_INSTANCE_ID
    assert host.consume("a", 1, instance_id="j").error is Error.UNKNOWN_MEMBER_ID
    assert host.consume("a", -2, instance_id="j").error is Error.UNKNOWN_MEMBER_ID
    assert host.consume("b", 5, instance_id="i").error is Error.FENCED_MEMBER_EPOCH


def test_one_that_has_left_for_a_while_cannot_go_on_as_if_it_had_not(host: Host) -> None:
    host.consume("a", instance_id="i")
    host.consume("a", -2, instance_id="i")
    assert host.consume("a", 1, instance_id="i").error is Error.FENCED_MEMBER_EPOCH


def test_an_old_client_with_an_instance_id_is_given_a_member_id(host: Host) -> None:
    answer = host.consume("", instance_id="i", api_version=0)
    assert len(answer.member_id or "") == 36


# Offsets


def test_a_member_commits_with_its_epoch(host: Host) -> None:
    host.consume("a")
    said = {"member_id": "a", "generation_id_or_member_epoch": 1}
    assert host.commit(**said) is Error.NONE
    assert host.commit(**said, api_version=8) is Error.UNSUPPORTED_VERSION
    assert host.fetched() == 5


@pytest.mark.parametrize(
    ("member", "epoch", "error"),
    [
        ("a", 2, Error.STALE_MEMBER_EPOCH),
        ("a", 0, Error.STALE_MEMBER_EPOCH),
        ("a", -1, Error.STALE_MEMBER_EPOCH),
        ("b", 1, Error.UNKNOWN_MEMBER_ID),
        ("", -1, Error.UNKNOWN_MEMBER_ID),
    ],
)
def test_others_cannot_commit(host: Host, member: str, epoch: int, error: Error) -> None:
    host.consume("a")
    assert host.commit(member_id=member, generation_id_or_member_epoch=epoch) is error
    in_transaction = TxnOffsetCommit(GROUP, (OffsetToCommit(ORDERS_0, 9),), PRODUCER, epoch, member)
    ((_, told),) = host.ask(in_transaction).partitions
    # Producers know of generations only.
    assert told is (Error.ILLEGAL_GENERATION if error is Error.STALE_MEMBER_EPOCH else error)
    assert host.fetched() == -1


def test_a_member_commits_in_a_transaction(host: Host) -> None:
    host.consume("a")
    host.ask(TxnOffsetCommit(GROUP, (OffsetToCommit(ORDERS_0, 9),), PRODUCER, 1, "a"))
    host.end_transaction(PRODUCER, committed=True)
    assert host.fetched() == 9


def test_an_empty_consumer_group_takes_offsets_from_anybody(host: Host) -> None:
    host.consume("a")
    host.consume("a", -1)
    assert host.commit() is Error.NONE


def test_a_member_fetches_with_its_epoch(host: Host) -> None:
    host.consume("a")
    host.commit(member_id="a", generation_id_or_member_epoch=1)
    assert host.fetched(member_id="a", member_epoch=1) == 5
    assert host.fetched(member_id="a", member_epoch=2) is Error.STALE_MEMBER_EPOCH
    assert host.fetched(member_id="b", member_epoch=1) is Error.UNKNOWN_MEMBER_ID
    assert host.fetched() == 5
    assert host.ask(OffsetFetch(GROUP, None, False, "b", 1)).error is Error.UNKNOWN_MEMBER_ID


def test_offsets_of_an_empty_consumer_group_expire_one_by_one() -> None:
    config = GroupConfig(offsets_retention_minutes=10, offsets_retention_check_interval_ms=60_000)
    host = Host(config)
    host.consume("a")
    host.commit(ORDERS_0, member_id="a", generation_id_or_member_epoch=1)
    host.consume("a", -1)
    host.pass_ms(300_000)
    host.commit(ORDERS_1)
    host.pass_ms(300_000)
    assert (host.fetched(ORDERS_0), host.fetched(ORDERS_1)) == (-1, 5)
    assert host.state() == "Empty"
    host.pass_ms(300_000)
    assert host.state() is None
    host.fail_over()
    assert host.groups() == ()
