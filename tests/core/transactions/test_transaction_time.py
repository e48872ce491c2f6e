"""What time does: transactions that take too long, and names that nobody uses any more."""

from __future__ import annotations

import pytest
from transaction_host import Host

from lossless.core.messages import Error
from lossless.core.transactions.config import TransactionConfig
from lossless.core.transactions.state import EPOCH_MAX, TransactionState

WEEK_MS = 7 * 24 * 3_600_000


@pytest.fixture
def host() -> Host:
    return Host()


def test_a_coordinator_of_nobody_sleeps(host: Host) -> None:
    assert host.shard.wake_ms is None


def test_a_transaction_that_takes_too_long_is_aborted(host: Host) -> None:
    host.open()
    host.wait(60_000)
    assert host.state() is TransactionState.ONGOING
    host.wait(10_000)
    assert host.state() is TransactionState.PREPARE_ABORT
    host.answer_all()
    assert host.state() is TransactionState.COMPLETE_ABORT


def test_who_took_too_long_is_fenced(host: Host) -> None:
    producer = host.open()
    host.wait(120_000)
    (send,) = host.sent
    assert send.request.producer_epoch == producer.producer_epoch + 1
    host.answer_all()
    assert host.add(producer) is Error.PRODUCER_FENCED


def test_under_version_1_who_took_too_long_is_fenced_as_well() -> None:
    host = Host(TransactionConfig(transaction_version=1))
    producer = host.open()
    host.wait(120_000)
    host.answer_all()
    assert host.add(producer) is Error.PRODUCER_FENCED
    assert host.shard.transactions["shop"].producer_epoch == 1


def test_time_runs_from_the_first_partition_and_not_from_the_last(host: Host) -> None:
    producer = host.open()
    host.wait(55_000)
    host.add(producer, *host.shard.transactions["shop"].partitions)
    host.wait(20_000)
    assert host.state() is TransactionState.PREPARE_ABORT


def test_a_transaction_that_ended_in_time_is_left_alone(host: Host) -> None:
    host.end(host.open(), committed=True)
    host.answer_all()
    host.wait(600_000)
    assert host.state() is TransactionState.COMPLETE_COMMIT


def test_a_commit_that_waits_for_its_markers_is_never_aborted(host: Host) -> None:
    host.end(host.open(), committed=True)
    host.wait(600_000)
    assert host.state() is TransactionState.PREPARE_COMMIT


def test_time_goes_on_across_a_failover(host: Host) -> None:
    host.open()
    host.wait(55_000)
    host.fail_over()
    host.wait(20_000)
    assert host.state() is TransactionState.PREPARE_ABORT


def test_the_last_usable_epoch_can_be_aborted_by_time(host: Host) -> None:
    host.open()
    known = host.shard.transactions["shop"]
    host.put("shop", known._replace(producer_epoch=EPOCH_MAX - 1))
    host.wait(120_000)
    assert host.shard.transactions["shop"].producer_epoch == EPOCH_MAX


# Names


def test_a_name_that_nobody_uses_is_forgotten(host: Host) -> None:
    host.init()
    host.wait(WEEK_MS - 1)
    assert "shop" in host.shard.transactions
    host.wait(3_600_000)
    assert host.shard.transactions == {}
    assert host.log[-1][1] is None
    assert host.replayed().transactions == {}


def test_a_name_whose_last_transaction_is_long_ago_is_forgotten(host: Host) -> None:
    host.end(host.open(), committed=True)
    host.answer_all()
    host.wait(WEEK_MS + 3_600_000)
    assert host.shard.transactions == {}


def test_a_name_that_is_being_ended_is_kept(host: Host) -> None:
    host.end(host.open(), committed=True)
    host.wait(WEEK_MS + 3_600_000)
    assert host.state() is TransactionState.PREPARE_COMMIT


def test_who_was_forgotten_has_no_transaction_any_more(host: Host) -> None:
    producer = host.init()
    host.wait(WEEK_MS + 3_600_000)
    assert host.add(producer) is Error.INVALID_PRODUCER_ID_MAPPING
    assert host.init().producer_id != producer.producer_id
