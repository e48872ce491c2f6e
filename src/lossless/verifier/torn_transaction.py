"""Torn transaction: some of its records are there for readers of committed records, others not.

Of a transaction that was committed, every record that did not fail has to be there. Of one whose
end nobody was told of, all or none, whatever failed: once a reader of committed records has got one
of them, it was committed. (Of an aborted one none, which is for `aborted_read.py`.)

A transaction that moves a group is torn, too, if its records are there and its offsets are not, or
the other way round. For each record that was consumed in a transaction (`Consumed`)
- no two transactions that are there consumed it: the group's offset did not count the first time;
- if one of them is there, the group has moved past it;
- if the group has moved past it, one of them is there.
The last two are judged once the run has settled.

A record is not there if it is gone (`fate.py`), or if a reader of committed records passed over it
without a Reset and no other has read it. A transaction of which nothing is there is not torn: its
records are lost. Each record that is missing is one anomaly.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from collections.abc import Set as AbstractSet

from lossless.verifier.anomaly import Anomaly, Kind
from lossless.verifier.fate import Fate, fate
from lossless.verifier.history import (
    NO_VALUES,
    Committed,
    Consumed,
    History,
    Partition,
    Read,
    Sent,
)


def find(history: History) -> Iterator[Anomaly]:
    yield from _records(history)
    if history.of(Consumed):
        yield from _offsets(history)


def _records(history: History) -> Iterator[Anomaly]:
    hidden = _hidden(history) if history.transactions else frozenset()
    if not hidden and not _some_are_missing(history):
        return
    seen = _seen(history)
    hidden -= seen
    for transaction, fates in _fates(history):
        committed = transaction in history.outcomes
        there, missing = [], []
        for sent, became in fates:
            record = (sent.partition, sent.value)
            if became is Fate.GONE or record in hidden:
                missing.append(sent)
            elif record in seen or (committed and became is Fate.STORED):
                there.append(sent)
        if there:
            for sent in missing:
                yield _torn(history, transaction, sent, there[0])


def undecided(history: History) -> bool:
    if history.of(Consumed) and (not history.settled or _Units(history).unknown):
        return True
    return _some_are_missing(history) and any(
        became is Fate.UNKNOWN
        for transaction, fates in _fates(history)
        if transaction in history.outcomes
        for _, became in fates
    )


def _some_are_missing(history: History) -> bool:
    """Cheap to ask, and as a rule the end of it."""
    return any(
        sent.value not in history.stored.get(sent.partition, ())
        for records in history.transactions.values()
        for sent in records
    )


def _fates(history: History) -> Iterator[tuple[str, list[tuple[Sent, Fate]]]]:
    """What became of the records of each transaction that was not aborted."""
    for transaction, records in history.transactions.items():
        if history.outcomes.get(transaction, True):
            fates = []
            is_open = transaction not in history.outcomes
            for sent in records:
                if is_open or sent.value not in history.failed.get(sent.partition, NO_VALUES):
                    told = history.acknowledgements.get((sent.partition, sent.value))
                    offset = None if told is None else told.offset
                    fates.append((sent, fate(history, sent.partition, sent.value, offset)))
            yield transaction, fates


class _Units:
    """Which of the transactions that move a group are there, and of which nobody can tell."""

    def __init__(self, history: History) -> None:
        self.there: set[str] = set()
        self.unknown: set[str] = set()
        seen, hidden = _seen(history), _hidden(history)
        consuming = {one.transaction for one in history.of(Consumed)}
        for transaction, fates in _fates(history):
            if transaction not in consuming:
                continue
            records = {(sent.partition, sent.value): became for sent, became in fates}
            stored = {one for one, became in records.items() if became is not Fate.GONE}
            if seen & records.keys() or (transaction in history.outcomes and stored - hidden):
                self.there.add(transaction)
            elif transaction not in history.outcomes and stored - hidden:
                self.unknown.add(transaction)


def _offsets(history: History) -> Iterator[Anomaly]:
    units = _Units(history)
    consumed: dict[tuple[str, Partition, int, str], list[Consumed]] = defaultdict(list)
    for one in history.of(Consumed):
        consumed[one.group, one.partition, one.offset, one.value].append(one)
    ends = {(one.group, one.partition): one.offset for one in history.of(Committed)}
    for (group, partition, offset, value), attempts in consumed.items():
        there = list(dict.fromkeys(a.transaction for a in attempts if a.transaction in units.there))
        is_past = offset < ends.get((group, partition), 0)
        is_unknown = any(one.transaction in units.unknown for one in attempts)
        record = f"{value!r} at offset {offset} of {partition}"
        if len(there) > 1:
            what = f"{group} consumed {record} in {' and in '.join(there)}, and both are committed"
        elif history.settled and there and not is_past:
            what = (
                f"{there[0]} is committed, in which {group} consumed {record}, and the offset of "
                f"{group} is not past it"
            )
        elif history.settled and is_past and not there and not is_unknown:
            what = (
                f"the offset of {group} is past {record}, and no transaction that consumed it "
                "is committed"
            )
        else:
            continue
        yield Anomaly(Kind.TORN_TRANSACTION, partition, value, offset, what)


def _seen(history: History) -> AbstractSet[tuple[Partition, str]]:
    return {
        (read.partition, read.value)
        for read in history.of(Read)
        if read.consumer not in history.uncommitted_readers
    }


def _hidden(history: History) -> AbstractSet[tuple[Partition, str]]:
    return {
        (jump.partition, value)
        for jump in history.jumps
        if jump.consumer not in history.uncommitted_readers
        for _, value in history.passed_over(jump)
    }


def _torn(history: History, transaction: str, record: Sent, other: Sent) -> Anomaly:
    offset = history.stored[record.partition].get(record.value)
    what = (
        f"of the transaction {transaction} of {record.producer} readers can have {other.value!r} "
        f"in {other.partition} but not {record.value!r}, sent to {record.partition} "
        f"at {record.time_ms} ms"
    )
    return Anomaly(Kind.TORN_TRANSACTION, record.partition, record.value, offset, what)
