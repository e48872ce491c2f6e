"""Requests that begin as the one before did are read as if each were the first."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lossless.broker.connection import Connection
from lossless.broker.server import BEGINNING_BYTES_MAX, Server
from lossless.broker.unsent import Unsent
from lossless.wire.codec import request_class
from lossless.wire.frames import Header, header_of, request
from lossless.wire.versions import APIS, BROKER, FETCH, PRODUCE


class _Transport(asyncio.Transport):
    """Leads nowhere, and tells how it ends."""

    def __init__(self) -> None:
        super().__init__()
        self.end = ""

    def get_extra_info(self, _name: str, default: Any = None) -> Any:
        return default

    def close(self) -> None:
        self.end = "closed"

    def abort(self) -> None:
        self.end = "aborted"


class _Served:
    """A listener, one connection to it, and the headers that were taken."""

    def __init__(self) -> None:
        self.taken: list[tuple[Header, Any, bytes]] = []
        self.server = Server(
            BROKER,
            "a test",
            serve={},
            take={PRODUCE: self._take, FETCH: self._take},
            frame_bytes_max=100_000,
            idle_ms_max=-1,
            unsent=Unsent(),
        )
        self.transport = _Transport()
        self.connection = Connection(self.server)
        self.connection.connection_made(self.transport)

    def _take(self, _connection: Connection, header: Header, entity: Any, frame: bytes) -> None:
        self.taken.append((header, entity, frame))

    def ask(self, frame: bytes) -> None:
        self.server.on_frame(self.connection, frame)


def _frame(key: int, version: int, number: int, client_id: str, tags: bytes = b"\0") -> bytes:
    is_flexible = request_class(key, version).__flexible__
    frame = request(key, version, number, client_id, b"", tagged=False)[4:]
    return frame + (tags if is_flexible else b"") + b"message"


_client_ids = st.sampled_from(["", "a", "ab", "b", "long" * BEGINNING_BYTES_MAX])


@given(
    asked=st.lists(
        st.tuples(
            st.sampled_from([PRODUCE, FETCH]),
            st.sampled_from([8, 9, 11, 12]),
            st.integers(-(1 << 31), (1 << 31) - 1),
            _client_ids,
            st.sampled_from([b"\0", b"\0", b"\1\5\3abc"]),
        ),
        max_size=8,
    )
)
def test_a_header_is_the_same_whatever_came_before_it(asked: list[Any]) -> None:
    frames = [(key, version, _frame(key, version, *rest)) for key, version, *rest in asked]

    async def take() -> list[Any]:
        served = _Served()
        for _, _, frame in frames:
            served.ask(frame)
            expected = served.taken[-1][0].client_id
            assert served.connection.client_id == expected
        assert not served.transport.end
        return served.taken

    assert asyncio.run(take()) == [
        (
            header_of(frame, is_flexible=request_class(key, version).__flexible__),
            request_class(key, version),
            frame,
        )
        for key, version, frame in frames
    ]


@pytest.mark.parametrize(
    "frame",
    [
        _frame(PRODUCE, 9, 2, "a")[:7],
        _frame(PRODUCE, 9, 2, "a")[:10],  # the client id is missing
        _frame(PRODUCE, 9, 2, "a", b"\1\5\x7f"),
        b"\x7f\xff" + _frame(PRODUCE, 9, 2, "a")[2:],  # no such API
        b"\0\0\0" + bytes([APIS[PRODUCE].highest + 1]) + _frame(PRODUCE, 9, 2, "a")[4:],
        b"\0\x03" + _frame(PRODUCE, 9, 2, "a")[2:],  # nobody serves it here
    ],
)
def test_what_is_no_request_is_refused_after_one_that_is(frame: bytes) -> None:
    async def take() -> tuple[int, str]:
        served = _Served()
        served.ask(_frame(PRODUCE, 9, 1, "a"))
        served.ask(frame)
        return len(served.taken), served.transport.end

    assert asyncio.run(take()) == (1, "closed")


def test_whoever_becomes_unheard_is_let_go_at_the_next_request() -> None:
    async def take() -> tuple[int, str]:
        served = _Served()
        served.ask(_frame(FETCH, 12, 1, "broker-2"))
        served.server.connections.clear()  # or it would be let go at once
        served.server.turn_deaf(frozenset({"broker-2"}))
        served.ask(_frame(FETCH, 12, 2, "broker-2"))
        return len(served.taken), served.transport.end

    assert asyncio.run(take()) == (1, "aborted")


def test_a_long_client_id_is_not_kept_twice() -> None:
    async def take() -> Any:
        served = _Served()
        served.ask(_frame(FETCH, 12, 1, "a"))
        assert served.connection.begun is not None
        served.ask(_frame(FETCH, 12, 2, "a" * BEGINNING_BYTES_MAX))
        return served.connection.begun

    assert asyncio.run(take()) is None
