"""Logs for tests: small segments, batches that tell what they are."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from lossless.log.batch import Batch, Record, build
from lossless.log.log import Appended, Log, LogConfig
from lossless.log.memory import MemoryStore
from lossless.log.store import Store

# A batch of one record has about 70 bytes: three or four to a segment.
SMALL = LogConfig(segment_bytes=300, index_interval_bytes=100, retention_ms=None)


def batch(
    *values: bytes,
    key: bytes | None = None,
    timestamp_ms: int = 0,
    producer_id: int = -1,
    epoch: int = -1,
    sequence: int = -1,
    transactional: bool = False,
) -> Batch:
    return build(
        [Record(n, timestamp_ms, key, value) for n, value in enumerate(values or (b"v",))],
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=sequence,
        transactional=transactional,
    )


def fill(log: Log, count: int, *, leader_epoch: int = 0, timestamp_ms: int = 0) -> None:
    for _ in range(count):
        number = log.log_end_offset
        one = batch(b"%d" % number, timestamp_ms=timestamp_ms)
        assert log.append(one, leader_epoch=leader_epoch, now_ms=timestamp_ms) == Appended(
            number, number
        )


def opened(store: Store, config: LogConfig = SMALL) -> Log:
    return Log(store, config)


def values(log: Log) -> list[bytes]:
    return [record.value or b"" for one in log.batches() for record in one.records()]


class LateStore(MemoryStore):
    """What is to be flushed later is, once `catch_up` is called."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[tuple[list[str], dict[str, bytes | None]]] = []

    def flush_later(self, names: Sequence[str], then: Mapping[str, bytes | None]) -> None:
        assert not self.asked
        self.asked.append((list(names), dict(then)))

    def has_flushed(self) -> bool:
        return not self.asked

    def catch_up(self) -> None:
        while self.asked:
            super().flush_later(*self.asked.pop())

    def replace(self, name: str, data: bytes) -> None:
        if self.asked and name in self.asked[0][1]:
            self.catch_up()
        super().replace(name, data)

    def names(self) -> list[str]:
        self.catch_up()
        return super().names()


class Dead(BaseException):
    """The process is gone: nothing that it would have done happens."""


@dataclass
class MortalStore:
    """A store whose process dies at the given change to it, half-way through an append."""

    inner: MemoryStore
    lives: int

    def names(self) -> list[str]:
        return self.inner.names()

    def size(self, name: str) -> int:
        return self.inner.size(name)

    def read(self, name: str, position: int, size: int) -> bytes:
        return self.inner.read(name, position, size)

    def append(self, name: str, data: bytes) -> None:
        self._live(lambda: self.inner.append(name, data[: len(data) // 2]))
        self.inner.append(name, data)

    def flush(self, name: str) -> None:
        self._live()
        self.inner.flush(name)

    def flush_later(self, names: Sequence[str], then: Mapping[str, bytes | None]) -> None:
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
        self._live()
        self.inner.truncate(name, size)

    def replace(self, name: str, data: bytes) -> None:
        self._live()
        self.inner.replace(name, data)

    def remove(self, name: str) -> None:
        self._live()
        self.inner.remove(name)

    def set_aside(self) -> None:
        self._live()
        self.inner.set_aside()

    def destroy(self) -> None:
        self._live()
        self.inner.destroy()

    def _live(self, last_act: Callable[[], None] | None = None) -> None:
        self.lives -= 1
        if self.lives == 0:
            if last_act is not None:
                last_act()
            raise Dead
