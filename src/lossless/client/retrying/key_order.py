"""Which keys wait in a retry topic: their later records must go behind them, not past them.

One machine for each partition of the topic, and the retry partition with the same number. Pure.

- A key waits from the moment that a record of it is acknowledged in the retry partition until the
  group has committed past the last of its records there. Committed, not processed: only then will
  no member process it again.
- Whoever is assigned the partition begins by scanning the retry partition from the group's
  committed offset to its end (`on_scanned`). Until `on_scan_ended` every key waits: a record may
  lie there that was forwarded by the member before.
- The retry partition may be read by another member. What that one committed is told late, never
  early, and a key that is thought to wait a little longer is only forwarded without need.

Invariant: a record of a key is processed outside the retry partition only when none of its key that
came before it lies there unprocessed. Records without a key have no order to keep.
"""

from __future__ import annotations

import heapq


class KeyOrder:
    def __init__(self, *, committed: int = 0, scanned: bool = False) -> None:
        self._committed = committed
        self._scanned = scanned
        self._last: dict[bytes, int] = {}  # of each key that waits, its last offset
        self._by_offset: list[tuple[int, bytes]] = []  # a heap; may name offsets that are not last

    @property
    def committed(self) -> int:
        return self._committed

    @property
    def is_scanned(self) -> bool:
        return self._scanned

    def __len__(self) -> int:
        return len(self._last)

    def waits(self, key: bytes | None) -> bool:
        return key is not None and (not self._scanned or key in self._last)

    def on_scanned(self, key: bytes | None, offset: int) -> None:
        """A record was found in the retry partition."""
        self._note(key, offset)

    def on_scan_ended(self) -> None:
        self._scanned = True

    def on_forwarded(self, key: bytes | None, offset: int) -> None:
        """A record was acknowledged in the retry partition, at this offset."""
        self._note(key, offset)

    def on_committed(self, next_offset: int) -> list[bytes]:
        """The group committed this position in the retry partition: the keys that are free now."""
        self._committed = max(self._committed, next_offset)
        free = []
        while self._by_offset and self._by_offset[0][0] < self._committed:
            offset, key = heapq.heappop(self._by_offset)
            if self._last.get(key) == offset:
                del self._last[key]
                free.append(key)
        return free

    def _note(self, key: bytes | None, offset: int) -> None:
        """In any order: a scan also meets what was forwarded meanwhile."""
        if key is not None and offset >= self._committed and offset > self._last.get(key, -1):
            self._last[key] = offset
            heapq.heappush(self._by_offset, (offset, key))
