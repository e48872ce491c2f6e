"""From a history to its anomalies, and from anomalies to a verdict."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from pathlib import Path

import pytest
from histories import (
    Q,
    billing,
    committed,
    history,
    log,
    processed,
    read,
    records,
    sent,
    stored,
)

from lossless.verifier.anomaly import Kind
from lossless.verifier.history import History
from lossless.verifier.verdict import PROPERTIES, Verdict, conclude, judge, undecided

PRINT = "import test_verdict as t; print(*t.judge(t.messy()), sep='\\n')"


def messy() -> History:
    """Something of almost everything, with partitions of several types."""
    values = [f"m{number}" for number in range(40)]
    other = [f"n{number}" for number in range(5)]
    return history(
        *(stored(value, offset) for offset, value in enumerate(values)),
        *(stored(value, offset, 7) for offset, value in enumerate(other)),
        *(read(value, offset + 1) for offset, value in enumerate(values[::3])),
        *(read(value, offset, 7) for offset, value in enumerate(["x", "y", "x"])),
        *(processed(value, offset) for offset, value in enumerate(values[::5] * 2)),
        sent("never", Q),
        committed(40),
        logs=(
            log(*values[::-2], "z", *values[:3], replicas={2: records(*values), 1: records("w")}),
            log(*other[::-1], partition=7, last_stable=1),
        ),
        groups=(billing("c1", "c2"),),
    )


def test_every_kind_has_a_property_and_they_are_in_its_order() -> None:
    assert list(PROPERTIES) == list(Kind)


def test_anomalies_come_by_kind_partition_offset_and_value() -> None:
    anomalies = judge(messy())
    order = [
        (
            list(Kind).index(a.kind),
            str(a.partition),
            -1 if a.offset is None else a.offset,
            a.value or "",
        )
        for a in anomalies
    ]
    assert order == sorted(order)
    assert len({a.kind for a in anomalies}) >= 9


def test_only_what_is_looked_for_is_judged() -> None:
    everything = judge(messy())
    for kind in Kind:
        assert judge(messy(), [kind]) == tuple(a for a in everything if a.kind is kind)
    two = judge(messy(), iter([Kind.STUCK, Kind.LOST]))
    assert [a.kind for a in two] == sorted([a.kind for a in two], key=list(Kind).index)
    assert judge(messy(), []) == ()
    assert undecided(messy(), []) == ()


@pytest.mark.parametrize("seed", ["1", "2"])
def test_the_same_words_whatever_the_seed_of_hashes(seed: str) -> None:
    here = "".join(f"{anomaly}\n" for anomaly in judge(messy()))
    there = subprocess.run(
        [sys.executable, "-c", PRINT],
        env={**os.environ, "PYTHONHASHSEED": seed},
        cwd=Path(__file__).parent,
        capture_output=True,
        text=True,
        check=True,
    )
    assert there.stdout == here


def test_what_cannot_be_told_without_a_log() -> None:
    everything_else = tuple(kind for kind in Kind if kind not in {"aborted read", "repeated"})
    for run in (
        history(sent("a")),
        history(read("a", 0)),
        history(groups=(billing(),)),
        history(sent("a"), sent("b", Q), logs=(log("a"),)),
    ):
        assert undecided(run) == everything_else
    assert undecided(history(sent("a"), logs=(log("a"),))) == ()


def test_what_cannot_be_told_before_a_run_has_settled() -> None:
    run = history(
        stored("a", 0),
        stored("b", 1),
        sent("c"),
        logs=(log("a"),),
        groups=(billing(),),
        settled=False,
    )
    assert judge(run) == ()
    assert undecided(run) == (Kind.LOST, Kind.UNSEEN, Kind.STUCK)
    assert undecided(run, [Kind.STUCK]) == (Kind.STUCK,)


def test_verdicts() -> None:
    lost = judge(history(stored("a", 0), logs=(log(),)), [Kind.LOST])
    repeated = judge(history(processed("a", 0), processed("a", 0)), [Kind.REPEATED])
    assert lost
    assert repeated
    assert conclude(lost) is Verdict.INVALID
    assert conclude(lost, [Kind.UNSEEN], exhausted=True) is Verdict.INVALID
    assert conclude(lost, tolerated={Kind.LOST}) is Verdict.UNREFUTED
    assert conclude((), [Kind.UNSEEN], exhausted=True) is Verdict.UNKNOWN
    assert conclude((), [Kind.REPEATED]) is Verdict.UNREFUTED
    assert conclude(repeated) is Verdict.UNREFUTED
    assert conclude(repeated, tolerated=()) is Verdict.INVALID
    assert conclude((), exhausted=True) is Verdict.VALID


def test_exit_codes() -> None:
    assert [verdict.exit_code for verdict in Verdict] == [0, 0, 1, 3]


def test_partitions_are_named_as_they_print() -> None:
    run = history(stored("a", 0, ("orders", 3)), logs=(log(partition=("orders", 3)),))
    (anomaly,) = judge(run, [Kind.LOST])
    assert "of ('orders', 3)" in anomaly.what


def test_a_judged_history_can_be_handed_to_another_process() -> None:
    run = messy()
    anomalies = judge(run)
    assert undecided(run)
    assert judge(pickle.loads(pickle.dumps(run))) == anomalies


def test_what_has_no_value_or_no_offset_comes_first() -> None:
    hole, other = records("a", None, "c"), records("a", "x", "c")
    divergent = history(logs=(log("a", "b", "c", replicas={1: other, 2: hole}),))
    assert [a.value for a in judge(divergent, [Kind.INCONSISTENT_OFFSET])] == [None, "x"]
    stuck = history(sent("a"), logs=(log("a", last_stable=0),))
    assert [a.offset for a in judge(stuck, [Kind.STUCK])] == [None, 0]
