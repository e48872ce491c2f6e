"""The two stores promise the same; only one of them can lose power."""

from __future__ import annotations

import os
import resource
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from lossless.engines.waiting import wait_until
from lossless.log.files import FileStore, stored_in
from lossless.log.memory import MemoryStore
from lossless.log.store import Store, StoreFailed


@pytest.fixture(params=["memory", "files"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    if request.param == "memory":
        yield MemoryStore()
        return
    files = FileStore(tmp_path / "log")
    yield files
    files.close()


def test_a_file_grows_at_its_end_and_is_cut_there(store: Store) -> None:
    store.append("a", b"12345")
    store.append("a", b"678")
    assert store.size("a") == 8
    assert store.read("a", 3, 3) == b"456"
    assert store.read("a", 6, 100) == b"78"
    store.truncate("a", 2)
    assert store.read("a", 0, 100) == b"12"
    store.truncate("a", 5)  # no longer than it is
    store.append("a", b"x")
    assert store.read("a", 0, 100) == b"12x"


def test_a_file_that_does_not_exist_is_empty(store: Store) -> None:
    assert store.names() == []
    assert store.size("a") == 0
    assert store.read("a", 0, 10) == b""
    store.flush("a")
    store.truncate("a", 0)
    store.remove("a")
    assert store.names() == []


def test_a_file_is_replaced_and_removed_as_a_whole(store: Store) -> None:
    store.append("a", b"old")
    store.append("b", b"other")
    store.replace("a", b"new one")
    assert store.read("a", 0, 100) == b"new one"
    store.append("a", b"!")
    assert store.read("a", 0, 100) == b"new one!"
    assert store.names() == ["a", "b"]
    store.remove("a")
    assert store.names() == ["b"]
    assert store.read("a", 0, 1) == b""


def test_another_process_finds_what_was_written(tmp_path: Path) -> None:
    first = FileStore(tmp_path)
    first.append("a", b"written")
    first.flush("a")
    second = FileStore(tmp_path)
    assert second.read("a", 0, 100) == b"written"
    first.close()
    second.close()


def test_half_a_replacement_is_gone_when_the_folder_is_opened(tmp_path: Path) -> None:
    (tmp_path / "a.new").write_bytes(b"half")
    store = FileStore(tmp_path)
    assert store.names() == []


def test_a_folder_that_cannot_be_used_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StoreFailed, match=r"file.*File exists"):
        FileStore(tmp_path / "file")


def test_what_cannot_be_read_is_named(tmp_path: Path) -> None:
    store = FileStore(tmp_path)
    (tmp_path / "a").mkdir()
    with pytest.raises(StoreFailed, match="a: Is a directory"):
        store.read("a", 0, 1)
    store.close()


def test_a_full_disk_leaves_the_old_file(tmp_path: Path) -> None:
    store = FileStore(tmp_path)
    store.replace("a", b"old")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1024, before[1]))
    try:
        with pytest.raises(StoreFailed, match="a: File too large"):
            store.replace("a", bytes(5000))
        with pytest.raises(StoreFailed, match="b: File too large"):
            store.append("b", bytes(5000))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, ignored)
    assert store.read("a", 0, 10) == b"old"
    assert store.size("b") == 1024  # a part, which recovery will cut
    assert sorted(os.listdir(tmp_path)) == ["a", "b"]
    store.close()


def test_memory_that_is_full_takes_a_part() -> None:
    store = MemoryStore()
    store.capacity = 5
    store.append("a", b"123")
    with pytest.raises(StoreFailed, match="no space left for b"):
        store.append("b", b"4567")
    assert store.read("b", 0, 9) == b"45"
    with pytest.raises(StoreFailed, match="no space left for a"):
        store.replace("a", b"1234")
    store.replace("a", b"321")
    assert store.read("a", 0, 9) == b"321"


def test_memory_that_has_failed_can_be_read_and_not_changed_and_then_has_what_was_flushed() -> None:
    store = MemoryStore()
    store.append("a", b"12")
    store.flush("a")
    store.append("a", b"3")
    store.fail()
    for change in (
        lambda: store.append("a", b"4"),
        lambda: store.flush("a"),
        lambda: store.truncate("a", 1),
        lambda: store.replace("a", b"4"),
        lambda: store.remove("a"),
    ):
        with pytest.raises(StoreFailed, match="input/output error on a"):
            change()
    assert store.read("a", 0, 9) == b"123"
    store.mend()
    assert store.read("a", 0, 9) == b"12"
    store.append("a", b"4")
    store.mend()
    assert store.read("a", 0, 9) == b"124"


def test_a_loss_of_power_keeps_what_was_flushed_and_some_of_the_rest() -> None:
    store = MemoryStore()
    store.append("a", b"12")
    store.flush("a")
    store.append("a", b"345")
    store.append("b", b"678")
    store.replace("c", b"9")
    store.lose_power(lambda tail: tail - 2)
    assert store.read("a", 0, 9) == b"123"
    assert store.read("b", 0, 9) == b"6"
    assert store.read("c", 0, 9) == b"9"
    store.lose_power(lambda _tail: 0)  # what came through is on disk now
    assert store.read("a", 0, 9) == b"123"


def test_damage_turns_a_bit_over() -> None:
    store = MemoryStore()
    store.append("a", b"\0\0")
    store.damage("a", 1)
    assert store.read("a", 0, 2) == b"\0\1"


def test_what_was_set_aside_is_none_of_the_stores_of_a_folder(tmp_path: Path) -> None:
    for name in ("orders-0.1", "orders-1.1"):
        store = FileStore(tmp_path / name)
        store.append("a", b"1")
        store.close()
    FileStore(tmp_path / "orders-1.1").set_aside()
    assert sorted(stored_in(tmp_path)) == ["orders-0.1", "orders-1.1"]
    assert len(list(tmp_path.iterdir())) == 3
    with pytest.raises(StoreFailed):
        stored_in(tmp_path / "nowhere")


def test_what_a_process_left_of_a_destroyed_store_is_one_of_the_stores_of_a_folder(
    tmp_path: Path,
) -> None:
    (tmp_path / "orders-0.1.deleted-1").mkdir()
    (tmp_path / "orders-0.1.deleted-1" / "a").touch()
    assert stored_in(tmp_path) == ["orders-0.1.deleted-1"]
    FileStore(tmp_path / "orders-0.1.deleted-1").destroy()
    assert wait_until(lambda: stored_in(tmp_path) == [], timeout_s=20)


def test_a_store_can_be_used_again_under_the_name_of_one_that_was_destroyed(
    tmp_path: Path,
) -> None:
    for _ in range(3):
        store = FileStore(tmp_path / "orders-0.1")
        assert store.names() == []
        store.append("a", b"1")
        store.destroy()
    assert wait_until(lambda: stored_in(tmp_path) == [], timeout_s=20)
