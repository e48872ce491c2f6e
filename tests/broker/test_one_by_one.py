"""Requests for everything that a node knows are served one by one, whatever a client sends."""

from __future__ import annotations

import asyncio
import socket
from typing import Any

import pytest

from lossless.broker.server import Server
from lossless.broker.unsent import Unsent
from lossless.wire.codec import Fields, make, request_class, write
from lossless.wire.context import Call
from lossless.wire.frames import LENGTH, request
from lossless.wire.versions import APIS, BROKER

COUNT = 10
METADATA, LIST_GROUPS, DESCRIBE_CLUSTER = 3, 16, 60


class _Serving:
    """Takes several turns of the event loop for each request."""

    def __init__(self) -> None:
        self.at_once = self.most_at_once = 0

    async def serve(self, _call: Call) -> Fields:
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        for _ in range(10):
            await asyncio.sleep(0)
        self.at_once -= 1
        return {}


async def _ask(key: int) -> int:
    """Sends many requests at once and returns how many were served at the same time."""
    serving = _Serving()
    server = Server(
        BROKER,
        "a test",
        serve={key: serving.serve},
        take={},
        frame_bytes_max=100_000,
        idle_ms_max=-1,
        unsent=Unsent(),
    )
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    await server.start("127.0.0.1", port)
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(b"".join(_framed(key, number) for number in range(COUNT)))
        for _ in range(COUNT):
            (length,) = LENGTH.unpack(await reader.readexactly(LENGTH.size))
            await reader.readexactly(length)
    finally:
        writer.close()
        server.stop()
    return serving.most_at_once


def _framed(key: int, number: int) -> bytes:
    version = APIS[key].lowest
    entity = request_class(key, version)
    fields: dict[str, Any] = {}
    return request(
        key, version, number, "client", write(make(entity, fields)), tagged=entity.__flexible__
    )


@pytest.mark.parametrize(
    ("key", "most"), [(METADATA, 1), (LIST_GROUPS, 1), (DESCRIBE_CLUSTER, COUNT)]
)
def test_requests_for_everything_are_served_one_by_one(key: int, most: int) -> None:
    assert asyncio.run(_ask(key)) == most
