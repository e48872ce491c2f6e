"""The output of a demo: last line, exit code and JSON."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from click.testing import CliRunner, Result

from lossless.cli.demo import command
from lossless.demo.comparison import compare
from lossless.demo.progress import InjectedFault
from lossless.demo.result import DemoResult
from lossless.pipeline.audit import AuditReport, Bucket, Reported, Verdict

BUCKET = Bucket(start_ms=1_700_000_000_000, acknowledged=2_000, logged=2_000, stored=2_000)
KEPT = DemoResult(
    variant="careful",
    orders=2_000,
    acknowledged=2_000,
    stored=2_000,
    lost=0,
    duplicated=0,
    balanced=True,
    faults=(InjectedFault(what="kill -9", evidence="process 1 is gone"),),
    seconds=60.0,
    audit=AuditReport(
        pipeline="orders",
        sink="delta table ./warehouse/orders",
        audited_at_ms=0,
        sequence=9,
        bucket_ms=10_000,
        reported=Reported.FULLY,
        verdict=Verdict.BALANCED,
        buckets=[BUCKET],
        partitions=[],
        total=replace(BUCKET, start_ms=None),
        findings=[],
        notes=[],
        undecided=[],
    ),
)
COMPARISON = compare(
    {number: (number % 6, number) for number in range(2_000)},
    {number: 1 + (number < 15) for number in range(1_988)},
)
BROKEN = DemoResult(
    variant="careless",
    orders=2_000,
    acknowledged=2_000,
    stored=1_988,
    lost=12,
    duplicated=15,
    balanced=False,
    faults=(),
    seconds=60.0,
    comparison=COMPARISON,
)


def output_of(monkeypatch: pytest.MonkeyPatch, result: DemoResult, *options: str) -> Result:
    """Runs the command with the result of a demo that has ended."""
    monkeypatch.setattr("lossless.demo.careful.run_careful", lambda **_: result)
    monkeypatch.setattr("lossless.demo.careless.run_careless", lambda **_: result)
    return CliRunner().invoke(command, options)


def test_a_kept_promise_prints_the_counts_and_exits_with_0(monkeypatch: pytest.MonkeyPatch) -> None:
    answer = output_of(monkeypatch, KEPT)
    assert answer.exit_code == 0
    *lines, last = answer.stdout.splitlines()
    assert last == "2000 acknowledged, 2000 stored, 0 lost, 0 duplicated"
    assert any("2023-11-14 22:13:20" in line and "✓" in line for line in lines)


def test_one_missing_order_breaks_the_promise_and_exits_with_1(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    answer = output_of(monkeypatch, replace(KEPT, stored=1_999, lost=1, balanced=False))
    assert answer.exit_code == 1
    assert answer.stdout.endswith("2000 acknowledged, 1999 stored, 1 lost, 0 duplicated\n")
    assert "The promise is broken" in answer.stdout


def test_the_first_ten_discrepancies_of_each_kind_are_shown_and_the_rest_counted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    answer = output_of(monkeypatch, BROKEN, "--careless")
    assert answer.exit_code == 1
    rows = [line.split() for line in answer.stdout.splitlines()]
    assert ["1988", "2", "1988", "0"] in rows  # order, partition, offset, copies
    assert ["1997", "5", "1997", "0"] in rows
    assert ["1998", "0", "1998", "0"] not in rows
    assert ["9", "3", "9", "2"] in rows
    assert "and 2 more" in answer.stdout
    assert "and 5 more" in answer.stdout
    assert answer.stdout.endswith("2000 acknowledged, 1988 stored, 12 lost, 15 duplicated\n")


@pytest.mark.parametrize(("result", "code"), [(KEPT, 0), (BROKEN, 1)])
def test_json_output_contains_nothing_but_json(
    result: DemoResult, code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = ["--format", "json", *(["--careless"] if result is BROKEN else [])]
    answer = output_of(monkeypatch, result, *options)
    assert answer.exit_code == code
    document = json.loads(answer.stdout)
    assert document["kept"] is (code == 0)
    assert (document["lost"], document["duplicated"]) == (result.lost, result.duplicated)
    if result is BROKEN:
        assert len(document["lost_orders"]) == 12
        assert document["duplicated_orders"][0]["copies"] == 2
    else:
        assert document["audit"]["verdict"] == "balanced"
        assert document["faults"][0]["evidence"] == "process 1 is gone"
