"""Unseen: acknowledged and in the log at the end, and a group that should have read it did not.

A group should have read what stands at or after its first offset in each of its partitions, once
it was given the time to catch up. Any member will do. Why a record was not read makes no
difference: a reader that was reset past it has not seen it. Records of transactions that were not
committed need not be read, and what retention deleted cannot be. Nor can a reader of committed
records get past the last stable offset; if that has no reason to stand there, it is stuck.

Undecided: what has not been read when the run has not settled. It may only be late.
"""

from __future__ import annotations

from collections.abc import Iterator
from collections.abc import Set as AbstractSet

from lossless.verifier.anomaly import Anomaly, Kind
from lossless.verifier.history import NO_VALUES, FinalLog, Group, History, Partition


def find(history: History) -> Iterator[Anomaly]:
    if history.settled:
        yield from _not_read(history)


def undecided(history: History) -> bool:
    return not history.settled and any(_not_read(history))


def _not_read(history: History) -> Iterator[Anomaly]:
    for group in history.groups:
        for partition, start_offset in group.starts.items():
            log = history.logs.get(partition)
            acknowledged = history.acknowledged.get(partition, NO_VALUES)
            read = _read(history, group, partition)
            if log is None or acknowledged <= read:
                continue
            missing = set(acknowledged - read)
            for offset, value in log.between(start_offset, _readable_end(log, group)):
                if value in missing and (partition, value) not in history.not_committed:
                    missing.remove(value)  # a copy of it is the same omission
                    told = history.acknowledgements[partition, value]
                    what = (
                        f"{value!r} at offset {offset} of {partition} was acknowledged to "
                        f"{told.producer} at {told.time_ms} ms, "
                        f"and no member of {group.name} has read it"
                    )
                    yield Anomaly(Kind.UNSEEN, partition, value, offset, what)


def _read(history: History, group: Group, partition: Partition) -> AbstractSet[str]:
    return NO_VALUES.union(
        *(history.read_by.get(member, {}).get(partition, NO_VALUES) for member in group.members)
    )


def _readable_end(log: FinalLog, group: Group) -> int:
    if group.read_uncommitted or log.last_stable_offset is None:
        return log.end_offset
    return log.last_stable_offset
