"""Where a log keeps its bytes: a folder of files that grow at their end.

Two of them: `files.py` on a disk, `memory.py` for the simulator. What is *written* survives the
death of the process; only what is *flushed* survives the loss of power. Everything but `append` is
rare and flushed before it returns, so that only the tails of files are ever in doubt.
"""

from __future__ import annotations

from typing import Protocol


class StoreFailed(Exception):
    """The storage refused: full, broken, gone. What was there before is still there."""


class Store(Protocol):
    def names(self) -> list[str]:
        """Every file, sorted."""

    def size(self, name: str) -> int:
        """Of a file that may not exist: 0."""

    def read(self, name: str, position: int, size: int) -> bytes:
        """Less than `size` at the end of the file, and nothing of a file that does not exist."""

    def append(self, name: str, data: bytes) -> None:
        """Written when this returns, and flushed at the next `flush`. All of it or, when it fails,
        a part, which the caller has to truncate or to recover."""

    def flush(self, name: str) -> None: ...

    def truncate(self, name: str, size: int) -> None: ...

    def replace(self, name: str, data: bytes) -> None:
        """The whole file, old or new and nothing in between."""

    def remove(self, name: str) -> None:
        """Of a file that may not exist."""
