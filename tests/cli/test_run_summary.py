"""The last line of `lossless run`, and the progress of `lossless demo`."""

from __future__ import annotations

import time

import pytest

from lossless.cli.demo import _LineProgress
from lossless.cli.run import _print_result, summary
from lossless.demo.progress import Counts
from lossless.pipeline.ledger import Ledger, Position, SourcePartition
from lossless.tally import Tally


def ledger(read: int, stored: int, dead: int = 0, *, rows: int | None = None) -> Ledger:
    position = Position(
        start_offset=0,
        next_offset=read,
        read=Tally(read),
        stored=Tally(stored),
        dead=Tally(dead),
        rows=stored if rows is None else rows,
    )
    return Ledger(sequence=2, positions={SourcePartition("orders", "id", 0): position})


@pytest.mark.parametrize(
    ("after", "read_now", "line"),
    [
        (ledger(1001, 1000, 1), 1001, "1,001 records = 1,000 rows + 1 dead letter"),
        (
            ledger(1001, 1000, 1),
            0,
            "nothing new; in total 1,001 records = 1,000 rows + 1 dead letter",
        ),
        (ledger(1, 1), 1, "1 record = 1 row"),
        (
            ledger(9, 5, 2),
            4,
            "4 new records; in total 9 records = 5 rows + 2 dead letters + 2 filtered",
        ),
        (ledger(2, 2, rows=6), 2, "2 records = 6 rows of 2 records"),
        (Ledger(), 0, "nothing new; in total 0 records = 0 rows"),
    ],
)
def test_a_run_ends_with_its_counts(after: Ledger, read_now: int, line: str) -> None:
    assert summary(after, read_now) == line


@pytest.mark.parametrize(
    ("stored", "complete", "line"),
    [
        (None, None, "orders: stopped before its ledger was read; nothing was written"),
        (ledger(1, 1), None, "orders: nothing new; in total 1 record = 1 row (ledger 2)"),
        (
            ledger(1, 1),
            False,
            "orders: nothing new; in total 1 record = 1 row (ledger 2); stopped before the end",
        ),
    ],
)
def test_a_run_that_was_stopped_early_ends_with_what_is_known(
    stored: Ledger | None, complete: bool | None, line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    _print_result("orders", stored, 0, "text", complete=complete)
    assert capsys.readouterr().out.strip() == line


def test_a_demo_prints_its_counts_regularly(capsys: pytest.CaptureFixture[str]) -> None:
    lines = _LineProgress(silence_max_s=0.02)
    printed = ""
    with lines.heartbeat():
        lines.step("waiting for brokers")
        lines.counts(Counts(orders=10, acknowledged=3, stored=1))
        deadline = time.monotonic() + 30
        while printed.count("3 of 10 orders acknowledged") < 3 and time.monotonic() < deadline:
            printed += capsys.readouterr().err
    assert printed.count("3 of 10 orders acknowledged") >= 3
