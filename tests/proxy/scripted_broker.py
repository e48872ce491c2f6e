"""A broker that answers what a test tells it to, for what no real broker does on demand."""

from __future__ import annotations

import socket
import socketserver
import threading
from collections.abc import Callable
from typing import Any, Self

from lossless.wire.codec import make, request_class, response_class, write
from lossless.wire.frames import has_tagged_answer, peek, request, response

Answer = Callable[[socket.socket, int, int, int], bytes | None]


class ScriptedBroker:
    """`answer(connection, key, version, correlation id)`: None closes the connection."""

    def __init__(self, answer: Answer) -> None:
        self.connections = 0

        class Handler(socketserver.BaseRequestHandler):
            def handle(handler) -> None:  # noqa: N805
                self.connections += 1
                while (frame := read_frame(handler.request)) is not None:
                    told = answer(handler.request, *peek(frame[4:]))
                    if told is None:
                        return
                    handler.request.sendall(told)

        self._server = socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))
        self.port: int = self._server.server_address[1]

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


def read_frame(connection: socket.socket) -> bytes | None:
    head = _read(connection, 4)
    body = None if head is None else _read(connection, int.from_bytes(head, "big"))
    return None if head is None or body is None else head + body


def _read(connection: socket.socket, size: int) -> bytes | None:
    data = bytearray()
    while len(data) < size:
        try:
            part = connection.recv(min(1 << 20, size - len(data)))
        except ConnectionError:
            return None
        if not part:
            return None
        data += part
    return bytes(data)


def answer_of(key: int, version: int, correlation_id: int, fields: dict[str, Any]) -> bytes:
    message = write(make(response_class(key, version), fields))
    return response(correlation_id, message, tagged=has_tagged_answer(key, version))


def request_of(
    key: int, version: int, correlation_id: int, fields: dict[str, Any], client_id: str = "c"
) -> bytes:
    entity = request_class(key, version)
    message = write(make(entity, fields))
    tagged = bool(entity.__flexible__)
    return request(key, version, correlation_id, client_id, message, tagged=tagged)
