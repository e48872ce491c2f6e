"""The reports of acknowledged records: safe to send twice, late and out of order."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lossless.acknowledged import (
    AUDIT_TOPIC,
    MINUTE_MS,
    REMEMBERED_FOR_MS,
    AcknowledgedCount,
    AcknowledgedCounter,
    latest_revisions,
)
from lossless.errors import BadInput
from lossless.tally import Tally, record_hash

START_MS = 28_333_333 * MINUTE_MS


def counter() -> AcknowledgedCounter:
    return AcknowledgedCounter(producer="shop@host#1", instance="one")


def deliver(counting: AcknowledgedCounter, offset: int, at_ms: int) -> None:
    counting.add(topic="orders", topic_id="id", partition=0, offset=offset, timestamp_ms=at_ms)


def total(reports: list[AcknowledgedCount]) -> Tally:
    added = Tally()
    for report in latest_revisions(reports):
        added = added + report.tally
    return added


def test_a_report_survives_its_bytes() -> None:
    counting = counter()
    deliver(counting, 7, START_MS + 5)
    deliver(counting, 9, START_MS + 6)
    (report,) = counting.reports(START_MS, flush=True)
    assert AcknowledgedCount.from_bytes(report.to_bytes()) == report
    assert report.tally == Tally(1, record_hash("id", 0, 7)) + Tally(1, record_hash("id", 0, 9))
    assert (report.start_ms, report.first_offset, report.last_offset) == (START_MS, 7, 9)


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b'{"version":2}', "version 2"),
        (b"not json", "not a report"),
        (b"[]", "not a report"),
        (b'{"version":1,"producer":"x"}', "missing or invalid field"),
    ],
)
def test_what_is_not_a_report_is_refused_clearly(data: bytes, says: str) -> None:
    with pytest.raises(BadInput, match=says) as refused:
        AcknowledgedCount.from_bytes(data)
    assert AUDIT_TOPIC in str(refused.value)


def test_an_open_minute_waits_and_a_closed_one_is_reported_once() -> None:
    counting = counter()
    deliver(counting, 1, START_MS)
    assert counting.reports(START_MS + MINUTE_MS - 1) == []
    assert len(counting.reports(START_MS + MINUTE_MS)) == 1
    assert counting.reports(START_MS + 2 * MINUTE_MS) == []


def test_a_late_delivery_gives_a_higher_revision_of_the_whole_series() -> None:
    counting = counter()
    deliver(counting, 1, START_MS)
    first = counting.reports(START_MS + MINUTE_MS)
    deliver(counting, 2, START_MS + 1)
    second = counting.reports(START_MS + MINUTE_MS)
    assert [r.tally.count for r in (*first, *second)] == [1, 2]
    assert total(first + second).count == 2


def test_a_delivery_after_its_series_was_forgotten_begins_another_that_adds_up() -> None:
    counting = counter()
    deliver(counting, 1, START_MS)
    reports = counting.reports(START_MS + MINUTE_MS)
    much_later = START_MS + MINUTE_MS + REMEMBERED_FOR_MS
    reports += counting.reports(much_later)
    deliver(counting, 2, START_MS)
    reports += counting.reports(much_later)
    assert total(reports).count == 2


@given(
    st.lists(st.tuples(st.integers(0, 5 * MINUTE_MS), st.booleans()), max_size=60),
    st.randoms(use_true_random=False),
)
def test_reports_add_up_however_often_and_in_whatever_order_they_come(
    deliveries: list[tuple[int, bool]], order: random.Random
) -> None:
    counting = counter()
    expected = Tally()
    reports: list[AcknowledgedCount] = []
    for offset, (after_ms, report_now) in enumerate(deliveries):
        deliver(counting, offset, START_MS + after_ms)
        expected = expected + Tally(1, record_hash("id", 0, offset))
        if report_now:
            reports += counting.reports(START_MS + after_ms)
    reports += counting.reports(START_MS, flush=True)
    received = reports + [r for r in reports if order.random() < 0.5]
    order.shuffle(received)
    assert total(received) == expected
