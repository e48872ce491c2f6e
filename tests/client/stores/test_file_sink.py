"""Files that appear whole, once, with the offsets in their names."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from file_worker import END, GROUP, ORDERS, lines, message, write_all, write_on
from hypothesis import given
from hypothesis import strategies as st

from lossless.client.errors import InvalidPosition, PartitionLost, StoreUnavailable
from lossless.client.stores.files import OWNER_PREFIX, FileSink, Range, next_offset_of
from lossless.client.stores.interface import Store, TopicPartition
from lossless.errors import BadInput

WORKER = Path(__file__).with_name("file_worker.py")
TIMEOUT_S = 60
OTHERS = ("orders", 1)

offsets = st.integers(0, 2**63 - 1)


@given(first=offsets, last=offsets, suffix=st.sampled_from(["", ".jsonl", ".0", ".a-b"]))
def test_names_say_the_range_and_sort_by_it(first: int, last: int, suffix: str) -> None:
    assert Range.from_name(Range(first, last).name(suffix), suffix) == Range(first, last)
    assert (Range(first, 0).name(suffix) < Range(last, 0).name(suffix)) == (first < last)


@given(name=st.text(st.sampled_from("0123456789-.jsonl/\n٣"), max_size=50))
def test_other_names_are_not_taken_for_ours(name: str) -> None:
    known = Range.from_name(name, ".jsonl")
    assert known is None or known.name(".jsonl") == name


@given(sizes=st.lists(st.integers(1, 5), max_size=6), start=st.integers(0, 100), data=st.data())
def test_the_position_is_the_end_of_the_chain(sizes: list[int], start: int, data: Any) -> None:
    ranges, first = [], start
    for size in sizes:
        ranges.append(Range(first, first + size - 1))
        first += size
    shuffled = data.draw(st.permutations(ranges))
    assert next_offset_of(shuffled) == (first if ranges else None)
    if ranges:
        # One that repeats an offset of another is noticed, wherever it is.
        again = data.draw(st.integers(start, first - 1))
        extra = Range(again, again + data.draw(st.integers(0, 3)))
        with pytest.raises(InvalidPosition):
            next_offset_of([*shuffled, extra])


def test_files_hold_each_record_once(tmp_path: Path) -> None:
    sink = FileSink(tmp_path / "new" / "folder")
    store: Store = sink
    assert store.claim(GROUP, [ORDERS]) == {ORDERS: None}
    write_on(sink, 0)

    assert lines(sink) == list(range(END))
    assert [known for known, _ in sink.files(ORDERS)] == [Range(0, 1), Range(2, 3), Range(4, 5)]
    assert FileSink(sink.folder).claim(GROUP, [ORDERS]) == {ORDERS: END}
    sink.close()


def test_records_that_are_stored_are_not_written_again(tmp_path: Path) -> None:
    sink = FileSink(tmp_path)
    write_all(sink)
    again = FileSink(tmp_path)
    again.claim(GROUP, [ORDERS])
    write_on(again, 0, END + 2)
    assert lines(again) == list(range(END + 2))


def test_a_unit_without_lines_moves_the_position(tmp_path: Path) -> None:
    sink = FileSink(tmp_path, encode=lambda _: b"")
    sink.claim(GROUP, [ORDERS, OTHERS])
    with sink.begin() as unit:
        unit.write(message(5))
        unit.position(ORDERS, 9)
        unit.position(OTHERS, 4)
        with pytest.raises(InvalidPosition):
            unit.position(ORDERS, 8)
    with sink.begin() as unit:
        unit.position(ORDERS, 9)  # nothing new: no file
    assert [known for known, _ in sink.files(ORDERS)] == [Range(5, 8)]
    assert [known for known, _ in sink.files(OTHERS)] == [Range(3, 3)]
    assert sink.positions() == {ORDERS: 9, OTHERS: 4}


def test_a_rollback_leaves_nothing(tmp_path: Path) -> None:
    sink = FileSink(tmp_path)
    sink.claim(GROUP, [ORDERS])
    with suppress(RuntimeError), sink.begin() as unit:
        unit.write(message(0))
        raise RuntimeError
    assert _files_in(tmp_path) == [tmp_path / ".lossless-group"]
    assert sink.positions() == {ORDERS: None}


def test_a_failed_record_is_taken_back_alone(tmp_path: Path) -> None:
    sink = FileSink(tmp_path)
    sink.claim(GROUP, [ORDERS])
    with sink.begin() as unit:
        with suppress(RuntimeError), unit.savepoint():
            unit.write(message(0))
            raise RuntimeError
        with unit.savepoint():
            unit.write(message(0))
        with suppress(RuntimeError), unit.savepoint():
            unit.write(message(1))
            raise RuntimeError
        unit.write(message(1))
    assert lines(sink) == [0, 1]


def test_a_value_that_is_no_line_is_refused(tmp_path: Path) -> None:
    sink = FileSink(tmp_path)
    sink.claim(GROUP, [ORDERS])
    unit = sink.begin()
    broken = message(0)
    broken.set_value(b"two\nlines")
    with pytest.raises(BadInput, match="not one line"):
        unit.write(broken)
    unit.write(broken, b"'two\\nlines'\n")
    unit.commit()
    assert [path.read_bytes() for _, path in sink.files(ORDERS)] == [b"'two\\nlines'\n"]


# --- crashes


@pytest.mark.parametrize(("point", "stored"), [("claimed", 0), ("written", 0), ("linked", 3)])
def test_a_killed_member_leaves_whole_files(tmp_path: Path, point: str, stored: int) -> None:
    with _started(tmp_path, "die", point) as member:
        assert member.wait(TIMEOUT_S) == -9
    sink = FileSink(tmp_path)
    assert sink.claim(GROUP, [ORDERS]) == {ORDERS: stored or None}
    assert lines(sink) == list(range(stored))
    write_all(sink)
    assert lines(sink) == list(range(END))
    sink.release([ORDERS])
    left = [path.name for path in sink.home(TopicPartition(*ORDERS)).iterdir()]
    assert all(Range.from_name(name, ".jsonl") for name in left), left


def test_torn_temporary_files_are_swept(tmp_path: Path) -> None:
    sink = FileSink(tmp_path)
    write_all(sink)
    torn = sink.home(TopicPartition(*ORDERS)) / f"{OWNER_PREFIX}dead"
    torn.mkdir()
    (torn / "half").write_bytes(b"1")
    FileSink(tmp_path).claim(GROUP, [ORDERS])
    assert not torn.exists()


# --- zombies


@pytest.mark.parametrize("point", ["claimed", "written"])
def test_a_member_that_wakes_after_its_partition_moved_makes_no_file(
    tmp_path: Path, point: str
) -> None:
    with _started(tmp_path, "wait", point) as zombie:
        assert zombie.stdout is not None
        assert zombie.stdout.readline() == "WAITING\n"
        sink = FileSink(tmp_path)
        write_all(sink)
        said, _ = zombie.communicate("\n", timeout=TIMEOUT_S)
    assert said.strip() == "PartitionLost"
    assert lines(sink) == list(range(END))


def test_a_member_that_made_its_file_before_the_claim_is_seen(tmp_path: Path) -> None:
    with _started(tmp_path, "wait", "linked") as zombie:
        assert zombie.stdout is not None
        assert zombie.stdout.readline() == "WAITING\n"
        sink = FileSink(tmp_path)
        assert sink.claim(GROUP, [ORDERS]) == {ORDERS: 3}
        said, _ = zombie.communicate("\n", timeout=TIMEOUT_S)
        assert said.strip() == "PartitionLost"  # at the next one
        write_on(sink, 3)
    assert lines(sink) == list(range(END))


def test_of_two_writers_of_one_range_one_loses(tmp_path: Path) -> None:
    first, second = FileSink(tmp_path), FileSink(tmp_path)
    first.claim(GROUP, [ORDERS])
    early = first.begin()
    early.write(message(0))
    second.claim(GROUP, [ORDERS])
    late = second.begin()
    late.write(message(0))
    late.commit()
    with pytest.raises(PartitionLost) as lost:
        early.commit()
    assert lost.value.partitions == [ORDERS]
    assert lines(second) == [0]
    assert first.positions() == {}


def test_a_name_that_is_taken_is_not_replaced(tmp_path: Path) -> None:
    sink = FileSink(tmp_path)
    sink.claim(GROUP, [ORDERS])
    unit = sink.begin()
    unit.write(message(0))
    taken = sink.home(TopicPartition(*ORDERS)) / Range(0, 0).name(".jsonl")
    taken.write_text("somebody else's\n")
    with pytest.raises(PartitionLost):
        unit.commit()
    assert taken.read_text() == "somebody else's\n"


def test_of_two_units_of_one_partition_one_makes_a_file(tmp_path: Path) -> None:
    sink = FileSink(tmp_path)
    sink.claim(GROUP, [ORDERS])
    first, second = sink.begin(), sink.begin()
    first.write(message(0))
    second.write(message(0))
    second.write(message(1))
    first.commit()
    with pytest.raises(PartitionLost):
        second.commit()
    assert lines(sink) == [0]


def test_a_partition_claimed_anew_is_lost_to_the_open_unit(tmp_path: Path) -> None:
    sink = FileSink(tmp_path)
    sink.claim(GROUP, [ORDERS])
    unit = sink.begin()
    unit.write(message(0))
    sink.claim(GROUP, [ORDERS])
    with pytest.raises(PartitionLost):
        unit.commit()
    write_on(sink, 0)
    assert lines(sink) == list(range(END))


def test_members_that_claim_from_each_other_all_the_time_write_each_record_once(
    tmp_path: Path,
) -> None:
    """Two threads, each taking the partition whenever it has lost it."""
    end, failures = 60, []

    def member() -> None:
        sink = FileSink(tmp_path)
        try:
            while True:
                try:
                    next_offset = sink.claim(GROUP, [ORDERS])[ORDERS] or 0
                    if next_offset >= end:
                        return
                    write_on(sink, next_offset, end, size=3)
                except PartitionLost:
                    continue
        except BaseException as error:
            failures.append(error)
        finally:
            sink.close()

    threads = [threading.Thread(target=member) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(TIMEOUT_S)
    assert failures == []
    assert lines(FileSink(tmp_path)) == list(range(end))


# --- what goes wrong


def test_a_folder_belongs_to_one_group(tmp_path: Path) -> None:
    FileSink(tmp_path).claim(GROUP, [ORDERS])
    with pytest.raises(BadInput, match="belongs to the group"):
        FileSink(tmp_path).claim("another", [ORDERS])


def test_a_disk_that_is_full_stores_nothing_and_can_be_tried_again(tmp_path: Path) -> None:
    sink = FileSink(tmp_path)
    sink.claim(GROUP, [ORDERS])
    unit = sink.begin()
    unit.write(message(0), b"x" * 2000)
    allowed = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, allowed[1]))
    try:
        with pytest.raises(StoreUnavailable):
            unit.commit()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, allowed)
    assert sink.files(ORDERS) == []
    write_all(sink)
    assert lines(sink) == list(range(END))


def test_a_disk_that_is_gone_is_not_a_lost_partition(tmp_path: Path) -> None:
    sink = FileSink(tmp_path / "disk")
    write_all(sink)
    os.rename(tmp_path / "disk", tmp_path / "away")
    with pytest.raises(StoreUnavailable), sink.begin() as unit:
        unit.write(message(END))
    with pytest.raises(StoreUnavailable):
        sink.positions()
    os.rename(tmp_path / "away", tmp_path / "disk")
    assert sink.positions() == {ORDERS: END}
    write_on(sink, END, END + 2)
    assert lines(sink) == list(range(END + 2))


@pytest.mark.parametrize("suffix", ["1", "-x", "/x", "a/b"])
def test_a_suffix_that_would_be_part_of_the_offset_is_refused(tmp_path: Path, suffix: str) -> None:
    with pytest.raises(BadInput):
        FileSink(tmp_path, suffix=suffix)


def _started(folder: Path, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, str(WORKER), str(folder), *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def _files_in(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]


def test_files_of_another_topic_with_the_same_name_are_refused(tmp_path: Path) -> None:
    ids = {"orders": "first"}
    sink = FileSink(tmp_path)
    assert sink.claim("g", [("orders", 0)], topic_ids=ids) == {("orders", 0): None}
    assert sink.claim("g", [("orders", 0)], topic_ids=ids) == {("orders", 0): None}
    with pytest.raises(InvalidPosition, match="deleted and created again"):
        FileSink(tmp_path).claim("g", [("orders", 0)], topic_ids={"orders": "second"})
