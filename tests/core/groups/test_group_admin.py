"""Groups as administrators see them: listed, described, deleted. And who is not served at all."""

from __future__ import annotations

from typing import Any

import pytest
from group_host import (
    GROUP,
    ORDERS_0,
    PAYMENTS_0,
    Host,
    consuming,
    joining,
    subscription,
)

from lossless.core.coordinator import Outcome
from lossless.core.groups.messages import (
    ConsumerGroupDescribe,
    ConsumerGroupDescribeAnswer,
    ConsumerGroupHeartbeatAnswer,
    DeleteGroup,
    DeleteGroupAnswer,
    DescribedMember,
    DescribeGroup,
    DescribeGroupAnswer,
    Heartbeat,
    HeartbeatAnswer,
    JoinGroupAnswer,
    LeaveGroup,
    LeaveGroupAnswer,
    ListedGroup,
    ListGroups,
    ListGroupsAnswer,
    OffsetCommit,
    OffsetCommitAnswer,
    OffsetDelete,
    OffsetDeleteAnswer,
    OffsetFetch,
    OffsetFetchAnswer,
    OffsetToCommit,
    PartitionError,
    SyncGroup,
    SyncGroupAnswer,
    TopicsDeleted,
    TopicsDeletedAnswer,
    TxnOffsetCommit,
    key_of,
)
from lossless.core.groups.shard import refusal
from lossless.core.messages import Error, Producer

META = subscription("orders")


# Listing


@pytest.mark.parametrize(
    ("asked", "found"),
    [
        (ListGroups(), ["simple", GROUP, "new"]),
        (ListGroups(states=("stable",)), [GROUP]),
        (ListGroups(states=(" Empty ", "RECONCILING")), ["simple", "new"]),
        (ListGroups(states=("Dead",)), []),
        (ListGroups(types=("Classic",)), ["simple", GROUP]),
        (ListGroups(types=("consumer",)), ["new"]),
        (ListGroups(types=("share",)), []),
        (ListGroups(("Empty",), ("classic",)), ["simple"]),
    ],
)
def test_groups_are_listed_by_state_and_type(
    host: Host, asked: ListGroups, found: list[str]
) -> None:
    host.commit(group_id="simple")
    host.stable("a")
    host.consume("b", group_id="new")
    host.consume("c", group_id="new")
    answer = host.ask(asked)
    assert answer.error is Error.NONE
    assert [group.group_id for group in answer.groups] == found


def test_a_listed_group_says_what_it_is(host: Host) -> None:
    host.stable("a")
    host.consume("b", group_id="new")
    assert host.ask(ListGroups()) == ListGroupsAnswer(
        Error.NONE,
        (
            ListedGroup(GROUP, "consumer", "Stable", "classic"),
            ListedGroup("new", "consumer", "Stable", "consumer"),
        ),
    )


# Describing


def test_a_stable_group_is_described_with_what_its_members_say_and_have(host: Host) -> None:
    first, second = host.stable("a", "b")
    assert host.ask(DescribeGroup(GROUP)) == DescribeGroupAnswer(
        Error.NONE,
        GROUP,
        None,
        "Stable",
        "consumer",
        "range",
        tuple(
            DescribedMember(member, None, client, "/10.0.0.1", META, f"to {member}".encode())
            for member, client in ((first, "a"), (second, "b"))
        ),
    )


def test_a_group_that_rebalances_is_described_without_what_its_members_say(host: Host) -> None:
    member = host.member()
    host.pass_ms(0)
    answer = host.ask(DescribeGroup(GROUP))
    assert (answer.state, answer.protocol_data) == ("CompletingRebalance", "")
    assert answer.members == (DescribedMember(member, None, "app", "/10.0.0.1", b"", b""),)


def test_a_group_that_does_not_exist_is_dead(host: Host) -> None:
    host.consume("a", group_id="new")
    for group_id in ("other", "new"):
        answer = host.ask(DescribeGroup(group_id))
        assert (answer.error, answer.state) == (Error.GROUP_ID_NOT_FOUND, "Dead")
        answer = host.ask(DescribeGroup(group_id, api_version=5))
        assert answer == DescribeGroupAnswer(Error.NONE, group_id, state="Dead")


# Deleting


def test_an_empty_group_is_deleted_with_its_offsets(host: Host) -> None:
    (member,) = host.stable("a")
    host.leave(member)
    host.commit(ORDERS_0)
    host.commit(PAYMENTS_0)
    assert host.ask(DeleteGroup(GROUP)) == DeleteGroupAnswer(Error.NONE, GROUP)
    assert host.groups() == ()
    assert host.fetched(ORDERS_0) == -1
    host.fail_over()
    assert host.groups() == ()
    assert host.fetched(ORDERS_0) == -1


def test_an_empty_consumer_group_is_deleted_with_its_offsets(host: Host) -> None:
    host.consume("a", subscribed_topic_regex="o.*")
    host.consume("a", -1)
    host.commit()
    assert host.ask(DeleteGroup(GROUP)).error is Error.NONE
    assert host.groups() == ()
    host.fail_over()
    assert host.groups() == ()


def test_a_group_with_members_is_not_deleted(host: Host) -> None:
    host.stable("a")
    host.consume("a", group_id="new")
    for group_id in (GROUP, "new"):
        assert host.ask(DeleteGroup(group_id)) == DeleteGroupAnswer(Error.NON_EMPTY_GROUP, group_id)
    assert len(host.groups()) == 2


def test_a_group_that_is_waited_for_is_not_deleted(host: Host) -> None:
    host.member()
    assert host.ask(DeleteGroup(GROUP)).error is Error.NON_EMPTY_GROUP


def test_a_group_that_does_not_exist_cannot_be_deleted(host: Host) -> None:
    assert host.ask(DeleteGroup(GROUP)) == DeleteGroupAnswer(Error.GROUP_ID_NOT_FOUND, GROUP)


# Who is not served


OFFSETS = (OffsetToCommit(ORDERS_0, 1), OffsetToCommit(PAYMENTS_0, 2))
REFUSED = OffsetCommitAnswer(
    (
        PartitionError(ORDERS_0, Error.NOT_COORDINATOR),
        PartitionError(PAYMENTS_0, Error.NOT_COORDINATOR),
    )
)


@pytest.mark.parametrize(
    ("request_", "answer"),
    [
        (joining("a"), JoinGroupAnswer(Error.NOT_COORDINATOR, "a")),
        (SyncGroup(GROUP, 1, "a"), SyncGroupAnswer(Error.NOT_COORDINATOR)),
        (Heartbeat(GROUP, 1, "a"), HeartbeatAnswer(Error.NOT_COORDINATOR)),
        (LeaveGroup(GROUP, ()), LeaveGroupAnswer(Error.NOT_COORDINATOR)),
        (consuming("a"), ConsumerGroupHeartbeatAnswer(Error.NOT_COORDINATOR)),
        (
            ConsumerGroupDescribe(GROUP),
            ConsumerGroupDescribeAnswer(Error.NOT_COORDINATOR, GROUP),
        ),
        (OffsetCommit(GROUP, OFFSETS), REFUSED),
        (TxnOffsetCommit(GROUP, OFFSETS, Producer(1, 0)), REFUSED),
        (OffsetFetch(GROUP), OffsetFetchAnswer(Error.NOT_COORDINATOR, GROUP)),
        (OffsetDelete(GROUP, ()), OffsetDeleteAnswer(Error.NOT_COORDINATOR)),
        (DescribeGroup(GROUP), DescribeGroupAnswer(Error.NOT_COORDINATOR, GROUP)),
        (DeleteGroup(GROUP), DeleteGroupAnswer(Error.NOT_COORDINATOR, GROUP)),
    ],
)
def test_a_request_about_a_group_finds_its_shard_and_can_be_refused(
    request_: Any, answer: Any
) -> None:
    assert key_of(request_) == GROUP
    assert refusal(request_, Error.NOT_COORDINATOR) == answer


def test_a_request_to_every_shard_can_be_refused() -> None:
    error = Error.COORDINATOR_NOT_AVAILABLE
    assert refusal(ListGroups(), error) == ListGroupsAnswer(error)
    assert refusal(TopicsDeleted(()), error) == TopicsDeletedAnswer(error)


def test_a_group_coordinator_asks_nobody_and_expects_no_answers(host: Host) -> None:
    assert host.shard.on_answer(1, None, None, host.now_ms) == Outcome()
