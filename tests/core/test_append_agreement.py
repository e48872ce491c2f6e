"""Whatever a client writes into a batch, leader and follower agree about it: the leader refuses it
and nothing changes, or the follower can append it and a consumer can read every record."""

from __future__ import annotations

import struct
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from machines import Replicas, led_by, records

from default_batches import sealed
from lossless.core.messages import Error
from lossless.core.replica import ALL, Replica
from lossless.core.settings.broker_settings import BrokerSettings
from lossless.core.settings.machines import topic_config
from lossless.log.batch import Batch, CorruptBatch, Record, build, parse_all
from lossless.log.compression import Compression, compressed

NOW_MS = 1_000_000_000

# Name, place and form of every field of a header; the checksum is always right.
FIELDS = {
    "base offset": (0, ">q"),
    "length": (8, ">i"),
    "leader epoch": (12, ">i"),
    "magic": (16, ">b"),
    "attributes": (21, ">h"),
    "last offset delta": (23, ">i"),
    "base timestamp": (27, ">q"),
    "max timestamp": (35, ">q"),
    "producer id": (43, ">q"),
    "producer epoch": (51, ">h"),
    "base sequence": (53, ">i"),
    "records count": (57, ">i"),
}
_EDGES = (-7, -3, -2, -1, 0, 1, 2, 3, 4, 5, 7, 8, 16, 32, 64, 100)


def _values(form: str) -> st.SearchStrategy[int]:
    bits = 8 * struct.calcsize(form)
    lowest, highest = -(1 << bits - 1), (1 << bits - 1) - 1
    edges = (*_EDGES, lowest, lowest + 1, highest - 1, highest)
    return st.sampled_from(edges) | st.integers(lowest, highest)


@st.composite
def _changes(draw: st.DrawFn) -> dict[str, int]:
    names = draw(st.lists(st.sampled_from(sorted(FIELDS)), min_size=1, max_size=3, unique=True))
    return {name: draw(_values(FIELDS[name][1])) for name in names}


def _changed(data: bytes, changes: dict[str, int]) -> bytes:
    changed = bytearray(data)
    for name, value in changes.items():
        at, form = FIELDS[name]
        struct.pack_into(form, changed, at, value)
    try:
        return bytes(sealed(changed).data)
    except CorruptBatch:  # of another length or version: sent as it is
        return bytes(changed)


def a_pair() -> tuple[Replicas, Replica, Replica]:
    pair = Replicas(1, 2)
    config = topic_config({}, BrokerSettings.from_properties({})[0])
    for broker in (1, 2):
        pair[broker].policy = config.policy
    pair.now_ms = NOW_MS
    pair.told(led_by(1, 1, isr=(1, 2), replicas=(1, 2)))
    return pair, pair[1], pair[2]


def _contents(replica: Replica) -> bytes:
    return b"".join(bytes(batch.data) for batch in replica.log.batches())


def _assert_agreement(sent: bytes) -> Error:
    """Sends this, and a batch that is right; returns what the leader said about the first."""
    pair, leader, follower = a_pair()
    error = leader.append(sent, ALL, NOW_MS).produced.error
    if error is not Error.NONE:
        assert leader.log.log_end_offset == 0
    else:
        pair.fetch(2, 1)
    end = leader.log.log_end_offset
    following = leader.append(records(b"next"), ALL, NOW_MS).produced
    assert (following.error, following.base_offset) == (Error.NONE, end)
    pair.fetch(2, 1, times=2)
    assert follower.failure is None
    assert _contents(follower) == _contents(leader)
    assert leader.high_watermark == end + 1
    batches = parse_all(_contents(leader))
    assert [batch.base_offset for batch in batches] == ([0, end] if end else [0])
    read = [record.offset for batch in batches for record in batch.records()]
    assert read == [*range(end + 1)]
    return error


def _several() -> Iterator[Batch]:
    some = [Record(n, NOW_MS, b"k", b"v%d" % n, (("h", b"1"),)) for n in range(4)]
    for compression in (Compression.NONE, Compression.LZ4):
        yield build(some, compression=compression)
        yield build(some, compression=compression, producer_id=5, producer_epoch=0, base_sequence=0)


@pytest.mark.parametrize("name", FIELDS)
def test_leader_and_follower_agree_about_every_value_of_a_field(name: str) -> None:
    bits = 8 * struct.calcsize(FIELDS[name][1])
    lowest, highest = -(1 << bits - 1), (1 << bits - 1) - 1
    for batch in _several():
        for value in (*_EDGES, lowest, lowest + 1, highest - 1, highest):
            _assert_agreement(_changed(batch.data, {name: value}))


@settings(max_examples=500, deadline=None)
@given(st.sampled_from(list(_several())), _changes())
def test_leader_and_follower_agree_about_several_fields(
    batch: Batch, changes: dict[str, int]
) -> None:
    _assert_agreement(_changed(batch.data, changes))


@st.composite
def _bodies(draw: st.DrawFn) -> bytes:
    """A batch whose records are changed, before they are compressed or after it."""
    records = draw(st.integers(1, 20))
    value = draw(st.sampled_from([0, 5, 70]))
    whole = build(
        [Record(n, NOW_MS + n, b"k", bytes(value), (("h", b"1"),)) for n in range(records)]
    )
    kind = draw(st.sampled_from(Compression))
    body = bytearray(whole.body())

    def change() -> None:
        for _ in range(draw(st.integers(0, 2))):
            at = draw(st.integers(0, len(body) - 1))
            body[at] = draw(st.integers(0, 255))
        if draw(st.integers(0, 4)) == 0:
            del body[draw(st.integers(1, len(body))) :]

    change()
    body[:] = compressed(kind, bytes(body))
    if draw(st.booleans()):
        change()
    header = _changed(bytes(whole.data[:61]) + bytes(body), {"attributes": kind})
    return _changed(header, {"length": len(header) - 12})


@settings(max_examples=300, deadline=None)
@given(_bodies())
def test_leader_and_follower_agree_about_records(sent: bytes) -> None:
    _assert_agreement(sent)


@pytest.mark.parametrize("count", [-1, 0, -0x80000000])
def test_a_batch_of_less_than_one_record_is_refused(count: int) -> None:
    for batch in _several():
        delta = max(count - 1, -0x80000000)
        sent = _changed(batch.data, {"records count": count, "last offset delta": delta})
        assert _assert_agreement(sent) is Error.INVALID_RECORD


def test_a_batch_that_is_right_is_accepted() -> None:
    for batch in _several():
        assert _assert_agreement(bytes(batch.data)) is Error.NONE


def test_a_follower_that_cannot_append_waits_for_another_leader() -> None:
    pair, leader, follower = a_pair()
    backwards = _changed(records(b"v"), {"records count": -1, "last offset delta": -2})
    asked = follower.next_fetch()
    fetched = leader.on_follower_fetch(2, 1, asked, NOW_MS)._replace(data=backwards)
    assert not follower.on_fetched(asked, fetched)
    assert follower.failure == "batch 0 ends before it begins, at -2"
    assert follower.log.log_end_offset == 0
    pair.told(led_by(1, 1, isr=(1, 2), replicas=(1, 2), partition_epoch=2), 2)
    assert follower.failure is not None
    pair.told(led_by(1, 2, isr=(1, 2), replicas=(1, 2)), 2)
    assert follower.failure is None
