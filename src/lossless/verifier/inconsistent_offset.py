"""Inconsistent offset: two values at one offset of a partition.

An offset means one record for ever, to everybody. Compared are what each reader got at it, what
producers were told that stands there, and what the leader and every other replica have there at
the end. For each offset every value that is not the leader's (or, where the leader has none, not
the first one known) is one anomaly.

Between the leader and a replica nothing is a value too: within the part that both have, a record
that only one of them has is a difference. So it is for a producer that was told of an offset at
which nothing stands, while the record stands elsewhere.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from lossless.verifier.anomaly import Anomaly, Kind
from lossless.verifier.history import Acknowledged, FinalLog, History, Partition, Records

AT_THE_END = "at the end"

# For each offset the values that were seen at it, and how the first sight of each came about.
Sightings = dict[tuple[Partition, int], dict[str | None, str]]


def find(history: History) -> Iterator[Anomaly]:
    if (
        not history.stray_reads
        and not history.stray_acknowledgements
        and all(_replicas_agree(history, log) for log in history.final)
    ):
        return
    for (partition, offset), values in _sightings(history).items():
        (known, how), *others = values.items()
        for value, differently in others:
            what = (
                f"offset {offset} of {partition} is {_named(known)} {how}, "
                f"but {_named(value)} {differently}"
            )
            yield Anomaly(Kind.INCONSISTENT_OFFSET, partition, value, offset, what)


def _replicas_agree(history: History, log: FinalLog) -> bool:
    """By far the most are the beginning of the leader's log, or all of it."""
    return len(history.at[log.partition]) == len(log.records) and all(
        replica == log.records[: len(replica)] for replica in log.replicas.values()
    )


def _sightings(history: History) -> Sightings:
    sightings: Sightings = defaultdict(dict)
    for log in history.final:
        for offset, value in log.records:
            sightings[log.partition, offset].setdefault(value, AT_THE_END)
    for read in history.stray_reads:
        how = f"as {read.consumer} read it at {read.time_ms} ms"
        sightings[read.partition, read.offset].setdefault(read.value, how)
    for told in history.stray_acknowledgements:
        if told.offset is None:
            continue
        where = (told.partition, told.offset)
        if where not in sightings and _stands_elsewhere(history, told.offset, told):
            sightings[where][None] = AT_THE_END
        how = f"as {told.producer} was told at {told.time_ms} ms"
        sightings[where].setdefault(told.value, how)
    for log in history.final:
        for name, replica in sorted(log.replicas.items(), key=lambda item: str(item[0])):
            for offset, there in _differences(history, log, replica):
                here = sightings[log.partition, offset]
                if log.start_offset <= offset < log.end_offset:
                    here.setdefault(history.at[log.partition].get(offset), AT_THE_END)
                here.setdefault(there, f"on replica {name}")
    return sightings


def _stands_elsewhere(history: History, offset: int, told: Acknowledged) -> bool:
    log = history.logs.get(told.partition)
    return (
        log is not None
        and log.start_offset <= offset < log.end_offset
        and told.value in history.stored[told.partition]
    )


def _differences(
    history: History, log: FinalLog, replica: Records
) -> Iterator[tuple[int, str | None]]:
    """What the replica has that the leader has not there, and the holes in it."""
    leaders, replicas = history.at[log.partition], dict(replica)
    for offset, value in replica:
        if leaders.get(offset) != value:
            yield offset, value
    if replica:
        for offset, _ in log.between(replica[0][0], replica[-1][0]):
            if offset not in replicas:
                yield offset, None


def _named(value: str | None) -> str:
    return "nothing" if value is None else repr(value)
