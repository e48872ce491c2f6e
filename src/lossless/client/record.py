"""A record as it is sent, and as it is told of when it could not be."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

Headers = Sequence[tuple[str, bytes | None]]
HeadersGiven = Mapping[str, str | bytes | None] | Sequence[tuple[str, str | bytes | None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """Bytes only: what a serializer made of what the application gave."""

    topic: str
    key: bytes | None = None
    value: bytes | None = None
    headers: Headers = ()
    partition: int | None = None  # None: by the key
    timestamp_ms: int | None = None  # None: when it is sent

    def __str__(self) -> str:
        place = self.topic if self.partition is None else f"{self.topic}-{self.partition}"
        return f"{place}, key {_shown(self.key)}"


def headers_of(given: HeadersGiven) -> list[tuple[str, bytes | None]]:
    pairs = given.items() if isinstance(given, Mapping) else given
    return [(name, value.encode() if isinstance(value, str) else value) for name, value in pairs]


def header(headers: Sequence[tuple[str, bytes | None]] | None, name: str) -> bytes | None:
    """The last one of this name: whoever adds a header means it to replace the earlier ones."""
    for found, value in reversed(headers or ()):
        if found == name:
            return value
    return None


def _shown(key: bytes | None) -> str:
    return "none" if key is None else repr(key[:40])[1:]
