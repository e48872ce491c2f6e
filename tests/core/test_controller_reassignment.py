"""Replicas that move to other brokers: when a move ends, and what if it is called off."""

from __future__ import annotations

import pytest
from deciding import Cluster
from instant_host import Host
from machines import PARTITION, records, values

from lossless.core.admin_messages import (
    AlterReassignment,
    CreatePartitions,
    ListReassignments,
    ListReassignmentsAnswer,
    Reassignment,
)
from lossless.core.messages import (
    NO_LEADER,
    AdminAnswer,
    AlterPartitionAnswer,
    CreateTopic,
    Error,
    Produce,
    TopicPartition,
)
from lossless.core.metadata import MIN_ISR, UNCLEAN, PartitionState
from lossless.core.reassignment import Assignment, Placed, completed, reverted, towards
from lossless.core.replica import ALL


@pytest.fixture
def five() -> Cluster:
    """Brokers 1 to 5; the partition is on 1, 2 and 3, led by 1, with everybody in sync."""
    cluster = Cluster(1, 2, 3, 4, 5)
    request = CreateTopic("orders", 1, 3, assignment=((1, 2, 3),))
    cluster.committed(cluster.controller.on_create_topic(request, cluster.image.end_offset))
    return cluster


def move(cluster: Cluster, *replicas: int, may_change: bool = True) -> Error:
    request = AlterReassignment(PARTITION, replicas, may_change)
    return cluster.committed(cluster.controller.on_alter_reassignment(request)).error


def call_off(cluster: Cluster) -> Error:
    request = AlterReassignment(PARTITION, None)
    return cluster.committed(cluster.controller.on_alter_reassignment(request)).error


def under_way(cluster: Cluster) -> tuple[Reassignment, ...]:
    answer = cluster.controller.on_list_reassignments(ListReassignments(None)).answer
    assert isinstance(answer, ListReassignmentsAnswer)
    return answer.found


# How a move begins and ends


def test_a_move_begins_with_both_those_who_stay_and_those_who_go(five: Cluster) -> None:
    assert move(five, 4, 5, 1) is Error.NONE
    state = five.state()
    assert state == PartitionState(
        (4, 5, 1, 2, 3), (1, 2, 3), 1, 0, 1, adding=(4, 5), removing=(2, 3)
    )
    assert under_way(five) == (Reassignment(PARTITION, (4, 5, 1, 2, 3), (4, 5), (2, 3)),)


def test_a_move_ends_when_everybody_who_stays_is_in_sync(five: Cluster) -> None:
    move(five, 4, 5, 1)
    five.alter(1, 2, 3, 4)
    assert under_way(five)
    answer = five.alter(1, 2, 3, 4, 5)
    assert five.state() == PartitionState((4, 5, 1), (1, 4, 5), 1, 1, 3)
    assert under_way(five) == ()
    # Nobody else leads, but what those who are gone may send is of the past.
    assert answer == AlterPartitionAnswer(PARTITION, Error.NONE, (1, 4, 5), 1, 3)


def test_a_leader_that_is_to_go_leads_until_the_end(five: Cluster) -> None:
    move(five, 4, 5)
    five.alter(1, 2, 3, 4)
    assert five.leads == 1
    answer = five.alter(1, 2, 3, 4, 5)
    assert isinstance(answer, AlterPartitionAnswer)
    assert answer.error is Error.NEW_LEADER_ELECTED
    assert five.state() == PartitionState((4, 5), (4, 5), 4, 1, 3)


def test_a_move_that_adds_nobody_is_over_at_once(five: Cluster) -> None:
    move(five, 3, 1)
    assert five.state() == PartitionState((3, 1), (1, 3), 1, 1, 1)


def test_another_order_of_the_same_replicas_makes_another_preferred_leader(five: Cluster) -> None:
    move(five, 3, 2, 1)
    assert five.state() == PartitionState((3, 2, 1), (1, 2, 3), 1, 0, 1)
    assert five.elect() is Error.NONE
    assert five.leads == 3


def test_a_move_to_where_replicas_are_changes_nothing(five: Cluster) -> None:
    before = five.image.end_offset
    assert move(five, 1, 2, 3) is Error.NONE
    assert five.image.end_offset == before


def test_a_move_that_adds_nobody_waits_until_whoever_stays_is_in_sync(five: Cluster) -> None:
    five.alter(1, 2)
    move(five, 1, 3)
    assert five.state().removing == (2,)
    five.alter(1, 2, 3)
    assert five.state() == PartitionState((1, 3), (1, 3), 1, 1, 3)


def test_a_move_ends_also_when_the_last_who_is_to_go_dies(five: Cluster) -> None:
    """What is counted is who stays."""
    move(five, 4, 5)
    five.alter(1, 2, 3, 4)
    five.fence(1, 2, 3)
    assert (five.leads, five.state().removing) == (4, (1, 2, 3))
    five.alter(4, 5)
    assert five.state().replicas == (4, 5)
    assert under_way(five) == ()


def test_who_joins_by_a_move_has_to_be_active(five: Cluster) -> None:
    move(five, 4, 5)
    five.fence(4)
    answer = five.alter(1, 2, 3, 4)
    assert isinstance(answer, AlterPartitionAnswer)
    assert answer.error is Error.INELIGIBLE_REPLICA


def test_who_is_gone_is_not_eligible_any_more(five: Cluster) -> None:
    """Its copy is deleted."""
    five.configure(MIN_ISR, "3")
    move(five, 1, 2)
    assert (five.state().isr, five.state().elr) == ((1, 2), ())


def test_a_partition_without_a_leader_moves_when_it_has_one_again(five: Cluster) -> None:
    five.fence(2, 3, 1)
    move(five, 1, 4)
    assert (five.leads, five.state().adding) == (NO_LEADER, (4,))
    five.beat(1)
    five.alter(1, 4)
    assert five.state().replicas == (1, 4)


def test_a_new_partition_of_a_moving_topic_has_as_many_replicas_as_are_wanted(
    five: Cluster,
) -> None:
    move(five, 4, 5)
    request = CreatePartitions("orders", 2)
    assert five.committed(five.controller.on_create_partitions(request)).error is Error.NONE
    assert len(five.state(1).replicas) == 2


# What is refused


@pytest.mark.parametrize(
    ("request_", "answer"),
    [
        (
            AlterReassignment(TopicPartition("orders", 9), (1,)),
            AdminAnswer(Error.UNKNOWN_TOPIC_OR_PARTITION, "orders-9"),
        ),
        (
            AlterReassignment(PARTITION, ()),
            AdminAnswer(
                Error.INVALID_REPLICA_ASSIGNMENT, "replicas are on different brokers, not on ()"
            ),
        ),
        (
            AlterReassignment(PARTITION, (1, 1)),
            AdminAnswer(
                Error.INVALID_REPLICA_ASSIGNMENT,
                "replicas are on different brokers, not on (1, 1)",
            ),
        ),
        (
            AlterReassignment(PARTITION, (1, 9)),
            AdminAnswer(Error.INVALID_REPLICA_ASSIGNMENT, "there is no broker 9"),
        ),
        (
            AlterReassignment(PARTITION, (4, 5), may_change_replication_factor=False),
            AdminAnswer(
                Error.INVALID_REPLICATION_FACTOR, "orders-0 has 3 replicas, and would have 2"
            ),
        ),
        (
            AlterReassignment(PARTITION, None),
            AdminAnswer(Error.NO_REASSIGNMENT_IN_PROGRESS, "orders-0"),
        ),
    ],
)
def test_a_move_that_cannot_be_is_refused(
    five: Cluster, request_: AlterReassignment, answer: AdminAnswer
) -> None:
    assert five.controller.on_alter_reassignment(request_) == ((), answer)


def test_as_many_replicas_as_are_wanted_count_while_a_move_is_under_way(five: Cluster) -> None:
    """KIP-860."""
    move(five, 4, 5)
    assert move(five, 1, 2, 3, may_change=False) is Error.INVALID_REPLICATION_FACTOR
    assert move(five, 1, 4, may_change=False) is Error.NONE


# What is called off


def test_a_move_that_is_called_off_leaves_things_as_they_were(five: Cluster) -> None:
    move(five, 4, 5)
    five.alter(1, 2, 3, 4)
    assert call_off(five) is Error.NONE
    assert five.state() == PartitionState((1, 2, 3), (1, 2, 3), 1, 1, 3)
    assert call_off(five) is Error.NO_REASSIGNMENT_IN_PROGRESS


def test_calling_off_the_second_of_two_moves_leaves_things_as_before_the_first(
    five: Cluster,
) -> None:
    """KIP-455."""
    move(five, 1, 4)
    move(five, 1, 5)
    assert five.state().adding == (4, 5)
    assert call_off(five) is Error.NONE
    assert sorted(five.state().replicas) == [1, 2, 3]


def test_a_move_back_is_over_at_once(five: Cluster) -> None:
    move(five, 4, 5)
    move(five, 1, 2, 3)
    assert five.state() == PartitionState((1, 2, 3), (1, 2, 3), 1, 1, 2)


def test_calling_off_does_not_hand_the_lead_to_somebody_who_may_miss_something(
    five: Cluster,
) -> None:
    """Only who was to come is in sync: those who were there have missed what it committed."""
    move(five, 4, 5)
    five.alter(1, 2, 3, 4)
    five.fence(1, 2, 3)
    five.beat(2)
    assert (five.leads, five.isr) == (4, (4,))
    assert call_off(five) is Error.INVALID_REPLICA_ASSIGNMENT
    assert five.state().adding == (4, 5)
    five.configure(UNCLEAN, "true")
    assert call_off(five) is Error.NONE
    assert (five.leads, five.isr, five.state().replicas) == (2, (2,), (1, 2, 3))


def test_a_list_names_only_what_is_asked_for(five: Cluster) -> None:
    move(five, 4, 5)
    request = ListReassignments((TopicPartition("orders", 7), TopicPartition("none", 0)))
    assert five.controller.on_list_reassignments(request).answer == ListReassignmentsAnswer(
        Error.NONE
    )
    request = ListReassignments((PARTITION,))
    answer = five.controller.on_list_reassignments(request).answer
    assert isinstance(answer, ListReassignmentsAnswer)
    assert [found.partition for found in answer.found] == [PARTITION]


# By itself


def test_nobody_leaves_before_everybody_who_stays_is_in_sync() -> None:
    moving = Assignment((3, 4, 1, 2), (3, 4), (1, 2))
    for isr in ((1, 2), (1, 2, 3), (1, 2, 4), (3,), ()):
        assert completed(moving, isr) is None
    assert completed(moving, (4, 3)) == Placed(Assignment((3, 4)), (4, 3))
    assert completed(Assignment((1, 2)), (1, 2)) is None


def test_there_and_back_again() -> None:
    state = PartitionState((1, 2), (1, 2), 1)
    there = towards(state, (2, 3))
    assert there == Assignment((2, 3, 1), (3,), (1,))
    moving = state._replace(replicas=there.replicas, adding=there.adding, removing=there.removing)
    assert reverted(moving) == Placed(Assignment((2, 1)), (1, 2))


# With brokers


def test_brokers_copy_what_moves_and_drop_what_has_moved_away() -> None:
    host = Host(brokers=(1, 2, 3))
    host.wait(500)
    assert host.ask(100, CreateTopic("orders", 1, 2, assignment=((1, 2),))).error is Error.NONE
    host.ask(1, Produce(ALL, 60_000, ((PARTITION, records(b"a", b"b")),)))
    assert host.ask(100, AlterReassignment(PARTITION, (3, 2))).error is Error.NONE
    host.wait(5_000)
    state = host.controller().image.partitions[PARTITION]
    assert (state.replicas, state.leader, state.adding) == ((3, 2), 3, ())
    assert values(host.replica(3, PARTITION).log) == [b"a", b"b"]
    assert PARTITION not in host.broker(1).replicas
