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

from lossless.broker.connection import shared_buffer
from lossless.log.batch import Data
from lossless.wire import frames
from lossless.wire.outgoing import Outgoing

Address = tuple[str, int]
CONNECT_S_MAX = 3.0
REQUEST_S_MAX = 30.0  # request.timeout.ms; nobody waits longer than twice that
FRAME_BYTES_MAX = 256 << 20

Answered = Callable[[Any], None]  # with the message, or None


class Link(asyncio.BufferedProtocol):
    """One connection to one node, opened when something is to be sent."""

    def __init__(
        self,
        address: Callable[[], Address | None],
        client_id: str,
        open_connection: Callable[[Callable[[], asyncio.BaseProtocol], Address], Any],
    ) -> None:
        self._address = address
        self._client_id = client_id
        self._open_connection = open_connection
        self._transport: asyncio.Transport | None = None
        self._opening: asyncio.Task[None] | None = None
        self._unsent: list[bytes] = []
        self._asked: collections.deque[tuple[int, Any, bool, Answered]] = collections.deque()
        self._next_id = 0
        self._shared = shared_buffer()
        self._rest = b""  # less than the length of a frame
        self._frame: memoryview | None = None  # that has not come as a whole
        self._filled = 0
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
            if self._transport is None:  # lost before this was heard: who asked since is told too
                self._fail()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is one in all but name
        unsent, self._unsent = self._unsent, []
        self._transport.writelines(unsent)

    def connection_lost(self, _error: BaseException | None) -> None:
        self._transport = None
        self._fail()

    def get_buffer(self, _size: int) -> memoryview:
        return self._shared if self._frame is None else self._frame[self._filled :]

    def buffer_updated(self, size: int) -> None:
        if self._frame is None:
            come = self._shared[:size]
            self._take_frames(memoryview(b"".join((self._rest, come))) if self._rest else come)
            return
        self._filled += size
        if self._filled == len(self._frame):
            frame, self._frame = self._frame, None
            self._on_frame(frame.toreadonly())

    def _take_frames(self, data: memoryview) -> None:
        """Each is copied once, because `data` is read over. One that has not come as a whole gets
        memory of its own, where the rest is read to."""
        at = 0
        self._rest = b""
        while len(data) - at >= frames.LENGTH.size:
            (length,) = frames.LENGTH.unpack_from(data, at)
            end = at + frames.LENGTH.size + length
            if not 0 < length <= FRAME_BYTES_MAX or not self._asked:
                self.reset()
                return
            if end > len(data):
                self._filled = len(data) - at
                self._frame = memoryview(bytearray(end - at))
                self._frame[: self._filled] = data[at:]
                return
            self._on_frame(bytes(data[at:end]))
            at = end
        self._rest = bytes(data[at:])

    def _on_frame(self, frame: Data) -> None:
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
        self._rest, self._frame = b"", None
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
