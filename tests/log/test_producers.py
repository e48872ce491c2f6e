"""Producers: sent twice is stored once, in order, and only by who holds the name."""

from __future__ import annotations

import pytest
from crc32c import crc32c

from lossless.log.batch import Batch, Marker, MarkerKind, Record, build, build_marker
from lossless.log.producers import (
    BATCHES_MAX,
    SEQUENCE_MAX,
    CompletedTransaction,
    Duplicate,
    Producers,
    Refusal,
)

ID = 7


def sent(
    sequence: int,
    *,
    count: int = 1,
    offset: int = 0,
    epoch: int = 0,
    timestamp_ms: int = 0,
    transactional: bool = False,
    producer_id: int = ID,
) -> Batch:
    return build(
        [Record(offset + number, timestamp_ms, None, b"v") for number in range(count)],
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=sequence,
        transactional=transactional,
    )


def marker(kind: MarkerKind, *, offset: int, epoch: int = 0, coordinator_epoch: int = 0) -> Batch:
    return build_marker(
        Marker(kind, coordinator_epoch),
        offset=offset,
        timestamp_ms=0,
        producer_id=ID,
        producer_epoch=epoch,
    )


def after(*batches: Batch) -> Producers:
    producers = Producers()
    for batch in batches:
        assert producers.apply(batch) is None
    return producers


def test_a_producer_that_is_not_known_may_begin_anywhere() -> None:
    assert Producers().check(sent(41)) is None


def test_an_epoch_below_none_is_refused_also_of_a_producer_that_is_not_known() -> None:
    """As Kafka does: -1 means that there is no epoch, and nothing is before it."""
    assert Producers().check(sent(0, epoch=-1)) is None
    assert Producers().check(sent(0, epoch=-2)) is Refusal.INVALID_PRODUCER_EPOCH
    assert Producers().check(sent(0, epoch=-5)) is Refusal.INVALID_PRODUCER_EPOCH


def test_the_sequence_goes_on_without_a_gap() -> None:
    producers = after(sent(0, count=3))
    assert producers.check(sent(3)) is None
    assert producers.check(sent(4)) is Refusal.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert producers.check(sent(1)) is Refusal.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_the_sequence_begins_again_after_its_largest() -> None:
    producers = after(sent(SEQUENCE_MAX - 1, count=2))
    assert producers.check(sent(0)) is None
    across = after(sent(SEQUENCE_MAX, count=3))
    assert across.check(sent(2)) is None
    assert across.check(sent(SEQUENCE_MAX, count=3)) == Duplicate(0, 2, 0)


def test_one_of_the_last_five_is_recognised() -> None:
    batches = [sent(n * 2, count=2, offset=n * 2, timestamp_ms=n) for n in range(BATCHES_MAX + 1)]
    producers = after(*batches)
    for number, batch in enumerate(batches[1:], 1):
        assert producers.check(batch) == Duplicate(number * 2, number * 2 + 1, number)
    assert producers.check(batches[0]) is Refusal.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert producers.check(sent(2)) is Refusal.OUT_OF_ORDER_SEQUENCE_NUMBER  # not the same batch


def test_a_later_epoch_begins_at_zero_and_shuts_the_earlier_one_out() -> None:
    producers = after(sent(0), sent(1, offset=1))
    assert producers.check(sent(2, epoch=1)) is Refusal.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert producers.check(sent(0, epoch=1)) is None
    producers.apply(sent(0, epoch=1, offset=2))
    assert producers.check(sent(2)) is Refusal.INVALID_PRODUCER_EPOCH
    assert producers.check(sent(1, epoch=1)) is None


def test_batches_without_a_sequence_are_nobodys() -> None:
    producers = after(build([Record(0, 0, None, b"v")]))
    assert len(producers) == 0
    assert producers.get(ID) is None


def test_a_transaction_is_open_from_its_first_batch_to_its_marker() -> None:
    producers = after(sent(0, offset=5, transactional=True), sent(1, offset=6, transactional=True))
    assert producers.first_open_offset() == 5
    assert producers.check(sent(2)) is Refusal.INVALID_TXN_STATE
    assert producers.check(sent(2, transactional=True)) is None
    ended = producers.apply(marker(MarkerKind.ABORT, offset=7))
    assert ended == CompletedTransaction(ID, 5, 7, aborted=True)
    assert producers.first_open_offset() is None
    assert producers.check(sent(2)) is None


def test_the_oldest_open_transaction_counts() -> None:
    producers = after(
        sent(0, offset=9, transactional=True, producer_id=1),
        sent(0, offset=10, transactional=True, producer_id=2),
        sent(0, offset=11, producer_id=3),
    )
    assert producers.first_open_offset() == 9


def test_a_marker_of_a_transaction_that_wrote_nothing_completes_none() -> None:
    assert Producers().apply(marker(MarkerKind.COMMIT, offset=0)) is None


def test_other_control_batches_are_no_business_of_producers() -> None:
    leader_change = build([Record(0, 0, b"\0\0\0\2", b"")], control=True)
    assert after(leader_change).first_open_offset() is None


def test_a_marker_of_a_later_epoch_shuts_the_producer_out() -> None:
    producers = after(sent(0, offset=0, transactional=True))
    assert producers.check_marker(ID, 1, Marker(MarkerKind.ABORT, 3)) is None
    producers.apply(marker(MarkerKind.ABORT, offset=1, epoch=1, coordinator_epoch=3))
    assert producers.check(sent(1, transactional=True)) is Refusal.INVALID_PRODUCER_EPOCH
    assert producers.check(sent(0, epoch=1)) is None


def test_markers_of_earlier_producers_and_coordinators_are_refused() -> None:
    producers = after(sent(0, epoch=2))
    assert producers.check_marker(8, 0, Marker(MarkerKind.COMMIT, 0)) is None
    producers.apply(marker(MarkerKind.COMMIT, offset=1, epoch=2, coordinator_epoch=5))
    commit = Marker(MarkerKind.COMMIT, 4)
    assert producers.check_marker(ID, 1, commit) is Refusal.INVALID_PRODUCER_EPOCH
    assert producers.check_marker(ID, 2, commit) is Refusal.TRANSACTION_COORDINATOR_FENCED


def test_whoever_is_silent_for_long_is_forgotten_unless_a_transaction_is_open() -> None:
    producers = after(
        sent(0, timestamp_ms=10, producer_id=1),
        sent(0, timestamp_ms=90, producer_id=2),
        sent(0, timestamp_ms=10, producer_id=3, transactional=True),
    )
    producers.remove_expired(now_ms=110, expiration_ms=100)
    assert producers.get(1) is None
    assert producers.get(2) is not None
    assert producers.get(3) is not None


def test_a_snapshot_keeps_the_last_batch_and_the_open_transaction() -> None:
    producers = after(
        sent(0, count=2, offset=3, timestamp_ms=8, transactional=True),
        sent(2, count=3, offset=5, timestamp_ms=9, transactional=True),
        sent(0, offset=8, producer_id=1),
    )
    producers.apply(marker(MarkerKind.COMMIT, offset=9, epoch=1, coordinator_epoch=4))
    producers.apply(sent(0, offset=10, epoch=1, timestamp_ms=11, transactional=True))
    found = Producers.decode(producers.encode())
    assert found is not None
    assert found.encode() == producers.encode()
    assert len(found) == 2
    assert found.first_open_offset() == 10
    assert found.check(sent(0, epoch=1, transactional=True)) == Duplicate(10, 10, 11)
    assert found.check(sent(1, epoch=1, transactional=True)) is None
    assert found.check_marker(ID, 1, Marker(MarkerKind.ABORT, 3)) is (
        Refusal.TRANSACTION_COORDINATOR_FENCED
    )


def test_a_snapshot_of_a_producer_without_batches() -> None:
    producers = Producers()
    producers.apply(marker(MarkerKind.COMMIT, offset=0, epoch=3))
    found = Producers.decode(producers.encode())
    assert found is not None
    assert found.check(sent(0, epoch=3)) is None
    assert found.check(sent(0, epoch=2)) is Refusal.INVALID_PRODUCER_EPOCH


@pytest.mark.parametrize("damage", range(4))
def test_a_snapshot_that_is_damaged_is_not_trusted(damage: int) -> None:
    data = bytearray(after(sent(0)).encode())
    match damage:
        case 0:
            del data[5:]
        case 1:
            data[1] = 9  # the version
        case 2:
            data[-1] ^= 1
        case 3:
            data += bytes(1)
            data[2:6] = crc32c(bytes(data[6:])).to_bytes(4, "big")
    assert Producers.decode(bytes(data)) is None


def test_all_producers_can_be_listed() -> None:
    producers = Producers()
    one = build([Record(0, 0, None, b"v")], producer_id=7, producer_epoch=2, base_sequence=0)
    producers.apply(one)
    assert [(number, known.epoch) for number, known in producers.items()] == [(7, 2)]
