"""What became of a record that was sent: the question behind lost and torn.

A record that is not in the log at the end is gone if it can no longer come: the log has gone past
its offset, or everything has settled. Below the start of the log it was deleted by retention. One
of which nobody knows the offset, neither its producer (acks=0) nor any reader, may be among the
deleted if there are any.
"""

from __future__ import annotations

from enum import Enum, auto

from lossless.verifier.history import History, Partition


class Fate(Enum):
    STORED = auto()
    DELETED = auto()
    GONE = auto()
    UNKNOWN = auto()


def fate(history: History, partition: Partition, value: str, offset: int | None) -> Fate:
    log = history.logs.get(partition)
    if log is None:
        return Fate.UNKNOWN
    if value in history.stored[partition]:
        return Fate.STORED
    if offset is None and (partition, value) in history.first_reads:
        offset = history.first_reads[partition, value].offset
    if offset is None:
        return Fate.GONE if history.settled and log.start_offset == 0 else Fate.UNKNOWN
    if offset < log.start_offset:
        return Fate.DELETED
    return Fate.GONE if history.settled or offset < log.end_offset else Fate.UNKNOWN
