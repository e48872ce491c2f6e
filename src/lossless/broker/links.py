"""Connections to other nodes: what a machine sends goes out, and comes back as an answer.

Answers come in the order of the requests, so what waits at the other end keeps what follows
waiting. Fetches wait; they have a connection of their own. When a connection breaks, everything
that was under way on it is answered with None: nobody knows whether it arrived.
"""

from __future__ import annotations

import asyncio
import collections
from collections.abc import Callable
from typing import Any, cast

from lossless.wire import frames
from lossless.wire.outgoing import Outgoing

Address = tuple[str, int]
CONNECT_S_MAX = 3.0
REQUEST_S_MAX = 30.0  # request.timeout.ms; nobody waits longer than twice that
FRAME_BYTES_MAX = 256 << 20

Answered = Callable[[Any], None]  # with the message, or None


class Link(asyncio.Protocol):
    """One connection to one node, opened when something is to be sent."""

    def __init__(
        self,
        address: Callable[[], Address | None],
        client_id: str,
        open_connection: Callable[[Callable[[], asyncio.Protocol], Address], Any],
    ) -> None:
        self._address = address
        self._client_id = client_id
        self._open_connection = open_connection
        self._transport: asyncio.Transport | None = None
        self._opening: asyncio.Task[None] | None = None
        self._unsent: list[bytes] = []
        self._asked: collections.deque[tuple[int, Any, bool, Answered]] = collections.deque()
        self._next_id = 0
        self._pieces: list[bytes] = []  # of a frame that has not come as a whole
        self._missing = 0
        self._watch: asyncio.TimerHandle | None = None
        self._watched = 0  # the oldest question when it was last looked at
        self._is_closed = False

    def ask(self, outgoing: Outgoing, answered: Answered) -> None:
        self._next_id = (self._next_id + 1) & 0x7FFFFFFF
        frame = frames.request(
            outgoing.key,
            outgoing.version,
            self._next_id,
            self._client_id,
            outgoing.message,
            tagged=outgoing.is_flexible,
        )
        self._asked.append((self._next_id, outgoing.read, outgoing.is_flexible, answered))
        if self._watch is None:
            self._watch_oldest()
        if self._transport is not None:
            self._transport.write(frame)
            return
        self._unsent.append(frame)
        if self._opening is None and not self._is_closed:
            self._opening = asyncio.get_running_loop().create_task(self._open())

    def _watch_oldest(self) -> None:
        """A node that stands still keeps its connections: who has not answered for so long is taken
        for gone."""
        self._watch = None
        if not self._asked or self._is_closed:
            return
        oldest = self._asked[0][0]
        if oldest == self._watched:
            self.reset()
            return
        self._watched = oldest
        loop = asyncio.get_running_loop()
        self._watch = loop.call_later(REQUEST_S_MAX, self._watch_oldest)

    async def _open(self) -> None:
        address = self._address()
        try:
            if address is None:
                raise OSError("the node has no address yet")
            async with asyncio.timeout(CONNECT_S_MAX):
                await self._open_connection(lambda: self, address)
        except OSError:  # TimeoutError is one
            self._opening = None
            self._fail()
        else:
            self._opening = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is one in all but name
        unsent, self._unsent = self._unsent, []
        self._transport.writelines(unsent)

    def connection_lost(self, _error: BaseException | None) -> None:
        self._transport = None
        self._fail()

    def data_received(self, data: bytes) -> None:
        if self._pieces:
            self._pieces.append(data)
            self._missing -= len(data)
            if self._missing > 0:
                return
            data = b"".join(self._pieces)
            self._pieces.clear()
        at = 0
        self._missing = frames.LENGTH.size
        while len(data) - at >= frames.LENGTH.size:
            (length,) = frames.LENGTH.unpack_from(data, at)
            end = at + frames.LENGTH.size + length
            if not 0 < length <= FRAME_BYTES_MAX or not self._asked:
                self.reset()
                return
            if end > len(data):
                self._missing = end - at
                break
            # Most often it is all that came: records are large, and not copied once more.
            is_all = at == 0 and end == len(data)
            self._on_frame(data if is_all else data[at:end])
            at = end
        if at < len(data):
            self._pieces.append(data[at:])
            self._missing -= len(data) - at

    def _on_frame(self, frame: bytes) -> None:
        correlation_id, read, is_flexible, answered = self._asked.popleft()
        at = frames.LENGTH.size
        try:
            if int.from_bytes(frame[at : at + 4], "big") != correlation_id:
                raise ValueError("an answer to something else")
            answer = read(frame, at + (5 if is_flexible else 4))
        except ValueError:
            answer = None
            self.reset()
        answered(answer)

    def _fail(self) -> None:
        self._pieces.clear()
        self._unsent.clear()
        asked, self._asked = self._asked, collections.deque()
        if not self._is_closed:
            for _, _, _, answered in asked:
                answered(None)

    def reset(self) -> None:
        """The connection is of no use any more: who waits is told so."""
        if self._transport is not None:
            self._transport.abort()

    def close(self) -> None:
        """For good, and nobody is told."""
        self._is_closed = True
        if self._watch is not None:
            self._watch.cancel()
        if self._opening is not None:
            self._opening.cancel()
        if self._transport is not None:
            self._transport.abort()
