"""Moments in which Ctrl-C must wait: between starting a process and knowing its number."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def uninterrupted() -> Iterator[None]:
    """A signal that would stop us is delivered at the end of the block instead of within it."""
    if threading.current_thread() is not threading.main_thread():
        yield  # signals are handled in the main thread only
        return
    pending: list[int] = []

    def postpone(number: int, _: FrameType | None) -> None:
        pending.append(number)

    before = {}
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if callable(signal.getsignal(number)):  # ignored, or deadly without a word, it stays so
            before[number] = signal.signal(number, postpone)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        if pending:
            signal.raise_signal(pending[0])
