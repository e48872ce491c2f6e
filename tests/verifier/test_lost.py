"""Lost: acknowledged, and at the end nobody can read it."""

from __future__ import annotations

import pytest
from histories import acknowledged, ended, found, history, log, only, read, sent, stored, told

from lossless.verifier.anomaly import Kind
from lossless.verifier.history import Failed

LOST = Kind.LOST


def test_what_stands_in_the_log_is_not_lost() -> None:
    run = history(stored("a", 0), stored("b", 1), logs=(log("a", "b"),))
    assert found(run, LOST) == []
    assert told(run, LOST)


def test_the_log_went_past_it_with_another_record_in_its_place() -> None:
    run = history(stored("a", 0), sent("b"), logs=(log("b"),))
    anomaly = only(run, LOST)
    assert (anomaly.partition, anomaly.value, anomaly.offset) == ("orders-0", "a", 0)
    assert anomaly.what == (
        "p1 was told at 20 ms that 'a' is stored at offset 0 of orders-0, "
        "and at the end 'b' stands there and 'a' nowhere"
    )


def test_the_log_went_past_it_with_nothing_in_its_place() -> None:
    run = history(stored("a", 0), logs=(log(None),), settled=False)
    assert "nothing stands there" in only(run, LOST).what
    assert told(run, LOST)


def test_the_run_settled_without_it() -> None:
    run = history(stored("a", 0), logs=(log(),))
    assert "the log stops at 0 without it" in only(run, LOST).what


def test_beyond_the_end_of_a_log_that_has_not_settled_it_may_still_come() -> None:
    run = history(stored("a", 0), logs=(log(),), settled=False)
    assert found(run, LOST) == []
    assert not told(run, LOST)


def test_an_acknowledgement_without_an_offset_counts() -> None:
    run = history(sent("a"), acknowledged("a", None), logs=(log("b"),))
    anomaly = only(run, LOST)
    assert anomaly.offset is None
    assert "nowhere in the log" in anomaly.what
    assert found(history(sent("a"), acknowledged("a", None), logs=(log("a"),)), LOST) == []


def test_without_an_offset_nobody_can_tell_until_the_run_has_settled() -> None:
    run = history(sent("a"), acknowledged("a", None), logs=(log("b"),), settled=False)
    assert found(run, LOST) == []
    assert not told(run, LOST)


def test_retention_deletes_and_does_not_lose() -> None:
    run = history(stored("a", 0), stored("b", 1), logs=(log("b", start=1),))
    assert found(run, LOST) == []
    assert told(run, LOST)


def test_without_an_offset_retention_may_have_deleted_it() -> None:
    unknown = history(sent("a"), acknowledged("a", None), logs=(log("b", start=1),))
    assert found(unknown, LOST) == []
    assert not told(unknown, LOST)
    others = (read("b", 1), read("x", 0), read("a", 0, "orders-1"))
    still_unknown = history(
        sent("a"),
        acknowledged("a", None),
        *others,
        logs=(log("b", start=1), log(partition="orders-1", start=1)),
    )
    assert found(still_unknown, LOST) == []
    assert not told(still_unknown, LOST)
    was_there = history(sent("a"), acknowledged("a", None), read("a", 0), logs=(log("b", start=1),))
    assert found(was_there, LOST) == []
    assert told(was_there, LOST)
    taken_back = history(
        sent("a"), acknowledged("a", None), read("b", 1), read("a", 2), logs=(log("b", start=1),)
    )
    assert found(taken_back, LOST) == [("a", None)]


def test_a_copy_that_was_deleted_does_not_stand_in_for_the_acknowledged_one() -> None:
    run = history(stored("a", 2), read("a", 0), logs=(log("b", None, start=1),))
    assert found(run, LOST) == [("a", 2)]


def test_the_same_value_in_another_partition_does_not_help() -> None:
    run = history(
        stored("a", 0), stored("a", 0, "orders-1"), logs=(log("b"), log("a", partition="orders-1"))
    )
    assert found(run, LOST) == [("a", 0)]


def test_a_copy_elsewhere_in_the_partition_can_be_read() -> None:
    assert found(history(stored("a", 0), logs=(log("b", "a"),)), LOST) == []


@pytest.mark.parametrize("settled", [True, False])
def test_a_partition_that_nobody_could_read_at_the_end_cannot_be_judged(settled: bool) -> None:
    run = history(stored("a", 0), settled=settled)
    assert found(run, LOST) == []
    assert not told(run, LOST)


@pytest.mark.parametrize(("outcome", "lost"), [(True, [("a", 0)]), (False, []), (None, [])])
def test_only_a_committed_transaction_has_something_to_lose(
    outcome: bool | None, lost: list[tuple[str, int]]
) -> None:
    end = () if outcome is None else (ended("t", outcome),)
    assert found(history(stored("a", 0, within="t"), end, logs=(log(None),)), LOST) == lost


def test_what_failed_was_never_promised() -> None:
    run = history(sent("a"), Failed(20, "p1", "orders-0", "a", "timed out", False), logs=(log(),))
    assert found(run, LOST) == []
    assert told(run, LOST)
