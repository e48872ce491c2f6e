"""Where commands write: results on stdout, everything else on stderr, colour only on a terminal."""

from __future__ import annotations

import sys
import traceback
from importlib.metadata import version

from rich.console import Console

from lossless.contract.redaction import redact_text
from lossless.errors import LosslessError

stdout = Console(highlight=False, soft_wrap=True)
stderr = Console(stderr=True, highlight=False, soft_wrap=True)


def print_error(message: str) -> None:
    """The first line says what happened; the others, dimmer, where and what to do."""
    first, _, rest = message.partition("\n")
    stderr.print("[bold red]error:[/] ", end="")
    stderr.print(first, markup=False)
    if rest:
        stderr.print(rest, markup=False, style="dim")


def print_failure(pipeline: str, error: BaseException) -> None:
    """Shows what ended one pipeline of several."""
    if isinstance(error, LosslessError):
        print_error(f"{pipeline}: {error}")
    else:
        stderr.print(f"{pipeline} ended with an internal error", markup=False)
        print_internal_error(error)


def print_internal_error(error: BaseException) -> None:
    """Shows the traceback of a defect in Lossless, without secrets, and what to report."""
    stderr.print(redact_text("".join(traceback.format_exception(error))), markup=False, end="")
    python = ".".join(map(str, sys.version_info[:3]))
    print_error(
        f"internal error: {type(error).__name__}\n"
        "This is a defect of lossless and says nothing about your records.\n"
        "Please report the command and the traceback above. Secrets of the contract are hidden.\n"
        f"lossless {version('lossless')}, Python {python}, {sys.platform}"
    )


def print_aside(line: str) -> None:
    """What a person may want to know, and no script."""
    stderr.print(line, style="dim", markup=False)
