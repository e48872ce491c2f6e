"""`${NAME}`, `${NAME:-default}` and `${file:path}` inside a string; `$${` stands for `${`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

_REFERENCE = re.compile(r"\$\$\{|\$\{([^}]*)\}|\$\{")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


class SubstitutionError(Exception):
    """What cannot be filled in, and the way out. Never names a value, only where it should be."""

    def __init__(self, what: str, hint: str) -> None:
        super().__init__(what)
        self.what = what
        self.hint = hint


@dataclass(frozen=True, slots=True, kw_only=True)
class Substituted:
    text: str
    parts: tuple[str, ...]  # what came from outside the file, each a possible secret


def substitute(text: str, *, environment: Mapping[str, str], folder: Path) -> Substituted:
    parts: list[str] = []

    def replacement(match: re.Match[str]) -> str:
        if match.group(0) == "$${":
            return "${"
        if match.group(1) is None:
            raise SubstitutionError("'${' has no '}'", "write $${ for a plain '${'")
        value = _value(match.group(1), environment, folder)
        parts.append(value)
        return value

    return Substituted(text=_REFERENCE.sub(replacement, text), parts=tuple(parts))


def _value(reference: str, environment: Mapping[str, str], folder: Path) -> str:
    if reference.startswith("file:"):
        return _from_file(folder / reference.removeprefix("file:"), reference)
    name, has_default, default = reference.partition(":-")
    if not _NAME.fullmatch(name):
        raise SubstitutionError(
            f"${{{reference}}} is not a reference",
            "write ${NAME}, ${NAME:-default} or ${file:path}; $${ for a plain '${'",
        )
    # As in a shell: `:-` also covers a variable that is set to nothing.
    if has_default:
        return environment.get(name) or default
    if name not in environment:
        raise SubstitutionError(
            f"the environment variable {name} is not set",
            f"export {name}=…, or give a default: ${{{name}:-…}}",
        )
    return environment[name]


def _from_file(file: Path, reference: str) -> str:
    try:
        return file.read_text(encoding="utf-8").rstrip("\r\n")
    except OSError as error:
        raise SubstitutionError(
            f"${{{reference}}} cannot be read: {error.strerror}",
            f"the path is relative to the contract: {file}",
        ) from error
    except UnicodeDecodeError as error:
        raise SubstitutionError(
            f"${{{reference}}} is not text in UTF-8", "put the secret alone in a text file"
        ) from error
