"""What becomes of the producers of a process that ends, or forks.

A process that ends without `close` would lose what is still in memory. So producers that are open
when it ends get a few seconds, shared by all of them, and what is not delivered by then is reported
on standard error. This covers a normal end, an exception that nobody caught, sys.exit and Ctrl-C;
it covers neither a signal that nobody handles, nor os._exit.

In a forked child a producer has lost its threads. It refuses to be used there, and its librdkafka
is never destroyed, since that would wait for threads which do not exist.
"""

from __future__ import annotations

import atexit
import ctypes
import os
import sys
import time
import weakref
from typing import Protocol

EXIT_S = 5.0


class OfProcess(Protocol):
    """A producer, as far as its process needs to know it."""

    def _on_exit(self, deadline: float) -> str | None:
        """Closes it; gives what has to be reported."""
        ...

    def _on_fork(self) -> None: ...


_producers: weakref.WeakSet[OfProcess] = weakref.WeakSet()


def remember(producer: OfProcess) -> None:
    _producers.add(producer)
    multiprocessing = sys.modules.get("multiprocessing.process")
    if multiprocessing is not None and multiprocessing.parent_process() is not None:
        from multiprocessing.util import Finalize

        Finalize(None, _close_all, exitpriority=0)  # such a process may end without atexit


def forget(producer: OfProcess) -> None:
    _producers.discard(producer)


def never_destroy(*objects: object) -> None:
    """Their reference counts never reach zero again, not even when the interpreter ends."""
    for each in objects:
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(each))


def _close_all() -> None:
    deadline = time.monotonic() + EXIT_S
    for producer in list(_producers):
        report = producer._on_exit(deadline)
        if report is not None and sys.stderr is not None:
            print(f"lossless: {report}", file=sys.stderr, flush=True)


def _leave_all() -> None:
    producers = list(_producers)
    _producers.clear()  # the child does not close them when it ends
    for producer in producers:
        producer._on_fork()


atexit.register(_close_all)
os.register_at_fork(after_in_child=_leave_all)
