"""Unexpected errors, missing optional packages, and unusable output, in any command."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

# A process in which the named packages cannot be imported.
WITHOUT = """
import sys
class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {absent!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
sys.meta_path.insert(0, Absent())
import importlib.util
find_spec = importlib.util.find_spec
importlib.util.find_spec = lambda name: None if name in {absent!r} else find_spec(name)
{program}
"""
COMMAND = """
from lossless.cli.main import main
sys.argv = ["lossless", *{arguments!r}]
main()
"""
SPARK = ("numpy", "pandas", "py4j", "pyarrow", "pyspark")
CONTRACT = """
[cluster]
client.bootstrap.servers = "127.0.0.1:1"
[pipelines.orders]
topics = ["orders"]
format = "raw"
sink = {sink}
"""
DELTA = '{ type = "delta", path = "orders" }'


def run(folder: Path, absent: tuple[str, ...], program: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", WITHOUT.format(absent=absent, program=program)],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


def command(folder: Path, absent: tuple[str, ...], *arguments: str) -> tuple[int, str]:
    answer = run(folder, absent, COMMAND.format(arguments=arguments))
    assert answer.stdout == ""
    return answer.returncode, answer.stderr


@pytest.mark.parametrize("arguments", [("run", "--once"), ("audit",), ("demo",)])
def test_a_command_without_the_spark_extra_names_the_install_command(
    tmp_path: Path, arguments: tuple[str, ...]
) -> None:
    (tmp_path / "lossless.toml").write_text(CONTRACT.format(sink=DELTA))
    code, error = command(tmp_path, SPARK, *arguments)
    assert code == 4
    assert "Traceback" not in error
    assert "is not installed" in error
    assert "pip install 'lossless[spark]'" in error
    assert len(error.splitlines()) == 2


def test_the_pipeline_class_without_the_spark_extra_is_unavailable(tmp_path: Path) -> None:
    program = """
import lossless
from lossless.errors import Unavailable
try:
    lossless.Pipeline
except Unavailable as error:
    print(error)
"""
    answer = run(tmp_path, SPARK, program)
    assert answer.stdout.endswith("is not installed\npip install 'lossless[spark]'\n"), answer


@pytest.mark.parametrize(
    ("module", "extra", "program"),
    [
        ("psycopg", "postgres", "from lossless.client.stores.postgres import PostgresStore as S"),
        (
            "redis",
            "redis",
            """
from lossless.client.stores.redis import RedisSink
S = lambda address: RedisSink(address, kafka={})
""",
        ),
        (
            "prometheus_client",
            "metrics",
            """
from lossless.client.metrics import PrometheusCollector
S = lambda _: list(PrometheusCollector().collect())
""",
        ),
    ],
)
def test_a_part_without_its_extra_names_the_install_command(
    tmp_path: Path, module: str, extra: str, program: str
) -> None:
    program += """
from lossless.errors import Unavailable
try:
    S("redis://127.0.0.1:1")
except Unavailable as error:
    print(error.hint)
"""
    answer = run(tmp_path, (module,), program)
    assert answer.stdout == f"pip install 'lossless[{extra}]'\n", answer.stderr


def test_an_internal_error_exits_with_70_and_prints_what_to_report(tmp_path: Path) -> None:
    program = """
import lossless.cli.status
def fails(*arguments, **options):
    raise ValueError("index 3 of 2, password=hunter2")
lossless.cli.status.command.callback = fails
"""
    answer = run(tmp_path, (), program + COMMAND.format(arguments=("status",)))
    assert answer.returncode == 70
    assert answer.stdout == ""
    assert "Traceback" in answer.stderr
    assert "error: internal error: ValueError: index 3 of 2, password=***" in answer.stderr
    assert "hunter2" not in answer.stderr


def test_an_import_error_that_no_extra_explains_is_an_internal_error(tmp_path: Path) -> None:
    code, error = command(tmp_path, ("psutil",), "doctor")
    assert code == 70
    assert "No module named 'psutil'" in error


@pytest.mark.parametrize(
    ("arguments", "code"),
    [(["--help"], 0), (["down"], 0), (["doctor", "--contract", "missing.toml"], 2)],
)
def test_a_closed_output_pipe_does_not_change_the_exit_code(
    tmp_path: Path, arguments: list[str], code: int
) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    ended = subprocess.run(
        [sys.executable, "-m", "lossless", *arguments],
        cwd=tmp_path,
        stdout=writer,
        stderr=subprocess.PIPE,
        text=True,
        timeout=120,
    )
    os.close(writer)
    assert (ended.returncode, ended.stderr) == (code, "")


def test_a_full_disk_under_standard_output_is_reported(tmp_path: Path) -> None:
    with open("/dev/full", "w") as full:
        ended = subprocess.run(
            [sys.executable, "-m", "lossless", "down"],
            cwd=tmp_path,
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            timeout=120,
        )
    assert ended.returncode == 4
    assert ended.stderr == "error: standard output cannot be written to: No space left on device\n"
