"""Frames come in pieces of any size, and answers that are there go out before the end."""

from __future__ import annotations

import asyncio
import itertools
import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lossless.broker.connection import Connection
from lossless.broker.links import Wire
from lossless.broker.unsent import Unsent
from lossless.wire.outgoing import Outgoing


class _Transport(asyncio.Transport):
    """Takes what is written and goes nowhere."""

    def __init__(self) -> None:
        super().__init__()
        self.is_aborted = False
        self.is_closed = False

    def get_extra_info(self, _name: str, default: Any = None) -> Any:
        return default

    def write(self, _data: Any) -> None:
        pass

    def writelines(self, _pieces: Any) -> None:
        pass

    def abort(self) -> None:
        self.is_aborted = True

    def is_closing(self) -> bool:
        return self.is_aborted or self.is_closed

    def close(self) -> None:
        self.is_closed = True


def _answer(number: int, body: bytes, *, is_flexible: bool) -> bytes:
    told = struct.pack(">i", number) + (b"\0" if is_flexible else b"") + body
    return struct.pack(">i", len(told)) + told


def _come(link: Wire, data: bytes) -> None:
    """As a loop reads it."""
    while data:
        buffer = link.get_buffer(-1)
        size = min(len(buffer), len(data))
        buffer[:size] = data[:size]
        link.buffer_updated(size)
        data = data[size:]


async def _link(questions: list[bool], heard: list[Any]) -> tuple[Wire, _Transport]:
    link = Wire("a test")
    transport = _Transport()
    link.connection_made(transport)
    for is_flexible in questions:
        asked = Outgoing(3, 12, is_flexible, b"", lambda frame, at: frame[at:])
        link.ask(asked, heard.append)
    return link, transport


@given(
    answers=st.lists(st.tuples(st.binary(max_size=40), st.booleans()), min_size=1, max_size=6),
    cuts=st.lists(st.integers(0, 400), max_size=12),
)
def test_answers_are_the_same_however_they_are_cut(
    answers: list[tuple[bytes, bool]], cuts: list[int]
) -> None:
    stream = b"".join(
        _answer(number, body, is_flexible=is_flexible)
        for number, (body, is_flexible) in enumerate(answers, start=1)
    )
    places = [0, *sorted(min(cut, len(stream)) for cut in cuts), len(stream)]

    async def hear() -> list[Any]:
        heard: list[Any] = []
        link, _ = await _link([is_flexible for _, is_flexible in answers], heard)
        for start, end in itertools.pairwise(places):
            if start < end:
                _come(link, stream[start:end])
        link.close()
        return heard

    assert asyncio.run(hear()) == [body for body, _ in answers]


def test_an_answer_to_another_question_ends_the_connection_and_counts_as_none() -> None:
    async def hear() -> tuple[list[Any], bool]:
        heard: list[Any] = []
        link, transport = await _link([False], heard)
        _come(link, _answer(7, b"not yours", is_flexible=False))
        link.close()
        return heard, transport.is_aborted

    assert asyncio.run(hear()) == ([None], True)


def test_an_answer_nobody_asked_for_ends_the_connection() -> None:
    async def hear() -> tuple[list[Any], bool]:
        heard: list[Any] = []
        link, transport = await _link([], heard)
        _come(link, _answer(1, b"unasked", is_flexible=False))
        link.close()
        return heard, transport.is_aborted

    assert asyncio.run(hear()) == ([], True)


class _Hears:
    name = "a test"
    frame_bytes_max = 50_000

    def __init__(self) -> None:
        self.heard: list[bytes] = []
        self.unsent = Unsent()

    def on_open(self, connection: Connection) -> None:
        pass

    def on_frame(self, _connection: Connection, frame: bytes) -> None:
        self.heard.append(frame)

    def on_close(self, connection: Connection) -> None:
        pass


@given(
    sizes=st.lists(st.integers(1, 100) | st.integers(16_000, 40_000), min_size=1, max_size=5),
    cuts=st.lists(st.integers(0, 200_000), max_size=12),
    is_cut_between=st.booleans(),
)
def test_requests_are_the_same_however_they_are_cut(
    sizes: list[int], cuts: list[int], is_cut_between: bool
) -> None:
    requests = [bytes([number]) * size for number, size in enumerate(sizes)]
    framed = [struct.pack(">i", len(request)) + request for request in requests]
    stream = b"".join(framed)
    if is_cut_between:
        cuts = list(itertools.accumulate(map(len, framed)))
    places = [0, *sorted(min(cut, len(stream)) for cut in cuts), len(stream)]

    async def hear() -> list[bytes]:
        hears = _Hears()
        connection = Connection(hears)
        connection.connection_made(_Transport())
        for start, end in itertools.pairwise(places):
            while start < end:
                buffer = connection.get_buffer(-1)
                size = min(len(buffer), end - start)
                buffer[:size] = stream[start : start + size]
                connection.buffer_updated(size)
                start += size
        return hears.heard

    assert asyncio.run(hear()) == requests


@pytest.mark.parametrize("length", [0, -1, 50_001, 0x7FFFFFFF])
def test_a_frame_of_no_length_or_of_too_much_ends_the_connection(length: int) -> None:
    async def hear() -> tuple[list[bytes], bool]:
        hears = _Hears()
        connection = Connection(hears)
        transport = _Transport()
        connection.connection_made(transport)
        data = struct.pack(">i", length) + bytes(max(0, min(length, 60_000)))
        connection.get_buffer(-1)[: len(data)] = data
        connection.buffer_updated(len(data))
        return hears.heard, transport.is_closed

    assert asyncio.run(hear()) == ([], True)


class _AnswersAndCloses:
    name = "a test"
    frame_bytes_max = 1000
    unsent = Unsent()

    def on_open(self, connection: Connection) -> None:
        pass

    def on_frame(self, connection: Connection, frame: bytes) -> None:
        connection.slot().fill([b"answer to ", frame])
        connection.close()

    def on_close(self, connection: Connection) -> None:
        pass


def test_what_was_answered_goes_out_before_a_connection_is_closed() -> None:
    async def ask() -> bytes:
        loop = asyncio.get_running_loop()
        server = await loop.create_server(lambda: Connection(_AnswersAndCloses()), "127.0.0.1", 0)
        async with server:
            reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
            writer.write(struct.pack(">i", 5) + b"hello")
            told = await reader.read()
            writer.close()
            await writer.wait_closed()
            return told

    assert asyncio.run(ask()) == b"answer to hello"
