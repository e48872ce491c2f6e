"""What librdkafka reports of its connections, condensed: for the log, and for errors.

librdkafka writes a line for every connection that it cannot make or loses, for each broker and each
attempt: dozens in a few seconds when a cluster is unreachable. Of these the first one is logged,
and then one every ten seconds, with the number of those in between. All other lines are passed on.

What the lines say is kept, so that the error of a record that was not delivered can name the
addresses that were tried, and why each of them failed.
"""

from __future__ import annotations

import re
import threading
import time
from typing import Protocol

SUMMARY_EVERY_S = 10.0
RECENT_S = 60.0  # failures before that do not explain what happens now
NAMED_MAX = 3  # addresses in an error

_CONNECTION_FAILED = "FAIL"  # librdkafka's name for such lines
# [thrd:…]: host:port/id: what happened (after 5ms in state CONNECT)
_LINE = re.compile(
    r"(?:\[thrd:.*?\]: )?(?:\w+://)?(?P<address>\S+?)(?:/\S*)?: (?P<reason>.*)", re.S
)
_STATE = re.compile(r" ?\(after \d+ms in state (?P<state>\w+)[^)]*\)")
_CONNECT_TO = re.compile(r"Connect to \S+ failed: ")


class Log(Protocol):
    """A logger, as far as librdkafka's lines need one."""

    def log(self, level: int, message: str, *arguments: object) -> object: ...


class Connections:
    """Given to confluent-kafka as the client's logger. Any thread may call it."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self._guard = threading.Lock()
        self._logged_at: float | None = None
        self._unlogged = 0
        self._failed: dict[str, tuple[float, str]] = {}  # when and why, by address
        self._is_made = False

    def log(self, level: int, message: str, *arguments: object) -> None:
        """A line of librdkafka: facility, name of the client, text."""
        if len(arguments) < 2 or arguments[0] != _CONNECTION_FAILED:
            self._log.log(level, message, *arguments)
            return
        now = time.monotonic()
        with self._guard:
            self._note(str(arguments[-1]), now)
            if self._logged_at is not None and now - self._logged_at < SUMMARY_EVERY_S:
                self._unlogged += 1
                return
            since_s = 0.0 if self._logged_at is None else now - self._logged_at
            unlogged, self._unlogged, self._logged_at = self._unlogged, 0, now
        if not unlogged:
            self._log.log(level, message, *arguments)
        else:
            self._log.log(
                level,
                message + " (and %d more failures of connections in the last %.0f s, not logged)",
                *arguments,
                unlogged,
                since_s,
            )

    def made(self) -> None:
        """A broker has answered."""
        self._is_made = True

    def explanation(self) -> str | None:
        """Why brokers are unreachable, if connections have failed recently."""
        now = time.monotonic()
        with self._guard:
            recent = {
                address: reason
                for address, (at, reason) in self._failed.items()
                if now - at < RECENT_S
            }
            is_made = self._is_made
        if not recent:
            return None
        named = [f"{address} ({reason})" for address, reason in [*recent.items()][:NAMED_MAX]]
        if len(recent) > NAMED_MAX:
            named.append(f"and {len(recent) - NAMED_MAX} more")
        tried = ", ".join(named)
        if is_made:
            return f"connections to brokers were made before, and fail now: {tried}"
        return f"no connection to a broker was ever made: tried {tried}"

    def _note(self, text: str, now: float) -> None:
        line = _LINE.match(text)
        if line is None:
            return
        state = _STATE.search(text)
        if state is not None and state["state"] == "UP":
            self._is_made = True
        reason = _CONNECT_TO.sub("", _STATE.sub("", line["reason"]))
        self._failed.pop(line["address"], None)  # the latest comes last
        self._failed[line["address"]] = (now, reason.split(" (after ")[0].strip())
