"""The file lock: one holder at a time, in this process, in others, and gone with its holder."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from lossless.errors import Unavailable
from lossless.pipeline.sinks.file_lock import file_lock, jvm_file_lock

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

HOLD = """
import sys
from lossless.pipeline.sinks.file_lock import file_lock
with file_lock(sys.argv[1]):
    print("held", flush=True)
    sys.stdin.read()
"""


def test_a_second_holder_in_the_same_process_waits_and_is_told_who_to_look_for(
    tmp_path: Path,
) -> None:
    path = tmp_path / "lock"
    with (
        file_lock(path),
        pytest.raises(Unavailable, match=str(path)),
        file_lock(path, wait_s_max=0),
    ):
        pass


def test_the_lock_is_free_again_after_the_block_and_after_an_error_in_it(tmp_path: Path) -> None:
    path = tmp_path / "folder" / "lock"
    with pytest.raises(ZeroDivisionError), file_lock(path):
        raise ZeroDivisionError
    with file_lock(path, wait_s_max=0):
        assert path.exists()


def test_another_process_excludes_us_until_it_is_killed(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, str(path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        with pytest.raises(Unavailable), file_lock(path, wait_s_max=0):
            pass
        holder.kill()
        with file_lock(path, wait_s_max=30):
            pass


def test_the_jvm_holds_its_lock_for_one_block_at_a_time(
    spark: SparkSession, tmp_path: Path
) -> None:
    path = tmp_path / "lock"
    with (
        jvm_file_lock(spark._jvm, path),
        pytest.raises(Unavailable),
        jvm_file_lock(spark._jvm, path, wait_s_max=0),
    ):
        pass
    with jvm_file_lock(spark._jvm, path, wait_s_max=0):
        pass
