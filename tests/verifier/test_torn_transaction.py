"""Torn transaction: some of its records are there for readers of committed records, others not."""

from __future__ import annotations

import pytest
from histories import (
    P,
    Q,
    begun,
    billing,
    committed,
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
from lossless.verifier.history import (
    Acknowledged,
    Committed,
    Consumed,
    Failed,
    FinalLog,
    Reset,
    Sent,
)

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


# Transactions that move a group


def moved(offset: int) -> Committed:
    return committed(offset, group="copying")


def consumed(value: str, offset: int, within: str) -> Consumed:
    return Consumed(20, "c1", "copying", P, offset, value, within)


def copied(value: str, offset: int, within: str, copy: str) -> tuple[Sent, Acknowledged, Consumed]:
    return (*stored(copy, offset, Q, within=within), consumed(value, offset, within))


INPUT = log("a", "b")
FIRST = copied("a", 0, "t", "a1")
COPY = log("a1", None, partition=Q)


def test_a_copy_and_its_offset_are_there() -> None:
    run = history(FIRST, ended("t", True), moved(1), logs=(INPUT, COPY))
    assert found(run, TORN) == []
    assert told(run, TORN)


def test_a_copy_is_there_and_its_offset_is_not() -> None:
    anomaly = only(history(FIRST, ended("t", True), logs=(INPUT, COPY)), TORN)
    assert (anomaly.partition, anomaly.value, anomaly.offset) == (P, "a", 0)
    assert anomaly.what == (
        "t is committed, in which copying consumed 'a' at offset 0 of orders-0, "
        "and the offset of copying is not past it"
    )


def test_an_offset_is_there_and_its_copy_is_not() -> None:
    run = history(FIRST, ended("t", False), moved(1), logs=(INPUT, COPY))
    assert only(run, TORN).what == (
        "the offset of copying is past 'a' at offset 0 of orders-0, "
        "and no transaction that consumed it is committed"
    )


def test_the_copy_of_a_committed_transaction_is_gone_and_the_offset_stays() -> None:
    run = history(FIRST, ended("t", True), moved(1), logs=(INPUT, log(None, partition=Q)))
    assert found(run, TORN) == [("a", 0)]


def test_two_committed_transactions_copy_one_record() -> None:
    run = history(
        FIRST,
        ended("t", True),
        copied("a", 1, "u", "a2")[:2],
        consumed("a", 0, "u"),
        ended("u", True),
        moved(1),
        logs=(INPUT, log("a1", "a2", partition=Q)),
    )
    assert only(run, TORN).what == (
        "copying consumed 'a' at offset 0 of orders-0 in t and in u, and both are committed"
    )


def test_what_was_aborted_is_copied_again() -> None:
    run = history(
        FIRST,
        ended("t", False),
        copied("a", 2, "u", "a2")[:2],
        consumed("a", 0, "u"),
        ended("u", True),
        moved(1),
        logs=(INPUT, log("a1", None, "a2", None, partition=Q)),
    )
    assert found(run, TORN) == []


def test_a_transaction_of_whose_end_nobody_was_told_is_there_once_it_is_read() -> None:
    reader = read("a1", 0, Q)
    assert found(history(FIRST, reader, moved(1), logs=(INPUT, COPY)), TORN) == []
    assert found(history(FIRST, reader, logs=(INPUT, COPY)), TORN) == [("a", 0)]


def test_of_a_transaction_that_nobody_has_read_it_is_not_known_how_it_ended() -> None:
    run = history(FIRST, moved(1), logs=(INPUT, COPY))
    assert found(run, TORN) == []
    assert not told(run, TORN)


def test_a_transaction_that_readers_pass_over_is_not_there() -> None:
    run = history(
        FIRST,
        stored("x", 2, Q),
        begun(0, Q),
        read("x", 2, Q),
        moved(1),
        logs=(INPUT, log("a1", None, "x", partition=Q)),
    )
    assert found(run, TORN) == [("a", 0)]


def test_before_a_run_has_settled_the_offset_may_still_come() -> None:
    run = history(FIRST, ended("t", True), logs=(INPUT, COPY), settled=False)
    assert found(run, TORN) == []
    assert not told(run, TORN)


def test_other_transactions_have_nothing_to_do_with_a_group() -> None:
    run = history(
        FIRST,
        ended("t", True),
        moved(1),
        stored("x", 2, Q, within="v"),
        ended("v", True),
        logs=(INPUT, log("a1", None, "x", partition=Q)),
    )
    assert found(run, TORN) == []
