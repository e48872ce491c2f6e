"""Acknowledged within stored within attempted; and what nobody ever sent."""

from __future__ import annotations

from histories import P, Q, acknowledged, found, history, log, only, read, sent, stored

from lossless.verifier.anomaly import Kind
from lossless.verifier.sets import Sets

INVENTED = Kind.INVENTED


def test_the_sets_of_a_good_run_hold() -> None:
    run = history(stored("a", 0), sent("b"), sent("c"), logs=(log("a", "b"),))
    sets = Sets.of(run)
    assert sets.acknowledged == {P: {"a"}}
    assert sets.stored == {P: {"a", "b"}}
    assert sets.attempted == {P: {"a", "b", "c"}}
    assert sets.hold
    assert found(run, INVENTED) == []


def test_the_sets_of_a_lossy_run_do_not_hold() -> None:
    assert not Sets.of(history(stored("a", 0), logs=(log(),))).hold
    assert not Sets.of(history(stored("a", 0))).hold
    assert not Sets.of(history(logs=(log("a"),))).hold


def test_a_value_in_the_log_that_nobody_sent() -> None:
    run = history(sent("a"), logs=(log("a", "x", "x"),))
    anomaly = only(run, INVENTED)
    assert (anomaly.value, anomaly.offset) == ("x", 1)
    assert anomaly.what == (
        "'x' at offset 1 of orders-0 stands in the log at the end, and nobody ever sent it"
    )


def test_sent_to_another_partition_is_not_sent_to_this_one() -> None:
    run = history(sent("a", Q), logs=(log("a"), log(partition=Q)))
    assert found(run, INVENTED) == [("a", 0)]


def test_a_value_that_was_read_and_that_nobody_sent() -> None:
    run = history(sent("a"), read("x", 0), read("x", 0, by="c2"), logs=(log("a"),))
    assert only(run, INVENTED).what == (
        "'x' at offset 0 of orders-0 was read by c1 at 40 ms, and nobody ever sent it"
    )
    # Out of place, but sent; and one that the log has too, which is named once.
    assert found(history(sent("a"), read("a", 0), logs=(log(),)), INVENTED) == []
    assert found(history(read("x", 1), logs=(log("x"),)), INVENTED) == [("x", 0)]


def test_an_acknowledgement_does_not_make_a_value_sent() -> None:
    assert found(history(acknowledged("a", 0), logs=(log("a"),)), INVENTED) == [("a", 0)]
