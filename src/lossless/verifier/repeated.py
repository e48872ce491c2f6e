"""Repeated: a group has processed one value more than once.

This is what delivery at least once costs, and by itself no failure; it is counted. Whether the
group got the same record again, after a crash or a rebalance, or a copy of it at another offset
(`duplicate.py`) makes no difference to the application. Each time after the first is one anomaly.
"""

from __future__ import annotations

from collections.abc import Iterator

from lossless.verifier.anomaly import Anomaly, Kind
from lossless.verifier.history import History, Partition, Processed


def find(history: History) -> Iterator[Anomaly]:
    processed = history.of(Processed)
    once = sum(len(values) for group in history.processed_by.values() for values in group.values())
    if once == len(processed):
        return
    first: dict[tuple[str, Partition, str], Processed] = {}
    for done in processed:
        before = first.setdefault((done.group, done.partition, done.value), done)
        if before is not done:
            what = (
                f"{done.consumer} of {done.group} processed {done.value!r} at offset {done.offset} "
                f"of {done.partition} at {done.time_ms} ms, which {before.consumer} had done at "
                f"{before.time_ms} ms"
            )
            yield Anomaly(Kind.REPEATED, done.partition, done.value, done.offset, what)
