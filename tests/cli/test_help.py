"""`lossless --help` and `lossless COMMAND --help`: complete, consistent, and quick to start."""

from __future__ import annotations

import subprocess
import sys
from importlib import import_module

import pytest

from lossless.cli.main import SECTIONS

SUMMARIES = {name: text for commands in SECTIONS.values() for name, text in commands.items()}

# Too slow to import for a help text, by their names in sys.modules.
HEAVY = ("asyncio", "kio", "lossless.simulator", "lossless.wire", "pyspark")

PRINT_HELP = """
import sys
from lossless.cli.main import cli
cli.main({arguments!r}, prog_name="lossless", standalone_mode=False)
print([name for name in {heavy!r} if name in sys.modules], file=sys.stderr)
"""


def help_of(*command: str) -> tuple[str, str]:
    """Returns the help text, and the heavy modules that printing it imported."""
    code = PRINT_HELP.format(arguments=[*command, "--help"], heavy=HEAVY)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return done.stdout, done.stderr.strip()


def test_help_lists_every_command_and_imports_no_heavy_module() -> None:
    text, imported = help_of()
    for name, summary in SUMMARIES.items():
        assert f"  {name} " in text
        assert summary in " ".join(text.split())
    assert imported == "[]"


# `prove --help` lists the simulator's settings.
@pytest.mark.parametrize("name", sorted(set(SUMMARIES) - {"prove"}))
def test_help_of_a_command_imports_no_heavy_module(name: str) -> None:
    text, imported = help_of(name)
    assert f"Usage: lossless {name} " in text
    assert imported == "[]"


@pytest.mark.parametrize("name", SUMMARIES)
def test_summary_is_the_first_sentence_of_the_command_help(name: str) -> None:
    command = import_module(f"lossless.cli.{name.replace('-', '_')}").command
    assert command.help.partition("\n\n")[0] == SUMMARIES[name]


@pytest.mark.parametrize("name", SUMMARIES)
def test_every_option_has_a_help_text(name: str) -> None:
    command = import_module(f"lossless.cli.{name.replace('-', '_')}").command
    for each in (command, *getattr(command, "commands", {}).values()):
        for parameter in each.params:
            assert parameter.param_type_name == "argument" or parameter.help, parameter.name
