"""Answers that wait in memory because their clients do not read: how much there may be.

Kafka sends records from the page cache, so that an answer of 55 MB to a client that does not read
costs it nothing. An embedded broker has it in memory. As long as little waits, a Fetch gets all
that it asks for; from `FREELY_BYTES_MAX` on each gets `SCARCE_BYTES`, or one batch; and beyond
`BYTES_MAX` the connection that has not read for the longest time is closed.
"""

from __future__ import annotations

import logging
from typing import Protocol

FREELY_BYTES_MAX = 64 << 20
SCARCE_BYTES = 1 << 20
BYTES_MAX = 256 << 20

_logger = logging.getLogger(__name__)


class Choked(Protocol):
    """A connection whose client does not read what was sent."""

    peer_host: str

    def unsent_bytes(self) -> int: ...

    def abort(self) -> None: ...


class Unsent:
    """What waits to be sent, on all connections of a node."""

    def __init__(self) -> None:
        self._choked: dict[Choked, None] = {}  # the one that began first comes first

    def add(self, connection: Choked) -> None:
        self._choked[connection] = None
        while len(self._choked) > 1 and self.total_bytes() > BYTES_MAX:
            slowest = next(iter(self._choked))
            _logger.warning(
                "a connection from %s is closed: it does not read %d bytes, and %d wait on all "
                "connections",
                slowest.peer_host,
                slowest.unsent_bytes(),
                self.total_bytes(),
            )
            del self._choked[slowest]
            slowest.abort()

    def discard(self, connection: Choked) -> None:
        self._choked.pop(connection, None)

    def total_bytes(self) -> int:
        return sum(connection.unsent_bytes() for connection in self._choked)

    def fetch_bytes(self, wanted: int) -> int:
        """How much of this an answer may have now."""
        if self._choked and self.total_bytes() > FREELY_BYTES_MAX:
            return min(wanted, SCARCE_BYTES)
        return wanted
