"""Brokers are killed under load, round after round, and nothing that was acknowledged is lost.

`LOSSLESS_CRASH_ROUNDS` says how many rounds (`make soak`: 1,000), `LOSSLESS_CRASH_SEED` which: the
seed of a run stands in its output.
"""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest
from crash_rounds import Rounds, loaded, running

ROUNDS = int(os.environ.get("LOSSLESS_CRASH_ROUNDS", "20"))
CHAPTER = 50  # rounds on one topic: what a history of a thousand rounds takes is too much to keep


@pytest.mark.timeout(120 + 30 * ROUNDS)
@pytest.mark.parametrize("controllers", [0, 3], ids=["combined", "controllers-apart"])
def test_nothing_acknowledged_is_lost_whoever_is_killed(controllers: int, tmp_path: Path) -> None:
    seed = int(os.environ.get("LOSSLESS_CRASH_SEED") or random.randrange(1 << 32))
    print(f"LOSSLESS_CRASH_SEED={seed}")
    chance = random.Random(seed)
    rounds = ROUNDS // 2
    with running(tmp_path / "cluster", controllers=controllers) as cluster:
        for first in range(0, rounds, CHAPTER):
            with loaded(cluster, f"chapter-{first}") as load:
                story = Rounds(cluster, load, chance)
                for number in range(first, min(first + CHAPTER, rounds)):
                    story.run(number)
