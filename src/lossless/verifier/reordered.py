"""Reordered: the order of sending, of offsets and of reading are not the same.

Non-monotonic send: two records of one producer to one partition of which the one sent later has
the smaller offset. The first copy of each counts. Reported is each record that stands before the
one sent just before it, of those that are stored: one record out of its place is one anomaly.

Poll skip: a consumer's reads jump over an offset at which there is a record, without a Reset. Over
markers, and over records of transactions that were not committed, they may.

Non-monotonic poll: a consumer reads an offset that it has already left behind, without a Reset.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from lossless.verifier.anomaly import Anomaly, Kind
from lossless.verifier.history import History, Jump, Partition, Sent


def find(history: History) -> Iterator[Anomaly]:
    yield from _non_monotonic_sends(history)
    for jump in history.jumps:
        if jump.offset < jump.position:
            yield _non_monotonic_poll(jump)
        else:
            yield from _poll_skip(history, jump)


def _non_monotonic_sends(history: History) -> Iterator[Anomaly]:
    places = _places(history)
    nowhere: Mapping[str, int] = {}
    last: dict[tuple[str, Partition], tuple[int, Sent]] = {}
    for sent in history.of(Sent):
        offset = places.get(sent.partition, nowhere).get(sent.value)
        if offset is None:
            continue
        key = (sent.producer, sent.partition)
        before = last.get(key)
        if before is not None and offset < before[0]:
            what = (
                f"{sent.producer} sent {sent.value!r} to {sent.partition} at {sent.time_ms} ms, "
                f"after {before[1].value!r}, and it stands before it: at offset {offset}, "
                f"not after {before[0]}"
            )
            yield Anomaly(Kind.REORDERED, sent.partition, sent.value, offset, what)
        last[key] = (offset, sent)


def _places(history: History) -> Mapping[Partition, Mapping[str, int]]:
    """The first offset of each value, also of those that retention deleted, if anybody knew it."""
    if not history.stray_reads and not history.stray_acknowledgements:
        return history.stored
    deleted: dict[Partition, dict[str, int]] = {}
    for partition, value, offset in [
        *((read.partition, read.value, read.offset) for read in history.stray_reads),
        *((told.partition, told.value, told.offset) for told in history.stray_acknowledgements),
    ]:
        log = history.logs.get(partition)
        if offset is not None and (log is None or offset < log.start_offset):
            places = deleted.setdefault(partition, {})
            places[value] = min(offset, places.get(value, offset))
    return {
        partition: {**history.stored.get(partition, {}), **deleted.get(partition, {})}
        for partition in [*history.stored, *deleted]
    }


def _poll_skip(history: History, jump: Jump) -> Iterator[Anomaly]:
    skipped = [
        (offset, value)
        for offset, value in history.passed_over(jump)
        if (jump.partition, value) not in history.not_committed
    ]
    if skipped:
        offset, value = skipped[0]
        others = f" and {len(skipped) - 1} more" if len(skipped) > 1 else ""
        what = (
            f"{jump.consumer} was at offset {jump.position} of {jump.partition} and at "
            f"{jump.time_ms} ms read {jump.offset}: it skipped {value!r} at {offset}{others}"
        )
        yield Anomaly(Kind.REORDERED, jump.partition, value, offset, what)


def _non_monotonic_poll(jump: Jump) -> Anomaly:
    what = (
        f"{jump.consumer} was at offset {jump.position} of {jump.partition} and at "
        f"{jump.time_ms} ms went back to {jump.value!r} at {jump.offset}"
    )
    return Anomaly(Kind.REORDERED, jump.partition, jump.value, jump.offset, what)
