"""Alternating runs, medians, and the table that says which bars hold."""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

console = Console(stderr=True, highlight=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """One line of build/bench.json. `ratio` is ours to theirs, above 1 when we are faster."""

    name: str
    value: float
    unit: str
    against: str | None = None
    against_value: float | None = None
    ratio: float | None = None
    bar: float | None = None
    holds: bool | None = None


def compare(
    name: str,
    ours: Callable[[int], None],
    against: str,
    theirs: Callable[[int], None],
    *,
    records: int,
    bar: float,
    runs: int,
) -> Result:
    """Each gets one run to warm up, then they alternate; who goes first alternates too."""
    ours(-1)
    theirs(-1)
    times: dict[str, list[float]] = {"ours": [], "theirs": []}
    for run in range(runs):
        pair = [("ours", ours), ("theirs", theirs)]
        for who, work in pair if run % 2 == 0 else reversed(pair):
            began = time.perf_counter()
            work(run)
            took = time.perf_counter() - began
            times[who].append(took)
            console.print(f"  {name}: run {run + 1} of {runs}, {who}: {took:.2f} s")
    value = records / statistics.median(times["ours"])
    against_value = records / statistics.median(times["theirs"])
    ratio = value / against_value
    return Result(
        name=name,
        value=round(value),
        unit="records/s",
        against=against,
        against_value=round(against_value),
        ratio=round(ratio, 3),
        bar=bar,
        holds=ratio >= bar,
    )


def report(results: list[Result], file: Path) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps([asdict(result) for result in results], indent=2) + "\n")
    table = Table("what", "ours", "unit", "against", "theirs", "ratio", "bar", "holds")
    for result in results:
        table.add_row(
            result.name,
            f"{result.value:,.10g}",
            result.unit,
            result.against or "",
            "" if result.against_value is None else f"{result.against_value:,.10g}",
            "" if result.ratio is None else f"{result.ratio:.2f}",
            "" if result.bar is None else f"≥ {result.bar}",
            "" if result.holds is None else ("yes" if result.holds else "NO"),
        )
    Console().print(table)
    console.print(f"written to {file}")
