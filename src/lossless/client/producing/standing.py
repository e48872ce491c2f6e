"""Whether a producer can still be used: it may be closed, have failed, or belong to the parent.

A producer refuses from the moment in which it begins to close, in which librdkafka fails for good,
or in which the process forks; it never leaves that state.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from lossless.client.errors import ClientError, ClientFailed
from lossless.errors import BadInput

logger = logging.getLogger("lossless.client.producer")

LAST_WORDS_S = 5.0  # for what must be said after the deadline of `close`: what was not delivered


def is_held_here(lock: threading.RLock) -> bool:
    """Whether the current thread holds it. Conditions of the standard library ask the same way."""
    return bool(lock._is_owned())  # type: ignore[attr-defined]


class Standing:
    """Read and changed by any thread."""

    def __init__(
        self,
        *,
        timeout_s: float,
        on_refused: Callable[[], None],
        is_served_here: Callable[[], bool],
        wait_until_idle: Callable[[float], None],
    ) -> None:
        """on_refused: called when nothing can be sent any more. is_served_here: whether the
        current thread is the one that serves the producer. wait_until_idle: until everything that
        was sent is decided, or the seconds have passed."""
        self.fatal: ClientError | None = None  # why librdkafka cannot go on, if it cannot
        self._refusal: tuple[str, str] | None = None
        self._timeout_s = timeout_s
        self._on_refused = on_refused
        self._is_served_here = is_served_here
        self.wait_until_idle = wait_until_idle
        self.is_of_parent = False

    @property
    def refuses(self) -> bool:
        return self._refusal is not None

    def refusal(self) -> ClientError | None:
        """The error for whoever sends now; None if sending is possible."""
        return None if self._refusal is None else self.refused()

    def refused(self) -> ClientError:
        what, hint = self._refusal or ("the producer has ended", "make a new one")
        kind = type(self.fatal) if self.fatal is not None else ClientFailed
        refused = kind(what, hint=hint, code=self.fatal.code if self.fatal else None)
        refused.__cause__ = self.fatal
        return refused

    def patience_s(self) -> float:
        """How long a record may take, with a little more for the news of it to arrive."""
        return (self._timeout_s or threading.TIMEOUT_MAX / 2) + LAST_WORDS_S

    def close(self) -> None:
        if self._refusal is None:
            self._refuse("the producer is closed", "make a new one")

    def fail(self, error: ClientError) -> None:
        """librdkafka cannot go on. What was sent is decided, and nothing more can be sent."""
        if self.fatal is None:
            self.fatal = error
            logger.error("the producer has failed: %s", error)
        self._refuse(f"the producer has failed: {error.what}", "close it and make a new one")

    def leave_to_parent(self) -> None:
        """In a forked child: librdkafka's threads have stayed with the parent."""
        self.is_of_parent = True
        self._refuse(
            "this producer was made by the parent of this process, which has its threads",
            "make the producer after the fork, in the process that uses it",
        )

    def check_may_wait(self, call: str) -> None:
        """Raises where waiting would never end: in a forked child, and in callbacks."""
        if self.is_of_parent:
            raise self.refused()
        if self._is_served_here():
            raise BadInput(
                f"{call} was called in a callback, which runs in the very thread that {call} "
                "would wait for",
                hint="use the delivery that the callback is given, or call it in another thread",
            )

    def _refuse(self, what: str, hint: str) -> None:
        self._refusal = (what, hint)
        self._on_refused()
