"""Where in the file something stands: tomllib gives values without lines, people need the line."""

from __future__ import annotations

import difflib
import os
import re
import tomllib
from collections.abc import Iterable
from pathlib import Path

from lossless.errors import BadInput

KeyPath = tuple[str, ...]

_TOML_POSITION = re.compile(r" \(at (?:line (\d+), column \d+|end of document)\)$")
_HEADER = re.compile(r"\s*\[\[?(?P<keys>[^\]\"']*(?:(?:\"[^\"]*\"|'[^']*')[^\]\"']*)*)\]\]?")
_ASSIGNMENT = re.compile(r"\s*(?P<keys>[^=#\"'\[\]]*(?:(?:\"[^\"]*\"|'[^']*')[^=#\"'\[\]]*)*)=")


class ContractError(BadInput):
    """The contract cannot be used as it stands: in which file, on which line, and the way out."""

    def __init__(
        self,
        what: str,
        *,
        file: Path | None = None,
        line: int | None = None,
        nearest: str | None = None,
        hint: str | None = None,
    ) -> None:
        place = "" if file is None else f"{shown(file)}:{line}: " if line else f"{shown(file)}: "
        if nearest is not None:
            hint = f"did you mean {nearest!r}?" + (f" {hint}" if hint else "")
        super().__init__(place + what, hint=hint)
        self.file = file
        self.line = line
        self.nearest = nearest


def shown(file: Path) -> str:
    """A path as people would type it from where they stand."""
    relative = os.path.relpath(file)
    return str(file) if relative.startswith("..") else relative


def nearest(name: str, known: Iterable[str]) -> str | None:
    """The known name that was probably meant. Underscores, dashes and case are often mixed up."""
    by_spelling = {_spelling(candidate): candidate for candidate in known}
    found = difflib.get_close_matches(_spelling(name), by_spelling, n=1, cutoff=0.6)
    return by_spelling[found[0]] if found else None


def line_of(text: str, path: KeyPath) -> int | None:
    """The line, from 1, where the key stands, or the longest part of its path that is written."""
    lines_by_key = _lines_by_key(text)
    for length in range(len(path), 0, -1):
        if path[:length] in lines_by_key:
            return lines_by_key[path[:length]]
    return None


def first_line_of(text: str, paths: Iterable[KeyPath]) -> int | None:
    """The line of the first of these keys that is written in full."""
    lines_by_key = _lines_by_key(text)
    return next((lines_by_key[path] for path in paths if path in lines_by_key), None)


def syntax_error(error: tomllib.TOMLDecodeError, file: Path, text: str) -> ContractError:
    message = str(error)
    position = _TOML_POSITION.search(message)
    line = None
    if position:
        message = message[: position.start()]
        line = int(position.group(1)) if position.group(1) else text.rstrip().count("\n") + 1
    hint = "see toml.io for the syntax; text values need quotes"
    if message.startswith("Cannot overwrite a value"):
        hint = (
            "the key is given twice, or one setting's name begins with another's: then quote both "
            'names, as in config."sasl.mechanism" = "PLAIN"'
        )
    return ContractError(f"not valid TOML: {message}", file=file, line=line, hint=hint)


def _spelling(name: str) -> str:
    return name.lower().replace("_", "-")


def _lines_by_key(text: str) -> dict[KeyPath, int]:
    """Reads a document that tomllib accepted; the first line that mentions a key is its place."""
    found: dict[KeyPath, int] = {}
    table: KeyPath = ()
    lines = text.splitlines()
    number = 0
    while number < len(lines):
        first = number
        line = lines[number]
        number += 1
        if header := _HEADER.match(line):
            table = _split(header["keys"])
            _note(found, table, first + 1)
        elif assignment := _ASSIGNMENT.match(line):
            _note(found, table + _split(assignment["keys"]), first + 1)
            value = line[assignment.end() :]
            while not _is_complete(value) and number < len(lines):
                value += "\n" + lines[number]
                number += 1
    return found


def _note(found: dict[KeyPath, int], path: KeyPath, line: int) -> None:
    for length in range(1, len(path) + 1):
        found.setdefault(path[:length], line)


def _is_complete(value: str) -> bool:
    try:
        tomllib.loads(f"value ={value}")
    except tomllib.TOMLDecodeError:
        return False
    return True


def _split(dotted: str) -> KeyPath:
    """`a."b.c".d` to its parts, by the parser that read the file itself."""
    try:
        node = tomllib.loads(f"{dotted} = 0")
    except tomllib.TOMLDecodeError:
        return ()
    parts: list[str] = []
    while isinstance(node, dict):
        ((key, node),) = node.items()
        parts.append(key)
    return tuple(parts)
