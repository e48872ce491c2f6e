"""scripts/retry-failed with tests that fail once, twice and not at all."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

RETRY_FAILED = Path(__file__).parents[2] / "scripts" / "retry-failed"

# Fails in its first run, passes in its second.
FAILS_ONCE = """
from pathlib import Path

def test_once_{number}():
    marker = Path(__file__).with_name("ran-{number}")
    ran_before = marker.exists()
    marker.touch()
    assert ran_before
"""


def run(folder: Path, *tests: str) -> subprocess.CompletedProcess[str]:
    (folder / "pytest.ini").write_text("[pytest]\n")
    for number, text in enumerate(tests):
        (folder / f"test_{number}.py").write_text(text)
    return subprocess.run(
        [sys.executable, str(RETRY_FAILED), sys.executable, "-m", "pytest", "-q", "-n", "2"],
        cwd=folder,
        env={**os.environ, "LOSSLESS_FLAKY": str(folder / "flaky.txt")},
        capture_output=True,
        text=True,
        check=False,
    )


def test_a_run_without_failures_retries_nothing(tmp_path: Path) -> None:
    done = run(tmp_path, "def test_good(): pass")
    assert done.returncode == 0, done
    assert "once more" not in done.stderr


def test_a_test_that_passes_on_retry_is_printed_as_flaky(tmp_path: Path) -> None:
    done = run(tmp_path, FAILS_ONCE.format(number=0), "def test_good(): pass")
    assert done.returncode == 0, done
    assert "FLAKY test_0.py::test_once_0" in done.stderr
    assert (tmp_path / "flaky.txt").read_text() == "test_0.py::test_once_0\n"


def test_a_test_that_fails_twice_fails_the_run(tmp_path: Path) -> None:
    done = run(tmp_path, FAILS_ONCE.format(number=0), "def test_bad(): assert False")
    assert done.returncode == 1, done
    assert "FLAKY test_0.py::test_once_0" in done.stderr
    assert "FLAKY test_1.py" not in done.stderr


def test_more_than_three_flaky_tests_fail_the_run(tmp_path: Path) -> None:
    done = run(tmp_path, *(FAILS_ONCE.format(number=number) for number in range(4)))
    assert done.returncode == 1, done
    assert "4 tests are flaky; at most 3 may be." in done.stderr


def test_a_file_that_cannot_be_collected_fails_the_run_at_once(tmp_path: Path) -> None:
    done = run(tmp_path, "import nothing_of_this_name")
    assert done.returncode not in (0, 5), done
