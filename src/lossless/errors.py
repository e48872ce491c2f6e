"""Every error that Lossless raises on purpose, and the exit code it ends a command with.

    LosslessError
    ├── PromiseBroken      1    a record was lost or duplicated, or would be if we went on
    ├── BadInput           2    something the user wrote: a contract, an option, a transform
    ├── Undecided          3    the question could not be answered either way
    └── Unavailable        4    something needed is not there: Java, jars, a broker, a sink
        └── Fenced         4    another driver has taken this pipeline over

A command that fails in any other way ends with EXIT_INTERNAL: a defect is not a verdict.

A message says what happened, where, and what to do next; it fits a terminal without a traceback.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import ClassVar

EXIT_KEPT = 0
EXIT_INTERNAL = 70  # EX_SOFTWARE of sysexits.h
EXIT_INTERRUPTED = 130


class LosslessError(Exception):
    """The root; never raised itself."""

    exit_code: ClassVar[int] = 1

    def __init__(self, what: str, *, hint: str | None = None) -> None:
        super().__init__(what)
        self.what = what
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.what}\n{self.hint}" if self.hint else self.what


class PromiseBroken(LosslessError):
    """A record was lost or duplicated, or would be if we went on."""

    exit_code = 1


class BadInput(LosslessError):
    """Something the user wrote cannot be used as it stands."""

    exit_code = 2


class Undecided(LosslessError):
    """The question could not be answered either way."""

    exit_code = 3


class Unavailable(LosslessError):
    """Something needed is not there: Java, jars, a broker, a sink."""

    exit_code = 4


class Fenced(Unavailable):
    """Another driver has taken this pipeline over; this one must stop without writing."""


# Where several pipelines end differently, the first of these that occurs is the exit code: a broken
# promise is never hidden by a pipeline that failed for another reason.
_DECISIVE = (
    PromiseBroken.exit_code,
    EXIT_INTERNAL,
    BadInput.exit_code,
    Unavailable.exit_code,
    Undecided.exit_code,
    EXIT_INTERRUPTED,
)


def exit_code_of(error: BaseException) -> int:
    """The exit code of a command that ends with this error."""
    if isinstance(error, LosslessError):
        return error.exit_code
    return EXIT_INTERRUPTED if isinstance(error, KeyboardInterrupt) else EXIT_INTERNAL


def decisive_exit_code(codes: Collection[int]) -> int:
    """The exit code of a command whose parts ended with these."""
    return next((code for code in _DECISIVE if code in codes), EXIT_KEPT)
