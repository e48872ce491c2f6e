"""A store in memory, whose unflushed tails a loss of power takes away."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from lossless.log.batch import Data
from lossless.log.store import StoreFailed


class _File:
    __slots__ = ("data", "flushed")

    def __init__(self, data: bytes = b"") -> None:
        self.data = bytearray(data)
        self.flushed = len(data)


class MemoryStore:
    """The process may die as often as it likes: whoever opens the store again finds everything."""

    def __init__(self) -> None:
        self._files: dict[str, _File] = {}
        self.aside: list[dict[str, bytes]] = []
        self.capacity: int | None = None  # bytes in all files; None: no end
        self.has_failed = False

    def names(self) -> list[str]:
        return sorted(self._files)

    def size(self, name: str) -> int:
        file = self._files.get(name)
        return 0 if file is None else len(file.data)

    def read(self, name: str, position: int, size: int) -> bytes:
        file = self._files.get(name)
        return b"" if file is None else bytes(file.data[position : position + size])

    def append(self, name: str, data: Data) -> None:
        self._check(name)
        file = self._files.setdefault(name, _File())
        room = self._room()
        file.data += data if room is None else data[:room]
        if room is not None and len(data) > room:
            raise StoreFailed(f"no space left for {name}")

    def flush(self, name: str) -> None:
        self._check(name)
        file = self._files.get(name)
        if file is not None:
            file.flushed = len(file.data)

    def flush_later(self, names: Sequence[str], then: Mapping[str, bytes | None]) -> None:
        """At once: what a loss of power takes from a log that is late it takes from any."""
        for name in names:
            self.flush(name)
        for name, data in then.items():
            if data is None:
                self.remove(name)
            else:
                self.replace(name, data)

    def has_flushed(self) -> bool:
        return True

    def truncate(self, name: str, size: int) -> None:
        self._check(name)
        file = self._files.get(name)
        if file is not None:
            del file.data[size:]
            file.flushed = len(file.data)

    def replace(self, name: str, data: bytes) -> None:
        self._check(name)
        room = self._room()
        if room is not None and len(data) > room + self.size(name):
            raise StoreFailed(f"no space left for {name}")
        self._files[name] = _File(data)

    def remove(self, name: str) -> None:
        self._check(name)
        self._files.pop(name, None)

    def set_aside(self) -> None:
        self._check("the folder")
        self.aside.append({name: bytes(file.data) for name, file in self._files.items()})
        self._files = {}

    def destroy(self) -> None:
        self._check("the folder")
        self._files = {}

    def _check(self, name: str) -> None:
        if self.has_failed:
            raise StoreFailed(f"input/output error on {name}")

    # Faults

    def fail(self) -> None:
        """From now on nothing can be changed. What is there can still be read."""
        self.has_failed = True

    def mend(self) -> None:
        """There is room, and what is written stays. A disk that had failed has kept what was
        flushed before."""
        self.capacity = None
        if self.has_failed:
            self.has_failed = False
            self.lose_power(lambda _tail: 0)

    def lose_power(self, survives: Callable[[int], int]) -> None:
        """Keeps what was flushed and, of each unflushed tail of so many bytes, as many as
        `survives` says: the disk may have been writing."""
        for _, file in sorted(self._files.items()):
            tail = len(file.data) - file.flushed
            if tail:
                del file.data[file.flushed + min(tail, max(0, survives(tail))) :]
                file.flushed = len(file.data)

    def damage(self, name: str, position: int) -> None:
        """Turns one bit over, as a disk might."""
        self._files[name].data[position] ^= 1

    def _room(self) -> int | None:
        if self.capacity is None:
            return None
        return max(0, self.capacity - sum(len(file.data) for file in self._files.values()))
