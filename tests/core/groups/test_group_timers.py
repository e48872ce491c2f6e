"""Deadlines: set, set again, cancelled, due."""

from __future__ import annotations

from lossless.core.groups.timers import Kind, Timer, Timers

A = Timer(Kind.SESSION, "g", "a")
B = Timer(Kind.SESSION, "g", "b")


def test_the_earliest_says_when_to_wake() -> None:
    timers = Timers()
    assert timers.wake_ms is None
    timers.set(A, 20)
    timers.set(B, 10)
    assert timers.wake_ms == 10
    timers.cancel(B)
    assert timers.wake_ms == 20
    timers.cancel(A)
    timers.cancel(A)
    assert timers.wake_ms is None


def test_what_is_set_again_counts_anew() -> None:
    timers = Timers()
    timers.set(A, 10)
    timers.set(A, 30)
    assert list(timers.take_due(20)) == []
    timers.set(A, 15)
    assert list(timers.take_due(20)) == [A]
    assert list(timers.take_due(40)) == []


def test_those_that_are_due_come_in_order_and_once() -> None:
    timers = Timers()
    timers.set(A, 10)
    timers.set(B, 10)
    timers.set(Timer(Kind.JOIN, "g"), 5)
    timers.set(Timer(Kind.SYNC, "g"), 11)
    assert list(timers.take_due(10)) == [Timer(Kind.JOIN, "g"), A, B]
    assert timers.wake_ms == 11


def test_sessions_that_are_set_again_and_again_do_not_pile_up() -> None:
    timers = Timers()
    timers.set(B, 5_000)
    for at_ms in range(1, 10_000):
        timers.set(A, at_ms)
    assert len(timers._heap) < 100
    assert list(timers.take_due(9_998)) == [B]
    assert list(timers.take_due(9_999)) == [A]


def test_what_an_earlier_one_cancels_or_sets_anew_is_not_due() -> None:
    timers = Timers()
    join, sync = Timer(Kind.JOIN, "g"), Timer(Kind.SYNC, "g")
    timers.set(join, 5)
    timers.set(A, 6)
    timers.set(sync, 7)
    due = timers.take_due(10)
    assert next(due) == join
    timers.cancel(sync)
    timers.set(A, 30)
    assert list(due) == []
    assert timers.wake_ms == 30
