"""How far one partition is: what was handed out, what is finished, what may be committed.

    offsets     3   4   5   7   8   9        (6 is a gap: compacted, or the end of a transaction)
    delivered   x   x   x   x   x   x
    finished    x   x       x       x
                        ^ commit 5: everything below is finished, and nothing that is not

Rules:
    - A commit never passes a record that was delivered and is not finished (claims C3 and C7).
    - What is finished beyond the commit (7 and 9) can travel in its metadata, so that the next
      owner hands out only 5 and 8. Gaps belong to the run around them: nobody ever reads them.
    - Metadata has room for so much only (finished_runs.py). `certain_to_fit` is asked before a
      record is handed out: while it says yes, whatever order records finish in, it fits.

Pure: no clock, no threads, no Kafka.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Iterator

from lossless.client.finished_runs import ENCODED_BYTES_MAX, Run, encode


class Progress:
    """Of one partition, for as long as it is assigned."""

    __slots__ = ("_ahead", "_finished", "_next_offset", "_order", "_unfinished")

    def __init__(self, next_offset: int, finished_beyond: Iterable[Run] = ()) -> None:
        self._next_offset = next_offset  # where the next owner would begin, were it to begin now
        self._order: deque[int] = deque()  # delivered and not passed yet, in order
        self._finished: set[int] = set()  # of those
        self._unfinished = 0
        self._ahead: deque[Run] = deque(sorted(finished_beyond))

    @property
    def committable(self) -> int:
        """The offset to commit: the first that is not finished, or the next that will be read."""
        return self._next_offset

    @property
    def unfinished(self) -> int:
        return self._unfinished

    def deliver(self, offset: int) -> bool:
        """Takes note of a record that was read. False: an earlier owner finished it."""
        if self._order and offset <= self._order[-1]:
            raise ValueError(f"offset {offset} after {self._order[-1]}: records come in order")
        while self._ahead and self._ahead[0][1] <= offset:
            self._ahead.popleft()
        known = bool(self._ahead) and self._ahead[0][0] <= offset
        self._order.append(offset)
        if known:
            self._finished.add(offset)
            self._pass_finished()
            return False
        self._unfinished += 1
        return True

    def finish(self, offset: int) -> None:
        self._finished.add(offset)
        self._unfinished -= 1
        if offset == self._order[0]:
            self._pass_finished()

    def _pass_finished(self) -> None:
        order, finished = self._order, self._finished
        passed = None
        while order and order[0] in finished:
            passed = order.popleft()
            finished.discard(passed)
        if passed is not None:
            self._next_offset = order[0] if order else passed + 1

    def read_to(self, next_offset: int) -> None:
        """Nothing more will come below `next_offset`: what ends there are only gaps."""
        if not self._order and next_offset > self._next_offset:
            self._next_offset = next_offset

    def finished_beyond(self) -> list[Run]:
        """Runs above the commit; those that an earlier owner left and nobody reached yet too."""
        runs = list(self._runs_delivered())
        read_to = self._order[-1] + 1 if self._order else self._next_offset
        runs += [(max(first, read_to), end) for first, end in self._ahead if end > read_to]
        return _joined(runs)

    def _runs_delivered(self) -> Iterator[Run]:
        first: int | None = None
        end = self._next_offset
        for offset in self._order:
            if offset in self._finished:
                if first is None:
                    first = offset
            elif first is not None:
                yield first, end
                first = None
            end = offset + 1
        if first is not None:
            yield first, end

    def certain_to_fit(self, offset: int) -> bool:
        """Whether, with this record delivered as well, the metadata fits however others finish."""
        span = max(offset + 1, self._ahead[-1][1] if self._ahead else 0) - self._next_offset
        if span <= ENCODED_BYTES_MAX * 8:
            return True
        # Each record that is not finished ends at most one run, and begins the next. The bytes
        # that lengths take are the most when all are the same.
        lengths = 2 * (self._unfinished + len(self._ahead) + 2)
        return lengths * (1 + math.log(max(span / lengths, 1), 128)) <= ENCODED_BYTES_MAX

    def metadata(self) -> str:
        """What to commit with `committable`. Empty when nothing is finished beyond it.

        What does not fit, which only happens when nobody asked `certain_to_fit`, is left out from
        the end: those records will be repeated.
        """
        runs = self.finished_beyond()
        while runs:
            encoded = encode(self._next_offset, runs)
            if encoded is not None:
                return encoded
            runs = runs[: len(runs) // 2]
        return ""


def _joined(runs: list[Run]) -> list[Run]:
    joined: list[Run] = []
    for first, end in runs:
        if joined and first <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(end, joined[-1][1]))
        else:
            joined.append((first, end))
    return joined
