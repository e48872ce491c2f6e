"""Partitions and groups join a transaction, or are said to belong to it."""

from __future__ import annotations

from typing import Any

import pytest
from transaction_host import NEW, OLD, ORDERS, PAYMENTS, Host

from lossless.core.coordinator import partition_for
from lossless.core.messages import OFFSETS_TOPIC, Error, TopicPartition
from lossless.core.transactions.messages import AddOffsetsToTxn, AddPartitionsToTxn
from lossless.core.transactions.state import TransactionState


@pytest.fixture
def host() -> Host:
    return Host()


def verified(host: Host, producer: Any, *partitions: TopicPartition) -> dict[TopicPartition, Error]:
    request = AddPartitionsToTxn(
        "shop", producer.producer_id, producer.producer_epoch, partitions, verify_only=True
    )
    return dict(host.ask(request).partitions)


def test_the_first_partition_opens_the_transaction(host: Host) -> None:
    host.open(ORDERS)
    known = host.shard.transactions["shop"]
    assert (known.state, known.partitions) == (TransactionState.ONGOING, (ORDERS,))
    assert known.start_timestamp_ms == host.now_ms


def test_partitions_come_one_after_another(host: Host) -> None:
    producer = host.open(PAYMENTS)
    start_ms = host.now_ms
    host.now_ms += 5
    assert host.add(producer, ORDERS) is Error.NONE
    known = host.shard.transactions["shop"]
    assert known.partitions == (ORDERS, PAYMENTS)
    assert (known.start_timestamp_ms, known.last_update_timestamp_ms) == (start_ms, start_ms + 5)


def test_what_is_there_already_is_not_written_again(host: Host) -> None:
    producer = host.open(ORDERS, PAYMENTS)
    before = len(host.log)
    assert host.add(producer, ORDERS) is Error.NONE
    assert len(host.log) == before


@pytest.mark.parametrize("committed", [True, False])
def test_a_transaction_that_is_complete_is_followed_by_another(host: Host, committed: bool) -> None:
    producer = host.open()
    ended = host.end(producer, committed)
    host.answer_all()
    host.now_ms += 1
    assert host.add(ended, PAYMENTS) is Error.NONE
    known = host.shard.transactions["shop"]
    assert known.partitions == (PAYMENTS,)
    assert known.start_timestamp_ms == host.now_ms


def test_a_name_that_nobody_knows_has_no_producer(host: Host) -> None:
    producer = host.init()
    assert host.add(producer, name="bank") is Error.INVALID_PRODUCER_ID_MAPPING


def test_another_producer_id_is_refused(host: Host) -> None:
    producer = host.init()._replace(producer_id=1)
    assert host.add(producer) is Error.INVALID_PRODUCER_ID_MAPPING


@pytest.mark.parametrize("epoch", [0, 2])
def test_another_epoch_is_fenced(host: Host, epoch: int) -> None:
    host.init()
    producer = host.init()._replace(producer_epoch=epoch)
    assert host.add(producer) is Error.PRODUCER_FENCED
    assert host.add(producer, version=2) is Error.PRODUCER_FENCED
    assert host.add(producer, version=1) is Error.INVALID_PRODUCER_EPOCH


def test_without_a_name_nothing_is_added(host: Host) -> None:
    producer = host.init()
    assert host.add(producer, name="") is Error.INVALID_REQUEST


def test_a_partition_that_is_not_known_here_keeps_out_all_of_them(host: Host) -> None:
    """It could be taken for deleted later, and never get its marker."""
    producer = host.init()
    host.gone = {PAYMENTS}
    for verify_only in (False, True):
        request = AddPartitionsToTxn(
            "shop", producer.producer_id, 0, (ORDERS, PAYMENTS), verify_only
        )
        assert dict(host.ask(request).partitions) == {
            ORDERS: Error.OPERATION_NOT_ATTEMPTED,
            PAYMENTS: Error.UNKNOWN_TOPIC_OR_PARTITION,
        }
    assert host.state() is TransactionState.EMPTY


def test_while_the_one_before_ends_whoever_adds_comes_again(host: Host) -> None:
    producer = host.open()
    ended = host.end(producer, committed=True)
    assert host.add(ended, PAYMENTS) is Error.CONCURRENT_TRANSACTIONS
    # Even a producer id that is not in use yet: it may be the next one.
    unknown = producer._replace(producer_id=1)
    assert host.add(unknown, PAYMENTS) is Error.CONCURRENT_TRANSACTIONS
    host.answer_all()
    assert host.add(ended, PAYMENTS) is Error.NONE


@pytest.mark.parametrize(("version", "recorded"), [(3, 0), (4, 2), (5, 2)])
def test_the_record_says_what_the_client_understands(
    host: Host, version: int, recorded: int
) -> None:
    host.add(host.init(), version=version)
    assert host.logged()[-1].client_transaction_version == recorded


# Groups


def test_a_group_joins_with_the_partition_of_its_offsets(host: Host) -> None:
    producer = host.init()
    request = AddOffsetsToTxn("shop", producer.producer_id, 0, "billing")
    assert host.ask(request).error is Error.NONE
    partition = TopicPartition(OFFSETS_TOPIC, partition_for("billing", 50))
    assert host.shard.transactions["shop"].partitions == (partition,)
    before = len(host.log)
    assert host.ask(request).error is Error.NONE
    assert len(host.log) == before


def test_a_group_joins_with_the_partition_that_it_has_in_the_topic_of_offsets(host: Host) -> None:
    producer = host.init()
    host.offsets_partitions = 3
    assert host.ask(AddOffsetsToTxn("shop", producer.producer_id, 0, "billing")).error is Error.NONE
    partition = TopicPartition(OFFSETS_TOPIC, partition_for("billing", 3))
    assert host.shard.transactions["shop"].partitions == (partition,)


@pytest.mark.parametrize(
    ("name", "version", "error"),
    [
        ("", 4, Error.INVALID_REQUEST),
        ("bank", 4, Error.INVALID_PRODUCER_ID_MAPPING),
        ("shop", 2, Error.PRODUCER_FENCED),
        ("shop", 1, Error.INVALID_PRODUCER_EPOCH),
    ],
)
def test_a_group_is_kept_out_as_a_partition_is(
    host: Host, name: str, version: int, error: Error
) -> None:
    producer = host.init()
    request = AddOffsetsToTxn(name, producer.producer_id, 1, "billing", version)
    assert host.ask(request).error is error


# Verification


def test_verification_tells_what_belongs_to_the_transaction(host: Host) -> None:
    producer = host.open(ORDERS)
    before = len(host.log)
    assert verified(host, producer, ORDERS, PAYMENTS) == {
        ORDERS: Error.NONE,
        PAYMENTS: Error.TRANSACTION_ABORTABLE,
    }
    assert len(host.log) == before


def test_verification_of_a_transaction_that_has_ended_fails(host: Host) -> None:
    producer = host.open(ORDERS)
    host.end(producer, committed=True, version=OLD)
    assert verified(host, producer, ORDERS) == {ORDERS: Error.CONCURRENT_TRANSACTIONS}
    host.answer_all()
    assert verified(host, producer, ORDERS) == {ORDERS: Error.TRANSACTION_ABORTABLE}


def test_verification_of_an_epoch_before_fails(host: Host) -> None:
    producer = host.open(ORDERS)
    host.end(producer, committed=True, version=NEW)
    assert verified(host, producer, ORDERS) == {ORDERS: Error.PRODUCER_FENCED}


def test_verification_of_another_producer_fails(host: Host) -> None:
    producer = host.open(ORDERS)._replace(producer_id=1)
    assert verified(host, producer, ORDERS) == {ORDERS: Error.INVALID_PRODUCER_ID_MAPPING}


def test_verification_of_a_name_that_nobody_knows_fails(host: Host) -> None:
    request = AddPartitionsToTxn("bank", 1, 0, (ORDERS,), verify_only=True)
    assert dict(host.ask(request).partitions) == {ORDERS: Error.INVALID_PRODUCER_ID_MAPPING}
