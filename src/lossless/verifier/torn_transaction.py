"""Torn transaction: some of its records are there for readers of committed records, others not.

Of a transaction that was committed, every record that did not fail has to be there. Of one whose
end nobody was told of, all or none, whatever failed: once a reader of committed records has got one
of them, it was committed. (Of an aborted one none, which is for `aborted_read.py`.)

A record is not there if it is gone (`fate.py`), or if a reader of committed records passed over it
without a Reset and no other has read it. A transaction of which nothing is there is not torn: its
records are lost. Each record that is missing is one anomaly.
"""

from __future__ import annotations

from collections.abc import Iterator
from collections.abc import Set as AbstractSet

from lossless.verifier.anomaly import Anomaly, Kind
from lossless.verifier.fate import Fate, fate
from lossless.verifier.history import NO_VALUES, History, Partition, Read, Sent


def find(history: History) -> Iterator[Anomaly]:
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
