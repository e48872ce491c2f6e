"""Runs every guide: each `$` line of its console blocks, in order, and compares the output.

In the expected output, a line `…` matches any lines, and `…` within a line matches any text.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

ROOT = Path(__file__).parents[2]
GUIDES = sorted((ROOT / "docs").glob("*.md"))
COMMAND_TIMEOUT_S = 300
# Variables that a command exports are set for the next one.
KEEPING = """[ ! -f "$HOME_OF_GUIDE/environment" ] || source "$HOME_OF_GUIDE/environment"
{}
code=$?
declare -px > "$HOME_OF_GUIDE/environment"
exit $code"""


@dataclass(frozen=True, slots=True)
class Step:
    command: str
    expected: str


def steps(guide: Path) -> Iterator[Step]:
    for block in re.findall(r"^```console\n(.*?)^```", guide.read_text(), re.MULTILINE | re.DOTALL):
        command: list[str] = []
        expected: list[str] = []
        for line in block.splitlines():
            if line.startswith("$ "):
                if command:
                    yield Step("\n".join(command), "\n".join(expected))
                command, expected = [line[2:]], []
            elif line == ">" or line.startswith("> "):
                command.append(line[2:])
            else:
                expected.append(line)
        if command:
            yield Step("\n".join(command), "\n".join(expected))


def matches(expected: str, output: str) -> bool:
    pattern = re.escape(expected.strip())
    pattern = pattern.replace("…", r"[\s\S]*")
    return re.fullmatch(pattern, output.strip()) is not None


GUIDES_WITH_STEPS = [guide for guide in GUIDES if any(True for _ in steps(guide))]


@pytest.mark.parametrize("guide", GUIDES_WITH_STEPS, ids=lambda guide: guide.name)
def test_every_command_of_a_guide_prints_the_documented_output(
    guide: Path, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    environment.pop("LOSSLESS_CONTRACT", None)
    environment["HOME_OF_GUIDE"] = str(tmp_path_factory.mktemp("environment"))
    try:
        for step in steps(guide):
            if step.command.startswith("cd "):
                folder = folder / step.command.removeprefix("cd ")
                continue
            done = subprocess.run(
                ["bash", "-c", KEEPING.format(step.command)],
                cwd=folder,
                env=environment,
                capture_output=True,
                text=True,
                timeout=COMMAND_TIMEOUT_S,
                check=False,
            )
            assert done.returncode == 0, f"$ {step.command}\n{done.stdout}\n{done.stderr}"
            assert matches(step.expected, done.stdout), (
                f"$ {step.command}\nexpected\n{step.expected}\ngot\n{done.stdout}"
            )
    finally:
        left = running_in(environment["HOME_OF_GUIDE"])
        subprocess.run(
            [sys.executable, "-m", "lossless", "down"],
            cwd=folder,
            env=environment,
            capture_output=True,
            check=False,
        )
        for process in running_in(environment["HOME_OF_GUIDE"]):
            process.kill()
    assert not left, "the guide left processes running"


def running_in(home: str) -> list[psutil.Process]:
    found = []
    for process in psutil.process_iter():
        with suppress(psutil.Error):  # the process has ended, or is another user's
            if process.environ().get("HOME_OF_GUIDE") == home:
                found.append(process)
    return found


def test_every_command_of_the_readme_occurs_in_a_guide() -> None:
    guide = [(step.command, step.expected) for file in GUIDES for step in steps(file)]
    shown = list(steps(ROOT / "README.md"))
    assert shown
    for step in shown:
        candidates = [expected for command, expected in guide if command == step.command]
        assert candidates, f"no guide runs: {step.command}"
        assert not step.expected or any(matches(c, step.expected) for c in candidates)
