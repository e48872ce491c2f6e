"""Torn transaction: some of its records are there for readers of committed records, others not."""

from __future__ import annotations

import pytest
from histories import (
    P,
    Q,
    begun,
    billing,
    ended,
    found,
    history,
    log,
    only,
    read,
    sent,
    stored,
    told,
)

from lossless.verifier.anomaly import Kind
from lossless.verifier.history import Failed, FinalLog, Reset

TORN = Kind.TORN_TRANSACTION
TWO = (stored("a", 0, P, within="t"), stored("b", 0, Q, within="t"))
BOTH = (log("a", None), log("b", None, partition=Q))
ONE = (log("a", None), log(None, None, partition=Q))


def test_all_of_it_is_there() -> None:
    run = history(*TWO, ended("t", True), read("a", 0), read("b", 0, Q), logs=BOTH)
    assert found(run, TORN) == []
    assert told(run, TORN)


def test_a_record_of_a_committed_transaction_is_gone() -> None:
    anomaly = only(history(*TWO, ended("t", True), logs=ONE), TORN)
    assert (anomaly.partition, anomaly.value, anomaly.offset) == (Q, "b", None)
    assert anomaly.what == (
        "of the transaction t of p1 readers can have 'a' in orders-0 but not 'b', "
        "sent to orders-1 at 10 ms"
    )


def test_a_record_of_a_committed_transaction_is_hidden_from_its_readers() -> None:
    """As by a marker of the wrong kind: it is in the log, and readers pass over it."""
    run = history(
        *TWO,
        ended("t", True),
        stored("c", 2, Q),
        begun(0, Q),
        read("c", 2, Q),
        logs=(BOTH[0], log("b", None, "c", partition=Q)),
    )
    assert found(run, TORN) == [("b", 0)]


def test_what_another_reader_got_is_not_hidden() -> None:
    run = history(
        *TWO,
        ended("t", True),
        begun(0, Q),
        read("c", 2, Q),
        read("b", 0, Q, by="c2"),
        logs=(BOTH[0], log("b", None, "c", partition=Q)),
    )
    assert found(run, TORN) == []


def test_what_readers_of_uncommitted_records_do_says_nothing() -> None:
    run = history(
        *TWO,
        begun(0, Q),
        read("a", 0),
        read("c", 2, Q),
        logs=(BOTH[0], log("b", None, "c", partition=Q)),
        groups=(billing(read_uncommitted=True),),
    )
    assert found(run, TORN) == []


def test_a_reader_that_was_reset_past_a_record_hides_nothing() -> None:
    run = history(
        *TWO,
        ended("t", True),
        begun(0, Q),
        Reset(40, "c1", Q, 0, 2, "latest"),
        read("c", 2, Q),
        logs=(BOTH[0], log("b", None, "c", partition=Q)),
    )
    assert found(run, TORN) == []


@pytest.mark.parametrize("logs", [ONE, (BOTH[0], log("b", None, "c", partition=Q))])
def test_once_one_record_was_read_an_open_transaction_was_committed(
    logs: tuple[FinalLog, ...],
) -> None:
    passing = (begun(0, Q), read("c", 2, Q))
    assert found(history(*TWO, *passing, read("a", 0), logs=logs), TORN)[0][0] == "b"
    assert found(history(*TWO, *passing, logs=logs), TORN) == []


def test_nothing_of_it_is_there() -> None:
    nothing = (log(None), log(None, partition=Q))
    assert found(history(*TWO, ended("t", True), logs=nothing), TORN) == []


def test_an_aborted_transaction_is_not_torn() -> None:
    assert found(history(*TWO, ended("t", False), read("a", 0), logs=ONE), TORN) == []


def test_what_failed_is_no_part_of_it() -> None:
    run = history(
        TWO[0],
        sent("b", Q, within="t"),
        Failed(20, "p1", Q, "b", "too large", True),
        ended("t", True),
        logs=ONE,
    )
    assert found(run, TORN) == []
    assert told(run, TORN)


def test_what_retention_deleted_is_not_missing() -> None:
    run = history(*TWO, ended("t", True), logs=(BOTH[0], log(partition=Q, start=1)))
    assert found(run, TORN) == []
    assert told(run, TORN)


def test_what_was_read_before_retention_deleted_it_was_there() -> None:
    run = history(*TWO, read("a", 0), logs=(log(start=1), ONE[1]))
    assert found(run, TORN) == [("b", None)]


def test_a_log_that_has_not_settled_may_still_get_it() -> None:
    logs = (BOTH[0], log(partition=Q))
    run = history(*TWO, ended("t", True), logs=logs, settled=False)
    assert found(run, TORN) == []
    assert not told(run, TORN)
    nobody_was_told = history(*TWO, logs=logs, settled=False)
    assert told(nobody_was_told, TORN)


def test_of_one_whose_end_nobody_was_told_of_what_failed_is_missing_too() -> None:
    """It could not be committed: and yet readers have a part of it."""
    failed = Failed(30, "p1", Q, "b", "the producer died", certain=False)
    begun_only = (stored("a", 0, P, within="t"), sent("b", Q, within="t"), failed)
    assert found(history(*begun_only, read("a", 0), logs=ONE), TORN) == [("b", None)]
    assert found(history(*begun_only, logs=ONE), TORN) == []
    assert found(history(*begun_only, ended("t", True), read("a", 0), logs=ONE), TORN) == []
