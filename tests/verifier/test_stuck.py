"""Stuck: something stands still that should have moved on by itself."""

from __future__ import annotations

from histories import Q, acknowledged, ended, found, history, log, only, sent, stored, told

from lossless.verifier.anomaly import Kind
from lossless.verifier.history import Failed

STUCK = Kind.STUCK
FAILED = Failed(20, "p1", "orders-0", "a", "timed out", False)


def test_a_send_without_a_verdict() -> None:
    anomaly = only(history(sent("a"), logs=(log("a"),)), STUCK)
    assert (anomaly.value, anomaly.offset) == ("a", None)
    assert anomaly.what == ("p1 sent 'a' to orders-0 at 10 ms and was never told what became of it")


def test_success_and_failure_are_verdicts() -> None:
    run = history(sent("a"), FAILED, sent("b"), acknowledged("b", None), logs=(log("b"),))
    assert found(run, STUCK) == []
    assert told(run, STUCK)


def test_a_verdict_in_another_partition_is_none() -> None:
    run = history(sent("a"), acknowledged("a", 0, Q), logs=(log("a"), log("a", partition=Q)))
    assert found(run, STUCK) == [("a", None)]


def test_the_last_stable_offset_stands_still_without_a_transaction() -> None:
    anomaly = only(history(stored("a", 0), logs=(log("a", last_stable=0),)), STUCK)
    assert (anomaly.value, anomaly.offset) == (None, 0)
    assert anomaly.what == (
        "the last stable offset of orders-0 is 0 at the end, below the high watermark 1, "
        "and no transaction is open"
    )


def test_an_open_transaction_holds_the_last_stable_offset_where_it_has_records() -> None:
    here = history(stored("a", 0, within="t"), logs=(log("a", last_stable=0),))
    assert found(here, STUCK) == []
    elsewhere = history(
        stored("a", 0, Q, within="t"), logs=(log("b", last_stable=0), log("a", partition=Q))
    )
    assert found(elsewhere, STUCK) == [(None, 0)]


def test_a_transaction_that_has_ended_holds_nothing() -> None:
    for outcome in (True, False):
        run = history(
            stored("a", 0, within="t"), ended("t", outcome), logs=(log("a", None, last_stable=0),)
        )
        assert found(run, STUCK) == [(None, 0)]


def test_the_high_watermark_may_be_given() -> None:
    given = log("a", last_stable=1)._replace(high_watermark=2)
    assert found(history(stored("a", 0), logs=(given,)), STUCK) == [(None, 1)]
    assert found(history(stored("a", 0), logs=(log("a", last_stable=1),)), STUCK) == []


def test_a_run_that_has_not_settled_may_only_be_late() -> None:
    for run in (
        history(sent("a"), logs=(log(),), settled=False),
        history(logs=(log("a", last_stable=0),), settled=False),
    ):
        assert found(run, STUCK) == []
        assert not told(run, STUCK)
    assert told(history(stored("a", 0), logs=(log("a"),), settled=False), STUCK)
