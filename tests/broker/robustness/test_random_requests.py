"""Requests made by chance, for a while: no node ends, nobody waits long, memory stays bounded.

`LOSSLESS_FUZZ_S` says for how many seconds (`make soak`: 1,800), `LOSSLESS_FUZZ_SEED` what is sent.
How long others wait is counted in CPU time of the broker: a machine may be busy with other things.
"""

from __future__ import annotations

import contextlib
import os
import random
import re
import select
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from random_requests import RandomRequests, Request
from victim import Client

from lossless.engines.interface import ClusterSpec
from lossless.engines.local.start import start_cluster
from lossless.engines.waiting import wait_until
from lossless.log.batch import Record, build
from lossless.wire import frames
from lossless.wire.bounds import BadMessage
from lossless.wire.codec import read, response_class
from lossless.wire.versions import API_VERSIONS, APIS

SECONDS = float(os.environ.get("LOSSLESS_FUZZ_S", "30"))
SEED = int(os.environ.get("LOSSLESS_FUZZ_SEED") or random.randrange(1 << 32))
BROKERS = 3
TURN_S_MAX = 0.5
MEMORY_MAX = 700 << 20
TIMEOUT_S = 60.0
TOPICS = ("first", "second", "third")
HARM = re.compile(r"Traceback|never retrieved|Fatal|CRITICAL|exception was")
CREATE_TOPICS, PRODUCE = 19, 0


class Node(NamedTuple):
    number: int
    port: int
    pid: int
    log: Path

    def cpu_s(self) -> float:
        return int(Path(f"/proc/{self.pid}/schedstat").read_text().split()[0]) / 1e9

    def memory_peak(self) -> int:
        status = Path(f"/proc/{self.pid}/status").read_text()
        return int(re.findall(r"VmHWM:\s+(\d+)", status)[0]) * 1024

    def harm(self) -> str | None:
        log = self.log.read_text()
        found = HARM.search(log)
        return log[max(0, found.start() - 300) :][:3000] if found else None


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[list[Node]]:
    folder = tmp_path / "cluster"
    cluster = start_cluster(
        ClusterSpec(brokers=BROKERS), folder, engine="embedded", temporary=False
    )
    try:
        found = []
        for row in cluster.status()[:BROKERS]:
            assert row.pid is not None
            one = folder / f"broker-{row.broker}"
            properties = (one / "server.properties").read_text()
            (port,) = re.findall(r"(?<!CONTROLLER)://127\.0\.0\.1:(\d+)", properties)[:1]
            found.append(Node(row.broker, int(port), row.pid, one / "log" / "output.log"))
        with Client(found[0].port) as client:
            for name in TOPICS:
                _create(client, name)
        yield found
    finally:
        cluster.stop()


def _create(client: Client, name: str) -> bool:
    configs = [{"name": "min.insync.replicas", "value": "1"}]
    configs += [{"name": "max.message.bytes", "value": "1000000"}]
    topic = {"name": name, "num_partitions": 2, "replication_factor": 3, "configs": configs}
    answer = client.ask(CREATE_TOPICS, {"topics": [topic], "timeout": 10_000})
    return answer is not None and answer.topics[0].error_code.value in (0, 36)


def _serves(nodes: list[Node], topic: str) -> bool:
    """Whether a record that is sent to a new topic is acknowledged by a broker."""
    batch = build([Record(0, int(time.time() * 1000), b"k", b"v")]).data
    partition = {"index": 0, "records": batch}
    fields = {"topic_data": [{"name": topic, "partition_data": [partition]}]}
    for node in nodes:
        with Client(node.port) as client:
            if not _create(client, topic):
                continue
            answer = client.ask(PRODUCE, {"acks": 1, "timeout": 10_000, **fields}, version=9)
            if answer is None:
                continue
            if answer.responses[0].partition_responses[0].error_code.value == 0:
                return True
    return False


class _Attack:
    """One broker, a connection that asks it for little, and others that are treated badly."""

    def __init__(self, node: Node, requests: RandomRequests) -> None:
        self.node = node
        self._requests = requests
        self._probe = Client(node.port)
        self._client = Client(node.port)
        self.longest_s = 0.0
        self.longest = ""  # what took so long

    def send(self, request: Request) -> None:
        if request.is_mutated:  # the connection may be closed, or wait for what never comes
            self._client.socket.close()
            self._client = Client(self.node.port)
        self._client.send(request.frame)
        for _ in range(3):  # some are not answered at once, and some not at all
            waited_s = self._waited_s()
            if waited_s > self.longest_s:
                self.longest_s = waited_s
                name = APIS[request.key].name
                self.longest = f"{name} {request.version}, {len(request.frame)} bytes"
            assert waited_s < TURN_S_MAX, f"{waited_s:.2f} s: {self.longest}"
            if select.select([self._client.socket], [], [], 0.002)[0]:
                self._receive(request)
                return
        self._client.socket.close()
        self._client = Client(self.node.port)

    def _waited_s(self) -> float:
        """The CPU time that a small request of somebody else had to wait for."""
        before = self.node.cpu_s()
        answer = self._probe.ask(API_VERSIONS, {}, version=0)
        assert answer is not None, self.node.log.read_text()[-3000:]
        return self.node.cpu_s() - before

    def _receive(self, request: Request) -> None:
        frame = self._client.frame()
        if frame is None:
            self._client.socket.close()
            self._client = Client(self.node.port)
        elif not request.is_mutated and len(frame) < 100_000:
            at = 5 if frames.has_tagged_answer(request.key, request.version) else 4
            with contextlib.suppress(BadMessage):  # kio does not read a time of -1 everywhere
                self._requests.learn(read(response_class(request.key, request.version), frame, at))

    def close(self) -> None:
        self._probe.socket.close()
        self._client.socket.close()


@pytest.mark.timeout(300 + 2 * SECONDS)
def test_requests_made_by_chance_leave_a_cluster_as_it_was(nodes: list[Node]) -> None:
    print(f"LOSSLESS_FUZZ_SEED={SEED}")
    chance = random.Random(SEED)
    requests = RandomRequests(chance, TOPICS)
    attacks = [_Attack(node, requests) for node in nodes]
    until_s = time.monotonic() + SECONDS
    sent = 0
    while time.monotonic() < until_s:
        chance.choice(attacks).send(requests.next())
        sent += 1
    for attack in attacks:
        attack.close()
    longest_s, longest = max((attack.longest_s, attack.longest) for attack in attacks)
    memory = max(node.memory_peak() for node in nodes)
    print(f"{sent} requests; the longest took {longest_s:.3f} s: {longest}; {memory >> 20} MB")
    for node in nodes:
        harm = node.harm()
        assert harm is None, f"broker {node.number}: {harm}"
    assert memory < MEMORY_MAX
    assert wait_until(lambda: _serves(nodes, "afterwards"), timeout_s=TIMEOUT_S)
