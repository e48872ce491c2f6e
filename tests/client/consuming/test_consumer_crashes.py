"""Consumers that are killed, stopped and interrupted: nothing is skipped, zombies do nothing."""

from __future__ import annotations

import json
import queue
import signal
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Message
from consumed import PATIENCE_S, Kafka, Seen, eventually, number, running

from lossless.client.stores import SqliteStore

# A busy machine may stand still for two seconds: a member that lost its partition for that, before
# the test stops it, has nothing to lose any more when it wakes.
CLASSIC = {
    "session.timeout.ms": 5000,
    "heartbeat.interval.ms": 100,
    "max.poll.interval.ms": 5000,
}
MISSED_SOON = {**CLASSIC, "session.timeout.ms": 1500, "max.poll.interval.ms": 1500}
PROTOCOLS: dict[str, dict[str, Any]] = {
    "eager": CLASSIC,
    "cooperative": {**CLASSIC, "partition.assignment.strategy": "cooperative-sticky"},
    "consumer": {"group.protocol": "consumer"},
}


class Process:
    def __init__(
        self, kafka: Kafka, *, halt_at: int, settings: dict[str, Any], store: Path | None = None
    ) -> None:
        arguments = [kafka.servers, kafka.topic, kafka.group, str(halt_at), json.dumps(settings)]
        self._process = subprocess.Popen(
            [
                sys.executable,
                str(Path(__file__).with_name("consumer_process.py")),
                *arguments,
                *([str(store)] if store else []),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.said: list[str] = []
        self._heard: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._heard.put(line.strip())
        self._heard.put(None)

    def wait_for(self, wanted: str) -> None:
        while True:
            try:
                line = self._heard.get(timeout=PATIENCE_S)
            except queue.Empty:
                raise AssertionError(f"no {wanted!r} of a process that said {self.said}") from None
            assert line is not None, f"it ended, having said {self.said}"
            self.said.append(line)
            if line == wanted:
                return

    def signal(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    def go_on(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()

    def wait(self) -> int:
        return self._process.wait(PATIENCE_S)

    def end(self) -> None:
        self._process.kill()
        self._process.wait()
        self._listener.join()
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                stream.close()

    @property
    def processed(self) -> list[int]:
        return [int(line.split()[1]) for line in self.said if line.startswith("processed")]


@contextmanager
def process(kafka: Kafka, **options: Any) -> Iterator[Process]:
    started = Process(kafka, **options)
    try:
        yield started
    finally:
        started.end()


def test_killed_between_processing_and_commit_a_record_is_repeated_and_none_skipped(
    kafka: Kafka,
) -> None:
    """Claim C3."""
    kafka.make_topic()
    kafka.fill(20)
    with process(kafka, halt_at=7, settings=CLASSIC) as first:
        first.wait_for("in hand")
        eventually(lambda: kafka.committed() == [7])
        first.signal(signal.SIGKILL)
        first.wait()
    assert first.processed == list(range(8))
    seen = Seen()
    with running(kafka.consumer(settings=CLASSIC), seen):
        seen.wait_for(range(7, 20))
    assert seen.numbers == list(range(7, 20))
    assert kafka.committed() == [20]


@pytest.mark.parametrize(
    "protocol", ["eager", pytest.param("cooperative", marks=pytest.mark.full), "consumer"]
)
def test_a_stopped_process_that_wakes_after_its_partition_moved_commits_nothing(
    kafka: Kafka, protocol: str
) -> None:
    """Claim C13. What it had read already it may process before it learns that it is too late:
    only a sink can refuse that (see stores). But its commits are refused, or not even tried."""
    settings = PROTOCOLS[protocol]
    kafka.make_topic()
    kafka.fill(20)
    seen = Seen()
    session = {"session.timeout.ms": None} if protocol == "consumer" else {}
    with process(kafka, halt_at=7, settings=settings) as zombie:
        zombie.wait_for("in hand")
        eventually(lambda: kafka.committed() == [7])
        zombie.signal(signal.SIGSTOP)
        with running(kafka.consumer(settings={**settings, **session}, commit_every_s=0.05), seen):
            seen.wait_for(range(7, 20))
            eventually(lambda: kafka.committed() == [20])
            zombie.signal(signal.SIGCONT)
            zombie.go_on()
            zombie.wait_for("lost 0")
            assert kafka.committed() == [20]
    assert zombie.processed[:8] == list(range(8))
    assert min(seen.numbers) == 7
    assert kafka.committed() == [20]


def test_ctrl_c_ends_run_and_leaves_the_group(kafka: Kafka) -> None:
    kafka.make_topic()
    kafka.fill(5)
    with process(kafka, halt_at=-1, settings={}) as consumer:
        consumer.wait_for("processed 4")
        consumer.signal(signal.SIGINT)
        consumer.wait_for("closed")
        assert consumer.wait() == 0
    assert "interrupted" in consumer.said
    assert "revoked 0" in consumer.said
    assert kafka.committed()[0] >= 4


def test_rows_state_and_offsets_survive_kill_9_in_step(kafka: Kafka, tmp_path: Path) -> None:
    """Claims C8 and C10."""
    database = tmp_path / "orders.db"
    with sqlite3.connect(database) as connection:
        connection.execute("CREATE TABLE orders (number INTEGER)")
    connection.close()
    kafka.make_topic()
    kafka.fill(300)
    for halt_at in (7, 120, 299):
        with process(kafka, halt_at=halt_at, settings=MISSED_SOON, store=database) as consumer:
            consumer.wait_for("in hand")
            consumer.signal(signal.SIGKILL)
            consumer.wait()
        check_in_step(database)
    kafka.fill(10, first=300)
    with SqliteStore(str(database)) as store:
        done = threading.Event()

        def handler(message: Message, unit: Any) -> None:
            unit.execute("INSERT INTO orders VALUES (?)", (number(message),))
            state = unit.state(message)
            state["sum"] = state.get("sum", 0) + number(message)
            if number(message) == 309:
                done.set()

        with running(kafka.consumer(store=store, settings=MISSED_SOON), handler):
            assert done.wait(PATIENCE_S)
    assert check_in_step(database) == list(range(310))
    assert kafka.committed() == [310]


def check_in_step(database: Path) -> list[int]:
    connection = sqlite3.connect(database)
    try:
        rows = [row for (row,) in connection.execute("SELECT number FROM orders ORDER BY number")]
    finally:
        connection.close()
    assert rows == list(range(len(rows)))
    return rows
