"""Regular expressions that members subscribe to, and the topics they match.

RE2 takes time linear in the name for every expression, so that no member can stop its coordinator.
Kafka uses the same engine in Java (re2j). What needs backtracking, backreferences and lookaround,
is refused as INVALID_REGULAR_EXPRESSION.
"""

from __future__ import annotations

import functools
from typing import Any

import re2

PROGRAM_BYTES_MAX = 1 << 20  # of a compiled expression: about a thousand topic names in a row


def _options() -> Any:
    options = re2.Options()
    options.max_mem = PROGRAM_BYTES_MAX
    options.log_errors = False
    return options


_OPTIONS = _options()


def is_valid(expression: str) -> bool:
    return _compiled(expression) is not None


@functools.lru_cache(maxsize=1 << 16)
def matches(expression: str, topic: str) -> bool:
    """Whether the whole name matches. Every heartbeat asks about every topic again, so answers are
    kept. An expression that is not valid matches nothing."""
    compiled = _compiled(expression)
    return compiled is not None and compiled.fullmatch(topic) is not None


@functools.lru_cache(maxsize=256)
def _compiled(expression: str) -> Any:
    try:
        return re2.compile(expression, _OPTIONS)
    except (re2.error, UnicodeEncodeError):
        return None
