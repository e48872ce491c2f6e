"""Lost: acknowledged, and at the end nobody can read it.

An acknowledged record is lost if it stands at no offset of the final log and can no longer come:
the log has gone past the offset that was acknowledged, or the run has settled. With acks=0 an
acknowledgement names no offset and counts all the same, so that such a record is lost only once
the run has settled.

Not lost
- what retention deleted: acknowledged below the start of the log. If another value was read at
  that offset, `inconsistent_offset.py` says so.
- what was sent in a transaction that was aborted, or of whose end nobody was told.

Undecided: beyond the end of a log that has not settled, and where retention may have deleted what
nobody knows the offset of.
"""

from __future__ import annotations

from collections.abc import Iterator

from lossless.verifier.anomaly import Anomaly, Kind
from lossless.verifier.fate import Fate, fate
from lossless.verifier.history import Acknowledged, History


def find(history: History) -> Iterator[Anomaly]:
    for told, became in _fates(history):
        if became is Fate.GONE:
            yield Anomaly(
                Kind.LOST, told.partition, told.value, told.offset, _sentence(history, told)
            )


def undecided(history: History) -> bool:
    return any(became is Fate.UNKNOWN for _, became in _fates(history))


def _fates(history: History) -> Iterator[tuple[Acknowledged, Fate]]:
    for told in history.stray_acknowledgements:
        if (told.partition, told.value) not in history.not_committed:
            yield told, fate(history, told.partition, told.value, told.offset)


def _sentence(history: History, told: Acknowledged) -> str:
    log = history.logs[told.partition]
    sentence = f"{told.producer} was told at {told.time_ms} ms that {told.value!r} is stored"
    if told.offset is None:
        return f"{sentence} in {told.partition}, and at the end it is nowhere in the log"
    sentence += f" at offset {told.offset} of {told.partition}"
    if told.offset >= log.end_offset:
        return f"{sentence}, and at the end the log stops at {log.end_offset} without it"
    now = history.at[told.partition].get(told.offset)
    there = "nothing" if now is None else repr(now)
    return f"{sentence}, and at the end {there} stands there and {told.value!r} nowhere"
