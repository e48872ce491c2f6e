"""A process is recognised for as long as it lives, and no other is taken for it."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from lossless.engines.local import process
from lossless.engines.local.process import Identity


@pytest.fixture
def sleeper(tmp_path: Path) -> Iterator[Identity]:
    (tmp_path / "log").mkdir()
    started = process.start([sys.executable, "-c", "import time; time.sleep(600)"], tmp_path)
    yield started
    psutil.Process(started.pid).kill()
    process.kill(started)


@pytest.mark.parametrize("moved_s", [-3600, 60])
def test_a_process_is_the_same_after_the_clock_has_moved(
    sleeper: Identity, moved_s: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    before_s = psutil.Process(sleeper.pid).create_time()
    booted_s = psutil.boot_time()
    monkeypatch.setattr(psutil._psplatform, "boot_time", lambda: booted_s + moved_s)
    after_s = psutil.Process(sleeper.pid).create_time()
    assert after_s - before_s == pytest.approx(moved_s, abs=2)  # so it looks to whoever asks
    assert process.state(sleeper) == "running"


def test_another_process_with_the_same_number_is_not_taken_for_it(sleeper: Identity) -> None:
    earlier = dataclasses.replace(sleeper, started_s=sleeper.started_s - 60)
    assert process.state(earlier) == "dead"
    process.kill(earlier)
    assert process.state(sleeper) == "running"
