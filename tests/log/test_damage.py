"""What a disk has changed is found before anybody gets it, and the log is not served any more."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from logs import batch, fill, opened, values

from lossless.engines.waiting import wait_until
from lossless.log.batch import HEADER_SIZE, Batch, CorruptBatch, parse_all, require_whole
from lossless.log.checkpoints import DAMAGED, is_damaged
from lossless.log.files import FileStore
from lossless.log.log import DamagedLog, Log, LogConfig
from lossless.log.memory import MemoryStore
from lossless.log.segment import LAST_BYTES_MAX, RECENT, Segment

FIRST = f"{0:020d}"


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore()


@pytest.fixture
def log(store: MemoryStore) -> Log:
    log = opened(store)
    fill(log, 10)
    return log


READERS: dict[str, Callable[[Log], object]] = {
    "read": lambda log: log.read(1, end_offset=10, bytes_max=1000),
    "batches": lambda log: list(log.batches()),
    "time": lambda log: log.first_at_or_after(0),
    "compact": lambda log: log.compact(now_ms=0, high_watermark=10),
    "truncate": lambda log: log.truncate(9),
    "cut": lambda log: log.truncate(2),
}


@pytest.mark.parametrize("name", READERS)
def test_whoever_reads_a_flipped_bit_of_a_closed_segment_is_told_and_the_log_is_marked(
    log: Log, store: MemoryStore, name: str
) -> None:
    size = len(next(log.batches()).data)
    store.damage(f"{FIRST}.log", 2 * size - 1 if name == "read" else size - 1)
    assert not is_damaged(store)
    with pytest.raises(DamagedLog, match="checksum of batch"):
        READERS[name](log)
    assert is_damaged(store)
    with pytest.raises(DamagedLog, match="checksum of batch"):
        opened(store)


def test_compaction_finds_damage_in_what_it_reads_again(log: Log, store: MemoryStore) -> None:
    log.flush()
    real = log._batches_of

    def flipped(segments: list[Segment]) -> Iterator[Batch]:
        """The disk turns a bit between two readings."""
        yield from real(segments)
        store.damage(f"{FIRST}.log", store.size(f"{FIRST}.log") - 1)

    log._batches_of = flipped  # type: ignore[method-assign]
    with pytest.raises(DamagedLog, match="checksum"):
        log.compact(now_ms=0, high_watermark=10)


def test_an_index_that_would_pass_over_records_is_found_out(store: MemoryStore) -> None:
    log = opened(store, LogConfig(index_interval_bytes=100))
    for _ in range(RECENT + 4):
        log.append(batch(b"a", b"b", b"c"), leader_epoch=0, now_ms=0)
    segment = log._segments[0]
    assert len(segment._offsets._offsets) > 0
    segment._offsets._offsets[0] -= 2  # as if a bit of the file had been turned
    with pytest.raises(DamagedLog, match="the index"):
        log.read(segment._offsets._offsets[0], end_offset=99, bytes_max=1000)


def test_a_log_that_is_set_aside_begins_anew_and_what_it_had_is_kept(
    log: Log, store: MemoryStore
) -> None:
    store.damage(f"{FIRST}.log", 90)
    with pytest.raises(DamagedLog):
        values(log)
    store.set_aside()
    assert not is_damaged(store)
    again = opened(store)
    assert (again.log_start_offset, again.log_end_offset) == (0, 0)
    assert {DAMAGED, f"{FIRST}.log"} <= store.aside[0].keys()


def test_a_folder_that_is_set_aside_has_another_name(tmp_path: Path) -> None:
    store = FileStore(tmp_path / "log")
    for content in (b"1", b"2"):
        store.append("a", content)
        store.set_aside()
        assert store.names() == []
    assert (tmp_path / "log.damaged-1" / "a").read_bytes() == b"1"
    assert (tmp_path / "log.damaged-2" / "a").read_bytes() == b"2"
    store.append("a", b"3")
    assert (tmp_path / "log" / "a").read_bytes() == b"3"
    assert str(store) == str(tmp_path / "log")
    store.close()


@pytest.mark.parametrize(
    ("change", "what"),
    [
        (lambda data: data[:-1], "says"),
        (lambda data: data + bytes(HEADER_SIZE - 1), "less than a header"),
        (lambda data: data[:-1] + b"x", "checksum"),
        (lambda data: data[:16] + b"\1" + data[17:], "version 1"),
        (lambda data: data[:8] + bytes(4) + data[12:], "says 0 bytes"),
        (lambda data: data[:7] + b"\2" + data[8:], "batch 1 comes where 3 should"),
    ],
)
def test_bytes_that_are_not_whole_batches_are_refused(
    change: Callable[[bytes], bytes], what: str
) -> None:
    whole = batch(b"a").data + batch(b"b").placed(1, 0).data
    require_whole(whole)
    require_whole(b"")
    with pytest.raises(CorruptBatch, match=what):
        require_whole(change(whole))


def test_batches_larger_than_what_is_read_at_once_are_read(store: MemoryStore) -> None:
    config = LogConfig()
    log = opened(store, config)
    expected = [b"a", b"b" * (3 << 20), b"c"]
    for value in expected:
        log.append(batch(value), leader_epoch=0, now_ms=0)
    assert values(log) == expected
    assert values(opened(store, config)) == expected


@pytest.mark.parametrize("name", ["read", "batches"])
def test_a_file_that_became_shorter_under_a_log_is_damage(
    log: Log, store: MemoryStore, name: str
) -> None:
    store.truncate(f"{FIRST}.log", len(next(log.batches()).data))
    with pytest.raises(DamagedLog, match="before it should"):
        READERS[name](log)


def test_a_file_that_became_shorter_under_a_log_that_was_opened_again_is_damage(
    log: Log, store: MemoryStore
) -> None:
    """Where its batches are is not remembered, but looked for."""
    log.close()
    again = opened(store)
    store.truncate(f"{FIRST}.log", len(next(log.batches()).data))
    with pytest.raises(DamagedLog, match="before it should"):
        again.read(0, end_offset=3, bytes_max=1000)


def test_a_log_that_is_destroyed_leaves_nothing(tmp_path: Path) -> None:
    log = opened(FileStore(tmp_path / "log"))
    fill(log, 10)
    log.destroy()
    assert not (tmp_path / "log").exists()  # at once
    assert wait_until(lambda: not list(tmp_path.iterdir()), timeout_s=20)


def test_the_last_batch_of_a_segment_is_read_and_checked_once_it_is_closed(
    store: MemoryStore,
) -> None:
    log = Log(store, LogConfig(segment_bytes=len(batch(b"v0").data)))
    for number in range(2):
        log.append(batch(b"v%d" % number), leader_epoch=0, now_ms=0)
    assert log.segment_base_offsets == [0, 1]
    store.damage(f"{FIRST}.log", HEADER_SIZE + 1)
    with pytest.raises(DamagedLog):
        log.read(0, end_offset=2, bytes_max=1)


def test_what_replaces_what_was_cut_off_is_what_is_read(log: Log) -> None:
    log.append(batch(b"old"), leader_epoch=0, now_ms=0)
    log.truncate(10)
    # A part of what a leader sent, of the same size: it is not kept at hand.
    sent = batch(b"new").placed(10, 0).data, batch(b"more").placed(11, 0).data
    log.append_from_leader(parse_all(b"".join(sent))[:1])
    assert b"new" in log.read(10, end_offset=11, bytes_max=1000)


class _CountingStore(MemoryStore):
    def __init__(self) -> None:
        super().__init__()
        self.reads = 0

    def read(self, name: str, position: int, size: int) -> bytes:
        self.reads += 1
        return super().read(name, position, size)


def test_what_was_read_of_the_end_is_at_hand_for_the_next_who_asks() -> None:
    store = _CountingStore()
    log = Log(store)
    fill(log, 4)
    before = store.reads
    first = log.read(2, end_offset=4, bytes_max=1000)
    assert store.reads == before + 1
    assert log.read(2, end_offset=4, bytes_max=1000) == first
    assert store.reads == before + 1
    assert log.read(1, end_offset=4, bytes_max=1000) != first
    assert [one.base_offset for one in parse_all(first)] == [2, 3]


def test_a_part_of_what_is_at_hand_is_read_as_that_part() -> None:
    log = Log(MemoryStore())
    fill(log, 4)
    log.read(1, end_offset=4, bytes_max=1000)
    assert [one.base_offset for one in parse_all(log.read(1, end_offset=3, bytes_max=1000))] == [
        1,
        2,
    ]


def test_what_was_read_and_is_cut_off_is_not_served() -> None:
    log = Log(MemoryStore())
    fill(log, 4)
    log.read(2, end_offset=4, bytes_max=1000)
    log.truncate(2)
    for value in (b"x", b"y"):  # as large as what was there
        log.append(batch(value), leader_epoch=1, now_ms=0)
    read = parse_all(log.read(2, end_offset=4, bytes_max=1000))
    assert [record.value for one in read for record in one.records()] == [b"x", b"y"]


def test_what_is_large_is_not_kept_at_hand() -> None:
    store = _CountingStore()
    log = Log(store)
    for _ in range(3):
        log.append(batch(b"v" * LAST_BYTES_MAX), leader_epoch=0, now_ms=0)
    before = store.reads
    for _ in range(2):
        log.read(1, end_offset=3, bytes_max=1 << 30)
    assert store.reads == before + 2
