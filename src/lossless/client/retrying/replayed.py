"""Which letters of a partition went back already: a position, and what lies finished beyond it.

A replay that chooses (by exception, by time) leaves letters behind, which a later one may want.
So the position that is committed is that of the first letter that did not go back, and the runs of
those that did, beyond it, stand in the metadata of the commit (finished_runs.py). `fits` says
whether it still does. Pure.
"""

from __future__ import annotations

import base64
import zlib
from bisect import bisect_right
from collections.abc import Iterable

from lossless.client.finished_runs import METADATA_BYTES_MAX, Run, lengths_of, runs_of
from lossless.errors import BadInput

_VERSION = "lossless-replayed-1 "


class Replayed:
    def __init__(self, next_offset: int = 0, runs: Iterable[Run] = ()) -> None:
        self._next = next_offset
        self._runs = list(runs)  # apart, in order, all beyond the position

    @property
    def next_offset(self) -> int:
        """Everything before it went back, or is no letter."""
        return self._next

    @property
    def runs(self) -> tuple[Run, ...]:
        return tuple(self._runs)

    def __contains__(self, offset: int) -> bool:
        if offset < self._next:
            return True
        index = bisect_right(self._runs, (offset, float("inf"))) - 1
        return index >= 0 and offset < self._runs[index][1]

    def missing_before(self, offset: int) -> int:
        """How many offsets below this one did not go back."""
        beyond = sum(min(end, offset) - min(first, offset) for first, end in self._runs)
        return max(0, offset - self._next) - beyond

    def copy(self) -> Replayed:
        return Replayed(self._next, self._runs)

    def add(self, first: int, end: int | None = None) -> None:
        """One offset, or all from `first` up to `end`."""
        end = first + 1 if end is None else end
        if end <= max(first, self._next):
            return
        apart = []
        for run in self._runs:
            if run[1] < first or run[0] > end:
                apart.append(run)
            else:
                first, end = min(first, run[0]), max(end, run[1])
        if first <= self._next:
            self._next = end
        else:
            apart.append((first, end))
        self._runs = sorted(run for run in apart if run[1] > self._next)

    @property
    def fits(self) -> bool:
        return len(self.metadata()) <= METADATA_BYTES_MAX

    def metadata(self) -> str:
        if not self._runs:
            return ""
        lengths = lengths_of(self._next, self._runs)
        return _VERSION + base64.b85encode(zlib.compress(lengths, 9)).decode()

    @classmethod
    def of(cls, next_offset: int, metadata: str | None) -> Replayed:
        if not metadata:
            return cls(next_offset)
        try:
            if not metadata.startswith(_VERSION):
                raise ValueError
            lengths = zlib.decompress(base64.b85decode(metadata[len(_VERSION) :]))
        except (ValueError, zlib.error):
            raise BadInput(
                f"the commit metadata {metadata[:40]!r} is not of a replay",
                hint="another program uses this group, or a later version of lossless wrote it",
            ) from None
        return cls(next_offset, runs_of(next_offset, lengths))
