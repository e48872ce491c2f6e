"""A store on a disk. The only file of the log that knows the operating system."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from itertools import count
from pathlib import Path

from lossless.log.batch import Data
from lossless.log.store import StoreFailed

_REPLACEMENT = ".new"  # what a replacement is called until it is whole
# Records are for the account that the node runs as, whatever its umask allows.
_FOLDER_MODE, _FILE_MODE = 0o700, 0o600
ASIDE = ".damaged-"  # what a folder is called that was set aside, with a number
DESTROYED = ".deleted-"  # and one that is about to be removed

# One thread for all logs of a process: they share a disk.
_flusher = ThreadPoolExecutor(max_workers=1, thread_name_prefix="flush")
_remover = ThreadPoolExecutor(max_workers=1, thread_name_prefix="remove")


class FileStore:
    """A folder. Keeps the files that it has used open until `close`.

    What flushes later has descriptors of its own, and only files that it replaces or removes are
    waited for.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._open: dict[str, int] = {}
        self._later: Future[None] | None = None
        self._later_names: frozenset[str] = frozenset()
        with _Refusals(str(folder)):
            self._is_new = not folder.is_dir()
            if self._is_new:
                for each in (folder.parent, folder):  # a parent that mkdir makes gets another mode
                    each.mkdir(_FOLDER_MODE, parents=True, exist_ok=True)
            for left in os.listdir(folder):
                if left.endswith(_REPLACEMENT):
                    os.unlink(folder / left)

    def __str__(self) -> str:
        return str(self._folder)

    def names(self) -> list[str]:
        self._wait()
        with _Refusals(str(self._folder)):
            return sorted(os.listdir(self._folder))

    def size(self, name: str) -> int:
        with _Refusals(name):
            descriptor = self._descriptor(name, create=False)
            return 0 if descriptor is None else os.fstat(descriptor).st_size

    def read(self, name: str, position: int, size: int) -> bytes:
        try:
            descriptor = self._open.get(name)
            if descriptor is None:
                descriptor = self._descriptor(name, create=False)
            return b"" if descriptor is None else os.pread(descriptor, size, position)
        except OSError as error:
            raise _refused(name, error) from error

    def append(self, name: str, data: Data) -> None:
        try:
            descriptor = self._open.get(name)
            if descriptor is None:
                descriptor = self._descriptor(name, create=True)
            assert descriptor is not None
            written = os.write(descriptor, data)
            while written < len(data):
                written += os.write(descriptor, memoryview(data)[written:])
        except OSError as error:
            raise _refused(name, error) from error

    def flush(self, name: str) -> None:
        with _Refusals(name):
            descriptor = self._descriptor(name, create=False)
            if descriptor is not None:
                os.fdatasync(descriptor)

    def flush_later(self, names: Sequence[str], then: Mapping[str, bytes | None]) -> None:
        self._wait()
        with _Refusals(str(self._folder)):
            used = [self._descriptor(name, create=False) for name in names]
            own = [os.dup(descriptor) for descriptor in used if descriptor is not None]
        for name in then:
            self._close(name)
        self._later_names = frozenset(then)
        self._later = _flusher.submit(self._flush_and_change, own, then)

    def has_flushed(self) -> bool:
        if self._later is not None and not self._later.done():
            return False
        self._wait()
        return True

    def _flush_and_change(self, descriptors: list[int], then: Mapping[str, bytes | None]) -> None:
        """In the other thread: it touches nothing of this object but the folder's name."""
        with _Refusals(str(self._folder)):
            try:
                for descriptor in descriptors:
                    os.fdatasync(descriptor)
            finally:
                for descriptor in descriptors:
                    os.close(descriptor)
            for name, data in then.items():
                if data is None:
                    (self._folder / name).unlink(missing_ok=True)
                else:
                    self._put(name, data)
            _flush_folder(self._folder)

    def _wait(self) -> None:
        later, self._later = self._later, None
        if later is not None:
            later.result()

    def truncate(self, name: str, size: int) -> None:
        with _Refusals(name):
            descriptor = self._descriptor(name, create=False)
            if descriptor is not None and size < os.fstat(descriptor).st_size:
                os.ftruncate(descriptor, size)
                os.fdatasync(descriptor)

    def replace(self, name: str, data: bytes) -> None:
        self._wait_for(name)
        with _Refusals(name):
            self._put(name, data)
            self._close(name)
            self._flush_folder()

    def _put(self, name: str, data: bytes) -> None:
        new = self._folder / f"{name}{_REPLACEMENT}"
        try:
            with open(new, "wb", opener=_opened_privately) as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
        except OSError:
            new.unlink(missing_ok=True)
            raise
        os.replace(new, self._folder / name)

    def remove(self, name: str) -> None:
        self._wait_for(name)
        with _Refusals(name):
            self._close(name)
            (self._folder / name).unlink(missing_ok=True)
            self._flush_folder()

    def set_aside(self) -> None:
        """The folder gets another name, next to this one."""
        self.close()
        with _Refusals(str(self._folder)):
            self._folder.rename(self._free_name(ASIDE))
            self._folder.mkdir(_FOLDER_MODE)
            _flush_folder(self._folder.parent)

    def destroy(self) -> None:
        """The folder gets another name at once, and its files are removed in another thread. What
        a process leaves of them when it ends is one of the folders that `stored_in` lists."""
        self.close()
        with _Refusals(str(self._folder)):
            gone = self._folder
            if DESTROYED not in gone.name:
                gone = self._folder.rename(self._free_name(DESTROYED))
        _remover.submit(shutil.rmtree, gone, ignore_errors=True)

    def _free_name(self, suffix: str) -> Path:
        names = (self._folder.with_name(f"{self._folder.name}{suffix}{n}") for n in count(1))
        return next(name for name in names if not name.exists())

    def close(self) -> None:
        with suppress(StoreFailed):  # whoever opens this next recovers
            self._wait()
        for name in list(self._open):
            self._close(name)

    def _wait_for(self, name: str) -> None:
        if self._later is not None and name in self._later_names:
            self._wait()

    def _descriptor(self, name: str, *, create: bool) -> int | None:
        descriptor = self._open.get(name)
        if descriptor is not None:
            return descriptor
        self._wait_for(name)
        path = self._folder / name
        if not create and not path.exists():
            return None
        is_new = not path.exists()
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, _FILE_MODE)
        self._open[name] = descriptor
        if is_new:
            self._flush_folder()
        return descriptor

    def _close(self, name: str) -> None:
        descriptor = self._open.pop(name, None)
        if descriptor is not None:
            os.close(descriptor)

    def _flush_folder(self) -> None:
        if self._is_new:  # its own name, once there is something in it
            _flush_folder(self._folder.parent)
            self._is_new = False
        _flush_folder(self._folder)


def stored_in(folder: Path) -> list[str]:
    """The stores within it, but for what was set aside."""
    with _Refusals(str(folder)):
        return [name for name in os.listdir(folder) if ASIDE not in name]


def _opened_privately(path: str, flags: int) -> int:
    return os.open(path, flags, _FILE_MODE)


def _flush_folder(folder: Path) -> None:
    """A name is on disk when its folder is."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _refused(what: str, error: OSError) -> StoreFailed:
    return StoreFailed(f"{what}: {error.strerror or error}")


class _Refusals:
    """What the system refuses is a StoreFailed that says so. Around reads and appends, of which
    there are many, even this would take as long as what it does."""

    __slots__ = ("_what",)

    def __init__(self, what: str) -> None:
        self._what = what

    def __enter__(self) -> None: ...

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        if isinstance(error, OSError):
            raise _refused(self._what, error) from error
