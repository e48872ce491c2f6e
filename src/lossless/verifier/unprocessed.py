"""Unprocessed: a group has committed an offset past a record that none of its members processed.

To commit an offset is to say that everything below it is done. Whoever takes the partition over
begins there, so that a record below the group's last committed offset, at or after the group's
first, that nobody has finished with is lost to the group. Records of transactions that were not
committed need not be processed, unless the group asked for them, and what retention deleted
cannot be.

This holds of a run that has not settled too: the record was committed before it was processed,
even if a member may still be about to.

Undecided: commits of a group, or to a partition, of which the history does not say where the
group began.
"""

from __future__ import annotations

from collections.abc import Iterator

from lossless.verifier.anomaly import Anomaly, Kind
from lossless.verifier.history import NO_VALUES, Committed, Group, History, Partition


def find(history: History) -> Iterator[Anomaly]:
    last = _last_commits(history)
    for group in history.groups:
        processed = history.processed_by.get(group.name, {})
        for partition, start_offset in group.starts.items():
            log, commit = history.logs.get(partition), last.get((group.name, partition))
            if log is None or commit is None:
                continue
            done = processed.get(partition, NO_VALUES)
            for offset, value in log.between(start_offset, commit.offset):
                if value not in done and _due(history, group, partition, value):
                    what = (
                        f"{group.name} committed offset {commit.offset} of {partition} at "
                        f"{commit.time_ms} ms, and no member has processed {value!r} at {offset}"
                    )
                    yield Anomaly(Kind.UNPROCESSED, partition, value, offset, what)


def undecided(history: History) -> bool:
    starts = {group.name: group.starts for group in history.groups}
    return any(
        partition not in starts.get(group, {}) for group, partition in _last_commits(history)
    )


def _last_commits(history: History) -> dict[tuple[str, Partition], Committed]:
    return {(commit.group, commit.partition): commit for commit in history.of(Committed)}


def _due(history: History, group: Group, partition: Partition, value: str) -> bool:
    return group.read_uncommitted or (partition, value) not in history.not_committed
