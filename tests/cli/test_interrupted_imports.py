"""Ctrl-C while modules are imported ends a command as at any other time."""

from __future__ import annotations

import subprocess
import sys

import pytest

# Raises what Ctrl-C raises as soon as the module in the first argument is imported.
PROGRAM = """
import sys
interrupted = sys.argv.pop(1)
class Interrupts:
    def find_spec(self, name, path, target=None):
        if name == interrupted:
            sys.meta_path.remove(self)
            raise KeyboardInterrupt
sys.meta_path.insert(0, Interrupts())
from lossless.cli.entry import main
main()
"""


@pytest.mark.parametrize(
    ("module", "command"),
    [
        ("click", "up"),
        ("rich.console", "init"),
        ("lossless.errors", "init"),
        ("lossless.cli.main", "prove"),
        ("lossless.cli.up", "up"),
        ("lossless.engines.detached", "up"),
        ("lossless.simulator", "prove"),
    ],
)
def test_an_interrupted_import_ends_with_one_message(module: str, command: str) -> None:
    ended = subprocess.run(
        [sys.executable, "-c", PROGRAM, module, command],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert ended.returncode == 130
    assert ended.stderr.strip() == "error: interrupted"
    assert ended.stdout == ""
