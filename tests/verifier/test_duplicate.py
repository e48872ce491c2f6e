"""Duplicate: one value at two offsets."""

from __future__ import annotations

from histories import Q, acknowledged, found, history, log, only, read, sent, stored

from lossless.verifier.anomaly import Kind

DUPLICATE = Kind.DUPLICATE


def test_two_copies_in_the_log() -> None:
    anomaly = only(history(stored("a", 1), logs=(log("a", "a"),)), DUPLICATE)
    assert (anomaly.value, anomaly.offset) == ("a", 1)
    assert anomaly.what == (
        "'a' is in orders-0 twice: at offset 0 (in the log at the end) "
        "and at offset 1 (in the log at the end)"
    )


def test_every_copy_after_the_first_counts() -> None:
    run = history(sent("a"), sent("b"), logs=(log("a", "b", "a", "a"),))
    assert found(run, DUPLICATE) == [("a", 2), ("a", 3)]


def test_a_copy_that_was_read_and_deleted_since_counts() -> None:
    run = history(stored("a", 0), read("a", 0), logs=(log("a", start=1),))
    anomaly = only(run, DUPLICATE)
    assert "at offset 0 (read by c1 at 40 ms)" in anomaly.what


def test_a_copy_that_was_read_and_taken_back_counts() -> None:
    run = history(sent("a"), sent("b"), read("a", 0), logs=(log("b", "a"),))
    assert found(run, DUPLICATE) == [("a", 1)]


def test_reading_a_record_twice_does_not_make_it_two() -> None:
    run = history(stored("a", 0), read("a", 0), read("a", 0, by="c2"), logs=(log("a"),))
    assert found(run, DUPLICATE) == []
    deleted = history(stored("a", 0), read("a", 0), read("a", 0), logs=(log(start=1),))
    assert found(deleted, DUPLICATE) == []


def test_values_are_told_apart_by_partition() -> None:
    run = history(
        stored("a", 0),
        stored("a", 3, Q),
        logs=(log("a"), log(None, None, None, "a", partition=Q)),
    )
    assert found(run, DUPLICATE) == []


def test_what_a_producer_was_told_is_no_copy() -> None:
    run = history(sent("a"), acknowledged("a", 1), logs=(log("a"),))
    assert found(run, DUPLICATE) == []
