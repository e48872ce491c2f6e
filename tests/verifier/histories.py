"""Short words for short histories: one partition, one producer, one consumer, unless said."""

from __future__ import annotations

from collections.abc import Hashable, Mapping

from lossless.verifier.anomaly import Anomaly, Kind
from lossless.verifier.history import (
    Acknowledged,
    Committed,
    Event,
    FinalLog,
    Group,
    History,
    Partition,
    Processed,
    Read,
    Records,
    Reset,
    Sent,
    TransactionEnded,
)
from lossless.verifier.verdict import judge, undecided

P: Partition = "orders-0"
Q: Partition = "orders-1"


def sent(value: str, partition: Partition = P, by: str = "p1", within: str | None = None) -> Sent:
    return Sent(10, by, partition, value, within)


def acknowledged(
    value: str, offset: int | None, partition: Partition = P, by: str = "p1"
) -> Acknowledged:
    return Acknowledged(20, by, partition, value, offset)


def stored(value: str, offset: int, partition: Partition = P, within: str | None = None) -> Events:
    """Sent and acknowledged."""
    return (sent(value, partition, within=within), acknowledged(value, offset, partition))


def ended(transaction: str, committed: bool) -> TransactionEnded:
    return TransactionEnded(30, "p1", transaction, committed)


def begun(offset: int, partition: Partition = P, by: str = "c1") -> Reset:
    return Reset(0, by, partition, None, offset, "first start")


def read(value: str, offset: int, partition: Partition = P, by: str = "c1") -> Read:
    return Read(40, by, partition, offset, value)


def processed(value: str, offset: int, partition: Partition = P, by: str = "c1") -> Processed:
    return Processed(50, by, "billing", partition, offset, value)


def committed(offset: int, partition: Partition = P, group: str = "billing") -> Committed:
    return Committed(60, group, partition, offset)


def billing(
    *members: str, start: int = 0, partition: Partition = P, read_uncommitted: bool = False
) -> Group:
    return Group("billing", members or ("c1",), {partition: start}, read_uncommitted)


def log(
    *values: str | None,
    partition: Partition = P,
    start: int = 0,
    replicas: Mapping[Hashable, Records] | None = None,
    last_stable: int | None = None,
) -> FinalLog:
    """None stands for a marker."""
    end = start + len(values)
    return FinalLog(
        partition, start, end, records(*values, start=start), replicas or {}, last_stable
    )


def records(*values: str | None, start: int = 0) -> Records:
    return tuple((offset, value) for offset, value in enumerate(values, start) if value is not None)


Events = tuple[Event, ...]


def history(
    *events: Event | Events,
    logs: tuple[FinalLog, ...] = (),
    groups: tuple[Group, ...] = (),
    settled: bool = True,
) -> History:
    flat: list[Event] = []
    for event in events:
        # Events are tuples themselves, with names.
        if isinstance(event, Event):
            flat.append(event)
        else:
            flat.extend(event)
    return History(tuple(flat), logs, groups, settled=settled)


def found(history: History, kind: Kind) -> list[tuple[str | None, int | None]]:
    """Values and offsets of the anomalies of a kind."""
    return [(anomaly.value, anomaly.offset) for anomaly in judge(history, [kind])]


def only(history: History, kind: Kind) -> Anomaly:
    (anomaly,) = judge(history, [kind])
    assert anomaly.kind is kind
    return anomaly


def told(history: History, kind: Kind) -> bool:
    """Whether the history can answer for a kind."""
    return undecided(history, [kind]) == ()
