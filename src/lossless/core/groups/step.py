"""One event at a coordinator, and what has been decided about it so far."""

from __future__ import annotations

from typing import Any

from lossless.core.coordinator import Outcome
from lossless.core.groups.records import Key, Value, encoded
from lossless.core.machine import Reply, Token
from lossless.core.messages import Producer


class Step:
    def __init__(self, now_ms: int) -> None:
        self.now_ms = now_ms
        self.producer: Producer | None = None
        self._records: list[tuple[bytes, bytes | None]] = []
        self._replies: list[Reply] = []

    def write(self, key: Key, value: Value | None) -> None:
        self._records.append(encoded(key, value))

    def answer(self, token: Token, answer: Any) -> None:
        self._replies.append(Reply(token, answer))

    def outcome(self) -> Outcome:
        return Outcome(tuple(self._records), tuple(self._replies), producer=self.producer)
