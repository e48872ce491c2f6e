"""Alternating runs, medians, and the table that says which bars hold."""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

console = Console(stderr=True, highlight=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """One line of build/bench.json. `ratio` is ours to theirs. The bar is the least that it may be,
    or the most of what is better small; without a ratio it is about the value."""

    name: str
    value: float
    unit: str
    against: str | None = None
    against_value: float | None = None
    ratio: float | None = None
    bar: float | None = None
    holds: bool | None = None

    @property
    def bound(self) -> str:
        """The bar as a table has it; which way it points is known from whether it holds."""
        if self.bar is None:
            return ""
        measured = self.value if self.ratio is None else self.ratio
        return f"{'≥' if (measured >= self.bar) is self.holds else '≤'} {self.bar}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Peer:
    """What we are measured against, and how much of its speed we promise; None: nothing."""

    name: str
    work: Callable[[int], None]
    bar: float | None = None


def compare(
    name: str, ours: Callable[[int], None], peers: Sequence[Peer], *, records: int, runs: int
) -> list[Result]:
    """Everyone gets two runs to warm up, then they alternate; who goes first alternates too."""
    field = [("ours", ours), *((peer.name, peer.work) for peer in peers)]
    times: dict[str, list[float]] = {who: [] for who, _ in field}
    for run in range(-2, runs):
        for who, work in field if run % 2 == 0 else reversed(field):
            began = time.perf_counter()
            work(run)
            took = time.perf_counter() - began
            if run >= 0:
                times[who].append(took)
            said = "warming up" if run < 0 else f"run {run + 1} of {runs}"
            console.print(f"  {name}: {said}, {who}: {took:.2f} s")
    value = records / statistics.median(times["ours"])
    results = []
    for peer in peers:
        against_value = records / statistics.median(times[peer.name])
        ratio = value / against_value
        results.append(
            Result(
                name=name,
                value=round(value),
                unit="records/s",
                against=peer.name,
                against_value=round(against_value),
                ratio=round(ratio, 3),
                bar=peer.bar,
                holds=None if peer.bar is None else ratio >= peer.bar,
            )
        )
    return results


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
            result.bound,
            "" if result.holds is None else ("yes" if result.holds else "NO"),
        )
    Console(width=160).print(table)
    console.print(f"written to {file}")
