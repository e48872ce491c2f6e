"""A store on a disk. The only file of the log that knows the operating system."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from lossless.log.store import StoreFailed

_REPLACEMENT = ".new"  # what a replacement is called until it is whole


class FileStore:
    """A folder. Keeps the files that it has used open until `close`."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._open: dict[str, int] = {}
        with _refusals(str(folder)):
            folder.mkdir(parents=True, exist_ok=True)
            for left in folder.glob(f"*{_REPLACEMENT}"):
                left.unlink()

    def names(self) -> list[str]:
        with _refusals(str(self._folder)):
            return sorted(os.listdir(self._folder))

    def size(self, name: str) -> int:
        with _refusals(name):
            descriptor = self._descriptor(name, create=False)
            return 0 if descriptor is None else os.fstat(descriptor).st_size

    def read(self, name: str, position: int, size: int) -> bytes:
        with _refusals(name):
            descriptor = self._descriptor(name, create=False)
            return b"" if descriptor is None else os.pread(descriptor, size, position)

    def append(self, name: str, data: bytes) -> None:
        with _refusals(name):
            descriptor = self._descriptor(name, create=True)
            assert descriptor is not None
            rest = memoryview(data)
            while rest:
                rest = rest[os.write(descriptor, rest) :]

    def flush(self, name: str) -> None:
        with _refusals(name):
            descriptor = self._descriptor(name, create=False)
            if descriptor is not None:
                os.fdatasync(descriptor)

    def truncate(self, name: str, size: int) -> None:
        with _refusals(name):
            descriptor = self._descriptor(name, create=False)
            if descriptor is not None and size < os.fstat(descriptor).st_size:
                os.ftruncate(descriptor, size)
                os.fdatasync(descriptor)

    def replace(self, name: str, data: bytes) -> None:
        new = self._folder / f"{name}{_REPLACEMENT}"
        with _refusals(name):
            try:
                with new.open("wb") as file:
                    file.write(data)
                    file.flush()
                    os.fsync(file.fileno())
            except OSError:
                new.unlink(missing_ok=True)
                raise
            self._close(name)
            os.replace(new, self._folder / name)
            self._flush_folder()

    def remove(self, name: str) -> None:
        with _refusals(name):
            self._close(name)
            (self._folder / name).unlink(missing_ok=True)
            self._flush_folder()

    def close(self) -> None:
        for name in list(self._open):
            self._close(name)

    def _descriptor(self, name: str, *, create: bool) -> int | None:
        descriptor = self._open.get(name)
        if descriptor is not None:
            return descriptor
        path = self._folder / name
        if not create and not path.exists():
            return None
        is_new = not path.exists()
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        self._open[name] = descriptor
        if is_new:
            self._flush_folder()
        return descriptor

    def _close(self, name: str) -> None:
        descriptor = self._open.pop(name, None)
        if descriptor is not None:
            os.close(descriptor)

    def _flush_folder(self) -> None:
        """A name is on disk when its folder is."""
        descriptor = os.open(self._folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


@contextmanager
def _refusals(what: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise StoreFailed(f"{what}: {error.strerror or error}") from error
