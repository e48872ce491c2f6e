"""A member in a process of its own that writes lines of orders-0, and dies or waits on the way.

python file_worker.py FOLDER die|wait POINT      POINT: written, linked, claimed
"""

from __future__ import annotations

import os
import signal
import sys
from typing import Any

from confluent_kafka import Message

from lossless.client.errors import ClientError
from lossless.client.stores.files import FileSink

ORDERS = ("orders", 0)
GROUP = "billing"
END = 6


def message(offset: int, partition: tuple[str, int] = ORDERS) -> Any:
    value = f"{offset}".encode()
    return Message(topic=partition[0], partition=partition[1], offset=offset, value=value)


def write_all(sink: FileSink, end: int = END, size: int = 2) -> None:
    next_offset = sink.claim(GROUP, [ORDERS])[ORDERS] or 0
    write_on(sink, next_offset, end, size)


def write_on(sink: FileSink, next_offset: int, end: int = END, size: int = 2) -> None:
    for first in range(next_offset, end, size):
        with sink.begin() as unit:
            for offset in range(first, min(first + size, end)):
                unit.write(message(offset))


def lines(sink: FileSink) -> list[int]:
    return [int(line) for _, path in sink.files(ORDERS) for line in path.read_bytes().split()]


def main(folder: str, what: str, point: str) -> None:
    link = os.link

    def at(here: str) -> None:
        if here != point:
            return
        if what == "die":
            os.kill(os.getpid(), signal.SIGKILL)
        print("WAITING", flush=True)
        sys.stdin.readline()

    def linked(source: Any, target: Any) -> None:
        if str(target).endswith(".jsonl"):
            at("written")
        link(source, target)
        if str(target).endswith(".jsonl"):
            at("linked")

    os.link = linked  # type: ignore[assignment]
    sink = FileSink(folder)
    try:
        next_offset = sink.claim(GROUP, [ORDERS])[ORDERS] or 0
        at("claimed")
        write_on(sink, next_offset, size=3)
    except ClientError as error:
        print(type(error).__name__, flush=True)
    else:
        print("DONE", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
