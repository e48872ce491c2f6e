"""Reading one table of the contract: each value with its type, each refusal with its place.

A message shows what the file says, never what a `${…}` in it stands for.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, TypeVar

from lossless.contract.place import ContractError, KeyPath, line_of, nearest
from lossless.contract.properties import parse_properties
from lossless.contract.redaction import HIDDEN, is_secret_name, remember_setting
from lossless.contract.substitution import Substituted, SubstitutionError, substitute

Default = TypeVar("Default")
# Paths are relative to the contract; the clients would start from wherever they were started.
# What Kafka and Spark hold in 32 bits, and in 64.
INTEGER_MAX = 2**31 - 1
LONG_MAX = 2**63 - 1
SECONDS_MAX = 100 * 366 * 86_400  # timers and timeouts do not reach further than centuries
_FILE_SETTINGS = frozenset({"ssl.keystore.location", "ssl.truststore.location"})

Choice = TypeVar("Choice", bound=str)
_HOLDS_NUL = "holds the character NUL (U+0000)"
_DIGITS_SHOWN_MAX = 25


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    file: Path
    text: str
    environment: Mapping[str, str]


class Section:
    def __init__(self, document: Document, path: KeyPath, values: Mapping[str, Any]) -> None:
        self.document = document
        self.path = path
        self._values = values

    @property
    def name(self) -> str:
        return self.path[-1]

    def __contains__(self, key: str) -> bool:
        return key in self._values

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def error(
        self,
        key: str | KeyPath | None,
        what: str,
        *,
        hint: str | None = None,
        nearest: str | None = None,
    ) -> ContractError:
        """`what` continues the name of the section or key: 'must be …', 'is not …'."""
        path = () if key is None else (key,) if isinstance(key, str) else key
        subject = [f"[{dotted(self.path)}]"] if self.path else []
        subject += [dotted(path)] if path else []
        return ContractError(
            f"{' '.join(subject) or 'the contract'} {what}",
            file=self.document.file,
            line=line_of(self.document.text, self.path + path),
            nearest=nearest,
            hint=hint,
        )

    def allow(self, *known: str) -> None:
        """Refuses every key that is not known: a typo must not become a silent default."""
        for key in self._values:
            if key not in known:
                where = f"in [{dotted(self.path)}]" if self.path else "at the top of the contract"
                raise ContractError(
                    f"unknown key {key!r} {where}",
                    file=self.document.file,
                    line=line_of(self.document.text, (*self.path, key)),
                    nearest=nearest(key, known),
                    hint=f"known here: {', '.join(known)}",
                )

    def require(self, key: str, *, hint: str | None = None) -> None:
        if key not in self._values:
            raise self.error(None, f"needs {key!r}", hint=hint)

    def string(self, key: str, default: Default) -> str | Default:
        if key not in self._values:
            return default
        text = self._substituted(key).text
        if not text.strip():
            raise self.error(key, "is empty")
        return text

    def secret(self, key: str) -> str:
        self.require(key)
        found = self._substituted(key)
        remember_setting(key, found.text, substituted=found.parts)
        if not found.text.strip():
            raise self.error(key, "is empty")
        return found.text

    def choice(self, key: str, options: Iterable[Choice], default: Choice) -> Choice:
        if key not in self._values:
            return default
        options = tuple(options)
        text = self._substituted(key).text
        if text not in options:
            raise self.error(
                key,
                f"must be {one_of(options)}, not {self._shown(key)}",
                nearest=nearest(text, options),
            )
        return next(option for option in options if option == text)

    def integer(
        self, key: str, default: Default, *, least: int, most: int = INTEGER_MAX
    ) -> int | Default:
        if key not in self._values:
            return default
        value = self._values[key]
        if isinstance(value, bool) or not isinstance(value, int):
            raise self.error(key, f"must be a whole number, not {self._shown(key)}")
        if value < least:
            raise self.error(key, f"must be at least {least}, not {_toml(value)}")
        if value > most:
            raise self.error(key, f"must be at most {most}, not {_toml(value)}")
        return value

    def seconds(self, key: str, default: float, *, above_zero: bool = False) -> float:
        if key not in self._values:
            return default
        value = self._values[key]
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise self.error(key, f"must be a number of seconds, not {self._shown(key)}")
        if not value >= 0 or (above_zero and value == 0):
            least = "above 0" if above_zero else "0 or more"
            raise self.error(key, f"must be {least} seconds, not {_toml(value)}")
        if value > SECONDS_MAX:
            raise self.error(key, f"must be at most {SECONDS_MAX} seconds, not {_toml(value)}")
        return float(value)

    def boolean(self, key: str, default: bool) -> bool:
        value = self._values.get(key, default)
        if not isinstance(value, bool):
            raise self.error(key, f"must be true or false, not {self._shown(key)}")
        return value

    def strings(self, key: str) -> tuple[str, ...]:
        value = self._values.get(key, [])
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            raise self.error(
                key, f'must be an array of strings, as in ["a"], not {self._shown(key)}'
            )
        items = tuple(self._fill(key, item).text for item in value)
        if key in self._values and not items:
            raise self.error(key, "is empty")
        for number, item in enumerate(items):
            if not item.strip():
                raise self.error(key, "has an empty string in it")
            if item in items[:number]:
                raise self.error(key, f"names {json.dumps(value[number])} twice")
        return items

    def raw(self, key: str) -> Any:
        """The value as TOML gave it, for the few keys that take more than one type."""
        return self._values.get(key)

    def settings(self, key: str, *, prefix: str = "") -> dict[str, str]:
        """Settings by their full names, as strings."""
        table = self._values.get(key, {})
        if not isinstance(table, dict):
            raise self.error(
                key, f"must be settings, as in {key}.some.name = value, not {self._shown(key)}"
            )
        found: dict[str, str] = {}
        for path, value in _leaves(table, (key,)):
            name = ".".join(path[1:])
            if not name.startswith(prefix):
                name = prefix + name
            if name in found:
                raise self.error(path, f"sets {name} twice, bare and quoted")
            text = self._setting(path, name, value)
            if text is not None:
                found[name] = text
        return found

    def properties(self) -> dict[str, str]:
        """The settings of the Java properties file that `properties` names, if it names one."""
        named = self.string("properties", None)
        if named is None:
            return {}
        file = self.document.file.parent / named
        try:
            text = file.read_text(encoding="utf-8")
        except OSError as error:
            raise self.error(
                "properties",
                f"names a file that cannot be read: {error.strerror}",
                hint=f"the path is relative to the contract, in {self.document.file.parent}",
            ) from error
        except UnicodeDecodeError as error:
            raise self.error("properties", "names a file that is not text in UTF-8") from error
        found = parse_properties(text)
        for name, value in found.items():
            remember_setting(name, value)
            if "\0" in value:
                raise self.error("properties", f"names a file in which {name} {_HOLDS_NUL}")
        return found

    def table(self, key: str) -> Section:
        value = self._values.get(key, {})
        if not isinstance(value, dict):
            where = dotted((*self.path, key))
            raise self.error(key, f"must be a section, [{where}], not {self._shown(key)}")
        return Section(self.document, (*self.path, key), value)

    def tables(self, key: str) -> list[Section]:
        """The named sections under one: `[topics.a]` and `[topics.b]` of `topics`."""
        outer = self.table(key)
        for name, value in outer._values.items():
            if not isinstance(value, dict):
                raise outer.error(
                    name,
                    f"must be a section with a name of its own, not {outer._shown(name)}",
                    hint=f"write [{key}.NAME] above it",
                )
        return [outer.table(name) for name in outer._values]

    def _substituted(self, key: str) -> Substituted:
        value = self._values[key]
        if not isinstance(value, str):
            raise self.error(key, f"must be a string, not {self._shown(key)}")
        return self._fill(key, value)

    def _fill(self, key: str | KeyPath, text: str) -> Substituted:
        if "\0" in text:
            raise self.error(key, _HOLDS_NUL)
        try:
            found = substitute(
                text, environment=self.document.environment, folder=self.document.file.parent
            )
        except SubstitutionError as error:
            raise self.error(key, f"cannot be filled in: {error.what}", hint=error.hint) from error
        if "\0" in found.text:
            raise self.error(key, _HOLDS_NUL)
        return found

    def _setting(self, path: KeyPath, name: str, value: Any) -> str | None:
        if isinstance(value, bool):
            return "true" if value else "false"
        if isinstance(value, int | float):
            if not -LONG_MAX - 1 <= value <= LONG_MAX:
                raise self.error(
                    path,
                    "must be a number of at most 64 bits"
                    + ("" if is_secret_name(name) else f", not {_toml(value)}"),
                )
            return str(value)
        if isinstance(value, list) and all(isinstance(item, str) for item in value):
            value = ",".join(value)
        if not isinstance(value, str):
            raise self.error(
                path,
                "must be a string, a number, true or false"
                + ("" if is_secret_name(name) else f", not {_toml(value)}"),
            )
        found = self._fill(path, value)
        remember_setting(name, found.text, substituted=found.parts)
        # "${KAFKA:-}" with nothing set means not given; a literal "" can be a value of its own.
        if not found.text and (found.parts or name == "bootstrap.servers"):
            return None
        if name in _FILE_SETTINGS and found.text:
            return str(self.document.file.parent / found.text)
        return found.text

    def _shown(self, key: str) -> str:
        return HIDDEN if is_secret_name(key) else _toml(self._values[key])


def dotted(path: KeyPath) -> str:
    return ".".join(part if _is_bare(part) else json.dumps(part) for part in path)


def one_of(options: Iterable[str]) -> str:
    *others, last = (json.dumps(option) for option in options)
    return f"{', '.join(others)} or {last}" if others else last


def _is_bare(part: str) -> bool:
    return part.isascii() and part.replace("-", "").replace("_", "").isalnum()


def _leaves(table: Mapping[str, Any], path: KeyPath) -> list[tuple[KeyPath, Any]]:
    found: list[tuple[KeyPath, Any]] = []
    for key, value in table.items():
        if isinstance(value, dict):
            found.extend(_leaves(value, (*path, key)))
        else:
            found.append(((*path, key), value))
    return found


def _toml(value: Any) -> str:
    """A value as it stands in the file, near enough to be recognised."""
    match value:
        case datetime():
            return value.isoformat()
        case dict():
            return "a section"
        case list():
            return f"[{', '.join(_toml(item) for item in value)}]"
        case int() if not isinstance(value, bool) and abs(value) > 10**_DIGITS_SHOWN_MAX:
            return f"a number of {len(str(abs(value)))} digits"
        case float() if not math.isfinite(value):
            return str(value)
        case str() | bool() | int() | float():
            return json.dumps(value, ensure_ascii=False)
        case _:
            return str(value)
