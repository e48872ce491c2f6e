"""Fetch sessions (KIP-227): a client names its partitions once, and afterwards only what changes.

    id 0, epoch 0     everything is named, and a session is wanted
    id 0, epoch -1    everything is named, and no session is wanted
    id n, epoch -1    the session ends; everything is named
    id n, epoch m     what is named changes the session; the answer tells only what is news

A broker keeps a number of sessions. When there are more clients than that, whoever has been silent
for long loses its session; a client without one names everything every time.
"""

from __future__ import annotations

import collections
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from lossless.core.messages import Error, Fetched
from lossless.wire.fetch import Asked, TopicKey

FINAL_EPOCH, INITIAL_EPOCH = -1, 0
IDLE_MS = 120_000  # min.incremental.fetch.session.eviction.ms
NO_SESSION = 0


class _Last(NamedTuple):
    """What a client was last told of a partition."""

    high_watermark: int
    last_stable_offset: int
    log_start_offset: int


Key = tuple[TopicKey, int]


@dataclass(slots=True)
class Session:
    id: int
    epoch: int = 1  # that the next request has to name
    used_ms: int = 0
    partitions: dict[Key, Asked] = field(default_factory=dict)
    last: dict[Key, _Last] = field(default_factory=dict)

    def update(self, named: Iterable[Asked], forgotten: Iterable[Key]) -> None:
        for asked in named:
            self.partitions[asked.topic, asked.partition.partition.partition] = asked
        for key in forgotten:
            self.partitions.pop(key, None)
            self.last.pop(key, None)

    def is_news(self, key: Key, fetched: Fetched) -> bool:
        """Whether to mention a partition. One with records goes to the end of the line, so that
        the next answer has room for others."""
        told = _Last(fetched.high_watermark, fetched.last_stable_offset, fetched.log_start_offset)
        has_changed = self.last.get(key) != told
        self.last[key] = told
        if fetched.data and key in self.partitions:
            self.partitions[key] = self.partitions.pop(key)
        return bool(
            has_changed or fetched.data or fetched.error is not Error.NONE or fetched.diverging
        )


class Opened(NamedTuple):
    error: Error = Error.NONE
    session: Session | None = None
    is_incremental: bool = False


class FetchSessions:
    def __init__(self, sessions_max: int, draw: Callable[[int], int]) -> None:
        self._sessions_max = sessions_max  # max.incremental.fetch.session.cache.slots
        self._draw = draw
        self._by_id: collections.OrderedDict[int, Session] = collections.OrderedDict()

    def __len__(self) -> int:
        return len(self._by_id)

    def open(
        self,
        session_id: int,
        epoch: int,
        named: list[Asked],
        forgotten: list[Key],
        now_ms: int,
    ) -> Opened:
        if epoch in (FINAL_EPOCH, INITIAL_EPOCH):
            self._by_id.pop(session_id, None)
            return Opened() if epoch == FINAL_EPOCH else Opened(session=self._new(named, now_ms))
        session = self._by_id.get(session_id)
        if session is None:
            return Opened(Error.FETCH_SESSION_ID_NOT_FOUND)
        if epoch != session.epoch:
            return Opened(Error.INVALID_FETCH_SESSION_EPOCH)
        session.epoch = 1 if epoch == 0x7FFFFFFF else epoch + 1
        session.used_ms = now_ms
        self._by_id.move_to_end(session_id)
        session.update(named, forgotten)
        return Opened(session=session, is_incremental=True)

    def _new(self, named: list[Asked], now_ms: int) -> Session | None:
        if len(self._by_id) >= self._sessions_max:
            oldest = next(iter(self._by_id.values()), None)
            if oldest is None or now_ms - oldest.used_ms < IDLE_MS:
                return None
            del self._by_id[oldest.id]
        number = 0
        while number == 0 or number in self._by_id:
            number = 1 + self._draw(0x7FFFFFFE)
        session = self._by_id[number] = Session(number, used_ms=now_ms)
        session.update(named, ())
        return session
