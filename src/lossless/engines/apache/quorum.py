"""Which controller leads the quorum, asked with Kafka's DescribeQuorum (API 55, version 0).

confluent-kafka has no call for it, and Kafka's own tool costs the start of a JVM. Brokers hand the
question on to the active controller, so whoever answers, the answer is the controller's own.
"""

from __future__ import annotations

import socket
import struct

_API_KEY, _VERSION, _CORRELATION_ID = 55, 0, 1
_TOPIC, _CLIENT_ID = b"__cluster_metadata", b"lossless"


def quorum_leader(host: str, port: int, *, timeout_s: float = 2.0) -> int | None:
    """The active controller's node id; nothing when nobody could tell in time."""
    try:
        with socket.create_connection((host, port), timeout=timeout_s) as connection:
            connection.sendall(_request())
            (size,) = struct.unpack(">i", _receive(connection, 4))
            return _leader(_receive(connection, size))
    except (OSError, struct.error, IndexError):
        return None


def _request() -> bytes:
    # Compact strings and arrays carry their length plus one; a zero byte ends each structure.
    header = struct.pack(">hhih", _API_KEY, _VERSION, _CORRELATION_ID, len(_CLIENT_ID))
    partitions = b"\x02" + struct.pack(">i", 0) + b"\x00"
    topics = b"\x02" + bytes([len(_TOPIC) + 1]) + _TOPIC + partitions + b"\x00"
    request = header + _CLIENT_ID + b"\x00" + topics + b"\x00"
    return struct.pack(">i", len(request)) + request


def _leader(response: bytes) -> int | None:
    # correlation id, header's end, error; one topic with its name; one partition: index, error.
    (error,) = struct.unpack_from(">h", response, 5)
    if error != 0 or response[7] != 2:
        return None
    start = 9 + response[8] - 1
    if response[start] != 2:
        return None
    _index, error, leader = struct.unpack_from(">ihi", response, start + 1)
    return int(leader) if error == 0 and leader >= 0 else None


def _receive(connection: socket.socket, size: int) -> bytes:
    received = b""
    while len(received) < size:
        chunk = connection.recv(size - len(received))
        if not chunk:
            raise ConnectionError("closed before the answer was complete")
        received += chunk
    return received
