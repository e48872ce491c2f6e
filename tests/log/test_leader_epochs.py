"""Leader epochs: where histories part, whatever was appended, cut and deleted."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lossless.log.leader_epochs import EpochEnd, EpochStart, LeaderEpochs

# The epoch of every record of a log, as offsets 0, 1, 2 …
histories = st.lists(st.integers(0, 3), max_size=12).map(
    lambda steps: [sum(steps[: number + 1]) for number in range(len(steps))]
)


def of(history: list[int]) -> LeaderEpochs:
    epochs = LeaderEpochs()
    for offset, epoch in enumerate(history):
        epochs.assign(epoch, offset)
    return epochs


@given(histories, st.integers(0, 40))
def test_an_epoch_ends_where_the_next_one_begins(history: list[int], epoch: int) -> None:
    found = of(history).end_of(epoch, len(history))
    later = [offset for offset, its in enumerate(history) if its > epoch]
    upto = [its for its in history if its <= epoch]
    if history and epoch == history[-1]:
        assert found == EpochEnd(epoch, len(history))
    elif not later:
        assert found is None  # nobody here has heard of it
    else:
        assert found == EpochEnd(upto[-1] if upto else epoch, later[0])


@given(histories, st.integers(0, 12))
def test_every_record_has_its_epoch(history: list[int], offset: int) -> None:
    epochs = of(history)
    expected = history[min(offset, len(history) - 1)] if history else None
    assert epochs.epoch_at(offset) == expected
    assert epochs.epoch_at(-1) is None


@given(histories, st.integers(0, 12))
def test_cutting_the_end_is_never_having_had_it(history: list[int], end: int) -> None:
    epochs = of(history)
    changed = epochs.truncate_from_end(end)
    assert epochs.entries == of(history[:end]).entries
    assert changed == (epochs.entries != of(history).entries)


@given(histories, st.integers(0, 12))
def test_cutting_the_start_keeps_what_is_said_of_the_rest(history: list[int], start: int) -> None:
    epochs = of(history)
    epochs.truncate_from_start(start)
    for offset in range(start, len(history)):
        assert epochs.epoch_at(offset) == history[offset]
    assert all(entry.start_offset >= start for entry in epochs.entries)


@given(histories)
def test_what_is_written_is_read(history: list[int]) -> None:
    decoded = LeaderEpochs.decode(of(history).encode())
    assert decoded is not None
    assert decoded.entries == of(history).entries


@pytest.mark.parametrize(
    "data", [b"", b"0\n", b"1\n0\n", b"0\n2\n1 5\n", b"0\n1\n1\n", b"0\n1\nx y\n", b"\xff\n0\n"]
)
def test_a_checkpoint_that_is_none_is_not_trusted(data: bytes) -> None:
    assert LeaderEpochs.decode(data) is None


def test_an_epoch_without_records_leaves_no_entry() -> None:
    epochs = LeaderEpochs([EpochStart(1, 0), EpochStart(2, 10), EpochStart(3, 10)])
    assert epochs.entries == (EpochStart(1, 0), EpochStart(3, 10))
    assert epochs.end_of(2, 12) == EpochEnd(1, 10)


def test_an_epoch_begins_once() -> None:
    epochs = LeaderEpochs()
    assert epochs.latest is None
    assert epochs.assign(4, 7)
    assert not epochs.assign(4, 9)
    assert epochs.latest == 4
    assert epochs.entries == (EpochStart(4, 7),)


def test_a_leader_of_an_earlier_epoch_takes_later_ones_away() -> None:
    epochs = LeaderEpochs([EpochStart(1, 0), EpochStart(5, 10)])
    assert epochs.assign(3, 12)
    assert epochs.entries == (EpochStart(1, 0), EpochStart(3, 12))
