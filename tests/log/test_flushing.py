"""What is flushed beside the work: how far, when, and what a log that was killed reads again."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from logs import SMALL, LateStore, batch, fill, opened, values

from lossless.log import files as files_module
from lossless.log import log as log_module
from lossless.log.batch import Marker, MarkerKind
from lossless.log.checkpoints import RECOVERY_POINT
from lossless.log.files import FileStore
from lossless.log.log import DamagedLog, Log, LogConfig
from lossless.log.memory import MemoryStore
from lossless.log.producers import Duplicate
from lossless.log.store import StoreFailed

LARGE = replace(SMALL, segment_bytes=1 << 20)  # nothing is closed
FIRST = f"{0:020d}"


class ReadStore(MemoryStore):
    """Counts what is read of batches."""

    def __init__(self) -> None:
        super().__init__()
        self.read_bytes = 0

    def read(self, name: str, position: int, size: int) -> bytes:
        found = super().read(name, position, size)
        if name.endswith(".log"):
            self.read_bytes += len(found)
        return found


@pytest.fixture
def _often(monkeypatch: pytest.MonkeyPatch) -> None:
    """After about seven batches."""
    monkeypatch.setattr(log_module, "UNFLUSHED_BYTES_MAX", 500)
    monkeypatch.setattr(log_module, "RECALLED_BYTES", 0)


def test_what_is_closed_is_flushed() -> None:
    store = LateStore()
    log = opened(store)
    fill(log, 10)
    assert log.recovery_point == 0
    store.catch_up()
    assert log.recovery_point == log.segment_base_offsets[1] + 1
    fill(log, 1)
    store.catch_up()
    assert log.recovery_point == 11


def test_what_is_flushed_can_be_found_by_the_index_on_disk() -> None:
    """A log that was killed does not read again what was flushed, so nobody would index it."""
    store = MemoryStore()
    log = opened(store, LARGE)
    fill(log, 10)
    log.flush()
    store.lose_power(lambda _unflushed: 0)
    assert store.size(f"{FIRST}.index") >= 8  # an entry has 8 bytes
    assert values(opened(store, LARGE)) == [b"%d" % number for number in range(10)]


@pytest.mark.usefixtures("_often")
def test_what_is_not_closed_is_flushed_every_so_often() -> None:
    log = opened(MemoryStore(), LARGE)
    fill(log, 50)
    assert len(log.segment_base_offsets) == 1
    assert 40 <= log.recovery_point <= 50


@pytest.mark.usefixtures("_often")
def test_while_a_flush_is_under_way_no_other_begins() -> None:
    store = LateStore()
    log = opened(store, LARGE)
    fill(log, 30)  # LateStore would refuse a second one
    (_, then), *_ = store.asked
    assert then[RECOVERY_POINT] != b"30"
    store.catch_up()
    fill(log, 1)
    assert store.asked[0][1][RECOVERY_POINT] == b"31"


@pytest.mark.usefixtures("_often")
def test_a_log_that_was_killed_reads_what_was_not_flushed_and_no_more() -> None:
    store = ReadStore()
    log = opened(store, LARGE)
    fill(log, 5000)
    store.read_bytes = 0
    again = opened(store, LARGE)
    assert store.read_bytes < log.size / 4
    assert again.log_end_offset == 5000
    assert values(again) == [b"%d" % n for n in range(5000)]


@pytest.mark.usefixtures("_often")
def test_producers_and_what_was_aborted_are_known_from_the_flush_on() -> None:
    store = MemoryStore()
    log = opened(store, LARGE)
    for number in range(60):
        one = batch(producer_id=number % 4, epoch=0, sequence=number // 4, transactional=True)
        log.append(one, leader_epoch=0, now_ms=0)
        if number % 10 == 9:
            kind = MarkerKind.ABORT if number % 20 == 9 else MarkerKind.COMMIT
            for producer_id in range(4):
                log.append_marker(
                    Marker(kind, 0),
                    producer_id=producer_id,
                    producer_epoch=0,
                    leader_epoch=0,
                    now_ms=0,
                )
    again = opened(store, LARGE)
    end = log.log_end_offset
    assert again.aborted_between(0, end) == log.aborted_between(0, end) != []
    assert again.last_stable_offset(end) == log.last_stable_offset(end)
    last = batch(producer_id=3, epoch=0, sequence=14, transactional=True)
    assert isinstance(again.append(last, leader_epoch=0, now_ms=0), Duplicate)
    # Even if the producers as of the flush are not: then more is read, and told once.
    for name in store.names():
        if name.endswith(".snapshot"):
            store.remove(name)
    once_more = opened(store, LARGE)
    assert once_more.aborted_between(0, end) == log.aborted_between(0, end)


@pytest.mark.usefixtures("_often")
def test_of_a_flush_one_snapshot_stays_until_the_next() -> None:
    store = MemoryStore()
    log = opened(store, LARGE)

    def snapshots() -> list[str]:
        return [name for name in store.names() if name.endswith(".snapshot")]

    fill(log, 100)
    assert len(snapshots()) == 1
    log = opened(store, LARGE)  # the process died, and another one goes on
    fill(log, 20)
    assert len(snapshots()) == 1


@pytest.mark.usefixtures("_often")
def test_times_are_found_in_a_log_that_was_killed() -> None:
    store = MemoryStore()
    log = opened(store, LARGE)
    for number in range(100):
        # The latest comes early, before the flush.
        fill(log, 1, timestamp_ms=10_000 if number == 30 else number)
    again = opened(store, LARGE)
    assert again.max_timestamp_ms == 10_000
    for time_ms in (0, 50, 99, 5_000):
        assert again.first_at_or_after(time_ms) == log.first_at_or_after(time_ms)


@pytest.mark.usefixtures("_often")
def test_an_index_that_is_wrong_about_what_was_flushed_is_made_anew() -> None:
    store = MemoryStore()
    log = opened(store, LARGE)
    fill(log, 100)
    index = store.read(f"{FIRST}.index", 0, 800)
    store.replace(f"{FIRST}.index", index[:-1] + bytes([index[-1] ^ 1]))  # within a batch
    again = opened(store, LARGE)
    assert values(again) == [b"%d" % n for n in range(100)]
    assert store.read(f"{FIRST}.index", 0, 800).startswith(index)


@pytest.mark.usefixtures("_often")
def test_a_flushed_batch_that_is_gone_is_no_torn_tail() -> None:
    store = MemoryStore()
    log = opened(store, LARGE)
    fill(log, 100)
    before = sum(len(one.data) for one in list(log.batches())[:70])
    store.damage(f"{FIRST}.log", before - 1)
    store.remove(f"{FIRST}.index")  # so that all of it has to be read
    size = store.size(f"{FIRST}.log")
    with pytest.raises(DamagedLog, match="though it was flushed"):
        opened(store, LARGE)
    assert store.size(f"{FIRST}.log") == size


@pytest.mark.usefixtures("_often")
def test_a_crash_between_cutting_and_saying_so_is_no_damage() -> None:
    store = MemoryStore()
    log = opened(store, LARGE)
    fill(log, 100)
    flushed = store.read(RECOVERY_POINT, 0, 9)
    log.truncate(50)
    store.replace(RECOVERY_POINT, flushed)
    assert opened(store, LARGE).log_end_offset == 50


@pytest.mark.usefixtures("_often")
def test_an_index_that_is_ahead_of_its_segment_is_made_anew() -> None:
    store = MemoryStore()
    log = opened(store, LARGE)
    fill(log, 100)
    kept = sum(len(one.data) for one in list(log.batches())[:50])
    store.truncate(f"{FIRST}.log", kept)
    again = opened(store, LARGE)
    assert again.recovery_point == again.log_end_offset == 50
    assert values(again) == [b"%d" % n for n in range(50)]


# On a disk


@pytest.fixture
def files(tmp_path: Path) -> Iterator[FileStore]:
    store = FileStore(tmp_path / "log")
    yield store
    store.close()


def test_a_store_flushes_then_replaces_and_removes(files: FileStore) -> None:
    files.append("a", b"data")
    files.replace("old", b"1")
    assert files.read("old", 0, 9) == b"1"
    files.replace("gone", b"x")
    files.flush_later(["a", "missing"], {"old": b"2", "gone": None})
    assert files.read("old", 0, 9) == b"2"  # whoever reads it waits
    assert files.has_flushed()
    assert files.names() == ["a", "old"]


def test_whoever_changes_what_is_to_be_replaced_comes_after_that(files: FileStore) -> None:
    for change, left in (
        (lambda: files.replace("b", b"mine"), b"mine"),
        (lambda: files.remove("b"), b""),
        (lambda: files.append("b", b"!"), b"later!"),
    ):
        files.flush_later([], {"b": b"later"})
        change()
        assert files.read("b", 0, 9) == left


def test_a_store_does_not_wait_for_what_has_nothing_to_do_with_it(
    files: FileStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    reading, writing = os.pipe()
    monkeypatch.setattr(files_module.os, "fdatasync", lambda _: os.read(reading, 1))
    files.append("a", b"1")
    files.flush_later(["a"], {"b": b"2"})
    files.append("a", b"2")
    files.replace("c", b"3")
    assert files.read("a", 0, 9) == b"12"
    assert not files.has_flushed()
    os.write(writing, b"x")
    assert files.names() == ["a", "b", "c"]
    os.close(reading)
    os.close(writing)


def test_a_flush_that_failed_is_told_to_whoever_asks_next(
    files: FileStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(_: int) -> None:
        raise OSError(5, "Input/output error")

    log = Log(files, LogConfig(segment_bytes=300))
    monkeypatch.setattr(files_module.os, "fdatasync", fails)
    with pytest.raises(StoreFailed, match="Input/output error"):
        fill(log, 1000)


def test_a_store_that_is_closed_does_not_care_what_became_of_a_flush(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(_: int) -> None:
        raise OSError(5, "Input/output error")

    store = FileStore(tmp_path / "log")
    store.append("a", b"1")
    monkeypatch.setattr(files_module.os, "fdatasync", fails)
    store.flush_later(["a"], {})
    store.close()


def test_a_log_on_disk_is_flushed_beside_the_work_and_opens_again(files: FileStore) -> None:
    log = opened(files)
    fill(log, 500)
    files.names()  # waits
    assert log.recovery_point > 0
    again = opened(files)
    assert values(again) == [b"%d" % n for n in range(500)]


def test_a_new_log_asks_the_disk_for_nothing_until_it_has_records(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flushed: list[int] = []
    for name in ("fsync", "fdatasync"):
        monkeypatch.setattr(os, name, flushed.append)
    log = opened(FileStore(tmp_path / "orders-0.1"))
    log.close()
    again = opened(FileStore(tmp_path / "orders-0.1"))
    assert flushed == []
    assert list((tmp_path / "orders-0.1").iterdir()) == []
    fill(again, 1)
    assert flushed != []


def test_a_log_that_was_flushed_and_closed_is_opened_with_one_flush(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = opened(FileStore(tmp_path / "orders-0.1"))
    fill(log, 1)
    log.close()
    flushed: list[int] = []
    for name in ("fsync", "fdatasync"):
        monkeypatch.setattr(os, name, flushed.append)
    assert values(opened(FileStore(tmp_path / "orders-0.1"))) == [b"0"]
    assert len(flushed) == 1  # that it is open


def test_the_name_of_a_new_folder_is_flushed_with_its_first_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flushed: list[str] = []
    real = os.fsync

    def noted(descriptor: int) -> None:
        flushed.append(os.readlink(f"/proc/self/fd/{descriptor}"))
        real(descriptor)

    monkeypatch.setattr(os, "fsync", noted)
    store = FileStore(tmp_path / "orders-0.1")
    store.append("a", b"1")
    store.append("b", b"1")
    assert flushed == [str(tmp_path), *[str(tmp_path / "orders-0.1")] * 2]


def test_a_second_segment_does_not_hide_that_the_first_has_lost_its_end() -> None:
    """Of a log that was never flushed."""
    store = LateStore()
    log = opened(store)
    fill(log, 6)
    first, second = log.segment_base_offsets
    assert first < 3 <= second
    one = len(next(log.batches()).data)
    store.asked.clear()  # the flush of what was closed had only begun
    store.lose_power(lambda tail: one if tail == second * one else tail)  # all but of the first
    assert values(opened(store)) == [b"0"]
