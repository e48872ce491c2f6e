"""A log: offsets, epochs, producers and what is left of them when it is cut, aged or broken."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from logs import SMALL, LateStore, batch, fill, opened, values

from lossless.log.batch import CorruptBatch, Marker, MarkerKind, parse_all
from lossless.log.files import FileStore
from lossless.log.leader_epochs import EpochEnd
from lossless.log.log import Appended, Log, LogConfig, OffsetOutOfRange, UnexpectedOffset
from lossless.log.memory import MemoryStore
from lossless.log.producers import Duplicate, Refusal
from lossless.log.segment import OFFSETS_MAX, file_name
from lossless.log.store import StoreFailed


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore()


@pytest.fixture
def log(store: MemoryStore) -> Log:
    return opened(store)


def end_transaction(log: Log, kind: MarkerKind, *, producer_id: int = 1) -> Appended | Refusal:
    return log.append_marker(
        Marker(kind, 0),
        producer_id=producer_id,
        producer_epoch=0,
        leader_epoch=log.latest_epoch or 0,
        now_ms=0,
    )


def begin(log: Log, producer_id: int, sequence: int = 0) -> None:
    one = batch(producer_id=producer_id, epoch=0, sequence=sequence, transactional=True)
    appended = log.append(one, leader_epoch=log.latest_epoch or 0, now_ms=0)
    assert isinstance(appended, Appended)


# Appending and reading


def test_the_leader_gives_offsets_and_its_epoch(log: Log) -> None:
    assert log.append(batch(b"a", b"b"), leader_epoch=3, now_ms=0) == Appended(0, 1)
    assert log.append(batch(b"c"), leader_epoch=3, now_ms=0) == Appended(2, 2)
    assert values(log) == [b"a", b"b", b"c"]
    assert [one.leader_epoch for one in log.batches()] == [3, 3]
    assert (log.log_start_offset, log.log_end_offset) == (0, 3)


def test_a_follower_takes_what_the_leader_has(log: Log) -> None:
    leader = opened(MemoryStore())
    fill(leader, 3, leader_epoch=1)
    fill(leader, 2, leader_epoch=4)
    for one in leader.batches():
        log.append_from_leader([one])
    assert list(log.batches()) == list(leader.batches())
    assert log.latest_epoch == 4
    with pytest.raises(UnexpectedOffset, match="batch 0 came where 5 should"):
        log.append_from_leader([next(leader.batches())])


def test_a_follower_takes_many_batches_at_once(log: Log) -> None:
    """Over the ends of segments and of epochs: whatever comes together is what came one by one."""
    leader = opened(MemoryStore())
    for epoch in (1, 1, 4, 5):
        fill(leader, 5, leader_epoch=epoch)
    batches = list(leader.batches())
    log.append_from_leader(batches[:3])
    log.append_from_leader(batches[3:])
    assert list(log.batches()) == batches
    assert log.segment_base_offsets == leader.segment_base_offsets
    assert [log.end_of_epoch(epoch) for epoch in (1, 4, 5)] == [
        leader.end_of_epoch(epoch) for epoch in (1, 4, 5)
    ]


def test_of_batches_in_disorder_nothing_is_taken(log: Log) -> None:
    leader = opened(MemoryStore())
    fill(leader, 3)
    first, second, third = leader.batches()
    with pytest.raises(UnexpectedOffset, match="batch 1 came where 3 should"):
        log.append_from_leader([first, third, second])
    assert list(log.batches()) == []


def test_a_follower_takes_no_batch_that_ends_before_it_begins(log: Log) -> None:
    leader = opened(MemoryStore())
    fill(leader, 1)
    (first,) = leader.batches()
    backwards = first._replace(last_offset_delta=-2)
    with pytest.raises(UnexpectedOffset, match="batch 0 ends before it begins, at -2"):
        log.append_from_leader([backwards])
    assert list(log.batches()) == []


class CountingStore(MemoryStore):
    def __init__(self) -> None:
        super().__init__()
        self.appended: list[str] = []

    def append(self, name: str, data: bytes) -> None:
        self.appended.append(name)
        super().append(name, data)


def test_what_fits_together_is_written_together() -> None:
    leader = opened(MemoryStore(), LogConfig())
    fill(leader, 8)
    first, *others = leader.batches()
    store = CountingStore()
    follower = opened(store, LogConfig())
    follower.append_from_leader([first])
    follower.append_from_leader(others)
    assert store.appended.count(file_name(0, ".log")) == 2
    assert list(follower.batches()) == [first, *others]


def test_what_was_sent_twice_is_stored_once(log: Log) -> None:
    first = batch(b"a", b"b", producer_id=1, epoch=0, sequence=0)
    assert log.append(first, leader_epoch=0, now_ms=0) == Appended(0, 1)
    assert log.append(first, leader_epoch=0, now_ms=0) == Duplicate(0, 1, 0)
    late = batch(producer_id=1, epoch=0, sequence=9)
    assert log.append(late, leader_epoch=0, now_ms=0) is Refusal.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert log.log_end_offset == 2


def test_log_append_time_is_the_brokers(store: MemoryStore) -> None:
    log = opened(store, replace(SMALL, log_append_time=True))
    log.append(batch(timestamp_ms=5), leader_epoch=0, now_ms=99)
    [found] = log.batches()
    assert [record.timestamp_ms for record in found.records()] == [99]


def test_a_read_ends_at_the_end_it_is_given_and_at_its_size(log: Log) -> None:
    fill(log, 10)
    whole = next(log.batches())
    found = parse_all(log.read(1, end_offset=3, bytes_max=1000))
    assert [one.base_offset for one in found] == [1, 2]
    found = parse_all(log.read(1, end_offset=10, bytes_max=2 * len(whole.data)))
    assert [one.base_offset for one in found] == [1, 2]
    found = parse_all(log.read(1, end_offset=10, bytes_max=1))
    assert [one.base_offset for one in found] == [1]
    assert log.read(3, end_offset=3, bytes_max=1000) == b""
    assert log.read(10, end_offset=10, bytes_max=1000) == b""


def test_every_offset_is_found_across_segments(log: Log) -> None:
    fill(log, 40)
    assert len(log.segment_base_offsets) > 5
    for offset in range(40):
        assert parse_all(log.read(offset, end_offset=40, bytes_max=1))[0].base_offset == offset


def test_a_batch_is_read_from_any_of_its_offsets(log: Log) -> None:
    log.append(batch(b"a", b"b", b"c"), leader_epoch=0, now_ms=0)
    for offset in range(3):
        assert parse_all(log.read(offset, end_offset=3, bytes_max=1))[0].base_offset == 0


def test_large_batches_are_found_behind_each_other(store: MemoryStore) -> None:
    log = opened(store, LogConfig())
    for _ in range(4):
        log.append(batch(bytes(100_000)), leader_epoch=0, now_ms=0)
    assert parse_all(log.read(3, end_offset=4, bytes_max=1))[0].base_offset == 3


def test_what_is_not_there_is_out_of_range(log: Log) -> None:
    fill(log, 5)
    log.delete_before(2)
    for offset in (1, 6):
        with pytest.raises(OffsetOutOfRange, match=f"offset {offset} is not within 2 to 5"):
            log.read(offset, end_offset=5, bytes_max=1)


def test_the_first_record_at_a_time(log: Log) -> None:
    times = [10, 30, 20, 40, 40, 35, 50, 60, 55, 70]
    for time_ms in times:
        log.append(batch(timestamp_ms=time_ms), leader_epoch=0, now_ms=0)
    for asked in range(75):
        expected = next((n for n, time_ms in enumerate(times) if time_ms >= asked), None)
        found = log.first_at_or_after(asked)
        assert (None if found is None else found.offset) == expected
    log.delete_before(7)
    found = log.first_at_or_after(0)
    assert found is not None
    assert found.offset == 7


def test_the_first_record_at_a_time_within_a_batch(log: Log) -> None:
    from lossless.log.batch import Record, build

    log.append(
        build([Record(n, time_ms, None, None) for n, time_ms in enumerate([5, 9, 7])]),
        leader_epoch=0,
        now_ms=0,
    )
    found = log.first_at_or_after(6)
    assert found is not None
    assert found.offset == 1


# Segments


def test_a_segment_is_closed_when_it_is_old(store: MemoryStore) -> None:
    log = opened(store, LogConfig(segment_ms=100))
    log.append(batch(timestamp_ms=0), leader_epoch=0, now_ms=0)
    log.append(batch(timestamp_ms=90), leader_epoch=0, now_ms=100)
    log.append(batch(timestamp_ms=101), leader_epoch=0, now_ms=101)
    assert log.segment_base_offsets == [0, 2]


def test_records_that_are_old_already_are_not_cut_to_pieces(store: MemoryStore) -> None:
    """Each segment has open files: a topic that is filled from an archive would use them up."""
    log = opened(store, LogConfig(segment_ms=100))
    for timestamp_ms in range(5):
        log.append(batch(timestamp_ms=timestamp_ms), leader_epoch=0, now_ms=1_000_000)
    assert log.segment_base_offsets == [0]


def test_a_segment_is_closed_when_its_offsets_exceed_its_index(log: Log) -> None:
    leader = batch().placed(0, 0)
    log.append_from_leader([leader])
    log.append_from_leader([leader.placed(OFFSETS_MAX, 0), leader.placed(OFFSETS_MAX + 1, 0)])
    assert log.segment_base_offsets == [0, OFFSETS_MAX + 1]


# Transactions


def test_nothing_beyond_an_open_transaction_is_stable(log: Log) -> None:
    fill(log, 2)
    begin(log, 1)
    fill(log, 1)
    assert log.last_stable_offset(4) == 2
    assert log.last_stable_offset(1) == 1
    assert end_transaction(log, MarkerKind.COMMIT) == Appended(4, 4)
    assert log.last_stable_offset(4) == 2  # the marker is not committed
    assert log.last_stable_offset(5) == 5
    assert log.aborted_between(0, 5) == []


def test_the_end_of_what_is_stable_is_never_before_the_start(log: Log) -> None:
    """Of an open transaction the first records may have been deleted."""
    fill(log, 2)
    for sequence in range(3):
        begin(log, 1, sequence)
    log.delete_before(4)
    assert log.last_stable_offset(5) == 4
    log.delete_before(5)
    assert log.last_stable_offset(5) == 5


def test_aborted_transactions_are_named_to_whoever_reads_their_range(log: Log) -> None:
    begin(log, 1)
    begin(log, 2)
    fill(log, 5)
    assert end_transaction(log, MarkerKind.ABORT, producer_id=2) == Appended(7, 7)
    assert end_transaction(log, MarkerKind.ABORT, producer_id=1) == Appended(8, 8)
    found = log.aborted_between(3, 4)
    assert [(one.producer_id, one.first_offset, one.last_offset) for one in found] == [
        (2, 1, 7),
        (1, 0, 8),
    ]
    assert [one.last_stable_offset for one in found] == [0, 9]
    assert [one.producer_id for one in log.aborted_between(0, 1)] == [1]
    assert [one.producer_id for one in log.aborted_between(8, 9)] == [1]


def test_a_marker_of_an_earlier_producer_is_refused(log: Log) -> None:
    log.append(batch(producer_id=1, epoch=5, sequence=0), leader_epoch=0, now_ms=0)
    assert end_transaction(log, MarkerKind.COMMIT) is Refusal.INVALID_PRODUCER_EPOCH
    assert log.log_end_offset == 1


# Becoming shorter


def test_what_is_truncated_was_never_there(log: Log, store: MemoryStore) -> None:
    fill(log, 8, leader_epoch=1)
    before = list(log.batches())
    begin(log, 7)
    fill(log, 12, leader_epoch=2)
    end_transaction(log, MarkerKind.ABORT, producer_id=7)
    log.truncate(8)
    assert list(log.batches()) == before
    assert log.end_of_epoch(2) is None
    assert log.end_of_epoch(1) == EpochEnd(1, 8)
    assert len(log.producers) == 0
    assert log.last_stable_offset(8) == 8
    assert log.aborted_between(0, 99) == []
    log.truncate(9)  # beyond the end: nothing to do
    fill(log, 3, leader_epoch=3)
    assert values(opened(store)) == values(log) == [b"%d" % n for n in range(11)]


def test_a_batch_that_is_cut_in_two_goes_as_a_whole(log: Log) -> None:
    fill(log, 1)
    log.append(batch(b"a", b"b", b"c"), leader_epoch=0, now_ms=0)
    log.truncate(2)
    assert log.log_end_offset == 1
    assert log.epoch_at(0) == 0


def test_cutting_a_batch_that_begins_before_the_start_leaves_an_empty_log(log: Log) -> None:
    log.append(batch(b"a", b"b", b"c", b"d"), leader_epoch=0, now_ms=0)
    log.delete_before(2)
    log.truncate(3)
    assert (log.log_start_offset, log.log_end_offset) == (2, 2)


def test_truncating_below_the_start_begins_anew(log: Log, store: MemoryStore) -> None:
    fill(log, 20)
    log.append(batch(producer_id=1, epoch=0, sequence=0), leader_epoch=0, now_ms=0)
    log.delete_before(10)
    log.truncate(5)
    for found in (log, opened(store)):
        assert (found.log_start_offset, found.log_end_offset) == (5, 5)
        assert found.latest_epoch is None
        assert len(found.producers) == 0
    fill(log, 2)
    assert values(opened(store)) == [b"5", b"6"]


def test_deleting_moves_the_start_and_removes_whole_segments(log: Log, store: MemoryStore) -> None:
    fill(log, 10, leader_epoch=1)
    fill(log, 10, leader_epoch=2)
    log.delete_before(13)
    for found in (log, opened(store)):
        assert found.log_start_offset == 13
        assert found.segment_base_offsets[0] <= 13
        assert found.end_of_epoch(1) == EpochEnd(1, 13)
        assert found.epoch_at(13) == 2
    log.delete_before(13)
    with pytest.raises(OffsetOutOfRange):
        log.delete_before(12)
    with pytest.raises(OffsetOutOfRange):
        log.delete_before(21)


def test_old_segments_go_and_nothing_uncommitted_does(store: MemoryStore) -> None:
    log = opened(store, replace(SMALL, retention_ms=100))
    for time_ms in range(0, 200, 10):
        fill(log, 1, timestamp_ms=time_ms)
    log.retain(now_ms=200, high_watermark=2)
    assert log.log_start_offset == 0
    log.retain(now_ms=200, high_watermark=20)
    assert 0 < log.log_start_offset <= 10
    log.retain(now_ms=1000, high_watermark=20)
    assert (log.log_start_offset, log.log_end_offset) == (20, 20)
    log.retain(now_ms=1000, high_watermark=20)
    assert opened(store).log_end_offset == 20


def test_a_segment_goes_only_when_its_last_record_is_committed(store: MemoryStore) -> None:
    log = opened(store, replace(SMALL, retention_ms=100))
    fill(log, 10)
    second = log.segment_base_offsets[1]
    log.retain(now_ms=1000, high_watermark=second - 1)
    assert log.log_start_offset == 0
    log.retain(now_ms=1000, high_watermark=second)
    assert log.log_start_offset == second


def test_a_log_that_was_emptied_keeps_its_last_epoch(log: Log, store: MemoryStore) -> None:
    fill(log, 2, leader_epoch=3)
    fill(log, 2, leader_epoch=4)
    log.delete_before(4)
    for found in (log, opened(store)):
        assert found.latest_epoch == 4
        assert found.end_of_epoch(4) == EpochEnd(4, 4)
        assert found.end_of_epoch(3) == EpochEnd(3, 4)
    fill(log, 1, leader_epoch=6)
    assert log.end_of_epoch(4) == EpochEnd(4, 4)
    assert log.end_of_epoch(6) == EpochEnd(6, 5)


def test_an_epoch_without_records_is_forgotten_when_histories_are_compared(
    log: Log, store: MemoryStore
) -> None:
    """KAFKA-10706: a follower would compare it with its leader's for ever."""
    fill(log, 2, leader_epoch=4)
    log.truncate(2)
    assert log.latest_epoch == 4
    log.delete_before(2)
    log.truncate(2)
    for found in (log, opened(store)):
        assert found.latest_epoch is None
        assert found.end_of_epoch(4) is None


def test_what_has_no_time_does_not_age(store: MemoryStore) -> None:
    log = opened(store, replace(SMALL, retention_ms=100, segment_ms=100))
    for _ in range(2):
        log.append(batch(timestamp_ms=-1), leader_epoch=0, now_ms=1_000_000)
    assert log.segment_base_offsets == [0]
    log.retain(now_ms=1_000_000, high_watermark=2)
    assert log.log_start_offset == 0


def test_the_log_is_kept_to_a_size(store: MemoryStore) -> None:
    log = opened(store, replace(SMALL, retention_bytes=600))
    fill(log, 30)
    log.retain(now_ms=0, high_watermark=30)
    assert 600 <= log.size < 900
    assert log.log_start_offset > 0


def test_producers_that_are_silent_are_forgotten(store: MemoryStore) -> None:
    log = opened(store, replace(SMALL, producer_id_expiration_ms=50))
    log.append(batch(producer_id=1, epoch=0, sequence=0), leader_epoch=0, now_ms=0)
    log.retain(now_ms=49, high_watermark=1)
    assert len(log.producers) == 1
    log.retain(now_ms=50, high_watermark=1)
    assert len(log.producers) == 0


# Opening again


def busy(log: Log) -> None:
    """A bit of everything, over several segments."""
    for number in range(6):
        one = batch(
            b"%d" % number,
            timestamp_ms=number,
            producer_id=1,
            epoch=0,
            sequence=number,
            transactional=True,
        )
        log.append(one, leader_epoch=number // 2, now_ms=0)
        fill(log, 2, leader_epoch=number // 2, timestamp_ms=number)
        if number % 2:
            end_transaction(log, MarkerKind.ABORT)


def described(log: Log) -> tuple[object, ...]:
    end = log.log_end_offset
    return (
        log.log_start_offset,
        list(log.batches()),
        [log.end_of_epoch(epoch) for epoch in range(5)],
        log.producers.encode(),
        log.aborted_between(0, end),
        [log.first_at_or_after(time_ms) for time_ms in range(8)],
    )


@pytest.mark.parametrize("is_clean", [True, False])
def test_what_was_closed_or_killed_is_found_again(store: MemoryStore, is_clean: bool) -> None:
    log = opened(store)
    busy(log)
    if is_clean:
        log.close()
    again = opened(store)
    assert described(again) == described(log)
    fill(again, 1, leader_epoch=2)
    assert "clean-shutdown" not in store.names()


@pytest.mark.parametrize("suffix", [".index", ".timeindex", ".txnindex"])
@pytest.mark.parametrize("damage", ["missing", "cut", "order", "version"])
@pytest.mark.parametrize("is_clean", [True, False])
def test_indexes_that_are_lost_or_damaged_are_made_anew(
    store: MemoryStore, suffix: str, damage: str, is_clean: bool
) -> None:
    log = opened(store)
    busy(log)
    expected = described(log)
    if is_clean:
        log.close()
    else:
        log.flush()
    for name in [name for name in store.names() if name.endswith(suffix)]:
        size = store.size(name)
        match damage:
            case "missing":
                if suffix == ".txnindex":
                    continue  # a file that says that nothing was aborted is as good as none
                store.remove(name)
            case "cut":
                store.truncate(name, max(0, size - 3))
            case "order":
                entry = {".index": 8, ".timeindex": 12, ".txnindex": 34}[suffix]
                store.append(name, store.read(name, 0, entry))
            case "version" if size:
                store.damage(name, 1)
    found = opened(store)
    assert described(found) == expected


@pytest.mark.parametrize("damage", ["missing", "changed"])
def test_snapshots_that_are_lost_or_damaged_are_done_without(
    store: MemoryStore, damage: str
) -> None:
    log = opened(store)
    busy(log)
    log.close()
    for name in [name for name in store.names() if name.endswith(".snapshot")]:
        if damage == "missing":
            store.remove(name)
        else:
            store.damage(name, store.size(name) - 1)
    assert described(opened(store)) == described(log)


@pytest.mark.parametrize("name", ["leader-epoch-checkpoint", "recovery-point", "log-start-offset"])
def test_a_checkpoint_that_is_damaged_is_done_without(store: MemoryStore, name: str) -> None:
    log = opened(store)
    busy(log)
    log.close()
    store.replace(name, b"\xffnonsense")
    assert described(opened(store)) == described(log)


def test_a_torn_tail_is_cut_off(store: MemoryStore) -> None:
    log = opened(store)
    fill(log, 10)
    active = f"{log.segment_base_offsets[-1]:020d}.log"
    store.truncate(active, store.size(active) - 1)
    again = opened(store)
    assert again.log_end_offset == 9
    assert values(again) == [b"%d" % n for n in range(9)]


def test_what_follows_a_hole_is_dropped() -> None:
    store = LateStore()
    log = opened(store)
    fill(log, 10)
    first = f"{0:020d}.log"
    store.truncate(first, store.size(first) - len(next(log.batches()).data))  # a whole batch
    store.asked.clear()  # the process died before that
    again = opened(store)
    assert again.segment_base_offsets == [0]
    assert values(again) == [b"%d" % n for n in range(again.log_end_offset)]


def test_batches_that_do_not_rise_end_the_log(store: MemoryStore) -> None:
    log = opened(store)
    fill(log, 2)
    store.append(f"{0:020d}.log", next(log.batches()).data)
    assert opened(store).log_end_offset == 2


def test_a_log_whose_records_before_the_start_were_all_it_had_begins_there(
    store: MemoryStore,
) -> None:
    log = opened(store, LogConfig())
    fill(log, 4)
    log.flush()
    fill(log, 4)
    log.delete_before(6)
    store.lose_power(lambda _tail: 0)
    again = opened(store)
    assert (again.log_start_offset, again.log_end_offset) == (6, 6)


def test_segments_below_the_start_are_removed_when_nobody_got_to_it(store: MemoryStore) -> None:
    log = opened(store)
    fill(log, 10)
    log.flush()
    store.replace("log-start-offset", b"7")
    again = opened(store)
    assert again.log_start_offset == 7
    assert again.segment_base_offsets[0] > 0


def test_damage_in_what_was_flushed_is_noticed_by_whoever_reads_it(store: MemoryStore) -> None:
    log = opened(store)
    fill(log, 10)
    log.close()
    again = opened(store)
    data = bytearray(store.read(f"{0:020d}.log", 0, 400))
    data[8:12] = bytes(4)  # the length of the first batch
    store.replace(f"{0:020d}.log", bytes(data))
    with pytest.raises(CorruptBatch, match="is damaged at 0"):
        again.read(0, end_offset=10, bytes_max=100)


def test_damage_in_what_was_flushed_stops_the_log_and_changes_nothing(store: MemoryStore) -> None:
    log = opened(store)
    fill(log, 10)
    log.flush()
    first = f"{0:020d}.log"
    store.damage(first, 100)
    store.remove(f"{0:020d}.index")
    store.append(f"{0:020d}.timeindex", b"?")  # so that the segment has to be read
    sizes = {name: store.size(name) for name in store.names() if name.endswith(".log")}
    with pytest.raises(CorruptBatch, match="though it was flushed"):
        opened(store)
    assert {name: store.size(name) for name in sizes} == sizes


def test_a_full_disk_is_told_and_the_log_opens_again(store: MemoryStore) -> None:
    log = opened(store)
    fill(log, 5)
    store.capacity = sum(store.size(name) for name in store.names()) + 30
    with pytest.raises(StoreFailed):
        fill(log, 1)
    store.capacity = None
    again = opened(store)
    assert values(again) == [b"%d" % n for n in range(5)]


def test_only_what_is_flushed_counts_as_flushed(log: Log, store: MemoryStore) -> None:
    fill(log, 2)
    assert log.recovery_point == 0
    fill(log, 8)
    assert 2 < log.recovery_point < 10  # what is closed
    log.flush()
    assert log.recovery_point == 10
    fill(log, 1)
    store.lose_power(lambda _tail: 0)
    again = opened(store)
    assert (again.log_end_offset, again.recovery_point) == (10, 10)


@pytest.fixture
def files(tmp_path: Path) -> Iterator[FileStore]:
    store = FileStore(tmp_path / "log")
    yield store
    store.close()


def test_a_log_on_disk_is_found_again(files: FileStore) -> None:
    log = opened(files)
    busy(log)
    log.truncate(10)
    log.delete_before(4)
    assert described(opened(files)) == described(log)
