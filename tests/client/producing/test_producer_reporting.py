"""Chunks of acknowledged records, counted: the same as one by one, however they are mixed."""

from __future__ import annotations

from collections.abc import Iterable
from functools import reduce
from operator import add

import confluent_kafka
from confluent_kafka import Message
from hypothesis import given
from hypothesis import strategies as st

from lossless.acknowledged import AcknowledgedCounter
from lossless.client.producing.reporting import Reporting
from lossless.tally import Tally, record_hash

MINUTE_MS = 60_000


def acknowledged(topic: str, partition: int, offset: int | None, minute: int) -> Message:
    return Message(
        topic=topic,
        partition=partition,
        offset=confluent_kafka.OFFSET_INVALID if offset is None else offset,
        timestamp=(confluent_kafka.TIMESTAMP_CREATE_TIME, minute * MINUTE_MS + 30_000),
    )


@given(
    st.lists(
        st.lists(
            st.tuples(
                st.sampled_from(["orders", "refunds"]),
                st.integers(0, 1),
                st.one_of(st.integers(0, 100), st.none()),  # none: nobody vouches for it
                st.sampled_from([5, 5, 5, 6]),
            ),
            min_size=1,
            max_size=8,
        ),
        max_size=6,
    )
)
def test_a_chunk_counts_as_its_records_do(
    chunks: list[list[tuple[str, int, int | None, int]]],
) -> None:
    counter = AcknowledgedCounter(producer="p", instance="i")
    # Nothing is asked of a cluster: the ids are known.
    reporting = Reporting(counter, None, {}, polls=False)  # type: ignore[arg-type]
    for topic in ("orders", "refunds"):
        reporting._on_topic_id(topic, f"id of {topic}")
    offsets: dict[tuple[str, int, int], list[int]] = {}
    for chunk in chunks:
        reporting.count([acknowledged(*record) for record in chunk])
        for topic, partition, offset, minute in chunk:
            if offset is not None:
                offsets.setdefault((topic, partition, minute * MINUTE_MS), []).append(offset)
    expected = {
        (topic, partition, start_ms): (
            sum_of(Tally(1, record_hash(f"id of {topic}", partition, offset)) for offset in found),
            min(found),
            max(found),
        )
        for (topic, partition, start_ms), found in offsets.items()
    }
    assert {
        (told.topic, told.partition, told.start_ms): (
            told.tally,
            told.first_offset,
            told.last_offset,
        )
        for told in counter.reports(0, flush=True)
    } == expected


def sum_of(tallies: Iterable[Tally]) -> Tally:
    return reduce(add, tallies, Tally())
