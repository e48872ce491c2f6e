"""What a history knows of itself: to find that nothing is out of place must be cheap."""

from __future__ import annotations

from dataclasses import FrozenInstanceError

import pytest
from histories import P, Q, acknowledged, begun, history, log, read, records, sent, stored

from lossless.verifier.history import Jump


def test_nothing_of_a_clean_history_is_out_of_place() -> None:
    run = history(
        stored("a", 0),
        (sent("b"), acknowledged("b", None)),
        begun(0),
        read("a", 0),
        read("b", 1),
        logs=(log("a", "b"),),
    )
    assert run.stray_reads == []
    assert run.stray_acknowledgements == []
    assert run.jumps == []


def test_what_is_out_of_place_is_kept_with_the_history() -> None:
    lost, unconfirmed = acknowledged("a", 0), acknowledged("b", None)
    stray, elsewhere = read("x", 0), read("y", 3, Q)
    run = history(lost, unconfirmed, stray, read("y", 0), elsewhere, logs=(log("y"),))
    assert run.stray_acknowledgements == [lost, unconfirmed]
    assert run.stray_reads == [stray, elsewhere]
    assert run.jumps == [Jump(40, "c1", P, 1, 0, "y")]


def test_between_is_from_the_first_offset_to_before_the_last() -> None:
    sparse = log("a", None, "b", "c", start=5)
    assert sparse.between(5, 9) == sparse.records
    assert sparse.between(6, 8) == records("b", start=7)
    assert sparse.between(7, 7) == ()
    assert sparse.between(9, 5) == ()


def test_a_history_is_a_value() -> None:
    run = history(sent("a"))
    assert run == history(sent("a"))
    with pytest.raises(FrozenInstanceError):
        run.settled = False  # type: ignore[misc]
