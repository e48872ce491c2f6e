"""The command line, `lossless`.

Each command is the function `command` of a module of its own, imported when the command runs.
`lossless --help` imports none of them: the summaries it prints are in SECTIONS.

A command raises an exception when it fails. `main` prints it as one message and exits with the
code that `lossless.errors` assigns to it. Results go to stdout, everything else to stderr.
"""

from __future__ import annotations

import importlib
import sys

import click

from lossless.cli.console import open_output, print_error, print_internal_error
from lossless.errors import EXIT_INTERNAL, EXIT_INTERRUPTED, LosslessError
from lossless.extras import missing_extra

# Commands by section, in the order of the help. Each summary is the first sentence of the
# command's own help.
SECTIONS: dict[str, dict[str, str]] = {
    "Get started": {
        "demo": "Deliver orders through a broker crash and a driver crash, then audit them.",
        "init": "Write a commented lossless.toml and an example schema.",
        "doctor": "Check that this machine has everything Lossless needs.",
    },
    "Deliver": {
        "run": "Deliver records from topics to tables, exactly once.",
        "audit": "Check that every record arrived exactly once.",
        "dead-letters": "List records that could not be processed, or send them back.",
        "rename": "Move a pipeline's ledger to a new pipeline name.",
    },
    "Test settings": {
        "prove": "Search for a simulated run that breaks the promise.",
    },
    "Local cluster": {
        "up": "Start a local cluster and print its bootstrap.servers.",
        "status": "Show the brokers of the local cluster.",
        "down": "Stop the local cluster.",
    },
    "Faults": {
        "kill": "Kill a broker with SIGKILL.",
        "restart": "Restart a broker on the same port with the same data.",
        "pause": "Pause a broker with SIGSTOP.",
        "resume": "Resume a paused broker with SIGCONT.",
        "isolate": "Cut a broker off from all other brokers and controllers.",
        "cut": "Cut the network between two brokers.",
        "fill-disk": "Fill a broker's disk.",
        "slow-disk": "Slow down a broker's disk.",
        "mend": "Undo isolate, cut and slow-disk.",
        "proxy": "Inject network faults between clients and any Kafka cluster.",
    },
}


def _is_command(name: str) -> bool:
    return any(name in commands for commands in SECTIONS.values())


class LazyGroup(click.Group):
    """A click group that imports a command's module when the command is used.

    `lossless up` must not wait for PySpark, nor `lossless --help` for the simulator.
    """

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        return [name for commands in SECTIONS.values() for name in commands]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        if not _is_command(cmd_name):
            return None
        module = importlib.import_module(f"lossless.cli.{cmd_name.replace('-', '_')}")
        command: click.Command = module.command
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        width = max(len(name) for commands in SECTIONS.values() for name in commands)
        for section, commands in SECTIONS.items():
            with formatter.section(section):
                formatter.write_dl(
                    [(name.ljust(width), summary) for name, summary in commands.items()]
                )


@click.group(
    cls=LazyGroup,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="Exit codes: 0 success, 1 promise broken, 2 bad input, 3 no verdict possible, "
    "4 something needed is unavailable, 70 internal error, 130 interrupted.",
)
@click.version_option(package_name="lossless", prog_name="lossless")
def cli() -> None:
    """Reliable data delivery for Kafka and Spark, proven rather than hoped for.

    Lossless delivers records from a producer's send to a row in a table, exactly once, and audits
    the result. One file, lossless.toml, states the delivery promise; `lossless init` creates it.
    """


def main() -> None:
    """Runs the command line and exits with its exit code."""
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
        code = _report_unexpected(error)
    sys.exit(code if isinstance(code, int) else 0)


def _report_unexpected(error: Exception) -> int:
    """Prints an exception that no command expected and returns the exit code."""
    absent = missing_extra(error) if isinstance(error, ImportError) else None
    if absent is not None:
        print_error(str(absent))
        return absent.exit_code
    print_internal_error(error)
    return EXIT_INTERNAL
