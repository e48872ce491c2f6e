"""The errors that Lossless raises on purpose, and their exit codes.

    LosslessError
    ├── PromiseBroken      1    a record was lost or duplicated, or would be by continuing
    ├── BadInput           2    invalid user input: a contract, an option, a transform
    ├── Undecided          3    no verdict is possible
    ├── Unavailable        4    a requirement is missing: Java, jars, a broker, a sink
    │   └── Fenced         4    another driver has taken over this pipeline
    └── Interrupted      130    stopped on request before there was a result

A command that fails with any other exception exits with EXIT_INTERNAL: a defect is not a verdict.

A message says what happened, where, and what to do next. It needs no traceback.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import ClassVar

EXIT_KEPT = 0
EXIT_INTERNAL = 70  # EX_SOFTWARE of sysexits.h
EXIT_INTERRUPTED = 130


class LosslessError(Exception):
    """The base class of all Lossless errors; never raised itself.

    `what` says what happened and where, `hint` what to do next.
    """

    exit_code: ClassVar[int] = 1

    def __init__(self, what: str, *, hint: str | None = None) -> None:
        super().__init__(what)
        self.what = what
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.what}\n{self.hint}" if self.hint else self.what


class PromiseBroken(LosslessError):
    """A record was lost or duplicated, or would be by continuing."""

    exit_code = 1


class BadInput(LosslessError):
    """User input is invalid: a contract, an option, a transform."""

    exit_code = 2


class Undecided(LosslessError):
    """No verdict is possible."""

    exit_code = 3


class Unavailable(LosslessError):
    """A requirement is missing or unreachable: Java, jars, a broker, a sink."""

    exit_code = 4


class Fenced(Unavailable):
    """Another driver has taken over this pipeline; this one must stop without writing."""


class Interrupted(LosslessError):
    """Stopped on request before there was a result."""

    exit_code = EXIT_INTERRUPTED


# If several pipelines end with different codes, the first of these that occurs is the exit code: a
# broken promise must not be hidden by a pipeline that failed for another reason.
_DECISIVE = (
    PromiseBroken.exit_code,
    EXIT_INTERNAL,
    BadInput.exit_code,
    Unavailable.exit_code,
    Undecided.exit_code,
    EXIT_INTERRUPTED,
)


def with_causes(error: BaseException) -> Iterator[BaseException]:
    """The error and its causes, each of them once: `raise error from error` makes a cycle."""
    seen: set[int] = set()
    current: BaseException | None = error
    while current is not None and id(current) not in seen:
        seen.add(id(current))
        yield current
        current = current.__cause__


def exit_code_of(error: BaseException) -> int:
    """Returns the exit code of a command that fails with this error."""
    if isinstance(error, LosslessError):
        return error.exit_code
    return EXIT_INTERRUPTED if isinstance(error, KeyboardInterrupt) else EXIT_INTERNAL


def decisive_exit_code(codes: Collection[int]) -> int:
    """Returns the exit code of a command from the exit codes of its parts."""
    return next((code for code in _DECISIVE if code in codes), EXIT_KEPT)
