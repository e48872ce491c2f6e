"""One request to one broker, as no client library would send it, and what it answers."""

from __future__ import annotations

import itertools
import socket
from typing import Any

from lossless.core.error_codes import Error
from lossless.wire.codec import make, read, request_class, response_class, write
from lossless.wire.frames import LENGTH, has_tagged_answer, request

TIMEOUT_S = 20.0
_ids = itertools.count(1)


def ask(address: str, key: int, version: int, **fields: Any) -> Any:
    """The answer, as kio has it."""
    answer = ask_in_bytes(address, key, version, written(key, version, **fields))
    return read(response_class(key, version), answer, 5 if has_tagged_answer(key, version) else 4)


def written(key: int, version: int, **fields: Any) -> bytes:
    return write(make(request_class(key, version), fields))


def ask_in_bytes(
    address: str, key: int, version: int, message: bytes, *, tagged: bool | None = None
) -> bytes:
    """The answer's frame, correlation id first. ConnectionError if the broker hangs up."""
    number = next(_ids)
    if tagged is None:
        tagged = request_class(key, version).__flexible__
    host, _, port = address.rpartition(":")
    with socket.create_connection((host, int(port)), timeout=TIMEOUT_S) as connection:
        connection.sendall(request(key, version, number, "raw", message, tagged=tagged))
        (length,) = LENGTH.unpack(exactly(connection, LENGTH.size))
        answer = exactly(connection, length)
    assert int.from_bytes(answer[:4], "big") == number
    return answer


def error_of(answer: Any) -> Error:
    return Error(answer.error_code.value)


def exactly(connection: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        part = connection.recv(size - len(data))
        if not part:
            raise ConnectionResetError("the broker has closed the connection")
        data += part
    return data
