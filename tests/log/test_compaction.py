"""Compaction: nobody who reads to the end can tell, but for what is gone."""

from __future__ import annotations

import contextlib
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from logs import SMALL, Dead, LateStore, MortalStore, opened

from lossless.log.batch import Marker, MarkerKind, Record, build
from lossless.log.compression import Compression
from lossless.log.log import Appended, Log
from lossless.log.memory import MemoryStore
from lossless.log.producers import Duplicate

CONFIG = replace(SMALL, delete_retention_ms=100)


def put(log: Log, *pairs: tuple[bytes | None, bytes | None], time_ms: int = 0) -> None:
    records = [Record(n, time_ms, key, value) for n, (key, value) in enumerate(pairs)]
    log.append(build(records), leader_epoch=log.latest_epoch or 0, now_ms=time_ms)


def close_segment(log: Log) -> None:
    """Fills the active segment, so that what came before is closed, and flushes."""
    put(log, (b"filler", bytes(400)))
    put(log, (b"filler", bytes(400)))
    log.flush()


def compact(log: Log, now_ms: int = 0) -> None:
    log.compact(now_ms=now_ms, high_watermark=log.log_end_offset)


def records(log: Log) -> list[Record]:
    return [
        record
        for batch in log.batches(log.log_start_offset)
        if not batch.is_control
        for record in batch.records()
        if record.key != b"filler"
    ]


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore()


@pytest.fixture
def log(store: MemoryStore) -> Log:
    return opened(store, CONFIG)


def test_the_last_record_of_a_key_stays_where_it_was(log: Log, store: MemoryStore) -> None:
    put(log, (b"a", b"1"), (b"b", b"2"))
    put(log, (b"a", b"3"))
    put(log, (b"c", b"4"), (b"a", b"5"))
    close_segment(log)
    end, epoch = log.log_end_offset, log.latest_epoch
    compact(log)
    expected = [(1, b"b", b"2"), (3, b"c", b"4"), (4, b"a", b"5")]
    for found in (log, opened(store, CONFIG)):
        assert [(r.offset, r.key, r.value) for r in records(found)] == expected
        assert (found.log_start_offset, found.log_end_offset) == (0, end)
        assert found.latest_epoch == epoch
        for offset in range(end):
            found.read(offset, end_offset=end, bytes_max=1)


def test_what_is_left_of_a_segment_is_indexed_again(log: Log, store: MemoryStore) -> None:
    for number in range(8):
        put(log, (b"%d" % number, b"1"))
    put(log, (b"0", b"2"))
    close_segment(log)
    compact(log)
    assert [record.key for record in records(log)][:2] == [b"1", b"2"]  # it was written anew
    assert store.size(f"{0:020d}.index") >= 8  # an entry has 8 bytes


def test_records_without_a_key_go(log: Log) -> None:
    put(log, (None, b"1"), (b"a", b"2"))
    close_segment(log)
    compact(log)
    assert [r.value for r in records(log)] == [b"2"]


def test_a_tombstone_stays_until_everybody_can_have_seen_it(log: Log, store: MemoryStore) -> None:
    put(log, (b"a", b"1"), (b"b", b"2"), time_ms=7)
    put(log, (b"a", None), (b"b", b"3"), time_ms=8)
    close_segment(log)
    compact(log, now_ms=1000)
    assert [(r.key, r.value, r.timestamp_ms) for r in records(log)] == [
        (b"a", None, 8),
        (b"b", b"3", 8),
    ]
    again = opened(store, CONFIG)
    compact(again, now_ms=1099)
    assert [r.key for r in records(again)] == [b"a", b"b"]
    compact(again, now_ms=1100)
    assert [(r.key, r.value, r.timestamp_ms) for r in records(again)] == [(b"b", b"3", 8)]


def test_records_of_aborted_transactions_go_and_markers_stay(log: Log, store: MemoryStore) -> None:
    def transaction(sequence: int, value: bytes, kind: MarkerKind) -> None:
        one = build(
            [Record(0, 0, b"a", value)],
            producer_id=1,
            producer_epoch=0,
            base_sequence=sequence,
            transactional=True,
        )
        assert isinstance(log.append(one, leader_epoch=0, now_ms=0), Appended)
        log.append_marker(
            Marker(kind, 0), producer_id=1, producer_epoch=0, leader_epoch=0, now_ms=0
        )

    transaction(0, b"committed", MarkerKind.COMMIT)
    transaction(1, b"aborted", MarkerKind.ABORT)
    transaction(2, b"aborted too", MarkerKind.ABORT)
    close_segment(log)
    compact(log)
    for found in (log, opened(store, CONFIG)):
        assert [r.value for r in records(found)] == [b"committed"]
        assert sum(batch.is_control for batch in found.batches()) == 3
        assert found.last_stable_offset(found.log_end_offset) == found.log_end_offset


def test_a_producer_is_still_known_when_its_records_are_gone(log: Log, store: MemoryStore) -> None:
    one = build([Record(0, 0, b"a", b"1")], producer_id=1, producer_epoch=0, base_sequence=0)
    log.append(one, leader_epoch=0, now_ms=0)
    put(log, (b"a", b"2"))
    close_segment(log)
    compact(log)
    assert [r.value for r in records(log)] == [b"2"]
    for name in [name for name in store.names() if name.endswith(".snapshot")]:
        store.remove(name)
    again = opened(store, CONFIG)
    assert again.append(one, leader_epoch=0, now_ms=0) == Duplicate(0, 0, -1)


def test_only_what_is_closed_decided_and_flushed_is_looked_at() -> None:
    log = opened(LateStore(), CONFIG)
    put(log, (b"a", b"1"))
    put(log, (b"a", b"2"))
    compact(log)  # not closed
    assert len(records(log)) == 2
    put(log, (b"filler", bytes(400)))
    compact(log)  # not flushed
    assert len(records(log)) == 2
    log.flush()
    log.compact(now_ms=0, high_watermark=1)  # not committed
    assert len(records(log)) == 2
    compact(log)
    assert len(records(log)) == 1


def test_a_segment_of_which_nothing_is_left_is_removed(log: Log, store: MemoryStore) -> None:
    for _ in range(8):
        put(log, (b"a", b"x" * 50))
    log.flush()
    before = log.segment_base_offsets
    compact(log)
    assert log.segment_base_offsets[0] > before[0]
    for found in (log, opened(store, CONFIG)):
        assert found.log_start_offset == 0
        assert found.read(0, end_offset=found.log_end_offset, bytes_max=1)


def test_what_a_batch_is_stays(store: MemoryStore) -> None:
    log = opened(store, replace(CONFIG, log_append_time=True))
    records_of = [Record(n, 0, key, b"v") for n, key in enumerate([b"a", b"b"])]
    batch = build(records_of, compression=Compression.GZIP)
    log.append(batch, leader_epoch=3, now_ms=55)
    put(log, (b"a", b"w"), time_ms=56)
    close_segment(log)
    compact(log)
    first = next(log.batches())
    assert first.compression is Compression.GZIP
    assert first.leader_epoch == 3
    assert [(r.offset, r.timestamp_ms) for r in first.records()] == [(1, 55)]


def test_what_compaction_removed_is_not_taken_for_a_loss(store: MemoryStore) -> None:
    log = opened(store, CONFIG)
    for number in range(30):
        put(log, (b"a" if number % 7 else b"b%d" % number, b"x" * 50))
    log.flush()
    compact(log)
    known = {r.key: r.value for r in records(log)}
    for damaged in (False, True):
        if damaged:
            store.replace("recovery-point", b"?")
        assert {r.key: r.value for r in records(opened(store, CONFIG))} == known


def test_a_follower_of_a_compacted_leader_finds_everything_again(store: MemoryStore) -> None:
    leader = opened(MemoryStore(), CONFIG)
    for number in range(30):
        put(leader, (b"a" if number % 3 else b"b%d" % number, b"x" * 50))
    leader.flush()
    compact(leader)
    follower = opened(store, CONFIG)
    for batch in leader.batches():
        follower.append_from_leader([batch])
    assert list(follower.batches()) == list(leader.batches())
    assert list(opened(store, CONFIG).batches()) == list(leader.batches())


@pytest.mark.parametrize("step", range(1, 40))
@pytest.mark.parametrize("loses_power", [True, False])
def test_dying_within_compaction_leaves_what_everybody_knows(step: int, loses_power: bool) -> None:
    store = MemoryStore()
    log = opened(store, CONFIG)
    for number in range(30):
        put(log, (b"%d" % (number % 5), b"%d" % number + bytes(40)))
    log.flush()
    known = {r.key: r.value for r in records(log)}
    mortal = MortalStore(store, lives=0)
    dying = opened(mortal, CONFIG)
    mortal.lives = step
    with contextlib.suppress(Dead):
        compact(dying)
    if loses_power:
        store.lose_power(lambda _tail: 0)
    again = opened(store, CONFIG)
    assert {r.key: r.value for r in records(again)} == known
    assert (again.log_start_offset, again.log_end_offset) == (0, 30)


keys = st.sampled_from([b"a", b"b", b"c", b"d"])
values = st.none() | st.binary(min_size=1, max_size=60)
keyed = st.lists(st.lists(st.tuples(keys, values), min_size=1, max_size=4), max_size=25)


@settings(max_examples=200)
@given(keyed, st.integers(0, 25))
def test_who_reads_to_the_end_knows_the_same(
    batches: list[list[tuple[bytes, bytes | None]]], compact_after: int
) -> None:
    store = MemoryStore()
    log = opened(store, CONFIG)
    for number, pairs in enumerate(batches):
        put(log, *pairs)
        if number == compact_after:
            log.flush()
            compact(log)
    log.flush()
    every = {r.offset: r for b in log.batches() for r in b.records()}
    known = {r.key: r.value for r in records(log)}
    compact(log)
    for found in (log, opened(store, CONFIG)):
        assert {r.key: r.value for r in records(found)} == known
        assert all(every[r.offset] == r for r in records(found))
    compact(log, now_ms=10**6)  # beyond every horizon
    left = {r.key: r.value for r in records(log)}
    assert {k: v for k, v in left.items() if v is not None} == {
        k: v for k, v in known.items() if v is not None
    }
