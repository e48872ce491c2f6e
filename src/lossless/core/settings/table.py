"""How the tables of settings are written: two lines for each, what it takes and what it is for.

    num.partitions: int 1.. = 1 (honoured)
        How many partitions a topic gets if nobody says.

Before the `=` stand the kind and what is allowed, behind it Kafka's default, `""` for an empty one.
What is allowed
    0..                 a number from there on
    1..17               a number between the two
    1..9 or -1          and one more
    of a b c            one of these words, or in a list words of these
    of any case a b c   likewise, in capitals or not
    non-empty           any text but none
    replicas            partition:broker pairs, or *
In parentheses
    honoured            the embedded broker acts on it
    engine              whoever starts the cluster decides it: addresses, roles, folders
    per-broker, cluster-wide    a broker's setting that can change while it runs
    internal            exists, and is not shown
    required            Kafka does not start without it
"""

from __future__ import annotations

import re

from lossless.core.settings.kinds import (
    Kind,
    Limit,
    Mode,
    NonEmpty,
    OneOf,
    Range,
    Setting,
    ThrottledReplicas,
)

_LINE = re.compile(
    r"(?P<name>\S+): (?P<kind>[a-z]+)(?P<limit> (?![=(]).+?)?"
    r"(?: = (?P<default>\S+))?(?: \((?P<marks>.+)\))?"
)
_RANGE = re.compile(r"(?P<low>[-\d.]*\d)\.\.(?P<high>[-\d.]+)?(?: or (?P<also>-?\d+))?")
_MODES = {mode.value: mode for mode in Mode}
_MARKS = {"honoured", "engine", "internal", "required", *_MODES}


def read_table(text: str) -> dict[str, Setting]:
    lines = [line.strip() for line in text.strip().splitlines()]
    settings = [_read(*pair) for pair in zip(lines[::2], lines[1::2], strict=True)]
    table = {setting.name: setting for setting in settings}
    assert len(table) == len(settings), "a setting is there twice"
    return table


def _read(line: str, documentation: str) -> Setting:
    parts = _LINE.fullmatch(line)
    assert parts is not None, line
    marks = set((parts["marks"] or "").split(", ")) - {""}
    assert marks <= _MARKS, line
    return Setting(
        name=parts["name"],
        kind=Kind[parts["kind"].upper()],
        default="" if parts["default"] == '""' else parts["default"],
        limit=_limit(parts["name"], (parts["limit"] or "").strip()),
        documentation=documentation,
        honoured="honoured" in marks,
        by_engine="engine" in marks,
        internal="internal" in marks,
        required="required" in marks,
        mode=next((_MODES[mark] for mark in marks if mark in _MODES), Mode.READ_ONLY),
    )


def _limit(name: str, text: str) -> Limit | None:
    if not text:
        return None
    if text == "non-empty":
        return NonEmpty()
    if text == "replicas":
        return ThrottledReplicas(name)
    if text.startswith("of "):
        words = text.removeprefix("of ").removeprefix("any case ").split()
        return OneOf(tuple(words), any_case=text.startswith("of any case "))
    ends = _RANGE.fullmatch(text)
    assert ends is not None, f"{name}: {text}"
    also = ends["also"]
    high = None if ends["high"] is None else _number(ends["high"])
    return Range(_number(ends["low"]), high, None if also is None else int(also))


def _number(text: str) -> float:
    return float(text) if "." in text else int(text)
