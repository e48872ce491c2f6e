"""What may be committed of a partition, for any order in which records finish."""

from __future__ import annotations

from random import Random

import hypothesis.strategies as st
from hypothesis import given, settings

from lossless.client.consuming.progress import Progress
from lossless.client.finished_runs import decode


@st.composite
def partitions(draw: st.DrawFn) -> tuple[int, list[int]]:
    """A first offset, and the offsets of records, with gaps."""
    start = draw(st.integers(0, 10**12))
    gaps = draw(st.lists(st.integers(0, 5), max_size=60))
    offsets = []
    at = start
    for gap in gaps:
        at += gap
        offsets.append(at)
        at += 1
    return start, offsets


@given(partitions(), st.data())
def test_a_commit_never_passes_an_unfinished_record_and_passes_every_finished_one(
    partition: tuple[int, list[int]], data: st.DataObject
) -> None:
    start, offsets = partition
    progress = Progress(start)
    waiting = list(offsets)
    open_records: list[int] = []
    finished: set[int] = set()
    before = start
    while waiting or open_records:
        if waiting and (not open_records or data.draw(st.booleans())):
            offset = waiting.pop(0)
            assert progress.deliver(offset)
            open_records.append(offset)
        else:
            offset = open_records.pop(data.draw(st.integers(0, len(open_records) - 1)))
            progress.finish(offset)
            finished.add(offset)
        delivered = offsets[: len(offsets) - len(waiting)]
        unfinished = [offset for offset in delivered if offset not in finished]
        assert progress.unfinished == len(unfinished)
        if unfinished:
            assert progress.committable <= unfinished[0]
            assert all(offset in finished for offset in delivered if offset < unfinished[0])
            # Nothing but gaps stands between what is committed and the first unfinished record.
            assert not [o for o in delivered if progress.committable <= o < unfinished[0]]
        elif delivered:
            assert progress.committable == delivered[-1] + 1
        assert progress.committable >= before
        before = progress.committable


@given(partitions(), st.data())
def test_a_restart_repeats_the_unfinished_records_and_no_others(
    partition: tuple[int, list[int]], data: st.DataObject
) -> None:
    start, offsets = partition
    progress = Progress(start)
    to_do = set(offsets)
    for _ in range(3):  # owners, each with the metadata of the one before
        position = progress.committable
        progress = Progress(position, decode(position, progress.metadata()))
        given_out = [o for o in offsets if o >= position and progress.deliver(o)]
        assert set(given_out) == to_do
        if not given_out:
            break
        chosen = data.draw(st.sets(st.sampled_from(given_out)))
        for offset in data.draw(st.permutations(sorted(chosen))):
            progress.finish(offset)
        to_do -= chosen


@given(partitions(), st.data())
def test_an_owner_that_read_little_keeps_what_the_one_before_had_finished(
    partition: tuple[int, list[int]], data: st.DataObject
) -> None:
    start, offsets = partition
    progress = Progress(start)
    for offset in offsets:
        progress.deliver(offset)
    chosen = data.draw(st.sets(st.sampled_from(offsets))) if offsets else set()
    for offset in chosen:
        progress.finish(offset)
    position = progress.committable
    second = Progress(position, decode(position, progress.metadata()))
    read = data.draw(st.integers(0, len(offsets)))
    for offset in [o for o in offsets if o >= position][:read]:
        second.deliver(offset)
    third_position = second.committable
    third = Progress(third_position, decode(third_position, second.metadata()))
    repeated = {o for o in offsets if o >= third_position and third.deliver(o)}
    assert repeated == set(offsets) - chosen


@settings(max_examples=15)
@given(st.integers(), st.sampled_from([1, 3, 50, 5_000, 10**7]))
def test_what_is_certain_to_fit_fits(seed: int, gap_max: int) -> None:
    """The worst that chance can do to the coding: half of the records finish, at random."""
    random = Random(seed)
    progress = Progress(0)
    offset = 0
    delivered = []
    while len(delivered) < 40_000:
        offset += random.randint(1, gap_max)
        if not progress.certain_to_fit(offset):
            break
        progress.deliver(offset)
        delivered.append(offset)
    assert delivered
    for finished in [o for o in delivered if random.random() < 0.5]:
        if finished != delivered[0]:
            progress.finish(finished)
    runs = progress.finished_beyond()
    encoded = progress.metadata()
    assert decode(progress.committable, encoded) == runs


def test_records_wait_when_the_metadata_might_not_fit() -> None:
    progress = Progress(0)
    delivered = 0
    while progress.certain_to_fit(delivered * 1000):
        progress.deliver(delivered * 1000)
        delivered += 1
    assert 500 < delivered < 5_000
    for number in range(delivered):
        progress.finish(number * 1000)
    assert progress.certain_to_fit(delivered * 1000)


def test_one_slow_record_holds_up_a_million_finished_ones_in_few_bytes() -> None:
    progress = Progress(0)
    progress.deliver(0)
    for offset in range(1, 1_000_000):
        assert progress.certain_to_fit(offset)
        progress.deliver(offset)
        progress.finish(offset)
    assert progress.committable == 0
    assert len(progress.metadata()) < 30


def test_gaps_at_the_end_are_passed_once_everything_is_finished() -> None:
    progress = Progress(3)
    progress.deliver(3)
    progress.read_to(6)
    assert progress.committable == 3
    progress.finish(3)
    progress.read_to(6)
    assert progress.committable == 6
