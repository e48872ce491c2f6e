"""Three embedded brokers in processes of their own."""

from __future__ import annotations

import contextlib
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from confluent_kafka.admin import AdminClient, NewTopic
from confluent_kafka.error import KafkaException

from lossless.broker.meta import write_meta
from lossless.broker.security.nodes import node_settings
from lossless.core.settings.deviations import with_deviations
from topics import create_new

NODES = (1, 2, 3)
START_S_MAX = 30.0


class Embedded:
    """A running cluster."""

    def __init__(self, ports: dict[int, int]) -> None:
        self.ports = ports
        self.bootstrap_servers = ",".join(f"127.0.0.1:{port}" for port in ports.values())
        self.admin = AdminClient({"bootstrap.servers": self.bootstrap_servers, "log_level": 0})

    def is_up(self) -> bool:
        with contextlib.suppress(KafkaException):
            return len(self.admin.list_topics(timeout=1).brokers) == len(self.ports)
        return False

    def create_topic(self, name: str) -> None:
        """One partition, on all three brokers."""
        new = NewTopic(name, 1, 3, config={"min.insync.replicas": "2"})
        create_new(self.admin, new)

    def leader_of(self, topic: str) -> int:
        deadline = time.monotonic() + START_S_MAX
        while True:
            known = self.admin.list_topics(topic, timeout=10).topics[topic].partitions
            if 0 in known and known[0].leader > 0:
                leader: int = known[0].leader
                return leader
            assert time.monotonic() < deadline, f"{topic} has no leader"


@contextlib.contextmanager
def running(folder: Path) -> Iterator[Embedded]:
    numbers = _free_ports(2 * len(NODES))
    ports = dict(zip(NODES, numbers, strict=False))
    controller_ports = dict(zip(NODES, numbers[len(NODES) :], strict=True))
    with contextlib.ExitStack() as stack:
        for node in NODES:
            file = _properties(folder / f"node-{node}", node, ports[node], controller_ports)
            log = stack.enter_context((file.parent / "log").open("wb"))
            process = subprocess.Popen(
                [sys.executable, "-m", "lossless.broker", str(file)],
                stdout=log,
                stderr=subprocess.STDOUT,
            )
            stack.callback(_stop, process)
        cluster = Embedded(ports)
        deadline = time.monotonic() + START_S_MAX
        while not cluster.is_up():
            assert time.monotonic() < deadline, (folder / "node-1" / "log").read_text()[-2000:]
        yield cluster


def _properties(folder: Path, node: int, port: int, controller_ports: dict[int, int]) -> Path:
    write_meta(folder / "data", "MkU3OEVBNTcwNTJENDM2Qg")
    voters = (f"{100 + number}@127.0.0.1:{at}" for number, at in controller_ports.items())
    plain, controller = f"127.0.0.1:{port}", f"127.0.0.1:{controller_ports[node]}"
    properties = {
        "node.id": str(node),
        "process.roles": "broker,controller",
        "log.dirs": str(folder / "data"),
        "controller.quorum.voters": ",".join(voters),
        "listeners": f"PLAINTEXT://{plain},CONTROLLER://{controller}",
        "advertised.listeners": f"PLAINTEXT://{plain}",
        "controller.listener.names": "CONTROLLER",
        **node_settings("secret of the cluster"),
    }
    file = folder / "server.properties"
    lines = with_deviations(properties, brokers=len(NODES)).items()
    file.write_text("".join(f"{name}={value}\n" for name, value in lines))
    return file


def _free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as stack:
        held = [
            stack.enter_context(contextlib.closing(socket.create_server(("127.0.0.1", 0))))
            for _ in range(count)
        ]
        return [listener.getsockname()[1] for listener in held]


def _stop(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(5)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
