"""A real Redis server for the tests: a folder of its own, a free port, stopped by pid."""

from __future__ import annotations

import shutil
import socket
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import redis

from lossless.engines.waiting import wait_until

START_TIMEOUT_S = 30
STOP_TIMEOUT_S = 10


@dataclass(slots=True)
class RedisServer:
    folder: Path
    port: int
    process: subprocess.Popen[bytes] | None = field(default=None)

    def client(self) -> redis.Redis:
        # A test sees a failure at once; retries are the application's own choice.
        return redis.Redis(port=self.port, retry=None, socket_timeout=10)

    def start(self) -> None:
        """Returns when the server answers, with what its log has."""
        program = shutil.which("redis-server")
        if program is None:
            pytest.fail("redis-server is not installed: apt-get install redis-server")
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen(
                [
                    program,
                    *("--port", str(self.port), "--bind", "127.0.0.1", "--dir", str(self.folder)),
                    *("--appendonly", "yes", "--appendfsync", "always", "--save", ""),
                ],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        if not wait_until(self._answers, timeout_s=START_TIMEOUT_S):
            self.kill()
            pytest.fail(f"Redis did not start: {(self.folder / 'log').read_text()[-2000:]}")

    def kill(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait(STOP_TIMEOUT_S)
            self.process = None

    def _answers(self) -> bool:
        with self.client() as client:
            try:
                return bool(client.ping())
            except redis.exceptions.ConnectionError:
                return False


@pytest.fixture(scope="session")
def redis_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    server = RedisServer(tmp_path_factory.mktemp("redis"), port)
    server.start()
    try:
        yield server
    finally:
        server.kill()
