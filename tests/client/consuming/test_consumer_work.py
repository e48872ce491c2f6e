"""Loops and workers step by step, without Kafka: what is handed out, and what may be committed."""

from __future__ import annotations

import itertools
from collections.abc import Iterable

from confluent_kafka import Message, TopicPartition

from lossless.client.consuming.chunks import Chunks
from lossless.client.consuming.interfaces import Place, Work, offset_of, place_of
from lossless.client.consuming.lanes import Lane, Lanes
from lossless.client.consuming.progress import Progress
from lossless.client.consuming.settings import Order
from lossless.client.metrics import ConsumerMetrics

OURS: Place = ("orders", 0)
THEIRS: Place = ("orders", 1)
APART = 10_000


def chunks() -> Chunks:
    return Chunks(ConsumerMetrics(group="g"), buffered_max=100)


def lanes(
    order: Order = "key", *, remember_finished: bool = False, buffered_max: int = 100
) -> Lanes:
    return Lanes(
        ConsumerMetrics(group="g"),
        order=order,
        buffered_max=buffered_max,
        buffered_bytes_max=1_000,
        remember_finished=remember_finished,
    )


def record(
    place: Place, offset: int, key: str | None = None, leader_epoch: int = -1, value: bytes = b""
) -> Message:
    return Message(
        topic=place[0],
        partition=place[1],
        offset=offset,
        key=None if key is None else key.encode(),
        value=value,
        leader_epoch=leader_epoch,
    )


def read(work: Work, *records: Message) -> None:
    """As the poll thread does: the position of each partition comes with its records."""
    ends = {
        place_of(each): TopicPartition(*place_of(each), offset_of(each) + 1) for each in records
    }
    work.take_in(list(records), ends)


def committable(work: Work) -> dict[Place, int]:
    return {place: position.offset for place, position in work.collect().items()}


def places(records: Iterable[Message]) -> list[Place]:
    return [place_of(each) for each in records]


def taken(work: Lanes) -> Lane:
    lane = work.take()
    assert lane is not None
    return lane


def test_a_loop_is_given_nothing_of_a_partition_that_is_held() -> None:
    """Whether it was read before or after: a fenced partition is still assigned."""
    work = chunks()
    work.begin(OURS, 0, ())
    work.begin(THEIRS, 0, ())
    read(work, record(THEIRS, 0), record(OURS, 0), record(THEIRS, 1))
    work.hold({THEIRS})
    read(work, record(THEIRS, 2), record(OURS, 1))
    read(work, record(THEIRS, 3))
    assert work.buffered() == 2
    loop = work.messages()
    assert places(itertools.islice(loop, 2)) == [OURS, OURS]
    work.stop()
    assert list(loop) == []
    assert committable(work) == {OURS: 2}


def test_a_part_of_what_was_read_at_once_commits_only_itself() -> None:
    work = chunks()
    work.begin(OURS, 0, ())
    read(work, *(record(OURS, offset) for offset in range(10)))
    batches = work.batches(4)
    assert len(next(batches)) == 4
    assert committable(work) == {}
    assert len(next(batches)) == 4
    assert committable(work) == {OURS: 4}
    assert len(next(batches)) == 2
    assert committable(work) == {OURS: 8}
    work.stop()
    assert list(batches) == []
    assert committable(work) == {OURS: 10}


def test_workers_are_given_nothing_of_a_partition_that_is_held() -> None:
    work = lanes()
    work.begin(OURS, 0, ())
    work.begin(THEIRS, 0, ())
    read(work, record(THEIRS, 0, "a"), record(THEIRS, 1, "b"), record(OURS, 0, "a"))
    work.hold({THEIRS})
    read(work, record(THEIRS, 2, "c"), record(OURS, 1, "b"))
    assert {taken(work).partition.place, taken(work).partition.place} == {OURS}
    work.stop()
    assert work.take() is None
    assert work.wait_for_hands({THEIRS}, 0)


def test_attempts_are_counted_for_a_record_and_begin_anew_with_the_next() -> None:
    work = lanes()
    work.begin(OURS, 0, ())
    read(work, record(OURS, 0, "a"), record(OURS, 1, "a"))
    attempts = []
    for _ in range(3):
        lane = taken(work)
        attempts.append((offset_of(lane.records[0]), lane.attempt))
        work.again(lane, 0)
    work.finish(taken(work), 0)
    lane = taken(work)
    attempts.append((offset_of(lane.records[0]), lane.attempt))
    assert attempts == [(0, 1), (0, 2), (0, 3), (1, 1)]


def test_a_record_that_a_worker_gave_up_on_is_the_first_that_comes_again() -> None:
    work = lanes("none")
    work.begin(OURS, 0, ())
    read(work, record(OURS, 0), record(OURS, 1))
    work.leave(taken(work))
    assert work.wait_for_hands({OURS}, 0)
    assert offset_of(taken(work).records[0]) == 0
    assert committable(work) == {OURS: 0}


def test_records_that_wait_in_front_of_the_lanes_are_not_passed() -> None:
    """Where what is finished out of order might not fit the metadata of a commit."""
    work = lanes("none", remember_finished=True, buffered_max=100_000)
    work.begin(OURS, 0, ())
    fitting = Progress(0)
    count = 0
    while fitting.certain_to_fit(count * APART):
        fitting.deliver(count * APART)
        count += 1
    read(work, *(record(OURS, number * APART) for number in range(count)))
    assert work.to_pause({OURS}) == set()
    read(work, *(record(OURS, number * APART) for number in range(count, 2 * count)))
    assert work.to_pause({OURS}) == {OURS}
    delivered = [taken(work) for _ in range(count)]
    work.hold({OURS})
    for lane in delivered:
        work.finish(lane, 0)
    assert committable(work) == {OURS: (count - 1) * APART + 1}


def test_positions_carry_the_epoch_of_the_last_record_before_them() -> None:
    work = lanes("none")
    work.begin(OURS, 0, ())
    epochs = {0: 3, 1: 3, 2: 5, 3: 5}
    read(work, *(record(OURS, offset, leader_epoch=epoch) for offset, epoch in epochs.items()))
    found = []
    for _ in epochs:
        work.finish(taken(work), 0)
        position = work.collect()[OURS]
        found.append((position.offset, position.leader_epoch))
    assert found == [(1, 3), (2, 3), (3, 5), (4, 5)]


def test_what_is_committed_within_a_chunk_carries_its_epoch_too() -> None:
    work = chunks()
    work.begin(OURS, 0, ())
    read(work, *(record(OURS, offset, leader_epoch=3) for offset in range(3)))
    loop = work.messages()
    assert [offset_of(next(loop)), offset_of(next(loop))] == [0, 1]
    position = work.collect()[OURS]
    assert (position.offset, position.leader_epoch) == (1, 3)


def test_one_chunk_waits_beside_the_one_in_hand() -> None:
    """Each is as large as librdkafka's queue at most, which bounds the bytes of both."""
    work = chunks()
    work.begin(OURS, 0, ())
    assert work.wait_for_room(0)
    read(work, *(record(OURS, offset) for offset in range(3)))
    assert not work.wait_for_room(0)
    loop = work.messages()
    next(loop)
    assert work.wait_for_room(0)
    read(work, record(OURS, 3))
    assert not work.wait_for_room(0)
    work.stop()  # what was not handed out waits for the next loop
    assert list(loop) == []
    assert not work.wait_for_room(0)
    assert [offset_of(message) for message in itertools.islice(work.messages(), 3)] == [1, 2, 3]


def test_partitions_pause_at_their_share_of_the_bytes_and_resume_at_half_of_it() -> None:
    work = lanes("partition")
    for place in (OURS, THEIRS):
        work.begin(place, 0, ())
    read(work, record(THEIRS, 0, value=bytes(499)))
    assert work.to_pause({OURS, THEIRS}) == set()
    read(work, *(record(OURS, offset, value=bytes(250)) for offset in range(3)))
    assert work.to_pause({OURS, THEIRS}) == {OURS}
    assert taken(work).partition.place == THEIRS
    for paused in ({OURS}, set[Place]()):
        lane = taken(work)
        lane.records[0].set_value(None)
        work.finish(lane, 0)
        assert work.to_pause({OURS, THEIRS}) == paused
