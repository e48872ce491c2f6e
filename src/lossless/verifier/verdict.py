"""From a history to its anomalies, and from anomalies to a verdict.

VALID      0   nothing found, and a stated scope was exhausted
UNREFUTED  0   nothing found in what was looked at
INVALID    1   found, with a witness
UNKNOWN    3   nothing found, but not everything could be told
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from enum import StrEnum

from lossless.verifier import (
    aborted_read,
    duplicate,
    inconsistent_offset,
    lost,
    precommitted_read,
    reordered,
    repeated,
    sets,
    stuck,
    torn_transaction,
    unprocessed,
    unseen,
)
from lossless.verifier.anomaly import Anomaly, Kind
from lossless.verifier.history import History, Read

PROPERTIES: Mapping[Kind, Callable[[History], Iterator[Anomaly]]] = {
    Kind.LOST: lost.find,
    Kind.UNSEEN: unseen.find,
    Kind.UNPROCESSED: unprocessed.find,
    Kind.DUPLICATE: duplicate.find,
    Kind.INCONSISTENT_OFFSET: inconsistent_offset.find,
    Kind.PRECOMMITTED_READ: precommitted_read.find,
    Kind.ABORTED_READ: aborted_read.find,
    Kind.TORN_TRANSACTION: torn_transaction.find,
    Kind.REORDERED: reordered.find,
    Kind.STUCK: stuck.find,
    Kind.INVENTED: sets.find,
    Kind.REPEATED: repeated.find,
}

UNDECIDED: Mapping[Kind, Callable[[History], bool]] = {
    Kind.LOST: lost.undecided,
    Kind.UNSEEN: unseen.undecided,
    Kind.UNPROCESSED: unprocessed.undecided,
    Kind.PRECOMMITTED_READ: precommitted_read.undecided,
    Kind.TORN_TRANSACTION: torn_transaction.undecided,
    Kind.STUCK: stuck.undecided,
}

# What can be told without knowing what the log has at the end.
WITHOUT_A_LOG = frozenset({Kind.ABORTED_READ, Kind.REPEATED})

# What a promise may cost without being broken.
PRICES = frozenset({Kind.REPEATED})


class Verdict(StrEnum):
    VALID = "VALID"
    UNREFUTED = "UNREFUTED"
    INVALID = "INVALID"
    UNKNOWN = "UNKNOWN"

    @property
    def exit_code(self) -> int:
        return {Verdict.INVALID: 1, Verdict.UNKNOWN: 3}.get(self, 0)


def judge(history: History, looked_for: Iterable[Kind] | None = None) -> tuple[Anomaly, ...]:
    """Everything that is wrong, by kind, then partition, offset and value."""
    wanted = PROPERTIES.keys() if looked_for is None else frozenset(looked_for)
    found: list[Anomaly] = []
    for kind, find in PROPERTIES.items():
        if kind in wanted:
            anomalies = list(find(history))
            if anomalies:
                found += sorted(anomalies, key=_in_order)
    return tuple(found)


def undecided(history: History, looked_for: Iterable[Kind] | None = None) -> tuple[Kind, ...]:
    """The kinds of which this history cannot say that there is none."""
    wanted = PROPERTIES.keys() if looked_for is None else frozenset(looked_for)
    unreadable = _without_a_log(history)
    return tuple(
        kind
        for kind in PROPERTIES
        if kind in wanted
        and (
            (unreadable and kind not in WITHOUT_A_LOG)
            or (kind in UNDECIDED and UNDECIDED[kind](history))
        )
    )


def conclude(
    anomalies: Iterable[Anomaly],
    undecided: Iterable[Kind] = (),
    *,
    exhausted: bool = False,
    tolerated: Container[Kind] = PRICES,
) -> Verdict:
    if any(anomaly.kind not in tolerated for anomaly in anomalies):
        return Verdict.INVALID
    if any(kind not in tolerated for kind in undecided):
        return Verdict.UNKNOWN
    return Verdict.VALID if exhausted else Verdict.UNREFUTED


def _without_a_log(history: History) -> bool:
    """Whether there is a partition that somebody used and that could not be read at the end."""
    used = {read.partition for read in history.of(Read)}.union(
        history.attempted, *(group.starts for group in history.groups)
    )
    return not used <= history.logs.keys()


def _in_order(anomaly: Anomaly) -> tuple[str, int, str, str]:
    offset = -1 if anomaly.offset is None else anomaly.offset
    return str(anomaly.partition), offset, anomaly.value or "", anomaly.what
