"""The records of `__transaction_state`, byte by byte as Kafka writes them."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lossless.core.messages import TopicPartition
from lossless.core.transactions.records import (
    UnreadableRecord,
    decode_key,
    decode_value,
    encode_key,
    encode_value,
)
from lossless.core.transactions.state import Transaction, TransactionState

EPOCHS = st.integers(0, (1 << 15) - 1)
IDS = st.integers(-1, (1 << 63) - 1)
PARTITIONS = st.lists(
    st.builds(TopicPartition, st.text(max_size=300), st.integers(0, (1 << 31) - 1)),
    max_size=10,
    unique=True,
).map(lambda found: tuple(sorted(found)))
TRANSACTIONS = st.builds(
    lambda state, partitions, *fields: Transaction(
        *fields[:3], state, () if state is TransactionState.EMPTY else partitions, *fields[3:]
    ),
    st.sampled_from(TransactionState),
    PARTITIONS,
    IDS,
    EPOCHS,
    st.integers(0, (1 << 31) - 1),
    IDS,
    IDS,
    IDS,
    IDS,
    st.integers(0, 2),
)


@given(st.text(max_size=200))
def test_a_key_is_read_as_it_was_written(transactional_id: str) -> None:
    assert decode_key(encode_key(transactional_id)) == transactional_id


@given(TRANSACTIONS)
def test_a_value_is_read_as_it_was_written(transaction: Transaction) -> None:
    assert decode_value(encode_value(transaction)) == transaction


def test_a_key_has_kafkas_bytes() -> None:
    assert encode_key("shop") == bytes.fromhex("0000 0004") + b"shop"


def test_a_value_has_kafkas_bytes() -> None:
    transaction = Transaction(
        producer_id=7,
        producer_epoch=2,
        transaction_timeout_ms=60_000,
        state=TransactionState.ONGOING,
        partitions=(TopicPartition("a", 1), TopicPartition("a", 2), TopicPartition("b", 0)),
        last_update_timestamp_ms=5,
        start_timestamp_ms=4,
        previous_producer_id=6,
        next_producer_id=-1,
        client_transaction_version=2,
    )
    assert encode_value(transaction) == bytes.fromhex(
        "0001"  # version
        "0000000000000007 0002 0000ea60 01"  # producer id, epoch, timeout, ongoing
        "03"  # two topics
        "02 61 03 00000001 00000002 00"  # a: partitions 1 and 2
        "02 62 02 00000000 00"  # b: partition 0
        "0000000000000005 0000000000000004"  # last update, start
        "02"  # two tags
        "00 08 0000000000000006"  # previous producer id
        "02 02 0002"  # version of the client
    )


def test_long_names_and_many_partitions_are_counted_in_more_than_a_byte() -> None:
    partitions = tuple(TopicPartition("orders" * 40, number) for number in range(200))
    transaction = Transaction(7, 0, 60_000, TransactionState.ONGOING, partitions, 5)
    value = encode_value(transaction)
    assert bytes.fromhex("f101") + b"orders" in value  # 240 bytes, and one for null
    assert decode_value(value) == transaction


def test_an_empty_transaction_has_no_partitions_at_all() -> None:
    transaction = Transaction(7, 0, 60_000, TransactionState.EMPTY, (), 5)
    assert encode_value(transaction) == bytes.fromhex(
        "0001 0000000000000007 0000 0000ea60 00 00 0000000000000005 ffffffffffffffff 00"
    )


def test_a_value_of_version_0_is_read() -> None:
    value = bytes.fromhex(
        "0000 0000000000000007 0002 0000ea60 02"
        "00000001 0001 61 00000002 00000001 00000002"
        "0000000000000005 0000000000000004"
    )
    assert decode_value(value) == Transaction(
        7,
        2,
        60_000,
        TransactionState.PREPARE_COMMIT,
        (TopicPartition("a", 1), TopicPartition("a", 2)),
        5,
        4,
    )


def test_a_missing_list_of_version_0_is_an_empty_one() -> None:
    value = bytes.fromhex(
        "0000 0000000000000007 0002 0000ea60 00 ffffffff 0000000000000005 ffffffffffffffff"
    )
    assert decode_value(value).partitions == ()


def test_a_tag_that_nobody_knows_here_is_passed_over() -> None:
    value = encode_value(Transaction(7, 0, 60_000, TransactionState.EMPTY, (), 5))
    assert decode_value(value[:-1] + bytes.fromhex("01 03 02 0009")) == decode_value(value)


def test_a_key_of_another_version_says_nothing() -> None:
    assert decode_key(struct.pack(">hh", 1, 0)) is None


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (bytes.fromhex("0002"), "version 2"),
        (bytes.fromhex("0001 0000000000000007 0000 0000ea60 09"), "state 9"),
        (bytes.fromhex("0001 00000000"), "ends early"),
        (bytes.fromhex("0001 0000000000000007 0000 0000ea60 01 02 02 ff 01 00"), "damaged"),
    ],
)
def test_a_value_that_cannot_be_read_is_not_guessed(value: bytes, reason: str) -> None:
    with pytest.raises(UnreadableRecord, match=reason):
        decode_value(value)
