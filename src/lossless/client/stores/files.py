"""Records in files that appear whole or not at all; how far they reach is in their names.

    <folder>/<topic>/<partition>/<first offset>-<last offset>.jsonl

    claim    makes a folder for this owner's temporary files, removes those of all others, then
             reads the names
    commit   write, fsync, link(2) to the name, fsync of the folder

<folder>/<topic>/.lossless-topic-id holds the id of the topic: the names of its files say nothing
about the records of another topic with the same name.

Nobody but readers may touch the folder, and the newest file of each partition must stay: its name
is the position. One folder belongs to one group.

Why a zombie cannot write: its temporary files lived in a folder that is gone, and it never makes
that folder again. What it linked before its folder was gone, the new owner sees, because it reads
the names afterwards; a folder can only be removed when it is empty, and nothing can be made in it
or linked from it after that. Of two who claim at once at least one removes the other's folder.
link(2), unlike rename(2), refuses a name that is taken.

A unit that moves several partitions makes one file for each, one after the other. After a crash
between them some are there and some are not: each partition by itself is exactly once.
"""

from __future__ import annotations

import errno
import logging
import os
import re
import secrets
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Protocol, Self

from lossless.client.errors import InvalidPosition, PartitionLost, StoreUnavailable
from lossless.client.stores.interface import (
    Message,
    Place,
    TopicPartition,
    check_topic_ids,
    offset_of,
    partition_of,
)
from lossless.errors import BadInput

logger = logging.getLogger(__name__)

OWNER_PREFIX = ".owner-"
GROUP_FILE = ".lossless-group"
TOPIC_ID_FILE = ".lossless-topic-id"
_NAME = re.compile(r"([0-9]{20})-([0-9]{20})")


class ValuedMessage(Message, Protocol):
    def value(self) -> Any: ...


@dataclass(frozen=True, slots=True, order=True)
class Range:
    """Offsets of one file, both included."""

    first: int
    last: int

    def name(self, suffix: str) -> str:
        return f"{self.first:020d}-{self.last:020d}{suffix}"

    @classmethod
    def from_name(cls, name: str, suffix: str) -> Range | None:
        """None: not a name of ours."""
        match = _NAME.fullmatch(name.removesuffix(suffix)) if name.endswith(suffix) else None
        return cls(int(match[1]), int(match[2])) if match else None


def next_offset_of(ranges: Iterable[Range]) -> int | None:
    """Where the files end. InvalidPosition when two of them hold the same offsets."""
    reached = None
    for found in sorted(ranges):
        if found.last < found.first or (reached is not None and found.first < reached):
            raise InvalidPosition(
                f"the file of the offsets {found.first} to {found.last} repeats some of another",
                hint="somebody copied files into the folder: take one of them away",
            )
        reached = found.last + 1
    return reached


def value_line(message: ValuedMessage) -> bytes:
    """The value as a line; nothing for a record without one."""
    value = message.value()
    if value is None:
        return b""
    if not isinstance(value, bytes) or b"\n" in value:
        raise BadInput(
            f"the value at offset {message.offset()} of {partition_of(message)} is not one line",
            hint="give the sink a function that makes bytes of a message: encode=…",
        )
    return value + b"\n"


@dataclass(slots=True, eq=False)
class _Claim:
    token: str
    next_offset: int | None
    unsettled: bool = False  # a file was being made when the disk failed: only the names tell
    lock: threading.Lock = field(default_factory=threading.Lock)  # one file is made at a time


class FileSink:
    """A store whose units write files. `encode` makes a message's bytes; b"" leaves it out."""

    def __init__(
        self,
        folder: str | Path,
        *,
        encode: Callable[[Any], bytes] = value_line,
        suffix: str = ".jsonl",
    ) -> None:
        if re.match(r"\d|-|/|\0", suffix) or "/" in suffix:
            raise BadInput(f"{suffix!r} cannot end the names of files", hint='try ".jsonl"')
        self.folder = Path(folder)
        self.encode = encode
        self.suffix = suffix
        self._group: str | None = None
        self._claims: dict[TopicPartition, _Claim] = {}
        self._lock = threading.Lock()
        self._open: set[FileUnit] = set()

    def claim(
        self,
        group: str,
        partitions: Iterable[tuple[str, int]],
        *,
        topic_ids: Mapping[str, str] | None = None,
    ) -> dict[TopicPartition, int | None]:
        wanted = sorted({TopicPartition(*partition) for partition in partitions})
        with self._failing("claiming partitions"):
            self._join(group)
            self._check_topics(wanted, topic_ids or {})
            for partition in wanted:
                token = secrets.token_hex(16)
                home = self.home(partition)
                _make_folder(home)
                own = home / (OWNER_PREFIX + token)
                own.mkdir()
                for name in os.listdir(home):
                    if name.startswith(OWNER_PREFIX) and name != own.name:
                        _sweep(home / name)
                # What another linked and did not live to make durable is built upon from here on.
                _flush(home)
                claim = _Claim(token, self._next_offset(partition))
                with self._lock:
                    self._claims[partition] = claim
        return {partition: self._claims[partition].next_offset for partition in wanted}

    def positions(self) -> dict[TopicPartition, int | None]:
        found: dict[TopicPartition, int | None] = {}
        lost: dict[TopicPartition, _Claim] = {}
        with self._failing("reading the names"):
            for partition, claim in list(self._claims.items()):
                home = self.home(partition)
                if (home / (OWNER_PREFIX + claim.token)).is_dir():
                    _flush(home)
                    found[partition] = claim.next_offset = self._next_offset(partition)
                    claim.unsettled = False
                elif home.is_dir():
                    lost[partition] = claim
                else:
                    raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(home))
        if lost:
            self.forget(lost)
            raise self.partition_lost(lost)
        return found

    def begin(self) -> FileUnit:
        if any(claim.unsettled for claim in list(self._claims.values())):
            self.positions()
        with self._lock:
            unit = FileUnit(self, dict(self._claims))
            self._open.add(unit)
        return unit

    def release(self, partitions: Iterable[tuple[str, int]]) -> None:
        given = [TopicPartition(*partition) for partition in partitions]
        claims = {p: self._claims[p] for p in given if p in self._claims}
        self.forget(claims)
        for partition, claim in claims.items():
            try:
                _sweep(self.home(partition) / (OWNER_PREFIX + claim.token))
            except OSError as error:
                logger.warning("not released, to be taken by whoever is next: %s", error)

    def close(self) -> None:
        for unit in list(self._open):
            unit.rollback()

    def files(self, place: Place) -> list[tuple[Range, Path]]:
        """What is there of a partition, in order."""
        home = self.home(partition_of(place))
        with suppress(FileNotFoundError):
            found = [(Range.from_name(name, self.suffix), home / name) for name in os.listdir(home)]
            return sorted((known, path) for known, path in found if known is not None)
        return []

    def home(self, partition: TopicPartition) -> Path:
        # A topic's name is a folder's: it has no slash, and is neither . nor .. by Kafka's rules.
        return self.folder / partition.topic / str(partition.partition)

    def claimed(self, partition: TopicPartition) -> _Claim | None:
        with self._lock:
            return self._claims.get(partition)

    def forget(self, claims: Mapping[TopicPartition, _Claim]) -> None:
        with self._lock:
            for partition, claim in claims.items():
                if self._claims.get(partition) is claim:  # and not one that was made since
                    del self._claims[partition]

    def over(self, unit: FileUnit) -> None:
        with self._lock:
            self._open.discard(unit)

    def partition_lost(self, partitions: Iterable[TopicPartition]) -> PartitionLost:
        names = ", ".join(map(str, partitions))
        lost = PartitionLost(
            f"another member has taken {names} in {self.folder}: no file was made of it here",
            hint="the new owner goes on from what the names say",
        )
        lost.partitions = list(partitions)
        return lost

    @contextmanager
    def _failing(self, doing: str) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise unavailable(self.folder, doing, error) from error

    def _next_offset(self, partition: TopicPartition) -> int | None:
        return next_offset_of(known for known, _ in self.files(partition))

    def _join(self, group: str) -> None:
        """The first group that claims here has the folder for ever."""
        if self._group is None:
            _make_folder(self.folder)
            self._group = _marked(self.folder / GROUP_FILE, group)
        if self._group != group:
            raise BadInput(
                f"{self.folder} belongs to the group {self._group!r}, and not to {group!r}",
                hint="give each group a folder of its own",
            )

    def _check_topics(self, wanted: list[TopicPartition], topic_ids: Mapping[str, str]) -> None:
        """The first id of a topic is kept as long as its folder."""
        stored: dict[TopicPartition, str | None] = {}
        for partition in wanted:
            now = topic_ids.get(partition.topic)
            if now is not None:
                _make_folder(self.folder / partition.topic)
                stored[partition] = _marked(self.folder / partition.topic / TOPIC_ID_FILE, now)
        check_topic_ids(str(self.folder), stored, topic_ids)


class FileUnit:
    """A file in the making for each partition; see `interface.Unit`."""

    def __init__(self, sink: FileSink, claims: dict[TopicPartition, _Claim]) -> None:
        self._sink = sink
        self._claims = claims
        self._expected = {p: claim.next_offset for p, claim in claims.items()}
        self._drafts: dict[TopicPartition, IO[bytes]] = {}
        self._firsts: dict[TopicPartition, int] = {}
        self._positions: dict[TopicPartition, int] = {}
        self._over = False

    def write(self, message: ValuedMessage, data: bytes | None = None) -> None:
        """Adds a message, or the bytes made of it, and moves past it. Nothing when it is stored."""
        if self.applied(message):
            return
        partition, offset = partition_of(message), offset_of(message)
        data = self._sink.encode(message) if data is None else data
        draft = self._draft(partition)
        with self._failing("writing"):
            draft.write(data)
        self._firsts.setdefault(partition, offset)
        self._positions[partition] = offset + 1

    def next_offset(self, place: Place) -> int | None:
        partition = partition_of(place)
        if partition in self._positions:
            return self._positions[partition]
        self._claim(partition)
        return self._expected[partition]

    def applied(self, message: Message) -> bool:
        reached = self.next_offset(message)
        return reached is not None and offset_of(message) < reached

    def position(self, place: Place, next_offset: int) -> None:
        self._running()
        partition = partition_of(place)
        reached = self.next_offset(partition)
        if reached is not None and next_offset < reached:
            raise InvalidPosition(
                f"{partition} is in files up to {reached}, and cannot go back to {next_offset}",
                hint="skip messages for which unit.applied(message) is true",
            )
        self._positions[partition] = next_offset

    @contextmanager
    def savepoint(self) -> Iterator[None]:
        self._running()
        firsts, positions = dict(self._firsts), dict(self._positions)
        sizes = {partition: draft.tell() for partition, draft in self._drafts.items()}
        try:
            yield
        except BaseException:
            self._firsts, self._positions = firsts, positions
            with self._failing("taking back a part of a unit"):
                for partition, draft in self._drafts.items():
                    draft.seek(sizes.get(partition, 0))
                    draft.truncate()
            raise

    def commit(self) -> None:
        self._running()
        try:
            for partition in sorted(self._positions):
                # A position that did not move has nothing to make a file of.
                if self._positions[partition] != self._expected.get(partition):
                    self._publish(partition)
        except PartitionLost as error:
            lost = [TopicPartition(*partition) for partition in error.partitions]
            self._sink.forget({partition: self._claims[partition] for partition in lost})
            raise
        finally:
            self.rollback()

    def rollback(self) -> None:
        if self._over:
            return
        self._over = True
        for draft in self._drafts.values():
            # Whatever of it is on disk is swept with the owner's folder at the latest.
            with suppress(OSError):
                draft.close()
            with suppress(OSError):
                os.unlink(draft.name)
        self._sink.over(self)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is not None:
            self.rollback()
        elif not self._over:
            self.commit()

    def _publish(self, partition: TopicPartition) -> None:
        claim, draft = self._claim(partition), self._draft(partition)
        reached = self._positions[partition]
        expected = self._expected[partition]
        first = self._firsts.get(partition, reached - 1) if expected is None else expected
        home = self._sink.home(partition)
        target = home / Range(first, reached - 1).name(self._sink.suffix)
        with claim.lock, self._failing("making a file", partition):
            if claim.next_offset != expected or claim.unsettled:
                raise self._sink.partition_lost([partition])  # to another unit of this very sink
            claim.unsettled = True
            draft.flush()
            os.fsync(draft.fileno())
            try:
                os.link(draft.name, target)
            except FileExistsError:
                # Network file systems may repeat a call that was done: then it is this very file.
                if not os.path.samefile(draft.name, target):
                    raise self._sink.partition_lost([partition]) from None
            _flush(home)
            claim.next_offset, claim.unsettled = reached, False

    def _draft(self, partition: TopicPartition) -> IO[bytes]:
        self._running()
        draft = self._drafts.get(partition)
        if draft is None:
            claim = self._claim(partition)
            folder = self._sink.home(partition) / (OWNER_PREFIX + claim.token)
            with self._failing("writing", partition):
                draft = open(folder / secrets.token_hex(8), "xb")  # noqa: SIM115
            self._drafts[partition] = draft
        return draft

    def _claim(self, partition: TopicPartition) -> _Claim:
        current = self._sink.claimed(partition)
        claim = self._claims.get(partition)
        if claim is None and current is not None:  # it came after this unit began
            claim = self._claims[partition] = current
            self._expected[partition] = current.next_offset
        if claim is None or claim is not current:
            raise self._sink.partition_lost([partition])
        return claim

    def _running(self) -> None:
        if self._over:
            raise BadInput("this unit is over", hint="begin another one")

    @contextmanager
    def _failing(self, doing: str, partition: TopicPartition | None = None) -> Iterator[None]:
        try:
            yield
        except FileNotFoundError as error:
            # The owner's folder is gone; if all of it is, it is the disk that is not there.
            if partition is None or not self._sink.home(partition).is_dir():
                raise unavailable(self._sink.folder, doing, error) from error
            raise self._sink.partition_lost([partition]) from error
        except OSError as error:
            raise unavailable(self._sink.folder, doing, error) from error


def unavailable(folder: Path, doing: str, error: OSError) -> StoreUnavailable | BadInput:
    what = f"{folder}, {doing}: {error}"
    if error.errno in (errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP) and error.filename2:
        return BadInput(what, hint="its file system has no hard links: choose another one")
    return StoreUnavailable(what, hint="is the disk full, there, and writable by this user?")


def _sweep(folder: Path) -> None:
    """Gone, with what was in it, whatever its owner does meanwhile."""
    while True:
        try:
            for name in os.listdir(folder):
                with suppress(FileNotFoundError):
                    os.unlink(folder / name)
            os.rmdir(folder)
        except FileNotFoundError:
            return
        except OSError as error:
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                raise
        else:
            return


def _marked(marker: Path, text: str) -> str:
    """What the marker says; this text if nothing did before."""
    if not marker.exists():
        draft = marker.with_name(f".{secrets.token_hex(8)}")
        _write(draft, text.encode())
        with suppress(FileExistsError):
            os.link(draft, marker)
        draft.unlink()
        _flush(marker.parent)
    return marker.read_text()


def _write(path: Path, data: bytes) -> None:
    with path.open("xb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def _make_folder(path: Path) -> None:
    missing = []
    while not path.is_dir():
        missing.append(path)
        path = path.parent
    for folder in reversed(missing):
        folder.mkdir(exist_ok=True)
        _flush(folder.parent)


def _flush(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
