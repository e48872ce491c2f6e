"""Ids for producers: the controller gives each broker a block of them, and none twice.

    InitProducerId ──▶ an id from the block ── the block runs out ──▶ AllocateProducerIds

What is left of a block when its broker stops is never used.
"""

from __future__ import annotations

from lossless.core.machine import Reply, Token
from lossless.core.messages import (
    AllocateProducerIdsAnswer,
    Error,
    InitProducerIdAnswer,
)

LOW = 100  # ask for the next block when so few are left
WAIT_MS_MAX = 1_000  # then whoever waits is told to come again, perhaps to another broker


class ProducerIds:
    def __init__(self) -> None:
        self._next = self._end = 0
        self._following: tuple[int, int] | None = None
        self._waiting: list[tuple[int, Token]] = []  # until when
        self._is_missed = False  # somebody wanted an id and there was none
        self.is_asking = False
        self.ask_ms = 0

    @property
    def wants_block(self) -> bool:
        """A broker that nobody has asked for an id needs none."""
        is_low = self._end > 0 and self._end - self._next < LOW
        return self._following is None and (is_low or self._is_missed)

    def take(self) -> int | None:
        """None: the next block is on its way, or will be asked for."""
        if self._next == self._end and self._following is not None:
            (self._next, self._end), self._following = self._following, None
        self._is_missed = self._next == self._end
        if self._is_missed:
            return None
        taken, self._next = self._next, self._next + 1
        return taken

    @property
    def deadline_ms(self) -> int | None:
        return self._waiting[0][0] if self._waiting else None

    def on_request(self, token: Token, now_ms: int) -> list[Reply]:
        self._waiting.append((now_ms + WAIT_MS_MAX, token))
        return self._answered()

    def expire(self, now_ms: int) -> list[Reply]:
        """A controller that cannot be reached gives no ids, and clients must not wait for it."""
        replies = []
        while self._waiting and self._waiting[0][0] <= now_ms:
            _, token = self._waiting.pop(0)
            answer = InitProducerIdAnswer(Error.COORDINATOR_LOAD_IN_PROGRESS)
            replies.append(Reply(token, answer))
        return replies

    def on_block(
        self, answer: AllocateProducerIdsAnswer | None, now_ms: int, backoff_ms: int
    ) -> list[Reply]:
        self.is_asking = False
        if answer is None or answer.error is not Error.NONE:
            self.ask_ms = now_ms + backoff_ms
            return []
        self._following = (answer.first, answer.first + answer.size)
        return self._answered()

    def _answered(self) -> list[Reply]:
        replies = []
        while self._waiting and (taken := self.take()) is not None:
            answer = InitProducerIdAnswer(Error.NONE, taken, 0)
            replies.append(Reply(self._waiting.pop(0)[1], answer))
        return replies
