"""Runs of a log that makes no mistakes: one thing after the other, nothing lost, all caught up.

Two producers, with and without transactions and acknowledgements; a group of two members that
reads committed records and takes partitions over from each other; a group of one that reads
uncommitted records; retention; replicas that lag. What is drawn is which of these, and when.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field

from hypothesis import strategies as st

from lossless.verifier.history import (
    Acknowledged,
    Committed,
    Event,
    Failed,
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

PARTITIONS: tuple[Partition, ...] = ("orders-0", 1)
BILLING = Group("billing", ("c1", "c2"), dict.fromkeys(PARTITIONS, 0))
AUDIT = Group("audit", ("c3",), dict.fromkeys(PARTITIONS, 0), read_uncommitted=True)

STEPS = ("send", "poll", "end", "move", "retain")
VERDICTS = ("acknowledged", "unconfirmed", "failed", "refused")


@dataclass
class Run:
    events: list[Event] = field(default_factory=list)
    # The value at each offset; None for a marker.
    logs: dict[Partition, list[str | None]] = field(
        default_factory=lambda: {partition: [] for partition in PARTITIONS}
    )
    starts: dict[Partition, int] = field(default_factory=lambda: dict.fromkeys(PARTITIONS, 0))
    owner: dict[Partition, str] = field(default_factory=lambda: dict.fromkeys(PARTITIONS, "c1"))
    positions: dict[tuple[str, Partition], int] = field(default_factory=dict)
    transactions: dict[str, str] = field(default_factory=dict)  # open ones, by producer
    begins: dict[str, dict[Partition, int]] = field(default_factory=dict)
    hidden: set[str] = field(default_factory=set)  # values of open and aborted transactions
    number: int = 0

    def now(self) -> int:
        return 10 * len(self.events)

    def send(self, producer: str, partition: Partition, verdict: str, transaction: bool) -> None:
        self.number += 1
        value = f"m{self.number}"
        if transaction:
            self.transactions.setdefault(producer, f"t{self.number}")
        name = self.transactions.get(producer)
        self.events.append(Sent(self.now(), producer, partition, value, name))
        if verdict == "refused":
            self.events.append(
                Failed(self.now(), producer, partition, value, "too large", certain=True)
            )
            return
        offset = len(self.logs[partition])
        self.logs[partition].append(value)
        if name is not None:
            self.hidden.add(value)
            self.begins.setdefault(name, {}).setdefault(partition, offset)
        if verdict == "failed":
            self.events.append(
                Failed(self.now(), producer, partition, value, "timed out", certain=False)
            )
        else:
            known = offset if verdict == "acknowledged" else None
            self.events.append(Acknowledged(self.now(), producer, partition, value, known))

    def end(self, producer: str, commit: bool) -> None:
        name = self.transactions.pop(producer, None)
        if name is None:
            return
        if commit:
            self.hidden -= {
                event.value
                for event in self.events
                if isinstance(event, Sent) and event.transaction == name
            }
        for partition in self.begins.pop(name, {}):
            self.logs[partition].append(None)
        self.events.append(TransactionEnded(self.now(), producer, name, commit))

    def last_stable(self, partition: Partition) -> int:
        begins = [begin[partition] for begin in self.begins.values() if partition in begin]
        return min([len(self.logs[partition]), *begins])

    def poll(self, group: Group, partition: Partition, most: int, process: bool = True) -> None:
        """Reads, processes and commits; or is interrupted, and whoever goes on reads again."""
        consumer = self.owner[partition] if group is BILLING else "c3"
        begin = self.positions.setdefault((group.name, partition), 0)
        if begin == 0:
            self.events.append(Reset(self.now(), consumer, partition, None, 0, "first start"))
        readable = len(self.logs[partition]) if group is AUDIT else self.last_stable(partition)
        end = min(readable, begin + most)
        for offset in range(begin, end):
            value = self.logs[partition][offset]
            if value is None or (group is BILLING and value in self.hidden):
                continue
            self.events.append(Read(self.now(), consumer, partition, offset, value))
            if process:
                self.events.append(
                    Processed(self.now(), consumer, group.name, partition, offset, value)
                )
        if process:
            self.positions[group.name, partition] = end
            self.events.append(Committed(self.now(), group.name, partition, end))
        else:
            self.events.append(Reset(self.now(), consumer, partition, end, begin, "assigned"))

    def move(self, partition: Partition) -> None:
        self.owner[partition] = "c2" if self.owner[partition] == "c1" else "c1"
        position = self.positions.get(("billing", partition), 0)
        if position:
            consumer = self.owner[partition]
            self.events.append(Reset(self.now(), consumer, partition, None, position, "assigned"))

    def retain(self, partition: Partition, most: int) -> None:
        """Deletes only what everybody has processed."""
        processed = min(
            self.positions.get((group.name, partition), 0) for group in (BILLING, AUDIT)
        )
        self.starts[partition] = max(self.starts[partition], min(processed, most))

    def finish(self, leave_open: bool, lags: Sequence[int]) -> History:
        if not leave_open:
            for producer in sorted(self.transactions):
                self.end(producer, commit=True)
        for group in (BILLING, AUDIT):
            for partition in PARTITIONS:
                self.poll(group, partition, most=len(self.logs[partition]))
        return History(
            tuple(self.events),
            tuple(self.final(partition, lags) for partition in PARTITIONS),
            (BILLING, AUDIT),
            settled=True,
        )

    def final(self, partition: Partition, lags: Sequence[int]) -> FinalLog:
        everything: Records = tuple(
            (offset, value)
            for offset, value in enumerate(self.logs[partition])
            if value is not None
        )
        start, end = self.starts[partition], len(self.logs[partition])
        # A follower may be behind with fetching, and with deleting.
        replicas: dict[Hashable, Records] = {
            number: everything[lag % 2 : max(0, len(everything) - lag)]
            for number, lag in enumerate(lags)
        }
        records = tuple(record for record in everything if record[0] >= start)
        stable = self.last_stable(partition)
        return FinalLog(partition, start, end, records, replicas, stable, end)

    def have_something_to_spoil(self) -> None:
        """Records in a row of one producer, acknowledged; and a committed transaction."""
        for transaction in (False, True):
            self.end("p1", commit=True)
            for partition in PARTITIONS:
                for _ in range(3):
                    self.send("p1", partition, "acknowledged", transaction)
        self.end("p1", commit=True)


@st.composite
def correct_runs(draw: st.DrawFn, spoilt: bool = False) -> History:
    run = Run()
    steps = draw(st.lists(st.sampled_from(STEPS), max_size=25))
    spoil_at = draw(st.integers(0, len(steps))) if spoilt else None
    for number, step in enumerate([*steps, "done"]):
        if number == spoil_at:
            run.have_something_to_spoil()
        partition = draw(st.sampled_from(PARTITIONS))
        producer = draw(st.sampled_from(["p1", "p2"]))
        if step == "send":
            verdict = draw(st.sampled_from(VERDICTS))
            run.send(producer, partition, verdict, transaction=draw(st.booleans()))
        elif step == "poll":
            group = draw(st.sampled_from([BILLING, AUDIT]))
            run.poll(group, partition, draw(st.integers(0, 5)), process=draw(st.booleans()))
        elif step == "end":
            run.end(producer, commit=draw(st.booleans()))
        elif step == "move":
            run.move(partition)
        elif step == "retain":
            run.retain(partition, draw(st.integers(0, 10)))
    return run.finish(draw(st.booleans()), draw(st.lists(st.integers(0, 4), max_size=3)))
