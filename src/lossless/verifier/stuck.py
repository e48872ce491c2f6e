"""Stuck: something stands still that should have moved on by itself.

Last stable offset: it is below the high watermark at the end, and no transaction with records in
the partition is open. Readers of committed records will never get past it.

No verdict: a send that was neither acknowledged nor failed. The application waits for ever.

Undecided: both, when the run has not settled.
"""

from __future__ import annotations

from collections.abc import Iterator

from lossless.verifier.anomaly import Anomaly, Kind
from lossless.verifier.history import NO_VALUES, History, Sent


def find(history: History) -> Iterator[Anomaly]:
    if history.settled:
        yield from _standing_still(history)


def undecided(history: History) -> bool:
    return not history.settled and any(_standing_still(history))


def _standing_still(history: History) -> Iterator[Anomaly]:
    yield from _last_stable_offsets(history)
    yield from _without_a_verdict(history)


def _last_stable_offsets(history: History) -> Iterator[Anomaly]:
    for log in history.final:
        stable = log.last_stable_offset
        high_watermark = log.end_offset if log.high_watermark is None else log.high_watermark
        if stable is None or stable >= high_watermark:
            continue
        open_here = any(
            transaction not in history.outcomes
            and any(record.partition == log.partition for record in sent)
            for transaction, sent in history.transactions.items()
        )
        if not open_here:
            what = (
                f"the last stable offset of {log.partition} is {stable} at the end, below the "
                f"high watermark {high_watermark}, and no transaction is open"
            )
            yield Anomaly(Kind.STUCK, log.partition, None, stable, what)


def _without_a_verdict(history: History) -> Iterator[Anomaly]:
    if all(
        values <= history.acknowledged.get(partition, NO_VALUES)
        for partition, values in history.attempted.items()
    ):
        return
    for sent in history.of(Sent):
        if sent.value not in history.acknowledged.get(
            sent.partition, NO_VALUES
        ) and sent.value not in history.failed.get(sent.partition, NO_VALUES):
            what = (
                f"{sent.producer} sent {sent.value!r} to {sent.partition} at {sent.time_ms} ms "
                f"and was never told what became of it"
            )
            yield Anomaly(Kind.STUCK, sent.partition, sent.value, None, what)
