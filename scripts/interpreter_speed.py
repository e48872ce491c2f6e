"""How long this interpreter takes for a bit of ordinary Python, and where it is. Nothing, with an
exit code of 1, if it is of another version or cannot make a virtual environment."""

import sys
from importlib.util import find_spec
from timeit import repeat
from typing import NamedTuple

if not (3, 11) <= sys.version_info < (3, 14) or find_spec("ensurepip") is None:
    sys.exit(1)


class Step(NamedTuple):
    number: int
    total: int


class Walk:
    __slots__ = ("total",)

    def __init__(self) -> None:
        self.total = 0

    def step(self, number: int) -> Step:
        self.total += number
        return Step(number, self.total)


def work() -> None:
    walk, known = Walk(), {number: number for number in range(100)}
    for number in range(1000):
        step = walk.step(known.get(number, 1))
        if isinstance(step, Step) and step.total < step.number:
            raise AssertionError


print(f"{min(repeat(work, number=10, repeat=10)):.6f} {sys.executable}")
