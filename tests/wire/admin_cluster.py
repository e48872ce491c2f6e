"""Real nodes in this process, on a thread with their event loop, and questions to them."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections.abc import Callable, Coroutine
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from lossless.broker.meta import write_meta
from lossless.broker.node import Node, NodeConfig
from lossless.broker.security.nodes import NODE_MECHANISM, NODE_USER, node_settings
from lossless.core.settings.deviations import with_deviations
from lossless.engines.local.security import connected_as_node
from lossless.wire import frames
from lossless.wire.codec import Fields, make, read, request_class, response_class, write

CLUSTER_ID = "MkU3OEVBNTcwNTJENDM2Qg"
CONTROLLER = 101
PATIENCE_S = 30.0
DESCRIBE_CLUSTER, METADATA = 60, 3
SECRET = "secret of the cluster"

Found = TypeVar("Found")


class AdminCluster:
    """Brokers 1 to n, of which the first is the controller, too."""

    def __init__(self, folder: Path, brokers: int, **settings: str) -> None:
        ports = _free_ports(brokers + 1)
        self._ports = dict(zip((CONTROLLER, *range(1, brokers + 1)), ports, strict=True))
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever)
        self._thread.start()
        self.failures: list[BaseException] = []
        given = {key.replace("_", "."): value for key, value in settings.items()}
        self._nodes = [
            self._run(self._start(folder / str(number), number, brokers, given))
            for number in range(1, brokers + 1)
        ]
        self.everywhere(
            lambda broker: len(self.ask(DESCRIBE_CLUSTER, 0, {}, of=broker).brokers) == brokers
        )

    async def _start(
        self, folder: Path, number: int, brokers: int, settings: dict[str, str]
    ) -> Node:
        write_meta(folder, CLUSTER_ID)
        listeners = f"PLAINTEXT://127.0.0.1:{self._ports[number]}"
        roles = "broker"
        if number == 1:
            listeners += f",CONTROLLER://127.0.0.1:{self._ports[CONTROLLER]}"
            roles = "broker,controller"
        properties = {
            "node.id": str(number),
            "process.roles": roles,
            "log.dirs": str(folder),
            "controller.quorum.voters": f"{CONTROLLER}@127.0.0.1:{self._ports[CONTROLLER]}",
            "controller.listener.names": "CONTROLLER",
            "listeners": listeners,
            **node_settings(SECRET),
            **settings,
        }
        node = Node(
            NodeConfig.from_properties(with_deviations(properties, brokers=brokers)),
            self.failures.append,
        )
        await node.start()
        return node

    def _run(self, work: Coroutine[Any, Any, Found]) -> Found:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(PATIENCE_S)

    def stop(self) -> None:
        async def stop() -> None:
            for node in self._nodes:
                node.stop()
            others = asyncio.all_tasks() - {asyncio.current_task()}
            for task in others:
                task.cancel()
            await asyncio.gather(*others, return_exceptions=True)

        self._run(stop())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
        assert self.failures == []

    def ask(self, key: int, version: int, fields: Fields, *, of: int = 1) -> Any:
        """A node's answer, as kio has it."""
        entity = request_class(key, version)
        frame = frames.request(
            key, version, 7, "test", write(make(entity, fields)), tagged=entity.__flexible__
        )
        with ExitStack() as held:
            connection = self._connected(of, held)
            connection.sendall(frame)
            answer = _exactly(connection, int.from_bytes(_exactly(connection, 4), "big"))
        at = 5 if frames.has_tagged_answer(key, version) else 4
        return read(response_class(key, version), answer, at)

    def _connected(self, node: int, held: ExitStack) -> socket.socket:
        """To a controller as the cluster's nodes are: it answers nobody else."""
        port = self._ports[node]
        if node == CONTROLLER:
            login = (NODE_MECHANISM, NODE_USER, SECRET)
            return connected_as_node(login, port, PATIENCE_S, held)
        return held.enter_context(socket.create_connection(("127.0.0.1", port), PATIENCE_S))

    def until(self, question: Callable[[], Found]) -> Found:
        """Asks until the answer is yes: brokers learn what was decided a moment later."""
        end_s = time.monotonic() + PATIENCE_S
        while time.monotonic() < end_s:
            with suppress(ConnectionError):
                found = question()
                if found:
                    return found
        raise AssertionError("it does not happen")

    def everywhere(self, question: Callable[[int], Any]) -> None:
        """Until every broker says yes."""
        for number in self._ports:
            if number != CONTROLLER:
                self.until(partial(question, number))

    def partition(self, topic: str, number: int = 0, *, of: int = 1) -> Any:
        """What a broker knows of it; None: nothing yet."""
        (found,) = self.ask(METADATA, 12, {"topics": [{"name": topic}]}, of=of).topics
        return next((one for one in found.partitions if one.partition_index == number), None)


def _free_ports(count: int) -> list[int]:
    opened = [socket.socket() for _ in range(count)]
    for one in opened:
        one.bind(("127.0.0.1", 0))
    ports = [one.getsockname()[1] for one in opened]
    for one in opened:
        one.close()
    return ports


def _exactly(connection: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        more = connection.recv(size - len(data))
        if not more:
            raise ConnectionError("the node has closed the connection")
        data += more
    return data
