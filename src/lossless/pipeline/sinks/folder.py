"""A folder in which a whole directory can be published at once: local, or on HDFS.

Two operations carry the promise: `rename`, which is atomic and refuses a target that exists, and
`create`, which never brings a folder back that somebody has moved away. Both folders report
failures as OSError, so that whoever uses them has one vocabulary.

- Local: `rename(2)`, under a lock. Hadoop's own local rename falls back to copying file by file,
  which a crash can leave half done. Files and folders are flushed to disk.
- HDFS: `FileContext`, whose rename is one operation of the NameNode. (`FileSystem.rename` would
  move the source *into* a target that exists.) Closed files are as durable as the cluster makes
  them.
- Object stores rename by copying object by object: refused.
"""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from typing import TYPE_CHECKING, Any, Protocol, cast

from lossless.errors import BadInput
from lossless.pipeline.sinks.file_lock import file_lock

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

GLOB_CHARACTERS = "*?[]{}\\"


class Folder(Protocol):
    """Names are relative to the folder, separated by '/'."""

    def uri(self, name: str = "") -> str:
        """What Spark calls it."""

    def names(self, name: str = "") -> list[str]:
        """What is in it; nothing when it does not exist."""

    def sizes(self, name: str) -> Mapping[str, int]:
        """The bytes of the files in it that readers see; none when it does not exist."""

    def identity(self, name: str) -> Sequence[int] | None:
        """Changes when another file takes the place of this one; None when there is none."""

    def read(self, name: str) -> str: ...

    def create(self, name: str, text: str) -> None:
        """A new file, on disk when this returns. Its folder must exist."""

    def make(self, name: str = "") -> None:
        """A folder, with the folders above it; nothing happens when it is there."""

    def rename(self, source: str, target: str) -> None:
        """Atomic. FileExistsError when the target is there, FileNotFoundError without a source."""

    def replace(self, source: str, target: str) -> None:
        """Puts a file in the place of another."""

    def remove(self, name: str) -> None:
        """With everything in it; nothing happens when it is not there."""

    def flush(self, name: str = "", *, recursive: bool = False) -> None:
        """Makes the folder's entries survive a power loss; recursive: the files' bytes too."""

    def lock(self) -> AbstractContextManager[None]:
        """Only one driver between check and rename, where the rename alone is not enough."""


def open_folder(spark: SparkSession, path: str, *, lock_name: str) -> Folder:
    """The folder at `path`, resolved as Spark resolves it; BadInput when it cannot publish."""
    if any(character in GLOB_CHARACTERS for character in path):
        raise BadInput(
            f"{path}: Spark takes any of {GLOB_CHARACTERS} in a path for a pattern",
            hint="choose a path without these characters",
        )
    jvm: Any = spark._jvm
    configuration = spark._jsc.hadoopConfiguration()
    asked = jvm.org.apache.hadoop.fs.Path(path)
    default = jvm.org.apache.hadoop.fs.FileSystem.getDefaultUri(configuration)
    match str(asked.toUri().getScheme() or default.getScheme()):
        case "file":
            local = asked.getFileSystem(configuration).makeQualified(asked).toUri().getPath()
            return LocalFolder(local, lock_name=lock_name)
        case "hdfs":
            return HadoopFolder(spark, path)
        case scheme:
            raise BadInput(
                f"{path}: a commit is published by one atomic rename, which {scheme}: is not known "
                "to have; on an object store readers would see half a commit",
                hint='use a sink of type "delta" there, or a path on file: or hdfs:',
            )


class LocalFolder:
    def __init__(self, path: str, *, lock_name: str) -> None:
        self._path = path
        self._lock_name = lock_name

    def uri(self, name: str = "") -> str:
        return f"file://{self._at(name)}"

    def names(self, name: str = "") -> list[str]:
        try:
            return os.listdir(self._at(name))
        except FileNotFoundError:
            return []

    def sizes(self, name: str) -> Mapping[str, int]:
        files = [file for file in self.names(name) if is_visible(file)]
        return {file: os.stat(self._at(f"{name}/{file}")).st_size for file in files}

    def identity(self, name: str) -> Sequence[int] | None:
        try:
            found = os.stat(self._at(name))
        except FileNotFoundError:
            return None
        return (found.st_ino, found.st_mtime_ns, found.st_size)

    def read(self, name: str) -> str:
        with open(self._at(name), encoding="utf-8") as file:
            return file.read()

    def create(self, name: str, text: str) -> None:
        with open(self._at(name), "x", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())

    def make(self, name: str = "") -> None:
        path = os.path.abspath(self._at(name))
        missing = []
        while not os.path.lexists(path):
            missing.append(path)
            path = os.path.dirname(path)
        os.makedirs(self._at(name), exist_ok=True)
        for made in missing:
            _flush(os.path.dirname(made))

    def rename(self, source: str, target: str) -> None:
        # rename(2) itself refuses a directory with something in it; an empty one it would replace.
        if os.path.lexists(self._at(target)):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), self._at(target))
        try:
            os.rename(self._at(source), self._at(target))
        except OSError as error:
            if error.errno in (errno.ENOTEMPTY, errno.ENOTDIR):
                raise FileExistsError(errno.EEXIST, error.strerror, self._at(target)) from error
            raise

    def replace(self, source: str, target: str) -> None:
        os.replace(self._at(source), self._at(target))

    def remove(self, name: str) -> None:
        path = self._at(name)
        if os.path.isdir(path):
            shutil.rmtree(path)
        else:
            with suppress(FileNotFoundError):
                os.remove(path)

    def flush(self, name: str = "", *, recursive: bool = False) -> None:
        if not recursive:
            _flush(self._at(name))
            return
        for folder, _, files in os.walk(self._at(name), topdown=False, onerror=_raise):
            for file in files:
                _flush(os.path.join(folder, file))
            _flush(folder)

    def lock(self) -> AbstractContextManager[None]:
        return file_lock(self._at(self._lock_name))

    def _at(self, name: str) -> str:
        return os.path.join(self._path, name) if name else self._path


class HadoopFolder:
    """No lock: the NameNode lets one of two renames to the same target win."""

    def __init__(self, spark: SparkSession, path: str) -> None:
        self._jvm = cast(Any, spark._jvm)
        self._gateway: Any = spark.sparkContext._gateway
        configuration = spark._jsc.hadoopConfiguration()
        asked = self._jvm.org.apache.hadoop.fs.Path(path)
        self._root = str(asked.getFileSystem(configuration).makeQualified(asked).toString())
        self._files = self._jvm.org.apache.hadoop.fs.FileContext.getFileContext(
            asked.toUri(), configuration
        )

    def uri(self, name: str = "") -> str:
        return f"{self._root}/{name}" if name else self._root

    def names(self, name: str = "") -> list[str]:
        return list(self._list(name))

    def sizes(self, name: str) -> Mapping[str, int]:
        sizes = {entry: int(status.getLen()) for entry, status in self._list(name).items()}
        return {entry: size for entry, size in sizes.items() if is_visible(entry)}

    def identity(self, name: str) -> Sequence[int] | None:
        try:
            with _java_errors_as_os_errors():
                found = self._files.getFileStatus(self._at(name))
        except FileNotFoundError:
            return None
        return (int(found.getModificationTime()), int(found.getLen()))

    def read(self, name: str) -> str:
        with _java_errors_as_os_errors():
            stream = self._files.open(self._at(name))
            try:
                return bytes(stream.readAllBytes()).decode()
            finally:
                stream.close()

    def create(self, name: str, text: str) -> None:
        fs = self._jvm.org.apache.hadoop.fs
        # Without CREATE_PARENT: a folder that was moved away must not come back.
        flags = self._jvm.java.util.EnumSet.of(fs.CreateFlag.CREATE)
        with _java_errors_as_os_errors():
            no_options = self._gateway.new_array(fs.Options.CreateOpts, 0)
            stream = self._files.create(self._at(name), flags, no_options)
            try:
                stream.write(text.encode())
                stream.hsync()
            finally:
                stream.close()

    def make(self, name: str = "") -> None:
        permission = self._jvm.org.apache.hadoop.fs.permission.FsPermission.getDirDefault()
        with _java_errors_as_os_errors():
            self._files.mkdir(self._at(name), permission, True)

    def rename(self, source: str, target: str) -> None:
        self._rename(source, target, self._jvm.org.apache.hadoop.fs.Options.Rename.NONE)

    def replace(self, source: str, target: str) -> None:
        self._rename(source, target, self._jvm.org.apache.hadoop.fs.Options.Rename.OVERWRITE)

    def remove(self, name: str) -> None:
        with _java_errors_as_os_errors(), suppress(FileNotFoundError):
            self._files.delete(self._at(name), True)

    def flush(self, name: str = "", *, recursive: bool = False) -> None:
        """Files are closed and the NameNode has logged the rename: nothing is left to do."""

    def lock(self) -> AbstractContextManager[None]:
        return nullcontext()

    def _list(self, name: str) -> Mapping[str, Any]:
        try:
            with _java_errors_as_os_errors():
                entries = list(self._files.util().listStatus(self._at(name)))
        except FileNotFoundError:
            return {}
        # The listing of a file is the file itself.
        if any(entry.isFile() and str(entry.getPath()) == self.uri(name) for entry in entries):
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), self.uri(name))
        return {str(entry.getPath().getName()): entry for entry in entries}

    def _rename(self, source: str, target: str, option: Any) -> None:
        options = self._gateway.new_array(self._jvm.org.apache.hadoop.fs.Options.Rename, 1)
        options[0] = option
        with _java_errors_as_os_errors():
            self._files.rename(self._at(source), self._at(target), options)

    def _at(self, name: str) -> Any:
        return self._jvm.org.apache.hadoop.fs.Path(self.uri(name))


def is_visible(name: str) -> bool:
    """Whether Spark, like Hive, takes a file or folder of this name for data."""
    return not name.startswith(("_", "."))


def _raise(error: OSError) -> None:
    raise error


def _flush(path: str) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def _java_errors_as_os_errors() -> Iterator[None]:
    from py4j.protocol import Py4JJavaError

    try:
        yield
    except Py4JJavaError as error:
        reason = str(error.java_exception.getMessage())
        match error.java_exception.getClass().getName():
            case "java.io.FileNotFoundException":
                raise FileNotFoundError(errno.ENOENT, reason) from error
            case "org.apache.hadoop.fs.FileAlreadyExistsException":
                raise FileExistsError(errno.EEXIST, reason) from error
            case "org.apache.hadoop.security.AccessControlException":
                raise PermissionError(errno.EACCES, reason) from error
            case "org.apache.hadoop.fs.ParentNotDirectoryException":
                raise NotADirectoryError(errno.ENOTDIR, reason) from error
            case _:
                raise OSError(errno.EIO, reason) from error
