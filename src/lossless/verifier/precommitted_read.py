"""Precommitted read: a consumer read what was never committed, or was taken back.

A record that was read stands at its offset at the end, unless retention deleted it, because only
what is committed may be read and what is committed stays. Records of aborted transactions are left
to `aborted_read.py`.

Undecided: reads beyond the end of a log that has not settled. A new leader may not know yet how
far the one before it had committed.
"""

from __future__ import annotations

from collections.abc import Iterator

from lossless.verifier.anomaly import Anomaly, Kind
from lossless.verifier.history import FinalLog, History, Read


def find(history: History) -> Iterator[Anomaly]:
    for read, log in _taken_back(history):
        if history.settled or read.offset < log.end_offset:
            if read.offset >= log.end_offset:
                now = f"the log stops at {log.end_offset}"
            else:
                value = history.at[read.partition].get(read.offset)
                now = f"{'nothing' if value is None else repr(value)} stands there"
            what = (
                f"{read.consumer} read {read.value!r} at offset {read.offset} of {read.partition} "
                f"at {read.time_ms} ms, and at the end {now}"
            )
            yield Anomaly(Kind.PRECOMMITTED_READ, read.partition, read.value, read.offset, what)


def undecided(history: History) -> bool:
    return not history.settled and any(
        read.offset >= log.end_offset for read, log in _taken_back(history)
    )


def _taken_back(history: History) -> Iterator[tuple[Read, FinalLog]]:
    for read in history.stray_reads:
        log = history.logs.get(read.partition)
        if (
            log is not None
            and read.offset >= log.start_offset
            and (read.partition, read.value) not in history.aborted
        ):
            yield read, log
