"""Connections to other nodes break at any moment; the next request opens another one."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from lossless.broker.host import Clock, Host
from lossless.broker.links import Address, Link
from lossless.broker.loop import new_event_loop
from lossless.broker.security.listeners import InterBroker
from lossless.broker.security.login import opener
from lossless.core.machine import NOTHING, Effects, Reply, Send
from lossless.wire.outgoing import Outgoing

TIMEOUT_S = 10
NOWHERE = ("127.0.0.1", 1)
open_plainly = opener(InterBroker(), "a test")
ASKED = Outgoing(3, 12, False, b"", lambda frame, at: bytes(frame[at:]))

Open = Callable[[Callable[[], asyncio.BaseProtocol], Address], Awaitable[None]]


class _Node(asyncio.Protocol):
    """Answers every request with its own bytes."""

    def __init__(self) -> None:
        self._data = b""

    def connection_made(self, transport: Any) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._data += data
        while len(self._data) >= 4:
            (length,) = struct.unpack_from(">i", self._data)
            if len(self._data) < 4 + length:
                return
            request, self._data = self._data[4 : 4 + length], self._data[4 + length :]
            self._transport.write(struct.pack(">i", 8) + request[4:8] + b"told")


class _Closed(asyncio.Transport):
    """As uvloop leaves one that was closed: it takes nothing, and its end is never reported."""

    def __init__(self) -> None:
        super().__init__()
        self.is_open = True

    def write(self, _data: Any) -> None:
        if not self.is_open:
            raise RuntimeError("unable to perform operation on <TCPTransport closed=True>")

    def writelines(self, _pieces: Any) -> None:
        self.write(b"")

    def is_closing(self) -> bool:
        return not self.is_open

    def abort(self) -> None:
        self.is_open = False


def _run(test: Callable[[Address], Awaitable[None]]) -> None:
    """With a node at an address that answers."""

    async def serve() -> None:
        server = await asyncio.get_running_loop().create_server(_Node, "127.0.0.1", 0)
        async with server, asyncio.timeout(TIMEOUT_S):
            await test(server.sockets[0].getsockname())

    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        runner.run(serve())


async def _answer(link: Link) -> bytes | None:
    answer: asyncio.Future[bytes | None] = asyncio.get_running_loop().create_future()
    link.ask(ASKED, answer.set_result)
    return await answer


async def _timed_out_before(_made: Any, _address: Address) -> None:
    raise TimeoutError


async def _timed_out_in_the_moment_of_success(made: Any, _address: Address) -> None:
    transport = _Closed()
    made().connection_made(transport)
    transport.is_open = False
    raise TimeoutError


async def _connected_after_the_timeout(made: Any, _address: Address) -> None:
    loop = asyncio.get_running_loop()
    loop.call_soon(lambda: made().connection_made(_Closed()))
    raise TimeoutError


async def _lost_at_once(made: Any, _address: Address) -> None:
    wire = made()
    wire.connection_made(_Closed())
    wire.connection_lost(None)


async def _lost_and_reported_late(made: Any, _address: Address) -> None:
    wire = made()
    wire.connection_made(_Closed())
    asyncio.get_running_loop().call_later(0.05, wire.connection_lost, None)
    raise ConnectionResetError


async def _not_even_made(_made: Any, _address: Address) -> None:
    pass


async def _failed_unexpectedly(_made: Any, _address: Address) -> None:
    raise RuntimeError("not an error of the network")


MOMENTS: list[Open] = [
    _timed_out_before,
    _timed_out_in_the_moment_of_success,
    _connected_after_the_timeout,
    _lost_at_once,
    _lost_and_reported_late,
    _not_even_made,
    _failed_unexpectedly,
]


@pytest.mark.parametrize("moment", MOMENTS)
def test_a_link_recovers_from_a_connection_that_failed_at_any_moment(moment: Open) -> None:
    async def ask(address: Address) -> None:
        opens = iter([moment])

        async def opened(made: Any, _address: Address) -> None:
            await next(opens, open_plainly)(made, address)

        link = Link(lambda: address, "a test", opened)
        assert await _answer(link) is None
        for _ in range(3):
            assert await _answer(link) == b"told"
        await asyncio.sleep(0.1)  # what is reported late has been
        assert await _answer(link) == b"told"
        link.close()

    _run(ask)


@pytest.mark.parametrize("turns", range(12))
def test_a_link_that_is_reset_at_any_await_recovers(turns: int) -> None:
    async def ask(address: Address) -> None:
        link = Link(lambda: address, "a test", open_plainly)
        heard: list[bytes | None] = []
        link.ask(ASKED, heard.append)
        for _ in range(turns):
            await asyncio.sleep(0)
        link.reset()
        answers = [_answer(link) for _ in range(3)]
        assert set(await asyncio.gather(*answers)) <= {b"told", None}
        assert await _answer(link) == b"told"
        assert len(heard) == 1
        link.close()

    _run(ask)


def test_a_link_whose_transport_was_closed_unreported_opens_another() -> None:
    async def ask(address: Address) -> None:
        transport = _Closed()

        async def opened(made: Any, _address: Address) -> None:
            if transport.is_open:
                made().connection_made(transport)
            else:
                await open_plainly(made, address)

        link = Link(lambda: address, "a test", opened)
        heard: list[bytes | None] = []
        link.ask(ASKED, heard.append)
        await asyncio.sleep(0.01)
        assert heard == []
        transport.is_open = False
        assert await _answer(link) == b"told"
        assert heard == [None]
        link.close()

    _run(ask)


def test_a_closed_link_answers_nothing_and_opens_nothing() -> None:
    async def ask(address: Address) -> None:
        link = Link(lambda: address, "a test", open_plainly)
        heard: list[bytes | None] = []
        link.ask(ASKED, heard.append)
        link.close()
        link.ask(ASKED, heard.append)
        await asyncio.sleep(0.05)
        assert heard == []

    _run(ask)


class _Sends:
    """Asks for everything at once when it starts, and keeps what happens."""

    def __init__(self) -> None:
        self.happened: list[Any] = []

    def on_start(self, now_ms: int) -> Effects:
        replies = (Reply(self._refuse, "a"), Reply(self.happened.append, "replied"))
        return Effects((Send(1, "lost"), Send(2, "sent")), replies, ("log",), now_ms + 1)

    def _refuse(self, _answer: Any) -> None:
        raise RuntimeError("the connection is gone")

    def on_request(self, _source: int, _token: Any, _request: Any, _now_ms: int) -> Effects:
        raise AssertionError

    def on_answer(self, source: int, request: Any, answer: Any, _now_ms: int) -> Effects:
        self.happened.append((source, request, answer))
        return NOTHING

    def on_timer(self, _now_ms: int) -> Effects:
        self.happened.append("woken")
        return NOTHING

    def on_flushed(self, log: str, _offset: int, _now_ms: int) -> Effects:
        self.happened.append((log, "flushed"))
        return NOTHING


class _Log:
    recovery_point = 0

    def flush(self) -> None:
        pass


def test_one_effect_that_fails_does_not_keep_the_others_from_happening() -> None:
    machine = _Sends()

    def send(to: int, request: Any, _answered: Any) -> None:
        if to == 1:
            raise RuntimeError("unable to perform operation on <TCPTransport closed=True>")
        machine.happened.append((to, request))

    async def start() -> None:
        host = Host(
            machine,
            clock=Clock(),
            send=send,
            logs=lambda _: _Log(),  # type: ignore[arg-type, return-value]
            on_failure=lambda error: pytest.fail(str(error)),
        )
        host.start()
        async with asyncio.timeout(TIMEOUT_S):
            while "woken" not in machine.happened:
                await asyncio.sleep(0.001)
        host.stop()

    asyncio.run(start())
    expected = [(2, "sent"), "replied", (1, "lost", None), ("log", "flushed"), "woken"]
    assert sorted(map(str, machine.happened)) == sorted(map(str, expected))
