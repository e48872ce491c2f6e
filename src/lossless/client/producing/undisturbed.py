"""Calls whose outcome an exception of a signal handler must not hide.

Python runs signal handlers in the main thread, between any two steps of it: an exception of one may
arrive after a commit has succeeded and before anything could note that. Such a call is made in a
thread of its own, and the main thread waits for its end.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

INTERRUPTED_S = 5.0  # waited for the end of a call after an interruption


class Undisturbed:
    """One call, made once at most."""

    def __init__(self, call: Callable[[], object], *, name: str) -> None:
        self._call = call
        self._name = name
        self._claim = threading.Lock()  # of the thread that calls, or that prevents the call
        self._ended = threading.Event()
        self._is_prevented = False
        self.failure: BaseException | None = None  # what the call raised

    def run(self) -> None:
        """Raises what the call raised. An exception of a signal handler is raised when the call
        has ended, or after INTERRUPTED_S; `prevent` and `has_ended` then say what was done."""
        if threading.current_thread() is not threading.main_thread():
            self._make()
        else:
            try:
                self._start()
                self._ended.wait()
            except BaseException:
                if not self.prevent():
                    self._wait_stubbornly(INTERRUPTED_S)
                raise
        if self.failure is not None:
            raise self.failure

    @property
    def has_ended(self) -> bool:
        return self._ended.is_set()

    def wait(self, timeout_s: float) -> bool:
        """Whether it ends in time."""
        return self._ended.wait(timeout_s)

    def prevent(self) -> bool:
        """Whether the call has not begun. It never begins then."""
        if self._claim.acquire(blocking=False):
            self._is_prevented = True
            self._ended.set()
        return self._is_prevented

    def _start(self) -> None:
        thread = threading.Thread(target=self._make, name=self._name, daemon=True)
        try:
            thread.start()
        except RuntimeError:  # the interpreter is shutting down, or there are too many threads
            self._make()

    def _make(self) -> None:
        if not self._claim.acquire(blocking=False):
            return
        try:
            self._call()
        except BaseException as failure:
            self.failure = failure
        finally:
            self._ended.set()

    def _wait_stubbornly(self, timeout_s: float) -> None:
        """Also if it is interrupted again."""
        deadline = time.monotonic() + timeout_s
        while (left_s := deadline - time.monotonic()) > 0:
            try:
                if self._ended.wait(left_s):
                    return
            except BaseException:
                continue
