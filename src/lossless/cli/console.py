"""Output of the commands: results on stdout, the rest on stderr, colour only on a terminal."""

from __future__ import annotations

import io
import os
import traceback
from typing import Any, TextIO

from rich.console import Console

from lossless.errors import LosslessError, Unavailable

stdout = Console(highlight=False, soft_wrap=True)
stderr = Console(stderr=True, highlight=False, soft_wrap=True)


class _Output(io.FileIO):
    """Standard output or standard error of a command.

    A reader that closes its end (head, less) does not change what a command does, nor its exit
    code: the rest of the output is discarded. Without this, click and rich exit with 1, which
    means a broken promise here.
    """

    def write(self, data: Any) -> int:
        try:
            return super().write(data)
        except OSError as error:
            # Data still buffered must not fail again when the interpreter exits.
            with open(os.devnull, "wb") as discarded:
                os.dup2(discarded.fileno(), self.fileno())
            if isinstance(error, BrokenPipeError):
                return len(data)
            name = "standard output" if self.fileno() == 1 else "standard error"
            raise Unavailable(f"{name} cannot be written to: {error.strerror}") from error


def open_output(stream: TextIO) -> TextIO:
    """Returns the stream wrapped in _Output, or unchanged if it has no file descriptor."""
    try:
        descriptor = stream.fileno()
    except (AttributeError, io.UnsupportedOperation):
        return stream  # None, closed by the caller, or in memory
    return io.TextIOWrapper(
        io.BufferedWriter(_Output(descriptor, "w", closefd=False)),
        encoding=stream.encoding,
        errors=stream.errors,
        line_buffering=True,
    )


def print_error(message: str) -> None:
    """Prints an error on stderr. Lines after the first, usually a hint, are dimmed."""
    first, _, rest = message.partition("\n")
    stderr.print("[bold red]error:[/] ", end="")
    stderr.print(first, markup=False)
    if rest:
        stderr.print(rest, markup=False, style="dim")


def print_failure(pipeline: str, error: BaseException) -> None:
    """Prints the error that stopped one of several pipelines."""
    if isinstance(error, LosslessError):
        print_error(f"{pipeline}: {error}")
    else:
        stderr.print(f"{pipeline} failed with an internal error", markup=False)
        print_internal_error(error)


def print_internal_error(error: BaseException) -> None:
    """Prints the traceback of a defect in Lossless, without secrets, and what to report."""
    # Only here, because these imports would double the time that `lossless --help` takes.
    from importlib.metadata import version

    from lossless.contract.redaction import redact_text

    lines = redact_text("".join(traceback.format_exception(error)).rstrip())
    stderr.print(lines, markup=False, style="dim")
    first_line = redact_text(str(error).partition("\n")[0])
    print_error(
        f"internal error: {type(error).__name__}: {first_line}\n"
        "This is a defect in Lossless. It says nothing about your data. Please report the command, "
        f"the traceback above and the version, {version('lossless')}."
    )


def counted(count: int, noun: str) -> str:
    """Returns a count with its noun: 1 dead letter, 1,001 records."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def print_aside(line: str) -> None:
    """Prints a note for people on stderr, dimmed. No script should depend on it."""
    stderr.print(line, style="dim", markup=False)
