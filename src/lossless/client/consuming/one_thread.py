"""Iterators that a second thread cannot use: to ask for a record is to finish the one before.

A thread is told apart where a chunk ends, not at each record, which would cost as much as the loop.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Self

from confluent_kafka import Message

from lossless.errors import BadInput


class ChunksOfOneThread:
    """Chunks of a loop, for `chain.from_iterable`, which a second thread would crash: it drops the
    generator that the first one runs. So a thread that is refused gets an iterator that raises."""

    def __init__(self, chunks: Iterator[Iterator[Message]]) -> None:
        self._chunks = chunks
        self._thread: int | None = None

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Iterator[Message]:
        here = threading.get_ident()
        if self._thread is None:
            self._thread = here
        elif self._thread != here:
            return _Refused(self._thread)
        return next(self._chunks)


class _Refused:
    """Raises BadInput in all threads but one."""

    def __init__(self, thread: int) -> None:
        self._thread = thread

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Message:
        if threading.get_ident() == self._thread:
            raise StopIteration
        raise of_one_thread()


class BatchesOfOneThread:
    def __init__(self, batches: Iterator[list[Message]]) -> None:
        self._batches = batches
        self._thread: int | None = None

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> list[Message]:
        here = threading.get_ident()
        if self._thread is None:
            self._thread = here
        elif self._thread != here:
            raise of_one_thread()
        # A call of next() could be followed by the exception of a signal handler, and the batch be
        # finished by the next question without having been handed out. A `for` has no such moment.
        for batch in self._batches:
            return batch
        raise StopIteration


def of_one_thread() -> BadInput:
    return BadInput(
        "a second thread asks for records of a loop: asking for a record finishes the one before, "
        "which another thread has in hand",
        hint="use run(handler) with workers=…, or a consumer in each thread",
    )
