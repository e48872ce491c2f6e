"""A broker that is treated badly, and the client that sees whether it minds."""

from __future__ import annotations

import contextlib
import itertools
import re
import socket
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from lossless.broker.security.login import Login
from lossless.broker.security.nodes import NODE_MECHANISM, NODE_USER
from lossless.engines.interface import ClusterSpec
from lossless.engines.local.cluster import LocalCluster
from lossless.engines.local.start import start_cluster
from lossless.engines.waiting import wait_until
from lossless.log.batch import Record, build
from lossless.wire import frames
from lossless.wire.codec import Fields, make, read, request_class, response_class, write
from lossless.wire.versions import APIS

TIMEOUT_S = 20.0
TOPIC = "served"
_HARM = re.compile(r"Traceback|never retrieved|Fatal|CRITICAL|exception was")
_ids = itertools.count(1)


def framed(key: int, version: int, fields: Fields, *, correlation_id: int = 7) -> bytes:
    entity = request_class(key, version)
    message = write(make(entity, fields))
    return frames.request(
        key, version, correlation_id, "hostile", message, tagged=entity.__flexible__
    )


class Client:
    """Speaks the protocol by hand, well or badly."""

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=TIMEOUT_S)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def send(self, data: bytes) -> None:
        """What the other end does not want any more is not sent."""
        with contextlib.suppress(ConnectionError):
            self.socket.sendall(data)

    def received(self, size: int) -> bytes | None:
        """None if the connection was closed."""
        data = bytearray()
        while len(data) < size:
            try:
                part = self.socket.recv(size - len(data))
            except ConnectionError:
                return None
            if not part:
                return None
            data += part
        return bytes(data)

    def frame(self) -> bytes | None:
        length = self.received(4)
        return None if length is None else self.received(struct.unpack(">i", length)[0])

    def answer(self, key: int, version: int) -> Any:
        """None if the connection was closed."""
        frame = self.frame()
        if frame is None:
            return None
        at = 5 if frames.has_tagged_answer(key, version) else 4
        return read(response_class(key, version), frame, at)

    def ask(self, key: int, fields: Fields, version: int | None = None) -> Any:
        version = APIS[key].highest if version is None else version
        self.send(framed(key, version, fields))
        return self.answer(key, version)

    def end(self) -> bytes:
        """No more is sent; what the other end has to say before it closes."""
        with contextlib.suppress(OSError):
            self.socket.shutdown(socket.SHUT_WR)
        data = bytearray()
        with contextlib.suppress(ConnectionError):
            while part := self.socket.recv(1 << 20):
                data += part
        return bytes(data)


@dataclass(frozen=True)
class Victim:
    cluster: LocalCluster
    folder: Path
    port: int
    controller_port: int
    pid: int

    def client(self) -> Client:
        return Client(self.port)

    def controller_client(self) -> Client:
        """Logged in as a node of the cluster: others get no further than to the login."""
        client = Client(self.controller_port)
        login = Login(NODE_MECHANISM, NODE_USER, self.cluster.plan.secret, "hostile")
        frame: bytes | None = login.first()
        while frame is not None:
            client.send(frame)
            answer = client.frame()
            assert answer is not None
            frame = login.answer(answer)
        return client

    @property
    def process(self) -> psutil.Process:
        return psutil.Process(self.pid)

    def log(self) -> str:
        return (self.folder / "broker-1" / "log" / "output.log").read_text()

    def create_topic(self, name: str, **configs: str) -> None:
        with self.client() as client:
            configs_ = [{"name": n.replace("_", "."), "value": v} for n, v in configs.items()]
            answer = client.ask(
                19,
                {
                    "topics": [
                        {
                            "name": name,
                            "num_partitions": 1,
                            "replication_factor": 1,
                            "configs": configs_,
                        }
                    ],
                    "timeout": 10_000,
                },
            )
            assert answer.topics[0].error_code.value == 0, answer

    def coordinates(self) -> bool:
        """Whether groups and transactions find who looks after them."""
        with self.client() as client:
            found = [
                client.ask(10, {"key_type": kind, "coordinator_keys": ["any"]}) for kind in (0, 1)
            ]
            group = {"group_id": "any", "topics": None}
            offsets = client.ask(9, {"groups": [group]})
            described = client.ask(65, {"transactional_ids": ["any"]})
            producer = client.ask(22, {"transactional_id": None, "transaction_timeout": 1000})
        return (
            all(answer.coordinators[0].error_code.value == 0 for answer in found)
            and offsets.groups[0].error_code.value == 0
            and described.transaction_states[0].error_code.value == 105
            and producer.error_code.value == 0
        )

    def produce(self, client: Client, topic: str, records: bytes, **fields: Any) -> Any:
        """The answer for partition 0, in version 9."""
        answer = client.ask(
            0,
            {
                "acks": -1,
                "timeout": 10_000,
                "topic_data": [
                    {"name": topic, "partition_data": [{"index": 0, "records": records}]}
                ],
                **fields,
            },
            version=9,
        )
        return None if answer is None else answer.responses[0].partition_responses[0]

    def end_offset(self, client: Client, topic: str) -> int:
        answer = client.ask(
            2,
            {
                "replica_id": -1,
                "topics": [
                    {"name": topic, "partitions": [{"partition_index": 0, "timestamp": -1}]}
                ],
            },
        )
        return int(answer.topics[0].partitions[0].offset)

    def assert_unharmed(self) -> None:
        """The same process serves a client as ever, and complains of nothing in its log."""
        assert self.process.is_running()
        with self.client() as client:
            assert client.ask(18, {}, version=0).error_code.value == 0
            value = b"record %d" % next(_ids)
            produced = self.produce(client, TOPIC, build([Record(0, 1, None, value)]).data)
            assert produced.error_code.value == 0, produced
            fetched = client.ask(
                1,
                {
                    "max_wait": 1000,
                    "min_bytes": 1,
                    "topics": [
                        {
                            "topic": TOPIC,
                            "partitions": [
                                {
                                    "partition": 0,
                                    "fetch_offset": produced.base_offset,
                                    "partition_max_bytes": 1 << 20,
                                }
                            ],
                        }
                    ],
                },
                version=12,
            )
            assert value in fetched.responses[0].partitions[0].records
        with self.controller_client() as client:
            assert client.ask(18, {}, version=0).error_code.value == 0
        harm = _HARM.search(log := self.log())
        assert harm is None, log[max(0, (harm.start() if harm else 0) - 300) :][:3000]


@contextlib.contextmanager
def running(folder: Path, **config: str) -> Iterator[Victim]:
    settings = {name.replace("_", "."): value for name, value in config.items()}
    cluster = start_cluster(
        ClusterSpec(brokers=1, config=settings), folder, engine="embedded", temporary=False
    )
    try:
        properties = (folder / "broker-1" / "server.properties").read_text()
        ports = dict(re.findall(r"(PLAINTEXT|CONTROLLER)://127\.0\.0\.1:(\d+)", properties))
        pid = cluster.status()[0].pid
        assert pid is not None
        victim = Victim(cluster, folder, int(ports["PLAINTEXT"]), int(ports["CONTROLLER"]), pid)
        victim.create_topic(TOPIC)
        assert wait_until(victim.coordinates, timeout_s=TIMEOUT_S)
        yield victim
    finally:
        cluster.stop()
