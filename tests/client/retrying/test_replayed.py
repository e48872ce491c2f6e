"""Which letters went back, kept in the metadata of a commit."""

from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st

from lossless.client.finished_runs import METADATA_BYTES_MAX
from lossless.client.retrying.replayed import Replayed


@given(st.lists(st.tuples(st.integers(0, 60), st.integers(0, 6)), max_size=20), st.integers(0, 10))
def test_it_is_a_set_of_offsets_with_its_beginning_cut_off(
    added: list[tuple[int, int]], start: int
) -> None:
    replayed = Replayed(start)
    model = set(range(start))
    for first, count in added:
        replayed.add(first, first + count)
        model |= set(range(first, first + count))
    position = next(offset for offset in range(100) if offset not in model)
    assert replayed.next_offset == position
    assert {offset for offset in range(80) if offset in replayed} == {
        offset for offset in model if offset < 80
    }
    assert all(first > position for first, _ in replayed.runs)
    for offset in (0, position, 40, 80):
        missing = {each for each in range(offset) if each not in model}
        assert replayed.missing_before(offset) == len(missing)
    again = Replayed.of(replayed.next_offset, replayed.metadata())
    assert (again.next_offset, again.runs) == (replayed.next_offset, replayed.runs)


def test_nothing_beyond_the_position_needs_no_metadata() -> None:
    replayed = Replayed()
    replayed.add(0, 1_000_000)
    assert (replayed.next_offset, replayed.metadata()) == (1_000_000, "")


def test_thousands_of_scattered_runs_fit_and_there_is_an_end_to_it() -> None:
    replayed = Replayed()
    for offset in range(1, 4_000, 2):
        replayed.add(offset)
    assert replayed.fits
    assert len(replayed.metadata()) <= METADATA_BYTES_MAX
    scattered = Replayed()
    place = 0
    chance = random.Random(1)
    for _ in range(3_000):
        place += chance.randint(2, 200)
        scattered.add(place)
    assert not scattered.fits


def test_a_copy_is_its_own() -> None:
    replayed = Replayed(3, [(5, 6)])
    replayed.copy().add(3)
    assert 3 not in replayed
