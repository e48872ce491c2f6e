"""Aborted read: a consumer that asked for committed records got one of an aborted transaction.

A reader of uncommitted records is promised no more than the high watermark, and may. A transaction
of whose end nobody was told may have been committed.
"""

from __future__ import annotations

from collections.abc import Iterator

from lossless.verifier.anomaly import Anomaly, Kind
from lossless.verifier.history import History, Read


def find(history: History) -> Iterator[Anomaly]:
    aborted = history.aborted
    if not aborted:
        return
    for read in history.of(Read):
        of_aborted = (read.partition, read.value) in aborted
        if of_aborted and read.consumer not in history.uncommitted_readers:
            what = (
                f"{read.consumer} read {read.value!r} at offset {read.offset} of {read.partition} "
                f"at {read.time_ms} ms, and its transaction was aborted"
            )
            yield Anomaly(Kind.ABORTED_READ, read.partition, read.value, read.offset, what)
