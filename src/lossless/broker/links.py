"""Connections to other nodes: what a machine sends goes out, and comes back as an answer.

Answers come in the order of the requests, so what waits at the other end keeps what follows
waiting. Fetches wait; they have a connection of their own. When a connection breaks, everything
that was under way on it is answered with None: nobody knows whether it arrived.

A `Wire` is one connection, from the attempt to open it to its end, and is never used again. The
event loop may report the loss of a connection late or, when it timed out while it was being opened,
never; with a new wire for each attempt neither can affect the next connection.
"""

from __future__ import annotations

import asyncio
import collections
import logging
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

_logger = logging.getLogger(__name__)

Answered = Callable[[Any], None]  # with the message, or None


class Link:
    """The way to one node. It opens a connection when something is to be sent and none is open."""

    def __init__(
        self,
        address: Callable[[], Address | None],
        client_id: str,
        open_connection: Callable[[Callable[[], asyncio.BaseProtocol], Address], Any],
    ) -> None:
        self._address = address
        self._client_id = client_id
        self._open_connection = open_connection
        self._wire: Wire | None = None
        self._opening: asyncio.Task[None] | None = None
        self._is_closed = False

    def ask(self, outgoing: Outgoing, answered: Answered) -> None:
        if self._is_closed:
            return
        wire = self._wire
        if wire is None or not wire.is_usable():
            wire = self._wire = Wire(self._client_id)
            self._opening = asyncio.get_running_loop().create_task(self._open(wire))
        wire.ask(outgoing, answered)

    async def _open(self, wire: Wire) -> None:
        try:
            address = self._address()
            if address is None:
                raise OSError("the node has no address yet")
            async with asyncio.timeout(CONNECT_S_MAX):
                await self._open_connection(lambda: wire, address)
        except OSError:  # TimeoutError is one
            wire.fail()
        except Exception as error:
            _logger.warning("no connection to %s: %r", address, error)
            wire.fail()
        else:
            if not wire.is_open:  # it was lost before this task resumed
                wire.fail()

    def reset(self) -> None:
        """Breaks the connection. Every request under way on it is answered with None."""
        if self._wire is not None:
            self._wire.reset()

    def close(self) -> None:
        """Closes the link for good. Requests under way are not answered."""
        self._is_closed = True
        if self._opening is not None:
            self._opening.cancel()
        if self._wire is not None:
            self._wire.close()


class Wire(asyncio.BufferedProtocol):
    """One connection to another node, and the requests that wait for their answers on it."""

    def __init__(self, client_id: str) -> None:
        self._client_id = client_id
        self._transport: asyncio.Transport | None = None
        self._is_over = False
        self._unsent: list[bytes] = []
        self._asked: collections.deque[tuple[int, Any, bool, Answered]] = collections.deque()
        self._next_id = 0
        self._shared = shared_buffer()
        self._rest = b""  # less than the length of a frame
        self._frame: memoryview | None = None  # that has not come as a whole
        self._filled = 0
        self._watch: asyncio.TimerHandle | None = None
        self._watched = 0  # the oldest question when it was last looked at

    @property
    def is_open(self) -> bool:
        return self._transport is not None

    def is_usable(self) -> bool:
        """Whether requests may be sent, now or once the connection is open. A connection whose
        transport is closing is given up here: its end may never be reported."""
        if self._transport is not None and self._transport.is_closing():
            self.fail()
        return not self._is_over

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
        if self._transport is None:
            self._unsent.append(frame)
            return
        try:
            self._transport.write(frame)
        except RuntimeError as error:  # uvloop's, when the transport was closed unnoticed
            _logger.warning("a connection that is closed: %s", error)
            self.fail()

    def _watch_oldest(self) -> None:
        """A node that hangs keeps its connections open, so one that has not answered for
        `REQUEST_S_MAX` is given up."""
        self._watch = None
        if not self._asked or self._is_over:
            return
        oldest = self._asked[0][0]
        if oldest == self._watched:
            self.reset()
            return
        self._watched = oldest
        loop = asyncio.get_running_loop()
        self._watch = loop.call_later(REQUEST_S_MAX, self._watch_oldest)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is one in all but name
        if self._is_over:  # given up while it was being opened
            self._transport.abort()
            return
        unsent, self._unsent = self._unsent, []
        self._transport.writelines(unsent)

    def connection_lost(self, _error: BaseException | None) -> None:
        self._transport = None
        self.fail()

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

    def fail(self) -> None:
        """Ends the connection. Every request that waits for an answer gets None."""
        asked, self._asked = self._asked, collections.deque()
        self._end()
        for _, _, _, answered in asked:
            answered(None)

    def reset(self) -> None:
        """Breaks an open connection. `connection_lost` follows, and then `fail`."""
        if self._transport is not None:
            self._transport.abort()

    def close(self) -> None:
        """Ends the connection without answering the requests that wait."""
        self._asked.clear()
        self._end()

    def _end(self) -> None:
        self._is_over = True
        self._rest, self._frame = b"", None
        self._unsent.clear()
        if self._watch is not None:
            self._watch.cancel()
        if self._transport is not None:
            self._transport.abort()
