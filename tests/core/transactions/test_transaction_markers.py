"""Markers: every leader is asked until it has written one, and the next coordinator goes on."""

from __future__ import annotations

import pytest
from transaction_host import LEADER, NEW, OLD, ORDERS, PAYMENTS, Host

from lossless.core.machine import Send
from lossless.core.messages import Error, Producer, WriteTxnMarker
from lossless.core.transactions.config import TransactionConfig
from lossless.core.transactions.messages import DescribeTransaction
from lossless.core.transactions.state import TransactionState
from lossless.log.batch import Record

BACKOFF_MS = TransactionConfig().marker_retry_backoff_ms


@pytest.fixture
def host() -> Host:
    """With a transaction in two partitions."""
    host = Host()
    host.open(ORDERS, PAYMENTS)
    return host


def end(host: Host, committed: bool = True, version: int = NEW) -> None:
    known = host.shard.transactions["shop"]
    assert host.end(known, committed, version).error is Error.NONE


@pytest.mark.parametrize("committed", [True, False])
def test_every_leader_gets_a_marker(host: Host, committed: bool) -> None:
    host.leaders[PAYMENTS] = 8
    end(host, committed)
    assert host.sent == [
        Send(LEADER, WriteTxnMarker(ORDERS, 1000, 1, host.coordinator_epoch, committed)),
        Send(8, WriteTxnMarker(PAYMENTS, 1000, 1, host.coordinator_epoch, committed)),
    ]


def test_the_marker_of_an_old_client_has_its_epoch(host: Host) -> None:
    end(host, version=OLD)
    assert {send.request.producer_epoch for send in host.sent} == {0}


@pytest.mark.parametrize(
    ("committed", "state"),
    [(True, TransactionState.COMPLETE_COMMIT), (False, TransactionState.COMPLETE_ABORT)],
)
def test_it_is_complete_when_all_markers_are_written(
    host: Host, committed: bool, state: TransactionState
) -> None:
    end(host, committed)
    first, second = host.sent
    host.answer(first)
    assert host.state() in (TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT)
    host.answer(second)
    assert host.state() is state
    assert host.shard.transactions["shop"].partitions == ()


def test_a_description_has_the_partitions_without_a_marker(host: Host) -> None:
    end(host)
    host.answer(host.sent[0])
    assert host.ask(DescribeTransaction("shop")).partitions == (PAYMENTS,)


@pytest.mark.parametrize(
    "error",
    [
        None,
        Error.NOT_LEADER_OR_FOLLOWER,
        Error.UNKNOWN_TOPIC_OR_PARTITION,
        Error.NOT_ENOUGH_REPLICAS,
        Error.REQUEST_TIMED_OUT,
        Error.KAFKA_STORAGE_ERROR,
        Error.CORRUPT_MESSAGE,
    ],
)
def test_who_could_not_write_is_asked_again_later(host: Host, error: Error | None) -> None:
    end(host)
    first, second = host.sent
    host.answer(first, error)
    host.answer(second)
    assert host.sent == []
    host.wait(BACKOFF_MS - 1)
    assert host.sent == []
    host.wait(1)
    assert host.sent == [first]
    host.answer(first)
    assert host.state() is TransactionState.COMPLETE_COMMIT


def test_another_leader_is_asked_when_there_is_one(host: Host) -> None:
    end(host)
    host.answer_all(Error.NOT_LEADER_OR_FOLLOWER)
    host.leaders = {ORDERS: 8, PAYMENTS: 9}
    host.wait(BACKOFF_MS)
    assert [send.to for send in host.sent] == [8, 9]


def test_a_leader_that_never_answers_is_not_waited_for_when_there_is_another(host: Host) -> None:
    end(host)
    frozen, other = host.sent
    host.answer(other)
    host.leaders[ORDERS] = 8
    host.shard.on_leaders_changed(host.now_ms)
    host.wait(0)
    assert host.sent == [frozen, Send(8, frozen.request)]
    host.answer(frozen, Error.NOT_LEADER_OR_FOLLOWER)  # it has woken up, which is no news
    host.wait(BACKOFF_MS)
    (asked,) = host.sent
    host.answer(asked)
    assert host.state() is TransactionState.COMPLETE_COMMIT


def test_a_partition_without_a_leader_waits_for_one(host: Host) -> None:
    host.leaders[ORDERS] = None
    end(host)
    assert [send.request.partition for send in host.sent] == [PAYMENTS]
    host.answer_all()
    host.wait(BACKOFF_MS * 5)
    assert host.sent == []
    assert host.state() is TransactionState.PREPARE_COMMIT
    host.leaders[ORDERS] = 8
    host.wait(BACKOFF_MS)
    assert [send.to for send in host.sent] == [8]


def test_who_is_being_asked_is_not_asked_twice(host: Host) -> None:
    end(host)
    host.answer(host.sent[0], Error.NOT_LEADER_OR_FOLLOWER)
    host.wait(BACKOFF_MS * 3)
    assert sorted(send.request.partition for send in host.sent) == [ORDERS, PAYMENTS]


def test_a_partition_that_was_deleted_needs_no_marker(host: Host) -> None:
    end(host)
    host.answer(host.sent[1])
    host.answer(host.sent[0], Error.UNKNOWN_TOPIC_OR_PARTITION)
    host.gone = {ORDERS}
    host.wait(BACKOFF_MS)
    assert host.state() is TransactionState.COMPLETE_COMMIT


def test_a_transaction_whose_partitions_were_all_deleted_is_complete_at_once(host: Host) -> None:
    host.gone = {ORDERS, PAYMENTS}
    end(host)
    assert host.sent == []
    assert host.state() is TransactionState.COMPLETE_COMMIT


@pytest.mark.parametrize("error", [Error.UNSUPPORTED_FOR_MESSAGE_FORMAT, Error.UNSUPPORTED_VERSION])
def test_a_partition_that_can_have_no_transaction_needs_no_marker(host: Host, error: Error) -> None:
    end(host)
    host.answer(host.sent[0], error)
    host.answer_all()
    assert host.state() is TransactionState.COMPLETE_COMMIT


@pytest.mark.parametrize(
    "error", [Error.TRANSACTION_COORDINATOR_FENCED, Error.INVALID_PRODUCER_EPOCH]
)
def test_where_a_later_coordinator_has_written_this_one_gives_up(host: Host, error: Error) -> None:
    end(host)
    first, second = host.sent
    host.answer(first, error)
    host.answer(second, Error.NOT_LEADER_OR_FOLLOWER)
    host.wait(BACKOFF_MS * 2)
    assert host.sent == []
    assert host.state() is TransactionState.PREPARE_COMMIT
    host.fail_over()
    host.answer_all()
    assert host.state() is TransactionState.COMPLETE_COMMIT


# The next coordinator


@pytest.mark.parametrize("committed", [True, False])
def test_the_next_coordinator_goes_on_with_what_was_decided(host: Host, committed: bool) -> None:
    end(host, committed)
    host.answer(host.sent[0])
    before = host.coordinator_epoch
    host.fail_over()
    assert [send.request.coordinator_epoch for send in host.sent] == [before + 1] * 2
    assert {send.request.committed for send in host.sent} == {committed}
    host.answer_all()
    expected = TransactionState.COMPLETE_COMMIT if committed else TransactionState.COMPLETE_ABORT
    assert host.state() is expected


def test_the_next_coordinator_leaves_alone_what_is_going_on(host: Host) -> None:
    host.fail_over()
    assert host.sent == []
    assert host.state() is TransactionState.ONGOING


def test_the_next_coordinator_completes_at_once_what_needs_no_marker(host: Host) -> None:
    end(host)
    host.gone = {ORDERS, PAYMENTS}
    host.fail_over()
    assert host.state() is TransactionState.COMPLETE_COMMIT


def test_an_answer_to_an_earlier_coordinator_counts_for_nothing(host: Host) -> None:
    end(host)
    stale = list(host.sent)
    host.fail_over()
    for send in stale:
        host.sent.append(send)
        host.answer(send)
    assert host.state() is TransactionState.PREPARE_COMMIT


def test_an_answer_to_somebody_else_counts_for_nothing(host: Host) -> None:
    end(host)
    marker = host.sent[0].request
    for other in (
        marker._replace(producer_id=1),
        marker._replace(producer_epoch=5),
        marker._replace(partition=ORDERS._replace(partition=9)),
    ):
        host.sent.append(Send(LEADER, other))
        host.answer(host.sent[-1])
    host.act(host.shard.on_answer(LEADER, "another question", None, host.now_ms))
    assert host.state() is TransactionState.PREPARE_COMMIT
    assert len(host.sent) == 2


def test_the_end_of_somebody_elses_transaction_here_changes_nothing(host: Host) -> None:
    before = dict(host.shard.transactions)
    host.shard.apply_marker(Producer(1000, 0), committed=True)
    assert host.shard.transactions == before


@pytest.mark.parametrize("key", [None, bytes.fromhex("0001 0004") + b"shop"])
def test_a_record_of_another_kind_is_passed_over(host: Host, key: bytes | None) -> None:
    before = dict(host.shard.transactions)
    host.shard.apply(Record(0, 0, key, None), None)
    assert host.shard.transactions == before
