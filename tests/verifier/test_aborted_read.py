"""Aborted read: a reader of committed records got one of an aborted transaction."""

from __future__ import annotations

from histories import P, Q, billing, ended, found, history, log, only, read, stored, told

from lossless.verifier.anomaly import Kind

ABORTED = Kind.ABORTED_READ


def test_a_record_of_an_aborted_transaction_was_read() -> None:
    run = history(
        stored("a", 0, within="t"), ended("t", False), read("a", 0), logs=(log("a", None),)
    )
    anomaly = only(run, ABORTED)
    assert (anomaly.partition, anomaly.value, anomaly.offset) == (P, "a", 0)
    assert anomaly.what == (
        "c1 read 'a' at offset 0 of orders-0 at 40 ms, and its transaction was aborted"
    )


def test_it_makes_no_difference_that_the_transaction_was_aborted_later() -> None:
    run = history(stored("a", 0, within="t"), read("a", 0), ended("t", False))
    assert found(run, ABORTED) == [("a", 0)]
    assert told(run, ABORTED)  # no log is needed


def test_records_of_committed_and_open_transactions_may_be_read() -> None:
    run = history(
        stored("a", 0, within="t1"),
        ended("t1", True),
        stored("b", 2, within="t2"),
        read("a", 0),
        read("b", 2),
        logs=(log("a", None, "b"),),
    )
    assert found(run, ABORTED) == []


def test_readers_of_uncommitted_records_may_read_it() -> None:
    aborted = (stored("a", 0, within="t"), ended("t", False), read("a", 0))
    asked = history(*aborted, groups=(billing(read_uncommitted=True),))
    assert found(asked, ABORTED) == []
    others = history(*aborted, groups=(billing("c2", read_uncommitted=True),))
    assert found(others, ABORTED) == [("a", 0)]


def test_the_same_value_in_another_partition_was_not_aborted() -> None:
    run = history(stored("a", 0, within="t"), ended("t", False), stored("a", 0, Q), read("a", 0, Q))
    assert found(run, ABORTED) == []
