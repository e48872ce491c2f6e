"""The spool by itself: ordered, bounded by its owner, committed or not there."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lossless.client.producing.packing import pack_headers, unpack_headers
from lossless.client.producing.spool import FILE_NAME, Parked, Spool, bytes_of, lane_of
from lossless.client.record import Record
from lossless.errors import BadInput, Unavailable

header_values = st.one_of(st.none(), st.binary(max_size=20))
header_lists = st.lists(st.tuples(st.text(max_size=10), header_values), max_size=5)
records = st.builds(
    Record,
    topic=st.sampled_from(["orders", "payments"]),
    key=st.one_of(st.none(), st.binary(max_size=3)),
    value=st.one_of(st.none(), st.binary(max_size=50)),
    headers=header_lists,
    partition=st.one_of(st.none(), st.integers(0, 3)),
    timestamp_ms=st.integers(1, 1 << 62),
)


def parked(place: int, record: Record) -> Parked:
    return Parked(place, record, bytes_of(record))


@given(header_lists)
def test_headers_come_back_as_they_were(headers: list[tuple[str, bytes | None]]) -> None:
    assert unpack_headers(pack_headers(headers)) == headers


@given(st.dictionaries(st.integers(1, 1_000), records, max_size=30), st.data())
def test_rows_come_back_in_order_until_they_are_removed(
    tmp_path_factory: pytest.TempPathFactory, rows: dict[int, Record], data: st.DataObject
) -> None:
    folder = tmp_path_factory.mktemp("spool")
    spool = Spool(folder, bytes_max=1 << 20)
    expected = [parked(place, record) for place, record in sorted(rows.items())]
    spool.add([parked(place, record) for place, record in rows.items()])
    gone = data.draw(st.sets(st.sampled_from(sorted(rows)))) if rows else set()
    spool.remove([row for row in expected if row.place in gone])
    spool.close()

    again = Spool(folder, bytes_max=1 << 20)
    left = [row for row in expected if row.place not in gone]
    assert again.after(0, 1_000) == left
    assert (again.count, again.bytes) == (len(left), sum(row.bytes for row in left))
    assert again.last_place == (left[-1].place if left else 0)
    lanes: dict[object, int] = {}
    for row in left:
        lanes[lane_of(row.record)] = lanes.get(lane_of(row.record), 0) + 1
    assert again.lanes == lanes
    again.close()


def test_a_folder_has_one_owner(tmp_path: Path) -> None:
    spool = Spool(tmp_path, bytes_max=1_000)
    with pytest.raises(Unavailable, match="another producer"):
        Spool(tmp_path, bytes_max=1_000)
    spool.close()
    Spool(tmp_path, bytes_max=1_000).close()


def test_what_was_refused_is_kept_aside(tmp_path: Path) -> None:
    spool = Spool(tmp_path, bytes_max=1_000)
    row = parked(7, Record(topic="orders", key=b"k", value=b"v"))
    spool.add([row])
    spool.refuse(row, "too large")
    assert (spool.count, spool.bytes, spool.refused) == (0, 0, 1)
    spool.close()
    again = Spool(tmp_path, bytes_max=1_000)
    assert (again.count, again.refused, again.last_place) == (0, 1, 7)
    again.close()


def test_another_kind_of_file_is_not_touched(tmp_path: Path) -> None:
    (tmp_path / FILE_NAME).write_text("not a database" * 100)
    with pytest.raises(BadInput, match="is not a spool"):
        Spool(tmp_path, bytes_max=1_000)
    (tmp_path / FILE_NAME).unlink()
    with sqlite3.connect(tmp_path / FILE_NAME) as database:
        database.execute("PRAGMA user_version = 99")
    database.close()
    with pytest.raises(BadInput, match="version 99"):
        Spool(tmp_path, bytes_max=1_000)


def test_a_damaged_file_is_refused_and_its_folder_is_free_again(tmp_path: Path) -> None:
    """Whichever of its pages is damaged. Nothing in the message says to remove it."""
    spool = Spool(tmp_path, bytes_max=1 << 20)
    record = Record(topic="orders", key=b"k", value=bytes(500), headers=[], timestamp_ms=1)
    spool.add([parked(place, record) for place in range(1, 201)])
    spool.close()
    file = tmp_path / FILE_NAME
    whole = file.read_bytes()
    page = int.from_bytes(whole[16:18], "big")
    refusals: list[BadInput] = []
    for start in range(0, len(whole), page):
        damaged = bytearray(whole)
        damaged[start + 40 : start + page] = bytes(
            0xFF ^ b for b in whole[start + 40 : start + page]
        )
        file.write_bytes(damaged)
        try:
            Spool(tmp_path, bytes_max=1 << 20).close()
        except BadInput as error:
            refusals.append(error)
        for leftover in (f"{FILE_NAME}-wal", f"{FILE_NAME}-shm"):
            (tmp_path / leftover).unlink(missing_ok=True)
    assert refusals
    assert all("is damaged" in refusal.what for refusal in refusals)
    assert all("keep it" in (refusal.hint or "") for refusal in refusals)
    file.write_bytes(whole)
    spool = Spool(tmp_path, bytes_max=1 << 20)  # the lock was released each time
    assert spool.count == 200
    spool.close()


def test_a_folder_in_place_of_the_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / FILE_NAME).mkdir()
    for _ in range(2):
        with pytest.raises(BadInput, match="is a folder"):
            Spool(tmp_path, bytes_max=1_000)


@pytest.mark.parametrize(
    "packed",
    [b"\0", b"\0\0\0\x05ab", b"\xff" * 4, b"\xff\xff\xff\xf0", b"\0\0\0\x01\xff" + b"\xff" * 4],
)
def test_damaged_headers_are_named(packed: bytes) -> None:
    with pytest.raises(ValueError, match=r"length|name|utf-8"):
        unpack_headers(packed)
