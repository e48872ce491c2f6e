"""Finished offsets in the metadata of a commit: read as written, by later releases too."""

from __future__ import annotations

import base64

import hypothesis.strategies as st
import pytest
from hypothesis import given

from lossless.client.finished_runs import (
    ENCODED_BYTES_MAX,
    METADATA_BYTES_MAX,
    Run,
    decode,
    encode,
    lengths_of,
    runs_of,
)
from lossless.client.retrying.replayed import Replayed
from lossless.errors import BadInput

FEW: list[Run] = [(9, 10), (300, 1_001)]
EVERY_SECOND: list[Run] = [(offset, offset + 1) for offset in range(9, 1_200, 2)]
CLOSE_TOGETHER: list[Run] = [
    (offset, offset + 1) for offset in (8, 10, 13, 15, 18, 20, 22, 25, 27, 30, 33)
]


@st.composite
def positions_and_runs(draw: st.DrawFn) -> tuple[int, list[Run]]:
    position = at = draw(st.integers(0, 2**60))
    length_max = draw(st.sampled_from([3, 300, 10**6]))
    lengths = st.tuples(st.integers(1, length_max), st.integers(1, length_max))
    runs = []
    for gap, length in draw(st.lists(lengths, max_size=300)):
        runs.append((at + gap, at + gap + length))
        at += gap + length
    return position, runs


@given(positions_and_runs())
def test_metadata_is_read_as_it_was_written(drawn: tuple[int, list[Run]]) -> None:
    position, runs = drawn
    encoded = encode(position, runs)
    if encoded is not None:
        assert len(encoded) <= METADATA_BYTES_MAX
        assert decode(position, encoded) == runs
    assert runs_of(position, lengths_of(position, runs)) == runs
    replayed = Replayed(position, runs)
    assert Replayed.of(position, replayed.metadata()).runs == tuple(runs)


@pytest.mark.parametrize(
    ("position", "runs", "written"),
    [
        (7, FEW, "lossless1:cgIBogK9BQ=="),
        (7, EVERY_SECOND, "lossless1:enjaY2IcBaNgFIyCwQ0A41oEqg=="),
        (7, CLOSE_TOGETHER, "lossless1:YkqplAQ="),
    ],
    ids=["lengths", "deflated", "bits"],
)
def test_consumers_write_what_other_releases_read(
    position: int, runs: list[Run], written: str
) -> None:
    assert encode(position, runs) == written
    assert decode(position, written) == runs


def test_replays_write_what_other_releases_read() -> None:
    written = "lossless-replayed-1 c-muPT*S1O6#xVz0cr"
    assert Replayed(7, FEW).metadata() == written
    assert Replayed.of(7, written).runs == tuple(FEW)


def test_what_does_not_fit_is_not_written() -> None:
    """The room that is promised is the room that there is, but for a run or two."""
    runs: list[Run] = []
    longest = ""
    for number in range(1_000):
        far = (number * 7_919) ** 3  # nothing that deflates well
        runs.append((far + 2, far + 3))
        encoded = encode(0, runs)
        if encoded is None:
            break
        longest = encoded
    assert METADATA_BYTES_MAX - 40 < len(longest) <= METADATA_BYTES_MAX
    assert len(base64.b64decode(longest.removeprefix("lossless1:"))) <= 1 + ENCODED_BYTES_MAX


def test_metadata_of_others_is_left_alone_by_consumers() -> None:
    for metadata in (None, "", "written by a Java client", "lossless1:%%%", "lossless1:engAAA=="):
        assert decode(7, metadata) == []


@pytest.mark.parametrize(
    "metadata", ["host-1", "lossless-replayed-1 ~~~", "lossless-replayed-1 c-muPT*S1O6#xV"]
)
def test_metadata_that_is_not_of_a_replay_is_refused_by_replays(metadata: str) -> None:
    with pytest.raises(BadInput, match="not of a replay"):
        Replayed.of(7, metadata)
