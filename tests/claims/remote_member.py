"""A member of a group in a process of its own, which can be stopped and killed, told what to do.

Run as a script it reads a command per line and answers each with a line:

    poll N         the next N records            [[partition, offset, value], …]
    store OFFSET   to be committed in the background
    commit OFFSET  now                           null, or the name of the error
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psutil

from lossless.engines.waiting import wait_until


class RemoteMember:
    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def poll(self, count: int) -> list[tuple[int, int, str]]:
        return [(at, offset, value) for at, offset, value in self._ask("poll", count)]

    def store(self, offset: int) -> None:
        self._ask("store", offset)

    def commit(self, offset: int) -> str | None:
        """The name of the error, if it is refused."""
        error: str | None = self._ask("commit", offset)
        return error

    def pause(self) -> None:
        self._process.send_signal(signal.SIGSTOP)
        process = psutil.Process(self._process.pid)
        assert wait_until(lambda: process.status() == psutil.STATUS_STOPPED, timeout_s=10)

    def resume(self) -> None:
        self._process.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()

    def _ask(self, command: str, number: int) -> Any:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{command} {number}\n")
        self._process.stdin.flush()
        return json.loads(self._process.stdout.readline())


@contextmanager
def remote_member(topic: str, settings: dict[str, Any]) -> Iterator[RemoteMember]:
    """Begins to join at once, so that several can start at the same time."""
    process = subprocess.Popen(
        [sys.executable, __file__, topic, json.dumps(settings)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        yield RemoteMember(process)
    finally:
        process.kill()
        process.communicate()


def main(topic: str, settings: dict[str, Any]) -> None:
    from confluent_kafka import Consumer, KafkaException, TopicPartition

    consumer = Consumer(settings)
    consumer.subscribe([topic])
    for line in sys.stdin:
        command, number = line.split()
        answer: Any = None
        if command == "poll":
            answer = []
            while len(answer) < int(number):
                message = consumer.poll(0.1)
                if message is not None and message.error() is None:
                    value = (message.value() or b"").decode()
                    answer.append((message.partition(), message.offset(), value))
        elif command == "store":
            consumer.store_offsets(offsets=[TopicPartition(topic, 0, int(number))])
        else:
            try:
                position = TopicPartition(topic, 0, int(number))
                done = consumer.commit(offsets=[position], asynchronous=False)
                failed = [at.error for at in done or [] if at.error is not None]
                answer = failed[0].name() if failed else None
            except KafkaException as error:
                answer = error.args[0].name()
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], json.loads(sys.argv[2]))
