"""A client's connection: frames come in, answers go out in the order of the requests.

A request that has to wait, for followers or for records, does not keep the next one from being
looked at: requests are handled as they come, and answers wait for those before them.

Memory is bounded by what a client has really sent, and by what it really reads:

- Small frames are read into one buffer that all connections of a loop share, because a connection
  that is idle must not cost memory. A large frame gets pieces of its own, each in proportion to
  what has come so far: whoever announces 100 MB and sends ten bytes costs no 100 MB.
- Whoever has asked enough, or does not take the answers, is not looked at any more: what has come
  stays where it is, and when more comes, nothing more is read. A client that behaves never notices,
  and reading is not stopped and started for every request.
- What waits on all connections together is bounded too (unsent.py).
- Some requests are heavy: their answers may be large, all of them at once (Fetch). Behind one of
  them nothing is looked at until it is answered. Kafka does so with every request.
"""

from __future__ import annotations

import asyncio
import collections
import threading
from collections.abc import Callable, Mapping
from typing import Any, Protocol, cast

from lossless.broker.unsent import Unsent
from lossless.log.batch import Data
from lossless.wire.frames import LENGTH

SHARED_BYTES = 256 * 1024
LARGE_BYTES = 16 * 1024  # a frame from which on it gets pieces of its own
PIECE_BYTES = 64 * 1024  # the first one at least, if so much is missing
GROWTH = 3
REQUESTS_MAX = 100  # waiting for an answer; then nothing more is looked at


class _Shared(threading.local):
    """What every loop has of its own. While one reads, another may, too: two clusters in one
    process have two loops, on two threads."""

    def __init__(self) -> None:
        self.buffer = memoryview(bytearray(SHARED_BYTES))


_of_this_loop = _Shared()


def shared_buffer() -> memoryview:
    """What is read to it has to be copied before anything else is read."""
    return _of_this_loop.buffer


Buffers = list[Data]
Amend = Callable[[Buffers], Buffers]


class Listening(Protocol):
    """Who takes what comes in."""

    name: str
    frame_bytes_max: int
    unsent: Unsent

    def on_open(self, connection: Connection, /) -> None: ...

    def on_frame(self, connection: Connection, frame: bytes, /) -> None: ...

    def on_close(self, connection: Connection, /) -> None: ...


class Slot:
    """The place of an answer among the others."""

    __slots__ = ("_amend", "buffers", "connection")

    def __init__(self, connection: Connection, amend: Amend | None = None) -> None:
        self.connection = connection
        self.buffers: Buffers | None = None
        self._amend = amend

    def fill(self, buffers: Buffers) -> None:
        """An empty answer leaves the place to the next one (acks=0)."""
        self.buffers = buffers if self._amend is None else self._amend(buffers)
        self.connection.flush_soon()


class Connection(asyncio.BufferedProtocol):
    __slots__ = (
        "_active_s",
        "_filled",
        "_is_active",
        "_is_choked",
        "_is_closing",
        "_is_due",
        "_is_held",
        "_listening",
        "_loop",
        "_missing",
        "_muted_until_s",
        "_on_frame",
        "_pieces",
        "_requests_max",
        "_rest",
        "_shared",
        "_slots",
        "_transport",
        "_unsent",
        "amend",
        "begun",
        "client_id",
        "frame_bytes_max",
        "listener",
        "peer_host",
        "session",
    )

    def __init__(self, listening: Listening) -> None:
        self._listening = listening
        self._on_frame = listening.on_frame
        self._unsent = listening.unsent
        self._loop = asyncio.get_running_loop()
        self._shared = shared_buffer()
        self._transport: asyncio.Transport | None = None
        self._slots: collections.deque[Slot] = collections.deque()
        self.client_id: str | None = None  # as its last request named it
        self.begun: Any = None  # the server's: what the last request began with
        self._requests_max = REQUESTS_MAX
        self._rest = b""  # the beginning of a frame, or what is not looked at yet
        self._pieces: list[memoryview] | None = None  # of a large frame; the last one is being read
        self._filled = 0  # of the last piece
        self._missing = 0  # of the large frame, behind the last piece
        self._is_choked = False  # the client does not read its answers
        self._is_held = False  # nothing is read, what came is not looked at
        self._muted_until_s = 0.0  # nothing more is looked at: the client has used too much
        self._is_due = False  # there are answers that go out before the loop waits again
        self._is_closing = False
        self._is_active = True  # since it was last looked for who is idle
        self._active_s = 0.0
        self.peer_host = ""
        self.listener = listening.name
        # The gate's, if there is one: who this is, how much may come, what happens to the next
        # answer before it goes.
        self.session: Any = None
        self.frame_bytes_max = listening.frame_bytes_max
        self.amend: Amend | None = None

    # The event loop's calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is one in all but name
        peer = transport.get_extra_info("peername")
        self.peer_host = str(peer[0]) if peer else ""
        self._listening.on_open(self)

    def connection_lost(self, _error: BaseException | None) -> None:
        self._forget()
        self._unsent.discard(self)
        self._transport = None
        self._listening.on_close(self)

    def get_buffer(self, _size: int) -> memoryview:
        if self._pieces is not None:
            return self._pieces[-1][self._filled :]
        return self._shared

    def buffer_updated(self, size: int) -> None:
        self._is_active = True
        if self._is_closing:
            return
        if self._pieces is not None:
            self._filled += size
            if self._filled == len(self._pieces[-1]):
                self._on_piece(self._pieces)
            return
        shared = self._shared
        if not self._rest and not self._is_choked and len(self._slots) < self._requests_max:
            # Most often it is one frame and nothing else: it is copied once.
            (length,) = LENGTH.unpack_from(shared)
            if length == size - LENGTH.size and 0 < length <= self.frame_bytes_max:
                self._on_frame(self, bytes(shared[LENGTH.size : size]))
                return
        come = shared[:size]
        self._take_frames(memoryview(b"".join((self._rest, come))) if self._rest else come)

    def eof_received(self) -> bool:
        return False

    def pause_writing(self) -> None:
        self._is_choked = True
        self._unsent.add(self)

    def resume_writing(self) -> None:
        self._is_choked = False
        self._unsent.discard(self)
        self._flush()

    # Frames

    def _take_frames(self, data: memoryview) -> None:
        """Each is copied once: `data` may be read over."""
        at = 0
        self._rest = b""
        while len(data) - at >= LENGTH.size:
            if self._is_choked or len(self._slots) >= self._requests_max:
                self._hold()
                break
            (length,) = LENGTH.unpack_from(data, at)
            if not 0 < length <= self.frame_bytes_max:
                self.close()  # as Kafka does: there is no telling where the next frame begins
                return
            start = at + LENGTH.size
            end = start + length
            if end > len(data):
                if length > LARGE_BYTES:
                    self._begin_large(bytes(data[start:]), length)
                    return
                break
            self._on_frame(self, bytes(data[start:end]))
            if self._is_closing:
                return
            at = end
        self._rest = bytes(data[at:])

    def _begin_large(self, beginning: bytes, length: int) -> None:
        self._pieces = [memoryview(beginning)]
        self._missing = length - len(beginning)
        self._next_piece(self._pieces)

    def _next_piece(self, pieces: list[memoryview]) -> None:
        come = sum(map(len, pieces))
        size = min(self._missing, max(GROWTH * come, PIECE_BYTES))
        pieces.append(memoryview(bytearray(size)))
        self._filled = 0
        self._missing -= size

    def _on_piece(self, pieces: list[memoryview]) -> None:
        if self._missing:
            self._next_piece(pieces)
            return
        self._pieces = None
        self._on_frame(self, b"".join(pieces))

    def _hold(self) -> None:
        if not self._is_held and self._transport is not None:
            self._is_held = True
            self._transport.pause_reading()

    def _go_on(self) -> None:
        """What was held is looked at. Not within an answer: machines are not entered twice."""
        if not self._is_held or self._is_closing or self._transport is None:
            return
        self._is_held = False
        self._take_frames(memoryview(self._rest))
        if not self._is_held and not self._is_closing:
            self._transport.resume_reading()

    # Answers

    def slot(self) -> Slot:
        """The next answer's place."""
        slot = Slot(self, self.amend)
        self.amend = None
        self._slots.append(slot)
        return slot

    def wait_for_answers(self) -> None:
        """What was asked last is heavy: nothing more until everything is answered."""
        if self._slots and not self._muted_until_s:
            self._requests_max = 1

    def mute(self, ms: int) -> None:
        """Looks at no further request for so long. Answers still go out."""
        until_s = self._loop.time() + ms / 1000
        if ms <= 0 or until_s <= self._muted_until_s:
            return
        if not self._muted_until_s:
            self._loop.call_at(until_s, self._unmute)
        self._muted_until_s = until_s
        self._requests_max = 0

    def _unmute(self) -> None:
        if self._loop.time() < self._muted_until_s:
            self._loop.call_at(self._muted_until_s, self._unmute)
            return
        self._muted_until_s = 0.0
        self._requests_max = REQUESTS_MAX
        if not self._is_choked:
            self._go_on()

    def flush_soon(self) -> None:
        """What is answered in one turn of the loop goes out in one piece: a system call costs more
        than an answer does."""
        if not self._is_due:
            self._is_due = True
            self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        self._is_due = False
        transport = self._transport
        if transport is None or self._is_choked or self._is_closing:
            return
        slots = self._slots
        ready: Buffers = []
        while slots and slots[0].buffers is not None:
            ready += slots.popleft().buffers or ()
        if not slots and not self._muted_until_s:
            self._requests_max = REQUESTS_MAX
        if ready:
            self._is_active = True
            if len(ready) == 1:
                transport.write(ready[0])
            else:
                transport.writelines(ready)
        if self._is_held and not self._is_choked and len(slots) < self._requests_max:
            self._loop.call_soon(self._go_on)

    # The end

    def idle_s(self, now_s: float) -> float:
        """For how long nothing has come or gone, unless it is the client who waits. As far as
        somebody has looked: asking for the time of everything that comes and goes takes its own."""
        if self._is_active:
            self._is_active = False
            self._active_s = now_s
        is_served = bool(self._slots) and not self._is_choked and not self._is_closing
        return 0.0 if is_served else now_s - self._active_s

    def peer_certificate(self) -> Mapping[str, Any] | None:
        """Of a client that has shown one that is trusted."""
        if self._transport is None:
            return None
        shown: Mapping[str, Any] | None = self._transport.get_extra_info("peercert")
        return shown

    def unsent_bytes(self) -> int:
        """How much of its answers the client has not taken yet."""
        return 0 if self._transport is None else self._transport.get_write_buffer_size()

    def descriptor(self) -> int:
        held = self._transport.get_extra_info("socket") if self._transport is not None else None
        return -1 if held is None else int(held.fileno())

    def close(self) -> None:
        """What was answered already still goes out."""
        if self._transport is not None and not self._is_closing:
            self._flush()
            self._forget()
            self._is_closing = True
            self._transport.close()

    def abort(self) -> None:
        if self._transport is not None:
            self._forget()
            self._is_closing = True
            self._transport.abort()

    def _forget(self) -> None:
        self._slots.clear()
        self._rest = b""
        self._pieces = None
