"""Repeated: a group has processed one value more than once."""

from __future__ import annotations

from histories import Q, found, history, only, processed

from lossless.verifier.anomaly import Kind

REPEATED = Kind.REPEATED


def test_processed_once() -> None:
    assert found(history(processed("a", 0), processed("b", 1)), REPEATED) == []


def test_processed_again_by_whoever_took_over() -> None:
    anomaly = only(history(processed("a", 0), processed("a", 0, by="c2")), REPEATED)
    assert (anomaly.value, anomaly.offset) == ("a", 0)
    assert anomaly.what == (
        "c2 of billing processed 'a' at offset 0 of orders-0 at 50 ms, which c1 had done at 50 ms"
    )


def test_a_copy_at_another_offset_is_the_same_to_the_application() -> None:
    assert found(history(processed("a", 0), processed("a", 7)), REPEATED) == [("a", 7)]


def test_every_time_after_the_first_counts() -> None:
    run = history(processed("a", 0), processed("a", 0), processed("b", 1), processed("a", 0))
    assert found(run, REPEATED) == [("a", 0), ("a", 0)]


def test_groups_and_partitions_are_told_apart() -> None:
    run = history(
        processed("a", 0), processed("a", 0, Q), processed("a", 0)._replace(group="audit")
    )
    assert found(run, REPEATED) == []
