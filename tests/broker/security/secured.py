"""Clients of secured clusters, and what they saw."""

from __future__ import annotations

import asyncio
import logging
import socket
import struct
import threading
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient

from lossless.broker.loop import new_event_loop
from lossless.broker.meta import write_meta
from lossless.broker.node import Node, NodeConfig
from lossless.broker.security.nodes import node_settings
from lossless.core.metadata import Image
from lossless.core.settings.deviations import with_deviations
from lossless.engines.waiting import wait_until
from lossless.wire import frames
from lossless.wire.codec import Fields
from lossless.wire.outgoing import outgoing

PATIENCE_S = 60.0
USERS = {"admin": "admin-secret", "alice": "alice-secret", "bob": "bob,secret"}
_QUIET = logging.getLogger("tests.librdkafka")
_QUIET.addHandler(logging.NullHandler())
_QUIET.propagate = False

Settings = Mapping[str, str]


def login(servers: str, user: str, password: str, mechanism: str = "SCRAM-SHA-256") -> Settings:
    """By librdkafka's names."""
    return {
        "bootstrap.servers": servers,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": mechanism,
        "sasl.username": user,
        "sasl.password": password,
    }


def admin_of(settings: Settings) -> AdminClient:
    return AdminClient(dict(settings), logger=_QUIET)


def sent(settings: Settings, topic: str, *values: str, **more: str) -> list[KafkaError | None]:
    """What became of each record."""
    told: list[KafkaError | None] = []
    producer = Producer(
        {**settings, "acks": "all", "message.timeout.ms": "40000", **more}, logger=_QUIET
    )
    for value in values:
        producer.produce(topic, value, on_delivery=lambda error, _: told.append(error))
    producer.flush(PATIENCE_S)
    return told


def send_error(settings: Settings, topic: str) -> int:
    (error,) = sent(settings, topic, "refused")
    assert error is not None
    return int(error.code())


def received(settings: Settings, topic: str, count: int, group: str) -> list[str]:
    """KafkaException if something is refused on the way."""
    consumer = Consumer(
        {**settings, "group.id": group, "auto.offset.reset": "earliest"}, logger=_QUIET
    )
    try:
        consumer.subscribe([topic])
        found: list[str] = []
        for _ in range(int(PATIENCE_S / 0.2)):
            message = consumer.poll(0.2)
            if message is None:
                continue
            if error := message.error():
                raise KafkaException(error)
            found.append((message.value() or b"").decode())
            if len(found) == count:
                break
        return found
    finally:
        consumer.close()


def error_code(act: Callable[[], Any]) -> int:
    """Of what a client is refused with; 0 if it is not."""
    try:
        act()
    except KafkaException as error:
        return int(error.args[0].code())
    return 0


def result(futures: Mapping[Any, Any]) -> Any:
    """Of a request to an administrator about one thing."""
    (future,) = futures.values()
    return future.result(timeout=PATIENCE_S)


def is_refused(settings: Settings, code: int | None = None) -> bool:
    """Of a client that only wants to know who is there: whether it hears of this error, or any."""
    told: list[KafkaError] = []
    client = AdminClient({**settings, "error_cb": told.append}, logger=_QUIET)

    def is_told() -> bool:
        client.poll(0.05)
        return any(code in (None, error.code()) for error in told)

    return wait_until(is_told, timeout_s=PATIENCE_S)


# Requests by hand


class Raw:
    """One connection, without a client."""

    def __init__(self, address: str) -> None:
        host, _, port = address.rpartition(":")
        self._socket = socket.create_connection((host, int(port)), timeout=PATIENCE_S)

    def __enter__(self) -> Raw:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def log_in(self, user: str) -> None:
        self.ask(17, 1, {"mechanism": "PLAIN"})
        answer = self.ask(36, 2, {"auth_bytes": f"\0{user}\0{USERS[user]}".encode()})
        assert answer is not None
        assert answer.error_code.value == 0

    def ask(self, key: int, version: int, fields: Fields) -> Any | None:
        """None if the connection is closed instead."""
        asked = outgoing(key, version, fields)
        frame = frames.request(key, version, 1, "raw", asked.message, tagged=asked.is_flexible)
        self._socket.sendall(frame)
        length = self._receive(4)
        if length is None:
            return None
        answer = self._receive(*struct.unpack(">i", length))
        assert answer is not None
        return asked.read(answer, 5 if frames.has_tagged_answer(key, version) else 4)

    def send(self, data: bytes) -> None:
        self._socket.sendall(data)

    @property
    def is_closed(self) -> bool:
        return self._receive(1) is None

    def _receive(self, size: int) -> bytes | None:
        received = b""
        while len(received) < size:
            try:
                chunk = self._socket.recv(size - len(received))
            except ConnectionResetError:
                return None
            if not chunk:
                return None
            received += chunk
        return received


# A node with listeners as one likes


class LoneNode:
    """A broker that is its own controller, on a thread of this process."""

    def __init__(self, folder: Path, listeners: Iterable[str], **properties: str) -> None:
        ports = _free_ports([*listeners, "CONTROLLER"])
        self.addresses = {name: f"127.0.0.1:{port}" for name, port in ports.items()}
        write_meta(folder, "MkU3OEVBNTcwNTJENDM2Qg")
        given = {
            "node.id": "1",
            "process.roles": "broker,controller",
            "log.dirs": str(folder),
            "controller.quorum.voters": f"101@{self.addresses['CONTROLLER']}",
            **node_settings("secret of the cluster"),
            "listeners": ",".join(f"{name}://{at}" for name, at in self.addresses.items()),
            **{name.replace("__", "-").replace("_", "."): v for name, v in properties.items()},
        }
        self._loop = new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever)
        self._thread.start()
        self._node = asyncio.run_coroutine_threadsafe(
            self._start(with_deviations(given, brokers=1)), self._loop
        ).result()
        assert wait_until(self._is_open, timeout_s=PATIENCE_S)

    def _is_open(self) -> bool:
        """Clients are let in a moment after the start."""
        for address in self.addresses.values():
            host, _, port = address.rpartition(":")
            try:
                socket.create_connection((host, int(port)), PATIENCE_S).close()
            except ConnectionRefusedError:
                return False
        return True

    async def _start(self, properties: Mapping[str, str]) -> Node:
        node = Node(NodeConfig.from_properties(properties), lambda _: None)
        await node.start()
        return node

    @property
    def image(self) -> Image:
        assert self._node.broker is not None
        return self._node.broker.image

    def stop(self) -> None:
        async def stop() -> None:
            self._node.stop()
            others = asyncio.all_tasks() - {asyncio.current_task()}
            for task in others:
                task.cancel()
            await asyncio.gather(*others, return_exceptions=True)

        asyncio.run_coroutine_threadsafe(stop(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


def _free_ports(names: list[str]) -> dict[str, int]:
    probes = {name: socket.socket() for name in names}
    try:
        for probe in probes.values():
            probe.bind(("127.0.0.1", 0))
        return {name: probe.getsockname()[1] for name, probe in probes.items()}
    finally:
        for probe in probes.values():
            probe.close()
