"""Inconsistent offset: two values at one offset."""

from __future__ import annotations

from histories import P, acknowledged, ended, found, history, log, only, read, records, sent, stored

from lossless.verifier.anomaly import Kind

INCONSISTENT = Kind.INCONSISTENT_OFFSET
AB = (stored("a", 0), stored("b", 1))


def test_readers_producers_and_replicas_agree() -> None:
    run = history(
        *AB,
        read("a", 0),
        read("a", 0, by="c2"),
        logs=(log("a", "b", replicas={1: records("a", "b"), 2: records("a"), 3: ()}),),
    )
    assert found(run, INCONSISTENT) == []


def test_a_reader_saw_another_value_than_the_log_has_at_the_end() -> None:
    run = history(sent("a"), sent("b"), read("a", 0), logs=(log("b"),))
    anomaly = only(run, INCONSISTENT)
    assert (anomaly.value, anomaly.offset) == ("a", 0)
    assert anomaly.what == "offset 0 of orders-0 is 'b' at the end, but 'a' as c1 read it at 40 ms"


def test_readers_saw_different_values_over_time_of_what_was_deleted_since() -> None:
    run = history(read("a", 0), read("b", 0, by="c2"), logs=(log(start=1),))
    assert found(run, INCONSISTENT) == [("b", 0)]
    same = history(read("a", 0), read("a", 0, by="c2"), logs=(log(start=1),))
    assert found(same, INCONSISTENT) == []


def test_a_producer_was_told_of_an_offset_that_has_another_value() -> None:
    run = history(stored("a", 0), sent("b"), logs=(log("b"),))
    anomaly = only(run, INCONSISTENT)
    assert anomaly.value == "a"
    assert anomaly.what.endswith("but 'a' as p1 was told at 20 ms")


def test_two_producers_were_told_of_one_offset_and_no_log_can_decide() -> None:
    assert found(history(stored("a", 0), stored("b", 0)), INCONSISTENT) == [("b", 0)]


def test_a_producer_was_told_of_an_empty_offset_and_the_record_stands_elsewhere() -> None:
    run = history(stored("a", 0), logs=(log(None, "a"),))
    assert only(run, INCONSISTENT).what == (
        "offset 0 of orders-0 is nothing at the end, but 'a' as p1 was told at 20 ms"
    )


def test_a_producer_was_told_of_the_offset_of_another_record() -> None:
    run = history(stored("a", 0), sent("b"), logs=(log("b", "a"),))
    assert found(run, INCONSISTENT) == [("a", 0)]


def test_an_empty_offset_alone_is_no_other_value() -> None:
    aborted = history(stored("a", 0, within="t"), ended("t", False), logs=(log(None),))
    assert found(aborted, INCONSISTENT) == []
    deleted = history(stored("a", 0), logs=(log("a", start=1),))
    assert found(deleted, INCONSISTENT) == []
    not_yet = history(stored("a", 1), logs=(log("a"),), settled=False)
    assert found(not_yet, INCONSISTENT) == []


def test_an_acknowledgement_without_an_offset_contradicts_nothing() -> None:
    run = history(sent("a"), acknowledged("a", None), logs=(log("b"),))
    assert found(run, INCONSISTENT) == []


def test_a_replica_has_another_value() -> None:
    run = history(*AB, logs=(log("a", "b", replicas={1: records("a", "b"), 2: records("a", "x")}),))
    anomaly = only(run, INCONSISTENT)
    assert (anomaly.value, anomaly.offset) == ("x", 1)
    assert anomaly.what == "offset 1 of orders-0 is 'b' at the end, but 'x' on replica 2"


def test_a_replica_has_a_record_where_the_leader_has_none() -> None:
    run = history(stored("a", 0), logs=(log("a", None, replicas={2: records("a", "x")}),))
    assert only(run, INCONSISTENT).what == (
        "offset 1 of orders-0 is nothing at the end, but 'x' on replica 2"
    )
    at_the_start = history(logs=(log(None, "a", start=3, replicas={2: records("x", start=3)}),))
    assert found(at_the_start, INCONSISTENT) == [("x", 3)]
    before_the_start = history(logs=(log("a", start=3, replicas={2: records("x", start=2)}),))
    assert found(before_the_start, INCONSISTENT) == []


def test_of_several_replicas_the_first_by_name_is_named() -> None:
    other = records("x")
    run = history(logs=(log("a", replicas={2: other, 10: other, 0: (), 1: other}),))
    assert only(run, INCONSISTENT).what.endswith("but 'x' on replica 1")


def test_a_replica_has_a_hole() -> None:
    run = history(*AB, logs=(log("a", "b", "c", replicas={2: records("a", None, "c")}),))
    assert only(run, INCONSISTENT).what == (
        "offset 1 of orders-0 is 'b' at the end, but nothing on replica 2"
    )


def test_a_replica_may_begin_later_or_earlier_and_end_earlier_or_later() -> None:
    for replica in (
        records("b", start=1),
        records("z", "a", "b", start=-1),
        records("a"),
        records("a", "b", "c"),
    ):
        run = history(*AB, logs=(log("a", "b", replicas={2: replica}),))
        assert found(run, INCONSISTENT) == []


def test_two_replicas_differ_beyond_the_leader() -> None:
    run = history(logs=(log("a", replicas={1: records("a", "b"), 2: records("a", "c")}),))
    assert only(run, INCONSISTENT).what == (
        "offset 1 of orders-0 is 'b' on replica 1, but 'c' on replica 2"
    )


def test_the_leader_has_two_values_itself() -> None:
    twice = log("a", "b")._replace(records=((0, "a"), (0, "b"), (1, "c")))
    assert found(history(logs=(twice,)), INCONSISTENT) == [("b", 0)]


def test_each_other_value_is_named_once() -> None:
    run = history(
        read("x", 0),
        read("x", 0, by="c2"),
        read("y", 0),
        stored("x", 0),
        sent("a"),
        logs=(log("a"),),
    )
    assert found(run, INCONSISTENT) == [("x", 0), ("y", 0)]
    assert only(history(read("x", 0), sent("a"), logs=(log("a"),)), INCONSISTENT).partition == P
