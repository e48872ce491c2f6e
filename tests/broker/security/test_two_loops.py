"""Two clusters in one process have two event loops, on two threads, and share no memory to read
into: what one client sends must not turn up in another's request."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

from lossless.broker.connection import Connection
from lossless.broker.unsent import Unsent


class Nobody:
    name = "PLAINTEXT"
    frame_bytes_max = 1 << 20
    unsent = Unsent()

    def on_open(self, connection: Connection) -> None: ...

    def on_frame(self, connection: Connection, frame: bytes) -> None: ...

    def on_close(self, connection: Connection) -> None: ...


def buffers_of_a_loop() -> list[Any]:
    """What two connections of one loop read into."""

    async def opened() -> list[Any]:
        return [Connection(Nobody()).get_buffer(-1).obj for _ in range(2)]

    return asyncio.run(opened())


def test_connections_of_one_loop_share_a_buffer_and_those_of_two_do_not() -> None:
    found: list[list[Any]] = []
    threads = [threading.Thread(target=lambda: found.append(buffers_of_a_loop())) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    (one, same), (other, _) = found
    assert one is same
    assert one is not other
