"""The whole run as three sets: acknowledged ⊆ stored ⊆ attempted.

What is acknowledged and not stored is lost (`lost.py`, which knows about retention); that each is
stored once is for `duplicate.py`. Here: a value that is in the log, or was read from it, and that
no application ever sent, was *invented*.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from lossless.verifier.anomaly import Anomaly, Kind
from lossless.verifier.history import NO_VALUES, History, Partition, Values


class Sets(NamedTuple):
    """Values by partition."""

    acknowledged: Values
    stored: Values
    attempted: Values

    @classmethod
    def of(cls, history: History) -> Sets:
        stored = {partition: values.keys() for partition, values in history.stored.items()}
        return cls(history.acknowledged, stored, history.attempted)

    @property
    def hold(self) -> bool:
        return _within(self.acknowledged, self.stored) and _within(self.stored, self.attempted)


def find(history: History) -> Iterator[Anomaly]:
    attempted = history.attempted
    for partition, values in history.stored.items():
        sent = attempted.get(partition, NO_VALUES)
        if not values.keys() <= sent:
            for value, offset in values.items():
                if value not in sent:
                    yield _invented(partition, value, offset, "stands in the log at the end")
    told: set[tuple[Partition, str]] = set()
    for read in history.stray_reads:
        record = (read.partition, read.value)
        if (
            read.value not in attempted.get(read.partition, NO_VALUES)
            and read.value not in history.stored.get(read.partition, ())
            and record not in told
        ):
            told.add(record)
            what = f"was read by {read.consumer} at {read.time_ms} ms"
            yield _invented(read.partition, read.value, read.offset, what)


def _invented(partition: Partition, value: str, offset: int, what: str) -> Anomaly:
    sentence = f"{value!r} at offset {offset} of {partition} {what}, and nobody ever sent it"
    return Anomaly(Kind.INVENTED, partition, value, offset, sentence)


def _within(inner: Values, outer: Values) -> bool:
    return all(values <= outer.get(partition, NO_VALUES) for partition, values in inner.items())
