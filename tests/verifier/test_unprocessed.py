"""Unprocessed: committed past a record that no member of the group processed."""

from __future__ import annotations

import pytest
from histories import (
    P,
    Q,
    billing,
    committed,
    ended,
    found,
    history,
    log,
    only,
    processed,
    stored,
    told,
)

from lossless.verifier.anomaly import Kind

UNPROCESSED = Kind.UNPROCESSED
AB = (stored("a", 0), stored("b", 1))


def test_processed_and_then_committed() -> None:
    run = history(
        *AB,
        processed("a", 0),
        processed("b", 1, by="c2"),
        committed(2),
        logs=(log("a", "b"),),
        groups=(billing("c1", "c2"),),
    )
    assert found(run, UNPROCESSED) == []
    assert told(run, UNPROCESSED)


@pytest.mark.parametrize("settled", [True, False])
def test_committed_and_never_processed(settled: bool) -> None:
    run = history(
        *AB,
        processed("a", 0),
        committed(2),
        logs=(log("a", "b"),),
        groups=(billing(),),
        settled=settled,
    )
    anomaly = only(run, UNPROCESSED)
    assert (anomaly.value, anomaly.offset) == ("b", 1)
    assert anomaly.what == (
        "billing committed offset 2 of orders-0 at 60 ms, and no member has processed 'b' at 1"
    )


def test_what_is_not_committed_yet_may_wait() -> None:
    for commits in ((), (committed(1),)):
        run = history(*AB, processed("a", 0), commits, logs=(log("a", "b"),), groups=(billing(),))
        assert found(run, UNPROCESSED) == []


def test_the_last_commit_counts() -> None:
    run = history(*AB, committed(2), committed(0), logs=(log("a", "b"),), groups=(billing(),))
    assert found(run, UNPROCESSED) == []


def test_what_stands_before_the_first_offset_of_the_group_is_not_for_it() -> None:
    run = history(
        *AB, processed("b", 1), committed(2), logs=(log("a", "b"),), groups=(billing(start=1),)
    )
    assert found(run, UNPROCESSED) == []


def test_what_retention_deleted_cannot_be_processed() -> None:
    run = history(
        *AB, processed("b", 1), committed(2), logs=(log("b", start=1),), groups=(billing(),)
    )
    assert found(run, UNPROCESSED) == []


def test_another_group_or_partition_does_not_help() -> None:
    run = history(
        *AB,
        processed("a", 0)._replace(group="audit"),
        processed("a", 0, Q),
        committed(1),
        logs=(log("a", "b"),),
        groups=(billing(),),
    )
    assert found(run, UNPROCESSED) == [("a", 0)]


@pytest.mark.parametrize(("uncommitted", "expected"), [(False, []), (True, [("a", 0)])])
def test_aborted_records_are_due_to_those_who_asked_for_them(
    uncommitted: bool, expected: list[tuple[str, int]]
) -> None:
    run = history(
        stored("a", 0, within="t"),
        ended("t", False),
        committed(2),
        logs=(log("a", None),),
        groups=(billing(read_uncommitted=uncommitted),),
    )
    assert found(run, UNPROCESSED) == expected


def test_a_group_of_which_nobody_said_where_it_began_cannot_be_judged() -> None:
    for run in (
        history(*AB, committed(2), logs=(log("a", "b"),)),
        history(
            *AB,
            committed(2, P),
            logs=(log("a", "b"), log(partition=Q)),
            groups=(billing(partition=Q),),
        ),
    ):
        assert found(run, UNPROCESSED) == []
        assert not told(run, UNPROCESSED)


def test_a_partition_without_a_log_cannot_be_judged() -> None:
    run = history(committed(2), groups=(billing(),))
    assert found(run, UNPROCESSED) == []
    assert not told(run, UNPROCESSED)
