"""Precommitted read: a consumer read what was never committed, or was taken back."""

from __future__ import annotations

from histories import ended, found, history, log, only, read, sent, stored, told

from lossless.verifier.anomaly import Kind

PRECOMMITTED = Kind.PRECOMMITTED_READ


def test_what_was_read_stands_there_at_the_end() -> None:
    run = history(stored("a", 0), read("a", 0), logs=(log("a"),))
    assert found(run, PRECOMMITTED) == []
    assert told(run, PRECOMMITTED)


def test_another_value_stands_there_at_the_end() -> None:
    run = history(sent("a"), sent("b"), read("a", 0), logs=(log("b"),), settled=False)
    anomaly = only(run, PRECOMMITTED)
    assert (anomaly.value, anomaly.offset) == ("a", 0)
    assert anomaly.what == (
        "c1 read 'a' at offset 0 of orders-0 at 40 ms, and at the end 'b' stands there"
    )
    assert told(run, PRECOMMITTED)


def test_nothing_stands_there_at_the_end() -> None:
    run = history(sent("a"), read("a", 0), logs=(log(None),))
    assert "nothing stands there" in only(run, PRECOMMITTED).what


def test_the_log_stops_before_it() -> None:
    run = history(sent("a"), read("a", 0), logs=(log(),))
    assert "the log stops at 0" in only(run, PRECOMMITTED).what
    assert told(run, PRECOMMITTED)


def test_a_leader_that_has_not_settled_may_not_know_how_far_was_committed() -> None:
    run = history(sent("a"), read("a", 0), logs=(log(),), settled=False)
    assert found(run, PRECOMMITTED) == []
    assert not told(run, PRECOMMITTED)


def test_what_retention_deleted_was_committed() -> None:
    run = history(stored("a", 0), read("a", 0), logs=(log(start=1),), settled=False)
    assert found(run, PRECOMMITTED) == []
    assert told(run, PRECOMMITTED)


def test_records_of_aborted_transactions_are_another_matter() -> None:
    run = history(stored("a", 0, within="t"), read("a", 0), ended("t", False), logs=(log(None),))
    assert found(run, PRECOMMITTED) == []


def test_a_partition_without_a_log_cannot_be_judged() -> None:
    run = history(sent("a"), read("a", 0))
    assert found(run, PRECOMMITTED) == []
    assert not told(run, PRECOMMITTED)
