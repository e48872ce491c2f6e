"""Reordered: the order of sending, of offsets and of reading are not the same."""

from __future__ import annotations

from histories import (
    P,
    Q,
    acknowledged,
    begun,
    ended,
    found,
    history,
    log,
    only,
    read,
    sent,
    stored,
)

from lossless.verifier.anomaly import Kind
from lossless.verifier.history import Reset

REORDERED = Kind.REORDERED
ABC = (sent("a"), sent("b"), sent("c"))


def test_sent_stored_and_read_in_one_order() -> None:
    run = history(
        *ABC, begun(0), read("a", 0), read("b", 1), read("c", 2), logs=(log("a", "b", "c"),)
    )
    assert found(run, REORDERED) == []


def test_a_record_stands_before_the_one_sent_before_it() -> None:
    anomaly = only(history(*ABC, logs=(log("b", "a", "c"),)), REORDERED)
    assert (anomaly.value, anomaly.offset) == ("b", 0)
    assert anomaly.what == (
        "p1 sent 'b' to orders-0 at 10 ms, after 'a', and it stands before it: "
        "at offset 0, not after 1"
    )


def test_one_record_out_of_its_place_is_one_anomaly() -> None:
    assert found(history(*ABC, logs=(log("b", "c", "a"),)), REORDERED) == [("b", 0)]
    assert found(history(*ABC, logs=(log("c", "a", "b"),)), REORDERED) == [("c", 0)]


def test_what_is_missing_in_between_does_not_hide_it() -> None:
    assert found(history(*ABC, logs=(log("c", "a"),)), REORDERED) == [("c", 0)]


def test_only_the_first_copy_of_each_counts() -> None:
    assert found(history(*ABC, logs=(log("a", "b", "a", "c"),)), REORDERED) == []


def test_producers_and_partitions_have_orders_of_their_own() -> None:
    two_producers = history(sent("a"), sent("b", by="p2"), logs=(log("b", "a"),))
    assert found(two_producers, REORDERED) == []
    two_partitions = history(sent("a"), sent("b", Q), logs=(log(None, "a"), log("b", partition=Q)))
    assert found(two_partitions, REORDERED) == []


def test_what_retention_deleted_had_an_offset_too() -> None:
    by_reader = history(sent("a"), sent("b"), read("b", 0), logs=(log("a", start=1),))
    assert found(by_reader, REORDERED) == [("b", 0)]
    by_producer = history(sent("a"), stored("b", 0), logs=(log("a", start=1),))
    assert found(by_producer, REORDERED) == [("b", 0)]
    in_order = history(stored("a", 0), sent("b"), logs=(log("b", start=1),))
    assert found(in_order, REORDERED) == []


def test_the_first_copy_may_be_the_one_that_was_deleted() -> None:
    run = history(
        *ABC, read("b", 1), read("c", 2), read("b", 3), read("a", 0), logs=(log("c", start=4),)
    )
    assert found(run, REORDERED) == [("a", 0)]  # a poll that went back, and no send out of order


def test_without_a_log_readers_and_producers_know_the_order() -> None:
    assert found(history(sent("a"), sent("b"), read("b", 0), read("a", 1)), REORDERED) == [("b", 0)]
    no_offset = history(sent("a"), sent("b"), acknowledged("b", None))
    assert found(no_offset, REORDERED) == []


def test_where_a_record_stands_counts_and_not_what_its_producer_was_told() -> None:
    run = history(stored("a", 2), sent("b"), sent("c"), logs=(log("a", "b", "c"),))
    assert found(run, REORDERED) == []
    at_the_start = history(stored("a", 1), sent("b"), logs=(log("b", "a", start=1),))
    assert found(at_the_start, REORDERED) == [("b", 1)]


def test_a_poll_skipped_a_record() -> None:
    run = history(*ABC, read("a", 0), read("c", 2), logs=(log("a", "b", "c"),))
    anomaly = only(run, REORDERED)
    assert (anomaly.value, anomaly.offset) == ("b", 1)
    assert anomaly.what == (
        "c1 was at offset 1 of orders-0 and at 40 ms read 2: it skipped 'b' at 1"
    )


def test_a_poll_skipped_several_records_after_it_began() -> None:
    run = history(*ABC, begun(0), read("c", 2), logs=(log("a", "b", "c"),))
    assert only(run, REORDERED).what.endswith("it skipped 'a' at 0 and 1 more")


def test_markers_and_what_was_not_committed_may_be_skipped() -> None:
    run = history(
        sent("a"),
        sent("aborted", within="t"),
        ended("t", False),
        sent("b"),
        read("a", 0),
        read("b", 3),
        logs=(log("a", "aborted", None, "b"),),
    )
    assert found(run, REORDERED) == []


def test_what_is_deleted_may_be_skipped() -> None:
    run = history(read("a", 0), read("c", 2), logs=(log("c", start=2),))
    assert found(run, REORDERED) == []
    assert found(history(read("a", 0), read("c", 2)), REORDERED) == []


def test_a_reset_may_skip_and_go_back() -> None:
    run = history(
        *ABC,
        begun(0),
        read("a", 0),
        Reset(40, "c1", P, 1, 2, "out of range"),
        read("c", 2),
        Reset(40, "c1", P, 3, 1, "truncation detected"),
        read("b", 1),
        logs=(log("a", "b", "c"),),
    )
    assert found(run, REORDERED) == []


def test_a_poll_went_back() -> None:
    run = history(*ABC, read("a", 0), read("b", 1), read("b", 1), logs=(log("a", "b", "c"),))
    anomaly = only(run, REORDERED)
    assert (anomaly.value, anomaly.offset) == ("b", 1)
    assert anomaly.what == "c1 was at offset 2 of orders-0 and at 40 ms went back to 'b' at 1"


def test_every_consumer_has_its_own_position_in_every_partition() -> None:
    run = history(
        *ABC,
        read("a", 0),
        read("b", 1, by="c2"),
        read("x", 5, Q),
        read("b", 1),
        logs=(log("a", "b", "c"), log("x", partition=Q, start=5)),
    )
    assert found(run, REORDERED) == []
