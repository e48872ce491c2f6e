"""Committed offsets: who may commit, what is told, what is deleted."""

from __future__ import annotations

import pytest
from group_host import (
    GROUP,
    ORDERS_0,
    ORDERS_1,
    PAYMENTS_0,
    SESSION_MS,
    START_MS,
    Host,
    joining,
    subscription,
)

from lossless.core.groups.config import GroupConfig
from lossless.core.groups.messages import (
    OffsetCommit,
    OffsetCommitAnswer,
    OffsetDelete,
    OffsetDeleteAnswer,
    OffsetFetch,
    OffsetFetchAnswer,
    OffsetFetched,
    OffsetToCommit,
    PartitionError,
    TopicsDeleted,
    TopicsDeletedAnswer,
)
from lossless.core.groups.records import (
    GroupMetadataKey,
    GroupMetadataMember,
    GroupMetadataValue,
    OffsetCommitKey,
    OffsetCommitValue,
)
from lossless.core.messages import Error


def as_member(member: str, generation: int = 1) -> dict[str, object]:
    return {"member_id": member, "generation_id_or_member_epoch": generation}


# Committing


def test_what_was_committed_is_fetched_and_survives_a_failover(host: Host) -> None:
    (member,) = host.stable("a")
    assert host.commit(ORDERS_0, 7, leader_epoch=4, metadata="m", **as_member(member)) is Error.NONE
    host.fail_over()
    assert host.ask(OffsetFetch(GROUP, (ORDERS_0,))) == OffsetFetchAnswer(
        Error.NONE, GROUP, (OffsetFetched(ORDERS_0, Error.NONE, 7, 4, "m"),)
    )


def test_a_commit_is_written_down_with_its_time(host: Host) -> None:
    host.commit(ORDERS_1, 7, leader_epoch=4, metadata="m")
    assert host.written() == [
        (OffsetCommitKey(GROUP, "orders", 1), OffsetCommitValue(7, 4, "m", START_MS))
    ]


def test_the_last_commit_counts(host: Host) -> None:
    for offset in (3, 9, 5):
        host.commit(offset=offset)
    assert host.fetched() == 5


def test_offsets_can_be_committed_without_being_a_member_of_a_group(host: Host) -> None:
    assert host.commit() is Error.NONE
    (group,) = host.groups()
    assert (group.protocol_type, group.state, group.type) == ("", "Empty", "classic")


def test_an_empty_group_takes_offsets_from_anybody(host: Host) -> None:
    (member,) = host.stable("a")
    host.leave(member)
    assert host.commit() is Error.NONE


@pytest.mark.parametrize(
    ("said", "error"),
    [
        ({}, Error.UNKNOWN_MEMBER_ID),
        ({"member_id": "other"}, Error.UNKNOWN_MEMBER_ID),
        ({"member_id": "other", "generation_id_or_member_epoch": 1}, Error.UNKNOWN_MEMBER_ID),
        ({"group_instance_id": "i"}, Error.UNKNOWN_MEMBER_ID),
    ],
)
def test_a_group_with_members_takes_no_offsets_from_others(
    host: Host, said: dict[str, object], error: Error
) -> None:
    host.stable("a")
    assert host.commit(**said) is error
    assert host.fetched() == -1


@pytest.mark.parametrize("generation", [-1, 0, 2])
def test_offsets_of_another_generation_are_refused(host: Host, generation: int) -> None:
    (member,) = host.stable("a")
    assert host.commit(**as_member(member, generation)) is Error.ILLEGAL_GENERATION


def test_before_the_leader_has_assigned_nobody_may_commit(host: Host) -> None:
    member = host.member()
    host.pass_ms(0)
    assert host.commit(**as_member(member)) is Error.REBALANCE_IN_PROGRESS


def test_members_commit_what_they_have_done_before_they_join_again(host: Host) -> None:
    first, second = host.stable("a", "b")
    host.join(first)
    assert host.commit(**as_member(second)) is Error.NONE


def test_a_member_that_commits_is_alive(host: Host) -> None:
    (member,) = host.stable("a")
    for _ in range(3):
        host.pass_ms(SESSION_MS - 1)
        assert host.commit(**as_member(member)) is Error.NONE


def test_a_refused_commit_is_no_sign_of_life(host: Host) -> None:
    (member,) = host.stable("a")
    host.pass_ms(SESSION_MS - 1)
    host.commit(**as_member(member, 2))
    host.pass_ms(1)
    assert host.state() == "Empty"


def test_a_member_of_a_group_that_does_not_exist_cannot_commit(host: Host) -> None:
    assert host.commit(**as_member("a")) is Error.GROUP_ID_NOT_FOUND
    assert host.commit(**as_member("a"), api_version=8) is Error.ILLEGAL_GENERATION
    assert host.groups() == ()


def test_metadata_that_is_too_large_is_refused_for_its_partition_alone(host: Host) -> None:
    assert host.commit(ORDERS_0, metadata="x" * 4_096) is Error.NONE
    large = OffsetToCommit(ORDERS_1, 1, metadata="x" * 4_097)
    answer = host.ask(OffsetCommit(GROUP, (large, OffsetToCommit(PAYMENTS_0, 2))))
    assert answer == OffsetCommitAnswer(
        (
            PartitionError(ORDERS_1, Error.OFFSET_METADATA_TOO_LARGE),
            PartitionError(PAYMENTS_0, Error.NONE),
        )
    )
    assert [host.fetched(ORDERS_1), host.fetched(PAYMENTS_0)] == [-1, 2]


def test_the_limit_of_metadata_is_a_setting() -> None:
    host = Host(GroupConfig(offset_metadata_max_bytes=3))
    assert host.commit(metadata="four") is Error.OFFSET_METADATA_TOO_LARGE
    assert host.groups() == ()


# Fetching


def test_nothing_committed_is_no_error(host: Host) -> None:
    nothing = OffsetFetched(ORDERS_0, Error.NONE, -1, -1, "")
    assert host.ask(OffsetFetch(GROUP, (ORDERS_0,))).partitions == (nothing,)
    host.commit(ORDERS_1)
    assert host.ask(OffsetFetch(GROUP, (ORDERS_0,))).partitions == (nothing,)


def test_all_that_was_committed_is_told_to_who_names_nothing(host: Host) -> None:
    host.commit(ORDERS_0, 1)
    host.commit(PAYMENTS_0, 2)
    host.commit(PAYMENTS_0, 9, group_id="other")
    answer = host.ask(OffsetFetch(GROUP))
    assert [(one.partition, one.offset) for one in answer.partitions] == [
        (ORDERS_0, 1),
        (PAYMENTS_0, 2),
    ]
    assert host.ask(OffsetFetch("nobody")) == OffsetFetchAnswer(Error.NONE, "nobody")


# Deleting


def test_offsets_of_an_empty_group_can_be_deleted(host: Host) -> None:
    host.commit(ORDERS_0)
    host.commit(PAYMENTS_0)
    answer = host.ask(OffsetDelete(GROUP, (ORDERS_0, ORDERS_1)))
    assert answer == OffsetDeleteAnswer(
        Error.NONE, (PartitionError(ORDERS_0, Error.NONE), PartitionError(ORDERS_1, Error.NONE))
    )
    assert [host.fetched(ORDERS_0), host.fetched(PAYMENTS_0)] == [-1, 5]
    # What was not there leaves no trace.
    assert len(host.log) == 3


def test_offsets_of_topics_that_members_read_cannot_be_deleted(host: Host) -> None:
    (member,) = host.stable("a")
    host.commit(ORDERS_0, **as_member(member))
    host.commit(PAYMENTS_0, **as_member(member))
    answer = host.ask(OffsetDelete(GROUP, (ORDERS_0, PAYMENTS_0)))
    assert [error for _, error in answer.partitions] == [
        Error.GROUP_SUBSCRIBED_TO_TOPIC,
        Error.NONE,
    ]
    assert [host.fetched(ORDERS_0), host.fetched(PAYMENTS_0)] == [5, -1]


def test_a_group_whose_members_say_what_nobody_understands_keeps_all_offsets(host: Host) -> None:
    (member,) = host.stable("a", protocols=(("range", b"?"),))
    host.commit(PAYMENTS_0, **as_member(member))
    answer = host.ask(OffsetDelete(GROUP, (PAYMENTS_0,)))
    assert answer.partitions == (PartitionError(PAYMENTS_0, Error.GROUP_SUBSCRIBED_TO_TOPIC),)


def test_a_group_that_has_not_agreed_on_a_protocol_yet_keeps_all_offsets(host: Host) -> None:
    host.commit(PAYMENTS_0)
    host.member()
    answer = host.ask(OffsetDelete(GROUP, (PAYMENTS_0,)))
    assert answer.partitions == (PartitionError(PAYMENTS_0, Error.GROUP_SUBSCRIBED_TO_TOPIC),)


@pytest.mark.parametrize(
    ("group_id", "error"), [("", Error.INVALID_GROUP_ID), ("other", Error.GROUP_ID_NOT_FOUND)]
)
def test_offsets_of_no_group_cannot_be_deleted(host: Host, group_id: str, error: Error) -> None:
    assert host.ask(OffsetDelete(group_id, (ORDERS_0,))) == OffsetDeleteAnswer(error)


def test_offsets_of_a_group_that_is_not_of_consumers_are_deleted_only_when_it_is_empty(
    host: Host,
) -> None:
    (member,) = host.stable("a", protocol_type="connect")
    host.commit(ORDERS_0, **as_member(member))
    assert host.ask(OffsetDelete(GROUP, (ORDERS_0,))).error is Error.NON_EMPTY_GROUP
    host.leave(member)
    assert host.ask(OffsetDelete(GROUP, (ORDERS_0,))).error is Error.NONE
    assert host.fetched() == -1


def test_offsets_of_a_topic_that_is_deleted_go_with_it(host: Host) -> None:
    (member,) = host.stable("a")
    host.commit(ORDERS_0, **as_member(member))
    host.commit(PAYMENTS_0, **as_member(member))
    host.commit(ORDERS_1, group_id="other")
    assert host.ask(TopicsDeleted(("orders",))) == TopicsDeletedAnswer(Error.NONE)
    assert host.fetched(ORDERS_0) == host.fetched(ORDERS_1, group_id="other") == -1
    assert host.fetched(PAYMENTS_0) == 5


# What the log may say


def test_a_group_with_offsets_and_no_record_of_its_own_is_a_simple_one(host: Host) -> None:
    (member,) = host.stable("a")
    host.commit(**as_member(member))
    host.write(GroupMetadataKey(GROUP), None)
    host.fail_over()
    assert host.state() == "Empty"
    assert host.fetched() == 5


def test_a_subscription_of_any_version_begins_with_the_topics(host: Host) -> None:
    said = b"\0\3" + subscription("orders")[2:] + b"and more"
    member = GroupMetadataMember("a", None, "", "", 1, SESSION_MS, said, b"")
    value = GroupMetadataValue("consumer", 1, "range", "a", START_MS, (member,))
    host.write(GroupMetadataKey(GROUP), value)
    host.write(OffsetCommitKey(GROUP, "orders", 0), OffsetCommitValue(5))
    answer = host.ask(OffsetDelete(GROUP, (ORDERS_0, PAYMENTS_0)))
    assert [error for _, error in answer.partitions] == [
        Error.GROUP_SUBSCRIBED_TO_TOPIC,
        Error.NONE,
    ]


def test_a_tombstone_of_what_is_not_there_does_nothing(host: Host) -> None:
    host.write(OffsetCommitKey(GROUP, "orders", 0), None)
    host.commit(ORDERS_0)
    host.write(OffsetCommitKey(GROUP, "orders", 1), None)
    assert host.fetched(ORDERS_0) == 5


def test_a_member_that_joins_a_simple_group_finds_its_offsets(host: Host) -> None:
    host.commit()
    token = host.join(host.ask(joining()).member_id)
    host.pass_ms(0)
    assert host.joined(token).generation_id == 1
    assert host.fetched() == 5
