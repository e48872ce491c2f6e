"""Consumer groups: members give up first, and get what is free."""

from __future__ import annotations

import pytest
from group_host import GROUP, ORDERS, REBALANCE_MS, Host, orders

from lossless.core.groups.config import TopicView
from lossless.core.groups.consumer_group import ConsumerMember
from lossless.core.groups.messages import ConsumerGroupDescribe
from lossless.core.groups.reconciliation import reconciled
from lossless.core.groups.records import (
    NO_PARTITIONS,
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupCurrentMemberAssignmentValue,
    MemberState,
    Partitions,
)
from lossless.core.messages import Error


def parts(*numbers: int) -> Partitions:
    return frozenset((ORDERS.id, number) for number in numbers)


def two(host: Host) -> None:
    """a has to give up partition 2, for which b waits."""
    host.consume("a")
    host.consume("b")


def test_a_member_gives_up_before_another_gets(host: Host) -> None:
    two(host)
    answer = host.consume("a", 1)
    assert (answer.member_epoch, answer.assignment) == (1, orders(0, 1))
    assert host.consume("b", 2).assignment is None
    answer = host.consume("a", 1, topic_partitions=orders(0, 1))
    assert (answer.member_epoch, answer.assignment) == (2, None)
    answer = host.consume("b", 2)
    assert (answer.member_epoch, answer.assignment) == (2, orders(2))
    assert host.state() == "Stable"


def test_a_member_that_still_has_what_it_is_to_give_up_stays_where_it_is(host: Host) -> None:
    two(host)
    host.consume("a", 1)
    for owned in (None, orders(0, 1, 2), orders(2)):
        answer = host.consume("a", 1, topic_partitions=owned)
        assert (answer.member_epoch, answer.assignment) == (1, None)
    assert host.consume("b", 2).assignment is None


def test_a_member_may_have_given_up_before_it_was_told(host: Host) -> None:
    two(host)
    answer = host.consume("a", 1, topic_partitions=orders(0))
    assert (answer.member_epoch, answer.assignment) == (2, orders(0, 1))


def test_a_member_that_does_not_give_up_in_time_is_removed(host: Host) -> None:
    two(host)
    host.consume("a", 1)
    for _ in range(REBALANCE_MS // 5_000 - 1):
        host.pass_ms(5_000)
        assert host.consume("a", 1).error is Error.NONE
        host.consume("b", 2)
    host.pass_ms(5_000)
    assert host.consume("a", 1).error is Error.UNKNOWN_MEMBER_ID
    assert host.consume("b", 2).assignment == orders(0, 1, 2)


def test_the_time_to_give_up_begins_anew_after_a_failover(host: Host) -> None:
    two(host)
    host.consume("a", 1)
    host.pass_ms(30_000)
    host.fail_over()
    for _ in range(REBALANCE_MS // 5_000 - 1):
        host.pass_ms(5_000)
        assert host.consume("a", 1).error is Error.NONE
        host.consume("b", 2)
    host.pass_ms(5_000)
    assert host.consume("a", 1).error is Error.UNKNOWN_MEMBER_ID


def test_a_member_that_gave_up_in_time_stays(host: Host) -> None:
    two(host)
    host.consume("a", 1)
    host.consume("a", 1, topic_partitions=orders(0, 1))
    for _ in range(2 * REBALANCE_MS // 5_000):
        host.pass_ms(5_000)
        assert host.consume("a", 2).error is Error.NONE
        host.consume("b", 2)


def test_what_a_member_left_behind_is_free(host: Host) -> None:
    two(host)
    host.consume("a", -1)
    answer = host.consume("b", 2)
    assert (answer.member_epoch, answer.assignment) == (3, orders(0, 1, 2))


def test_a_member_gets_the_free_part_at_once_and_the_rest_later(host: Host) -> None:
    host.consume("a")
    host.topics["orders"] = TopicView(ORDERS.id, 4)
    assert host.consume("b").assignment == orders(3)
    assert host.consume("a", 1).assignment == orders(0, 1)
    host.consume("a", 1, topic_partitions=orders(0, 1))
    assert host.consume("b", 2).assignment == orders(2, 3)


def test_a_target_that_moves_on_while_a_member_gives_up_is_reached_in_two_steps(
    host: Host,
) -> None:
    two(host)
    host.consume("a", 1)
    host.consume("c")
    answer = host.consume("a", 1, topic_partitions=orders(0, 1))
    assert (answer.member_epoch, answer.assignment) == (2, orders(0))
    answer = host.consume("a", 2, topic_partitions=orders(0))
    assert (answer.member_epoch, answer.assignment) == (3, None)
    assert host.consume("b", 2).assignment == orders(2)
    assert host.consume("c", 3).assignment == orders(1)
    assert host.state() == "Stable"


def test_reconciliation_survives_a_failover(host: Host) -> None:
    two(host)
    host.consume("a", 1)
    host.fail_over()
    host.consume("a", 1, topic_partitions=orders(0, 1))
    host.fail_over()
    assert host.consume("b", 2).assignment == orders(2)


def test_the_target_is_worked_out_anew_when_somebody_heartbeats(host: Host) -> None:
    two(host)
    host.consume("b", -1)
    assert host.state() == "Assigning"
    assert host.ask(ConsumerGroupDescribe(GROUP)).assignment_epoch == 2
    assert host.consume("a", 1).member_epoch == 3
    assert host.state() == "Stable"


# One step


A = ConsumerMember("a", 3, 2, MemberState.STABLE, parts(0, 1))


def test_a_member_that_is_there_stays() -> None:
    assert reconciled(A, 3, parts(0, 1), None, NO_PARTITIONS) == A


def test_a_member_whose_target_is_what_it_has_moves_on() -> None:
    moved = reconciled(A, 5, parts(0, 1), None, NO_PARTITIONS)
    assert moved == A._replace(member_epoch=5, previous_member_epoch=3)


def test_a_member_waits_for_what_others_have() -> None:
    moved = reconciled(A, 5, parts(0, 1, 2, 3), None, parts(2))
    assert moved is not None
    assert moved.state is MemberState.UNRELEASED_PARTITIONS
    assert moved.assigned == parts(0, 1, 3)
    done = reconciled(moved, 5, parts(0, 1, 2, 3), None, NO_PARTITIONS)
    assert done is not None
    assert (done.state, done.assigned) == (MemberState.STABLE, parts(0, 1, 2, 3))


@pytest.mark.parametrize("owned", [None, parts(0)])
def test_a_member_in_a_state_that_nobody_knows_begins_from_nothing(
    owned: Partitions | None,
) -> None:
    strange = A._replace(state=MemberState.UNKNOWN)
    assert reconciled(strange, 5, parts(0), owned, NO_PARTITIONS) is None
    moved = reconciled(strange, 5, parts(0), NO_PARTITIONS, NO_PARTITIONS)
    assert moved is not None
    assert (moved.member_epoch, moved.assigned) == (5, parts(0))


def test_a_member_in_a_state_that_only_a_newer_broker_knows_is_fenced(host: Host) -> None:
    host.consume("a")
    host.write(
        ConsumerGroupCurrentMemberAssignmentKey(GROUP, "a"),
        ConsumerGroupCurrentMemberAssignmentValue(1, 0, MemberState.UNKNOWN, parts(0), parts()),
    )
    before = len(host.log)
    assert host.consume("a", 1).error is Error.FENCED_MEMBER_EPOCH
    assert len(host.log) == before
