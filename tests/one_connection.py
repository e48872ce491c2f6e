"""One connection to one broker, and requests on it under one client id."""

from __future__ import annotations

import socket
from typing import Any, Self

from lossless.wire.codec import read, request_class, response_class
from lossless.wire.frames import LENGTH, has_tagged_answer, request
from one_request import TIMEOUT_S, exactly, written


class OneConnection:
    def __init__(self, address: str, client_id: str) -> None:
        host, _, port = address.rpartition(":")
        self._client_id = client_id
        self._socket = socket.create_connection((host, int(port)), timeout=TIMEOUT_S)
        self._number = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def send(self, key: int, version: int, **fields: Any) -> None:
        self._number += 1
        message = written(key, version, **fields)
        tagged = request_class(key, version).__flexible__
        frame = request(key, version, self._number, self._client_id, message, tagged=tagged)
        self._socket.sendall(frame)

    def ask(self, key: int, version: int, **fields: Any) -> Any:
        """The answer, as kio has it."""
        self.send(key, version, **fields)
        (length,) = LENGTH.unpack(exactly(self._socket, LENGTH.size))
        answer = exactly(self._socket, length)
        at = 5 if has_tagged_answer(key, version) else 4
        return read(response_class(key, version), answer, at)
