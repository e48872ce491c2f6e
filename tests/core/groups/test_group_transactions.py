"""Offsets that are committed in transactions count when the transaction does."""

from __future__ import annotations

import pytest
from group_host import GROUP, ORDERS_0, ORDERS_1, PAYMENTS_0, Host

from lossless.core.groups.config import GroupConfig
from lossless.core.groups.messages import (
    DeleteGroup,
    OffsetCommitAnswer,
    OffsetDelete,
    OffsetFetch,
    OffsetToCommit,
    PartitionError,
    TopicsDeleted,
    TxnOffsetCommit,
)
from lossless.core.messages import Error, Producer, TopicPartition

FIRST = Producer(7, 0)
SECOND = Producer(8, 0)


def commit(
    host: Host,
    offset: int = 9,
    partition: TopicPartition = ORDERS_0,
    producer: Producer = FIRST,
    **said: object,
) -> Error:
    request = TxnOffsetCommit(GROUP, (OffsetToCommit(partition, offset),), producer)
    ((_, error),) = host.ask(request._replace(**said)).partitions
    assert isinstance(error, Error)
    return error


def test_an_offset_counts_when_its_transaction_is_committed(host: Host) -> None:
    host.commit(offset=5)
    assert commit(host) is Error.NONE
    assert host.fetched() == 5
    host.end_transaction(FIRST, committed=True)
    assert host.fetched() == 9


def test_an_offset_is_forgotten_when_its_transaction_is_aborted(host: Host) -> None:
    host.commit(offset=5)
    commit(host)
    host.end_transaction(FIRST, committed=False)
    assert host.fetched() == 5
    assert host.fetched(require_stable=True) == 5


def test_the_records_of_a_transaction_are_its_producers(host: Host) -> None:
    host.commit(offset=5)
    commit(host)
    assert [producer for _, producer in host.log] == [None, FIRST]


def test_an_offset_that_may_change_is_not_told_to_who_asks_for_what_is_stable(host: Host) -> None:
    host.commit(ORDERS_0, 5)
    host.commit(PAYMENTS_0, 6)
    commit(host)
    assert host.fetched(require_stable=True) is Error.UNSTABLE_OFFSET_COMMIT
    assert host.fetched(PAYMENTS_0, require_stable=True) == 6
    answer = host.ask(OffsetFetch(GROUP, None, True))
    assert [(one.error, one.offset) for one in answer.partitions] == [
        (Error.UNSTABLE_OFFSET_COMMIT, -1),
        (Error.NONE, 6),
    ]


def test_the_first_offset_of_a_partition_may_be_pending_too(host: Host) -> None:
    commit(host)
    assert host.fetched() == -1
    assert host.fetched(require_stable=True) is Error.UNSTABLE_OFFSET_COMMIT


def test_what_was_committed_last_counts_whichever_becomes_visible_last(host: Host) -> None:
    commit(host, 9)
    host.commit(offset=5)
    host.end_transaction(FIRST, committed=True)
    assert host.fetched() == 5


def test_two_transactions_do_not_touch_each_other(host: Host) -> None:
    commit(host, 9, ORDERS_0, FIRST)
    commit(host, 8, ORDERS_1, SECOND)
    host.end_transaction(SECOND, committed=False)
    host.end_transaction(FIRST, committed=True)
    assert (host.fetched(ORDERS_0), host.fetched(ORDERS_1)) == (9, -1)


def test_the_end_of_a_transaction_without_offsets_changes_nothing(host: Host) -> None:
    host.commit(offset=5)
    host.end_transaction(FIRST, committed=True)
    assert host.fetched() == 5


def test_pending_offsets_survive_a_failover(host: Host) -> None:
    commit(host)
    host.fail_over()
    assert host.fetched(require_stable=True) is Error.UNSTABLE_OFFSET_COMMIT
    host.end_transaction(FIRST, committed=True)
    assert host.fetched() == 9


def test_a_producer_whose_epoch_is_over_is_refused(host: Host) -> None:
    commit(host)
    host.end_transaction(Producer(7, 1), committed=False)
    assert commit(host) is Error.INVALID_PRODUCER_EPOCH
    assert commit(host, producer=Producer(7, 1)) is Error.NONE
    assert commit(host) is Error.INVALID_PRODUCER_EPOCH


# Who may


def test_old_producers_do_not_say_for_whom_they_commit_and_may(host: Host) -> None:
    host.stable("a")
    assert commit(host) is Error.NONE


@pytest.mark.parametrize(
    ("said", "error"),
    [
        ({"group_id": ""}, Error.INVALID_GROUP_ID),
        ({"group_id": "other", "generation_id": 1}, Error.ILLEGAL_GENERATION),
        ({"member_id": "other"}, Error.UNKNOWN_MEMBER_ID),
        ({"member_id": "other", "generation_id": 1}, Error.UNKNOWN_MEMBER_ID),
        ({"group_instance_id": "i"}, Error.UNKNOWN_MEMBER_ID),
    ],
)
def test_who_says_for_whom_it_commits_must_be_right(
    host: Host, said: dict[str, object], error: Error
) -> None:
    (member,) = host.stable("a")
    before = len(host.log)
    assert commit(host, **said) is error
    assert len(host.log) == before
    assert commit(host, member_id=member, generation_id=0) is Error.ILLEGAL_GENERATION
    assert commit(host, member_id=member, generation_id=1) is Error.NONE


def test_a_transaction_may_commit_while_the_leader_assigns(host: Host) -> None:
    member = host.member()
    host.pass_ms(0)
    assert commit(host, member_id=member, generation_id=1) is Error.NONE


def test_metadata_that_is_too_large_is_refused() -> None:
    host = Host(GroupConfig(offset_metadata_max_bytes=3))
    offsets = (OffsetToCommit(ORDERS_0, 9, metadata="four"), OffsetToCommit(ORDERS_1, 9))
    assert host.ask(TxnOffsetCommit(GROUP, offsets, FIRST)) == OffsetCommitAnswer(
        (
            PartitionError(ORDERS_0, Error.OFFSET_METADATA_TOO_LARGE),
            PartitionError(ORDERS_1, Error.NONE),
        )
    )


# What is deleted does not come back


def test_a_pending_offset_that_is_deleted_does_not_come_back(host: Host) -> None:
    commit(host)
    host.ask(OffsetDelete(GROUP, (ORDERS_0,)))
    host.end_transaction(FIRST, committed=True)
    assert host.fetched() == -1


def test_pending_offsets_go_with_their_group(host: Host) -> None:
    host.commit(PAYMENTS_0)
    commit(host)
    assert host.ask(DeleteGroup(GROUP)).error is Error.NONE
    host.end_transaction(FIRST, committed=True)
    assert host.groups() == ()
    assert (host.fetched(), host.fetched(PAYMENTS_0)) == (-1, -1)


def test_pending_offsets_go_with_their_topic(host: Host) -> None:
    commit(host, partition=ORDERS_0)
    commit(host, partition=PAYMENTS_0)
    host.ask(TopicsDeleted(("orders",)))
    host.end_transaction(FIRST, committed=True)
    assert (host.fetched(ORDERS_0), host.fetched(PAYMENTS_0)) == (-1, 9)
