"""Ends the start of a run that a server holds up after the run was asked to stop."""

from __future__ import annotations

import threading
from collections.abc import Callable
from types import TracebackType
from typing import Self

POLL_S = 0.1
GRACE_S = 5.0  # a start that takes no longer than this after a stop is left to finish
CANCEL_INTERVAL_S = 1.0


class CancelsOnStop:
    """Inside the block `cancel` is called, again and again, once a stop was asked for."""

    def __init__(
        self, stop: threading.Event, cancel: Callable[[], None], *, grace_s: float = GRACE_S
    ) -> None:
        self.cancelled = False
        self._stop = stop
        self._cancel = cancel
        self._grace_s = grace_s
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._ended.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._stop.is_set():
            if self._ended.wait(POLL_S):
                return
        if self._ended.wait(self._grace_s):
            return
        self.cancelled = True
        while True:
            self._cancel()
            if self._ended.wait(CANCEL_INTERVAL_S):
                return
