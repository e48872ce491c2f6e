"""`lossless`: one command per file, loaded only when it is asked for.

A command raises; this file turns what it raised into one clear message and the exit code of
`lossless.errors`. Results go to stdout, everything else to stderr.
"""

from __future__ import annotations

import importlib
import sys
from importlib.metadata import version

import click

from lossless.cli.console import open_output, print_error, print_internal_error
from lossless.errors import EXIT_INTERNAL, EXIT_INTERRUPTED, LosslessError
from lossless.extras import missing_extra

# The order people meet them in; each is the function `command` of lossless.cli.<module>.
COMMANDS: dict[str, str] = {
    "demo": "demo",
    "init": "init",
    "doctor": "doctor",
    "up": "up",
    "status": "status",
    "down": "down",
    "kill": "kill",
    "restart": "restart",
    "pause": "pause",
    "resume": "resume",
    "isolate": "isolate",
    "cut": "cut",
    "fill-disk": "fill_disk",
    "slow-disk": "slow_disk",
    "mend": "mend",
    "proxy": "proxy",
    "run": "run",
    "audit": "audit",
    "rename": "rename",
    "prove": "prove",
    "dead-letters": "dead_letters",
}


class LazyGroup(click.Group):
    """Imports a command's module when it is used: `lossless up` must not wait for PySpark."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        if cmd_name not in COMMANDS:
            return None
        module = importlib.import_module(f"lossless.cli.{COMMANDS[cmd_name]}")
        command: click.Command = module.command
        return command


@click.group(
    cls=LazyGroup,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="Exit codes: 0 kept, 1 promise broken, 2 bad input, 3 cannot tell, "
    "4 something needed is not available, 70 internal error, 130 interrupted.",
)
@click.version_option(version("lossless"), prog_name="lossless")
def cli() -> None:
    """Reliable data delivery for Kafka and Spark, proven rather than hoped for.

    Records travel from a producer's send to a row in a table, exactly once, and the audit shows
    that they did. What is promised stands in one file, lossless.toml: `lossless init` writes one.
    """


def main() -> None:
    sys.stdout, sys.stderr = open_output(sys.stdout), open_output(sys.stderr)
    try:
        code = cli.main(standalone_mode=False)
    except LosslessError as error:
        print_error(str(error))
        code = error.exit_code
    except click.ClickException as error:
        error.show(sys.stderr)
        code = error.exit_code
    except (KeyboardInterrupt, click.Abort):
        print_error("interrupted")
        code = EXIT_INTERRUPTED
    except Exception as error:
        code = _explain(error)
    sys.exit(code if isinstance(code, int) else 0)


def _explain(error: Exception) -> int:
    """Prints an exception that no command expected and returns the exit code."""
    absent = missing_extra(error) if isinstance(error, ImportError) else None
    if absent is not None:
        print_error(str(absent))
        return absent.exit_code
    print_internal_error(error)
    return EXIT_INTERNAL
