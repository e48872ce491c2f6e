"""docs/commit-frequency.svg: what a commit costs, and what it saves (claim C5)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

FILE = Path(__file__).parents[1] / "docs" / "commit-frequency.svg"
WIDTH, HEIGHT = 640, 300
LEFT, RIGHT, TOP, BOTTOM = 70, 570, 50, 250
NAMESPACE = "http://www.w3.org/2000/svg"
READ, REPEATED = "#2b6cb0", "#c05621"


class Point(NamedTuple):
    every: int  # records to a commit
    read_per_s: float
    repeated: int  # after kill -9


def draw(points: Sequence[Point], file: Path = FILE) -> None:
    """Both axes of both lines by powers of ten: the range is four of them."""
    file.write_text("\n".join([*_frame(points), *_lines(points), "</svg>", ""]))


def _frame(points: Sequence[Point]) -> list[str]:
    drawn = [
        f'<svg xmlns="{NAMESPACE}" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif">',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
        _text(LEFT, 24, "records read per second", READ, "start"),
        _text(RIGHT, 24, "records read again after kill -9", REPEATED, "end"),
        _text((LEFT + RIGHT) / 2, HEIGHT - 10, "records to a commit", "black", "middle"),
        f'<path d="M{LEFT} {TOP}V{BOTTOM}H{RIGHT}V{TOP}" fill="none" stroke="#999"/>',
    ]
    drawn += [
        _text(_x(point.every, points), BOTTOM + 18, f"{point.every:,}", "black", "middle")
        for point in points
    ]
    return drawn


def _lines(points: Sequence[Point]) -> list[str]:
    drawn = []
    for values, colour, anchor, x in (
        ([point.read_per_s for point in points], READ, "end", LEFT - 8),
        ([max(1, point.repeated) for point in points], REPEATED, "start", RIGHT + 8),
    ):
        low = math.floor(math.log10(min(values)))
        high = max(low + 1, math.ceil(math.log10(max(values))))

        def y(value: float, low: int = low, high: int = high) -> float:
            return BOTTOM - (math.log10(value) - low) / (high - low) * (BOTTOM - TOP)

        drawn += [
            _text(x, y(10**power) + 4, f"{10**power:,}", colour, anchor)
            for power in range(low, high + 1)
        ]
        places = [
            (_x(point.every, points), y(value)) for point, value in zip(points, values, strict=True)
        ]
        path = " L".join(f"{across:.1f} {down:.1f}" for across, down in places)
        drawn.append(f'<path d="M{path}" fill="none" stroke="{colour}" stroke-width="2"/>')
        drawn += [
            f'<circle cx="{across:.1f}" cy="{down:.1f}" r="3.5" fill="{colour}"/>'
            for across, down in places
        ]
    return drawn


def _x(every: int, points: Sequence[Point]) -> float:
    first, last = (math.log10(point.every) for point in (points[0], points[-1]))
    return LEFT + (math.log10(every) - first) / (last - first) * (RIGHT - LEFT)


def _text(x: float, y: float, text: str, colour: str, anchor: str) -> str:
    place = f'x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"'
    return f'<text {place} fill="{colour}" font-size="12">{text}</text>'
