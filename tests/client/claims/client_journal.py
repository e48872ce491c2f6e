"""What clients saw, written down where a kill -9 does not take it away.

One line for each event, in a file of each process, with the time of a clock that all processes of
a machine share. What is no event of a history is something that was said: ["says", …].
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol

from lossless.verifier import history
from lossless.verifier.history import Event, Processed, Read, Reset

SAYS = "says"


def now_ms() -> int:
    return time.monotonic_ns() // 1_000_000


class Journal:
    def __init__(self, path: Path) -> None:
        self.path = path
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        self._lock = threading.Lock()

    def note(self, event: Event) -> None:
        self._write([type(event).__name__, *event])

    def say(self, *words: Any) -> None:
        self._write([SAYS, *words])

    def close(self) -> None:
        os.close(self._file)

    def _write(self, words: list[Any]) -> None:
        with self._lock:
            # One call: what it wrote is in the page cache, whatever becomes of the process.
            os.write(self._file, json.dumps([time.monotonic_ns(), *words]).encode() + b"\n")


def lines_of(path: Path) -> Iterator[list[Any]]:
    """Whole lines only: one may be under way."""
    if not path.exists():
        return
    for line in path.read_bytes().split(b"\n")[:-1]:
        yield json.loads(line)


def said_in(path: Path) -> list[list[Any]]:
    return [words for _, kind, *words in lines_of(path) if kind == SAYS]


def events_of(*paths: Path) -> tuple[Event, ...]:
    """Of all of them, in the order of time."""
    lines = sorted((line for path in paths for line in lines_of(path)), key=lambda line: line[0])
    return tuple(getattr(history, kind)(*words) for _, kind, *words in lines if kind != SAYS)


class Notes(Protocol):
    def note(self, event: Event) -> None: ...


class Reading:
    """Reads of a member, and where it began each partition."""

    def __init__(
        self,
        notes: Notes | None,
        name: str,
        group: str,
        *,
        topics: Sequence[str],
        in_order: bool,
    ) -> None:
        """Of these topics only, not of those where failed records go. Not in order: workers beside
        each other, or a store that has records repeated."""
        self._notes = notes
        self._name = name
        self._group = group
        self._topics = topics
        self._in_order = in_order
        self._began: dict[str, int] = {}
        self._lock = threading.Lock()

    def on_assigned(self, partitions: Any) -> None:
        for each in partitions:
            self._began[f"{each.topic}-{each.partition}"] = each.offset

    def read(self, message: Any) -> None:
        if self._notes is None or message.topic() not in self._topics:
            return
        at, offset = f"{message.topic()}-{message.partition()}", message.offset()
        with self._lock:
            began = self._began.pop(at, None)
            if began is not None or not self._in_order:
                first = began if began is not None and began >= 0 and self._in_order else offset
                self._notes.note(Reset(now_ms(), self._name, at, None, first, "assigned"))
            self._notes.note(Read(now_ms(), self._name, at, offset, message.value().decode()))

    def processed(self, message: Any) -> None:
        if self._notes is None or message.topic() not in self._topics:
            return
        at, value = f"{message.topic()}-{message.partition()}", message.value().decode()
        self._notes.note(Processed(now_ms(), self._name, self._group, at, message.offset(), value))
