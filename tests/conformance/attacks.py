"""Hostile requests, and what becomes of them on each engine: the table in docs/cluster.md.

A test runs every attack on both engines and compares the table with what it has seen.
"""

from __future__ import annotations

import socket
import struct
import zlib
from collections.abc import Callable
from typing import NamedTuple

from subject import Subject, batch, produced

from default_batches import sealed
from lossless.log.compression import Compression, compressed
from lossless.wire.encoding import varint
from one_request import TIMEOUT_S, error_of, written

CLOSED, ANSWERED, CREATED = "connection closed", "answered", "created"
STOPPED = "no request is answered for 97 s"  # measured once, by hand
_INVALID = ("INVALID_RECORD", "INVALID_RECORD")
METADATA, ALTER_CONFIGS, GROUP_HEARTBEAT = 3, 33, 68
_ONE_RECORD = batch("v")[61:]

Run = Callable[[Subject, str], str]  # with the name of a topic: what becomes of it


class Attack(NamedTuple):
    name: str
    run: Run
    embedded: str
    apache: str


def _poison(body: bytes, kind: Compression = Compression.NONE, count: int = 1) -> Run:
    """Produces a batch with a right checksum that says that it holds so many records."""

    def run(kafka: Subject, topic: str) -> str:
        data = bytearray(batch("v")[:61] + body)
        struct.pack_into(">i", data, 8, len(data) - 12)
        struct.pack_into(">hi", data, 21, kind, count - 1)
        struct.pack_into(">i", data, 57, count)
        answer = produced(kafka.leader(topic), topic, bytes(sealed(data).data))
        return error_of(answer).name

    return run


def _sent(frame: Callable[[str], bytes]) -> Run:
    """Sends a frame, and waits for an answer or for the end of the connection."""

    def run(kafka: Subject, topic: str) -> str:
        host, _, port = kafka.addresses()[0].rpartition(":")
        with socket.create_connection((host, int(port)), timeout=TIMEOUT_S) as connection:
            try:
                connection.sendall(frame(topic))
                return ANSWERED if connection.recv(1) else CLOSED
            except ConnectionError:
                return CLOSED

    return run


def _framed(key: int, version: int, after_header: bytes, *, tags: bytes = b"\0") -> bytes:
    content = struct.pack(">hhi", key, version, 7) + b"\0\0" + tags + after_header
    return struct.pack(">i", len(content)) + content


def _names(topic: str) -> bytes:
    topics = [{"name": f"{topic}-{number}"} for number in range(49_000)]
    fields = written(METADATA, 12, topics=topics, allow_auto_topic_creation=False)
    return _framed(METADATA, 12, fields)


def _long_name(topic: str) -> bytes:
    config = {"name": "x" * 0x7FFF, "value": "1"}
    resource = {"resource_type": 2, "resource_name": topic, "configs": [config]}
    return _framed(ALTER_CONFIGS, 2, written(ALTER_CONFIGS, 2, resources=[resource]))


def _expression(topic: str) -> bytes:
    fields = {
        "group_id": topic,
        "member_id": topic,
        "member_epoch": 0,
        "rebalance_timeout": 5000,
        "subscribed_topic_names": [],
        "subscribed_topic_regex": "(a+)+$",
        "topic_partitions": [],
    }
    return _framed(GROUP_HEARTBEAT, 1, written(GROUP_HEARTBEAT, 1, **fields))


def _longest_topic(kafka: Subject, topic: str) -> str:
    name = topic.ljust(249, "x")
    kafka.send(name, "v")  # it comes into being
    return CREATED if kafka.values(name) == ["v"] else "lost"


def _bomb() -> bytes:
    packer = zlib.compressobj(9, zlib.DEFLATED, 31)
    return b"".join(packer.compress(bytes(1 << 20)) for _ in range(700)) + packer.flush()


ATTACKS = (
    Attack("a batch of -1 records", _poison(_ONE_RECORD, count=-1), *_INVALID),
    Attack("5 records that hold one", _poison(_ONE_RECORD, count=5), *_INVALID),
    Attack(
        "5 records that hold one, under lz4",
        _poison(compressed(Compression.LZ4, _ONE_RECORD), Compression.LZ4, 5),
        *_INVALID,
    ),
    *(
        Attack(
            f"garbage under {kind.name.lower()}",
            _poison(b"\xff" * 99, kind),
            "INVALID_RECORD",
            "UNKNOWN_SERVER_ERROR",
        )
        for kind in Compression
        if kind
    ),
    Attack(
        "700 MB of zeros under gzip",
        _poison(_bomb(), Compression.GZIP),
        "MESSAGE_TOO_LARGE",
        "INVALID_RECORD",
    ),
    Attack(
        "2³¹ tagged fields announced in a header, then 20 MB of zeros",
        _sent(lambda _: _framed(METADATA, 12, bytes(20 << 20), tags=varint(0x7FFFFFFF))),
        CLOSED,
        STOPPED,
    ),
    Attack(
        "2³¹ topics announced in a request of 30 bytes",
        _sent(lambda _: _framed(METADATA, 12, varint(0x7FFFFFFF) + bytes(5))),
        CLOSED,
        CLOSED,
    ),
    Attack("a frame of -1 bytes", _sent(lambda _: struct.pack(">i", -1)), CLOSED, CLOSED),
    Attack("metadata of 49,000 names", _sent(_names), CLOSED, ANSWERED),
    Attack("a setting with a name of 32 KB", _sent(_long_name), ANSWERED, ANSWERED),
    Attack("a subscription to `(a+)+$`", _sent(_expression), ANSWERED, ANSWERED),
    Attack("a topic with a name of 249 letters", _longest_topic, CREATED, CREATED),
)


def render() -> str:
    """The table in docs/cluster.md."""
    rows = "".join(f"| {one.name} | {one.embedded} | {one.apache} |\n" for one in ATTACKS)
    return f"| what is sent | embedded | Apache Kafka 4.1 |\n|---|---|---|\n{rows}"
