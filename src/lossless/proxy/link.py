"""A client's connection and the one to its broker, tied together.

    opening    the client is there, the broker not yet: nothing is read
    open       both are there
    ending     one is gone; what it sent is still delivered to the other, who is closed then
    closed

A connection that has swallowed bytes can never go on, because they are missing in the middle of a
frame: when the fault is mended, it is reset. While answers are swallowed, so is the news that the
broker has closed the connection.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import struct
from collections.abc import Callable
from typing import Protocol, cast

from lossless.proxy.address import Address
from lossless.proxy.apis import api_name
from lossless.proxy.conditions import Conditions, Rules
from lossless.proxy.counters import Tally
from lossless.proxy.pipe import Pipe
from lossless.proxy.rewriting import Role, Unreadable, passes_unread
from lossless.proxy.streams import (
    Answers,
    BadStream,
    Buffer,
    Expected,
    Request,
    Requests,
    SpeaksTls,
)

CONNECT_S_MAX = 10.0
EXPECTED_MAX = 10_000  # requests without an answer; then the client is not read
WRITE_BYTES_MAX = 1024 * 1024  # that the target has not taken; then the source is not read

_RESET = struct.pack("ii", 1, 0)  # SO_LINGER: closing throws away what was not sent

_logger = logging.getLogger(__name__)


class Surroundings(Protocol):
    """What the links of one proxy share."""

    loop: asyncio.AbstractEventLoop
    rules: Rules

    def draw(self) -> float: ...

    def relocate(self, role: Role, node_id: int, address: Address) -> Address: ...

    def trouble(self, what: str) -> None: ...


class _End(asyncio.Protocol):
    """The client's socket, or the broker's."""

    def __init__(
        self,
        *,
        incoming: Pipe,
        outgoing: Pipe,
        on_data: Callable[[bytes], None],
        on_end: Callable[[], bool],
        on_lost: Callable[[], None],
    ) -> None:
        self._incoming = incoming
        self._outgoing = outgoing
        self._on_data = on_data
        self._on_end = on_end
        self._on_lost = on_lost
        self.transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)  # uvloop's is one in all but name
        self.transport.set_write_buffer_limits(high=WRITE_BYTES_MAX)
        self._incoming.source = self.transport
        self._outgoing.target = self.transport

    def connection_lost(self, _error: BaseException | None) -> None:
        self.transport = None
        self._incoming.source = None
        self._outgoing.close()
        self._on_lost()

    def data_received(self, data: bytes) -> None:
        self._on_data(data)

    def eof_received(self) -> bool:
        return self._on_end()

    def pause_writing(self) -> None:
        self._outgoing.choke(is_choked=True)

    def resume_writing(self) -> None:
        self._outgoing.choke(is_choked=False)

    def close(self) -> None:
        if self.transport is not None:
            self.transport.close()

    def write_eof(self) -> None:
        if self.transport is not None and not self.transport.is_closing():
            self.transport.write_eof()

    def reset(self) -> None:
        if self.transport is not None:
            connection = self.transport.get_extra_info("socket")
            if connection is not None and not self.transport.is_closing():
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
            self.transport.abort()


class Link:
    def __init__(
        self,
        surroundings: Surroundings,
        *,
        broker: Callable[[], int | None],
        address: Callable[[], Address],
        tally: Tally,
        on_closed: Callable[[Link], None],
    ) -> None:
        self._surroundings = surroundings
        self._loop = surroundings.loop
        self._broker_id = broker
        self._address = address
        self._tally = tally
        self._on_closed = on_closed
        self._conditions = Conditions()
        self._opening: asyncio.Task[None] | None = None
        self._is_counted = False  # among those that are open
        self._is_client_done = False
        self._is_aborted = False
        self._is_dropped = False
        self.client_id: str | None = None

        self._requests = Requests(self._on_request)
        self._answers = Answers(
            self._requests.expected,
            surroundings.relocate,
            on_answer=self._on_answer,
            on_rewritten=self._on_rewritten,
        )
        draw = surroundings.draw
        self._to_broker = Pipe(self._loop, tally, draw=draw, on_delivered=self._count_to_broker)
        self._to_client = Pipe(self._loop, tally, draw=draw, on_delivered=self._count_to_client)
        self.client = _End(
            incoming=self._to_broker,
            outgoing=self._to_client,
            on_data=self._on_client_data,
            on_end=self._on_client_end,
            on_lost=self._on_client_lost,
        )
        self.broker = _End(
            incoming=self._to_client,
            outgoing=self._to_broker,
            on_data=self._on_broker_data,
            on_end=lambda: False,
            on_lost=self._on_broker_lost,
        )

    def open(self, accepted: socket.socket) -> asyncio.Task[None]:
        """The broker first: until it is there, what the client sends stays with the kernel."""
        self._tally.connections += 1
        self._tally.open += 1
        self._is_counted = True
        self._opening = self._loop.create_task(self._open(accepted))
        self._opening.add_done_callback(lambda _: self._on_opened(accepted))
        opening = self._opening
        self.refresh()
        return opening

    # Faults

    def refresh(self) -> bool:
        """The rules have changed. Whether the link is still there."""
        conditions = self._surroundings.rules.conditions(self._broker_id(), self.client_id)
        self._conditions = conditions
        is_torn = (self._to_broker.has_swallowed and not conditions.swallows_requests) or (
            self._to_client.has_swallowed and not conditions.swallows_answers
        )
        if conditions.is_cut or is_torn:
            self.reset()
            return False
        self._requests.follows = not conditions.swallows_requests
        self._to_broker.set_conditions(conditions, is_swallowing=conditions.swallows_requests)
        self._to_client.set_conditions(conditions, is_swallowing=conditions.swallows_answers)
        return True

    def reset(self) -> None:
        """At once: both sides see the connection reset."""
        if not self._is_aborted:
            self._tally.resets += 1
            self.abort()

    def abort(self) -> None:
        self._is_aborted = True
        if self._opening is not None:
            self._opening.cancel()
        self._to_broker.close()
        self._to_client.close()
        self.client.reset()
        self.broker.reset()

    # The client

    async def _open(self, accepted: socket.socket) -> None:
        address = self._address()
        try:
            async with asyncio.timeout(CONNECT_S_MAX):
                await self._loop.create_connection(lambda: self.broker, *address)
            await self._loop.connect_accepted_socket(lambda: self.client, accepted)
        except OSError as error:  # TimeoutError is one
            _logger.info("broker %s at %s: %s", self._broker_id(), address, error)
            self._tally.unreachable += 1

    def _on_opened(self, accepted: socket.socket) -> None:
        """Or not: nobody was there, or a fault came first."""
        self._opening = None
        if self.client.transport is None:
            if accepted.fileno() >= 0:
                accepted.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
                accepted.close()
            self._count_out()
            self.broker.reset()
            self._close_if_both_are_gone()
        elif self.broker.transport is None:
            self.client.close()

    def _on_client_data(self, data: bytes) -> None:
        out = self._feed(self._requests.feed, data, "a client")
        if out is None:
            return
        self._to_broker.send(out)
        if self._requests.is_stopped:
            # A request without an answer, to be dropped: it has gone out, and that is all.
            self._drop()
        elif len(self._requests.expected) > EXPECTED_MAX:
            self._to_broker.fill(is_full=True)

    def _on_request(self, request: Request) -> bool:
        if request.client_id != self.client_id:
            self.client_id = request.client_id
            if not self.refresh():
                raise BadStream("this client is cut off")
        name = api_name(request.key)
        if self._conditions.swallows_requests:
            self._tally.swallowed_requests[name] += 1
            return False
        self._tally.requests[name] += 1
        is_dropped = self._surroundings.rules.is_dropped(
            request.key, self._broker_id(), self.client_id
        )
        if is_dropped and not request.is_answered:
            self._tally.dropped[name] += 1
        return is_dropped

    def _on_client_end(self) -> bool:
        """The client sends no more, but may still read: so it goes on, if there is a broker."""
        self._is_client_done = True
        if self.broker.transport is None:
            return False
        self._to_broker.finish(self.broker.write_eof)
        return True

    def _on_client_lost(self) -> None:
        self._count_out()
        self._to_broker.finish(self.broker.close)
        self._close_if_both_are_gone()

    # The broker

    def _on_broker_data(self, data: bytes) -> None:
        out = self._feed(self._answers.feed, data, f"the broker at {self._address()}")
        if out is None:
            return
        self._to_client.send(out)
        if self._answers.is_stopped:
            self._drop()
        elif len(self._requests.expected) <= EXPECTED_MAX:
            self._to_broker.fill(is_full=False)

    def _on_answer(self, expected: Expected) -> None:
        name = api_name(expected.key)
        if expected.is_dropped:
            self._tally.dropped[name] += 1
        elif self._conditions.swallows_answers:
            self._tally.swallowed_answers[name] += 1
        else:
            self._tally.answers[name] += 1
        if passes_unread(expected.key, expected.version):
            self._surroundings.trouble(
                f"client {self.client_id!r} asked for {name} version {expected.version}, which the "
                "proxy does not know: the answer may name brokers, and passes as it is"
            )

    def _on_rewritten(self, name: str) -> None:
        self._tally.rewritten[name] += 1

    def _on_broker_lost(self) -> None:
        if not self._conditions.swallows_answers or self._is_client_done:
            self._to_client.finish(self.client.close)
        else:
            self._to_client.has_swallowed = True  # the news of it
        self._close_if_both_are_gone()

    # Both

    def _feed(
        self, feed: Callable[[bytes], list[Buffer]], data: bytes, who: str
    ) -> list[Buffer] | None:
        try:
            return feed(data)
        except SpeaksTls as error:
            self._surroundings.trouble(
                f"{who} sends {error}: the proxy has to read what passes, and does not do TLS"
            )
        except (BadStream, Unreadable) as error:
            if not self._conditions.is_cut:
                self._surroundings.trouble(f"{who}: {error}")
        self.abort()
        return None

    def _drop(self) -> None:
        """Answers before the one that is lost are still delivered, and so are requests."""
        if self._is_dropped:
            return
        self._is_dropped = True
        self._tally.resets += 1
        self._to_broker.finish(self.broker.close)
        self._to_client.finish(self.client.close)

    def _close_if_both_are_gone(self) -> None:
        if self.client.transport is None and self.broker.transport is None:
            self._to_broker.close()
            self._to_client.close()
            self._on_closed(self)

    def _count_out(self) -> None:
        if self._is_counted:
            self._is_counted = False
            self._tally.open -= 1

    def _count_to_broker(self, size: int) -> None:
        self._tally.bytes_to_broker += size

    def _count_to_client(self, size: int) -> None:
        self._tally.bytes_to_client += size
