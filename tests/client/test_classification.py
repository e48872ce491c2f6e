"""P2: every code of the protocol and every local one of librdkafka is of one kind."""

from __future__ import annotations

import pytest
from confluent_kafka import KafkaError
from kio.schema.errors import ErrorCode

from lossless.client import classification
from lossless.client.classification import (
    DIFFERENT_FROM_PROTOCOL,
    error_from,
    is_known,
    kind_of,
)
from lossless.client.errors import (
    ClientFailed,
    Fenced,
    Kind,
    NotDelivered,
    Refused,
    SerializationFailed,
    TransactionAborted,
)
from lossless.client.record import Record

LOCAL = {
    name: code
    for name, code in vars(KafkaError).items()
    if isinstance(code, int) and name.lstrip("_").isupper()
}


def test_every_code_of_the_protocol_is_known() -> None:
    assert [code.name for code in ErrorCode if not is_known(code.value)] == []


def test_every_code_of_librdkafka_is_known() -> None:
    assert len(LOCAL) > 150
    assert [name for name, code in LOCAL.items() if not is_known(code)] == []


def test_no_code_is_of_two_kinds() -> None:
    tables = [
        value
        for name, value in vars(classification).items()
        if name.startswith("_")
        and isinstance(value, dict)
        and name not in ("_KINDS", "_HINTS", "_HINTS_OF_READING")
        and all(isinstance(told, str) for told in value.values())
    ]
    codes = [code for table in tables for code in table]
    assert len(codes) == len(set(codes))


def test_names_are_those_of_the_protocol_and_of_librdkafka() -> None:
    for table in ("_RETRIABLE", "_PERMANENT", "_ABORTABLE", "_FATAL"):
        for code, name in getattr(classification, table).items():
            assert ErrorCode(code).name == name.lower()
    for table in ("_LOCAL_RETRIABLE", "_LOCAL_PERMANENT", "_LOCAL_FATAL"):
        for code, name in getattr(classification, table).items():
            assert LOCAL[f"_{name}"] == code


def test_differences_from_the_protocols_own_flag_are_explained() -> None:
    different = {
        code.value
        for code in ErrorCode
        if code.retriable != (kind_of(code.value) is Kind.RETRIABLE)
    }
    assert different == set(DIFFERENT_FROM_PROTOCOL)


def test_a_code_of_a_newer_broker_may_be_tried_again() -> None:
    assert not is_known(9_999)
    assert kind_of(9_999) is Kind.RETRIABLE


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (KafkaError(KafkaError._MSG_TIMED_OUT), NotDelivered),
        (KafkaError(KafkaError.NOT_ENOUGH_REPLICAS), NotDelivered),
        (KafkaError(KafkaError.MSG_SIZE_TOO_LARGE), Refused),
        (KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED), Refused),
        (KafkaError(KafkaError._VALUE_SERIALIZATION), SerializationFailed),
        (KafkaError(KafkaError.TRANSACTION_ABORTABLE), TransactionAborted),
        (KafkaError(KafkaError.PRODUCER_FENCED), Fenced),
        (KafkaError(KafkaError._FENCED, fatal=True), Fenced),
        (KafkaError(KafkaError._TIMED_OUT, fatal=True), ClientFailed),
        (KafkaError(KafkaError._TIMED_OUT, txn_requires_abort=True), TransactionAborted),
    ],
)
def test_an_error_is_of_the_class_that_says_what_to_do(
    error: KafkaError, expected: type[Exception]
) -> None:
    record = Record(topic="orders", key=b"42")
    found = error_from(error, record)
    assert type(found) is expected
    assert found.code == error.code()
    assert found.record is record
    assert "orders, key '42'" in found.what


def test_a_fenced_producer_is_told_of_both_causes() -> None:
    for code in (KafkaError.INVALID_PRODUCER_EPOCH, 90, KafkaError._FENCED):
        hint = error_from(KafkaError(code)).hint or ""
        assert "same transactional.id" in hint
        assert "transaction.timeout.ms" in hint


def test_a_consumer_is_told_of_the_permission_that_reading_needs() -> None:
    error = KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED)
    assert error_from(error).hint == "grant this client's user WRITE on the topic"
    assert error_from(error, reading=True).hint == "grant this client's user READ on the topic"
    group = KafkaError(KafkaError.GROUP_AUTHORIZATION_FAILED)
    assert error_from(group, reading=True).hint == "grant this client's user READ on the group"
