"""Which leader wrote what: the first offset of every leader epoch.

A follower that finds out where its history and the leader's part ways truncates to that offset,
and to no other: not to its high watermark, which may be behind what it acknowledged (KIP-101).

Invariants
- Epochs and start offsets both rise from entry to entry.
- An epoch without records leaves no entry once a later epoch starts at the same offset: a follower
  that was told of it would look for records that nobody has (KAFKA-10706).
"""

from __future__ import annotations

from bisect import bisect_right
from typing import NamedTuple


class EpochStart(NamedTuple):
    epoch: int
    start_offset: int


class EpochEnd(NamedTuple):
    """Where an epoch ends in somebody's log: the first offset that is not of it."""

    epoch: int
    end_offset: int


class LeaderEpochs:
    def __init__(
        self, entries: list[EpochStart] | None = None, *, forgets_empty: bool = True
    ) -> None:
        self._forgets_empty = forgets_empty
        self._entries: list[EpochStart] = []
        self.latest: int | None = None  # of all; asked for with every batch and every fetch
        for entry in entries or []:
            self.assign(*entry)

    @property
    def entries(self) -> tuple[EpochStart, ...]:
        return tuple(self._entries)

    def assign(self, epoch: int, start_offset: int) -> bool:
        """Notes that `epoch` begins here, unless it has begun already. True if it was noted."""
        if self._entries and self._entries[-1].epoch == epoch:
            return False
        while self._entries and (
            self._entries[-1].epoch > epoch or self._entries[-1].start_offset >= start_offset
        ):
            self._entries.pop()
        self._entries.append(EpochStart(epoch, start_offset))
        self.latest = epoch
        return True

    def end_of(self, epoch: int, log_end_offset: int) -> EpochEnd | None:
        """Where the largest epoch up to `epoch` ends; None for one that is not known here yet."""
        if epoch == self.latest:
            return EpochEnd(epoch, log_end_offset)
        after = bisect_right(self._entries, epoch, key=lambda entry: entry.epoch)
        if after == len(self._entries):
            return None
        end_offset = self._entries[after].start_offset
        return EpochEnd(self._entries[after - 1].epoch if after else epoch, end_offset)

    def epoch_at(self, offset: int) -> int | None:
        """Of the record at `offset`, as far back as the history goes."""
        after = bisect_right(self._entries, offset, key=lambda entry: entry.start_offset)
        return self._entries[after - 1].epoch if after else None

    def truncate_from_end(self, end_offset: int) -> bool:
        """Forgets epochs that begin at `end_offset` or later. True if there were any."""
        before = len(self._entries)
        first_gone = end_offset if self._forgets_empty else end_offset + 1
        while self._entries and self._entries[-1].start_offset >= first_gone:
            self._entries.pop()
        self.latest = self._entries[-1].epoch if self._entries else None
        return len(self._entries) < before

    def truncate_from_start(self, start_offset: int) -> None:
        """Forgets what ended before `start_offset`; the epoch of that offset begins there now."""
        after = bisect_right(self._entries, start_offset, key=lambda entry: entry.start_offset)
        if after:
            self._entries[:after] = [EpochStart(self._entries[after - 1].epoch, start_offset)]

    # On disk as Kafka has it: a version, a count, a line for each epoch.

    def encode(self) -> bytes:
        lines = [f"{entry.epoch} {entry.start_offset}" for entry in self._entries]
        return "\n".join(["0", str(len(lines)), *lines, ""]).encode()

    @classmethod
    def decode(cls, data: bytes, *, forgets_empty: bool = True) -> LeaderEpochs | None:
        """None when it cannot be trusted: then the log itself is read."""
        try:
            version, count, *entries = (tuple(map(int, line.split())) for line in data.splitlines())
            if version != (0,) or count != (len(entries),):
                return None
            starts = [EpochStart(epoch, start_offset) for epoch, start_offset in entries]
            return cls(starts, forgets_empty=forgets_empty)
        except ValueError:
            return None
