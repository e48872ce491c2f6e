"""Where a log keeps its bytes: a folder of files that grow at their end.

Two of them: `files.py` on a disk, `memory.py` for the simulator. What is *written* survives the
death of the process; only what is *flushed* survives the loss of power. Everything but `append` is
rare and flushed before it returns, so that only the tails of files are ever in doubt.

A flush takes as long as the disk takes, and whoever appends has others to serve: `flush_later` is
done beside it. One at a time; whatever would get in its way waits for it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from lossless.log.batch import Data


class StoreFailed(Exception):
    """The storage refused: full, broken, gone. What was there before is still there."""


class Store(Protocol):
    def names(self) -> list[str]:
        """Every file, sorted."""

    def size(self, name: str) -> int:
        """Of a file that may not exist: 0."""

    def read(self, name: str, position: int, size: int) -> bytes:
        """Less than `size` at the end of the file, and nothing of a file that does not exist."""

    def append(self, name: str, data: Data) -> None:
        """Written when this returns, and flushed at the next `flush`. All of it or, when it fails,
        a part, which the caller has to truncate or to recover."""

    def flush(self, name: str) -> None: ...

    def flush_later(self, names: Sequence[str], then: Mapping[str, bytes | None]) -> None:
        """Flushes what these files have now and then, in this order, replaces or (None) removes
        those. A crash in between leaves any number of the first of these changes done."""

    def has_flushed(self) -> bool:
        """Whether the last `flush_later` is done. If it failed, StoreFailed says so here, or in
        whatever waits for it."""

    def truncate(self, name: str, size: int) -> None: ...

    def replace(self, name: str, data: bytes) -> None:
        """The whole file, old or new and nothing in between."""

    def remove(self, name: str) -> None:
        """Of a file that may not exist."""

    def set_aside(self) -> None:
        """All files go where people may look at them. The store is empty afterwards."""

    def destroy(self) -> None:
        """Removes every file and the folder. A crash leaves all of them under the store's name, or
        none. The store cannot be used afterwards."""
