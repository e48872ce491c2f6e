"""A producer, as far as those who only send need to know it."""

from __future__ import annotations

from typing import Any, Protocol


class Sent(Protocol):
    def result(self, timeout_s: float | None = None) -> Any: ...


class Sender(Protocol):
    def send(
        self,
        topic: str,
        value: Any = None,
        key: Any = None,
        *,
        headers: Any = (),
        partition: int | None = None,
        timestamp_ms: int | None = None,
        operation_id: str | None = None,
    ) -> Sent: ...
