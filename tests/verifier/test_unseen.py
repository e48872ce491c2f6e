"""Unseen: acknowledged, in the log, and a group that should have read it did not."""

from __future__ import annotations

from histories import P, Q, billing, ended, found, history, log, only, read, sent, stored, told

from lossless.verifier.anomaly import Kind
from lossless.verifier.history import Group, Reset

UNSEEN = Kind.UNSEEN
AB = (stored("a", 0), stored("b", 1))


def test_a_group_that_read_everything_has_seen_everything() -> None:
    run = history(*AB, read("a", 0), read("b", 1), logs=(log("a", "b"),), groups=(billing(),))
    assert found(run, UNSEEN) == []
    assert told(run, UNSEEN)


def test_a_record_that_no_member_read_is_unseen() -> None:
    run = history(*AB, read("a", 0), logs=(log("a", "b"),), groups=(billing(),))
    anomaly = only(run, UNSEEN)
    assert (anomaly.value, anomaly.offset) == ("b", 1)
    assert anomaly.what == (
        "'b' at offset 1 of orders-0 was acknowledged to p1 at 20 ms, "
        "and no member of billing has read it"
    )


def test_any_member_will_do() -> None:
    run = history(
        *AB,
        read("a", 0, by="c1"),
        read("b", 1, by="c2"),
        logs=(log("a", "b"),),
        groups=(billing("c1", "c2", "c3"),),
    )
    assert found(run, UNSEEN) == []


def test_every_group_has_to_see_it() -> None:
    audit = Group("audit", ("c9",), {P: 0})
    run = history(*AB, read("a", 0), read("b", 1), logs=(log("a", "b"),), groups=(billing(), audit))
    assert found(run, UNSEEN) == [("a", 0), ("b", 1)]


def test_a_run_that_has_not_settled_may_only_be_late() -> None:
    late = history(*AB, read("a", 0), logs=(log("a", "b"),), groups=(billing(),), settled=False)
    assert found(late, UNSEEN) == []
    assert not told(late, UNSEEN)
    done = history(
        *AB,
        read("a", 0),
        read("b", 1),
        logs=(log("a", "b"),),
        groups=(billing(),),
        settled=False,
    )
    assert told(done, UNSEEN)


def test_what_stands_before_the_first_offset_of_the_group_is_not_for_it() -> None:
    run = history(*AB, read("b", 1), logs=(log("a", "b"),), groups=(billing(start=1),))
    assert found(run, UNSEEN) == []


def test_a_reset_past_a_record_has_not_seen_it() -> None:
    skip = Reset(5, "c1", P, None, 1, "latest")
    run = history(*AB, skip, read("b", 1), logs=(log("a", "b"),), groups=(billing(),))
    assert found(run, UNSEEN) == [("a", 0)]


def test_what_is_lost_or_deleted_or_was_never_acknowledged_is_not_unseen() -> None:
    run = history(
        stored("deleted", 0),
        stored("lost", 1),
        sent("failed"),
        logs=(log(None, "failed", start=1),),
        groups=(billing(),),
    )
    assert found(run, UNSEEN) == []


def test_a_record_with_a_copy_is_unseen_once() -> None:
    run = history(stored("a", 0), logs=(log("a", "a"),), groups=(billing(),))
    assert found(run, UNSEEN) == [("a", 0)]


def test_the_same_value_read_from_another_partition_does_not_help() -> None:
    run = history(
        stored("a", 0, Q),
        stored("a", 0),
        read("a", 0, Q),
        logs=(log("a"), log("a", partition=Q)),
        groups=(Group("billing", ("c1",), {P: 0, Q: 0}),),
    )
    assert found(run, UNSEEN) == [("a", 0)]
    assert only(run, UNSEEN).partition == P


def test_records_of_transactions_that_were_not_committed_need_not_be_read() -> None:
    run = history(
        stored("aborted", 0, within="t1"),
        ended("t1", False),
        stored("open", 2, within="t2"),
        logs=(log("aborted", None, "open"),),
        groups=(billing(),),
    )
    assert found(run, UNSEEN) == []


def test_readers_of_committed_records_cannot_get_past_the_last_stable_offset() -> None:
    for uncommitted, unseen in [(False, []), (True, [("b", 1)])]:
        run = history(
            sent("a", within="t"),
            stored("b", 1),
            read("a", 0, by="c1" if uncommitted else "c2"),
            logs=(log("a", "b", last_stable=0),),
            groups=(billing(read_uncommitted=uncommitted),),
        )
        assert found(run, UNSEEN) == unseen


def test_a_partition_without_a_log_cannot_be_judged() -> None:
    run = history(groups=(billing(),))
    assert found(run, UNSEEN) == []
    assert not told(run, UNSEEN)
    assert found(history(stored("a", 0), groups=(billing(),)), UNSEEN) == []
