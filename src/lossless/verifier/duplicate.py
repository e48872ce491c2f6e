"""Duplicate: one value at two offsets of a partition.

Copies are those in the final log, and those that somebody read and that are not there any more:
deleted by retention, or taken back. Each copy after the first, in the order of offsets, is one
duplicate. What a producer was told is no copy: an acknowledgement of another offset than the
record has is for `inconsistent_offset.py`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from itertools import pairwise

from lossless.verifier.anomaly import Anomaly, Kind
from lossless.verifier.history import History, Partition


def find(history: History) -> Iterator[Anomaly]:
    if not history.stray_reads and all(
        len(history.stored[log.partition]) == len(log.records) for log in history.final
    ):
        return
    for (partition, value), copies in _copies(history).items():
        for first, second in pairwise(sorted(copies)):
            what = (
                f"{value!r} is in {partition} twice: at offset {first} ({copies[first]}) "
                f"and at offset {second} ({copies[second]})"
            )
            yield Anomaly(Kind.DUPLICATE, partition, value, second, what)


def _copies(history: History) -> dict[tuple[Partition, str], dict[int, str]]:
    """For each value its offsets, and how that is known."""
    copies: dict[tuple[Partition, str], dict[int, str]] = defaultdict(dict)
    for log in history.final:
        for offset, value in log.records:
            copies[log.partition, value][offset] = "in the log at the end"
    for read in history.stray_reads:
        how = f"read by {read.consumer} at {read.time_ms} ms"
        copies[read.partition, read.value].setdefault(read.offset, how)
    return copies
