"""Named places at which a driver can be made to die, stop or fail, for tests and for the demo.

`LOSSLESS_CRASH_POINTS` names them: `after-commit@2:kill` dies at the second arrival there;
several are separated by commas. Each firing is first written to `LOSSLESS_CRASH_LOG`, so that a
test can assert that the fault it counts on really happened. Unset, a point costs one comparison.

    kill   SIGKILL to the driver's JVM and to this process: nothing gets a chance to clean up
    stop   SIGSTOP to both: the zombie, until somebody sends SIGCONT
    raise  an InjectedFailure, as a failing sink would
"""

from __future__ import annotations

import os
import signal
import threading
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, cast, get_args

from lossless.errors import BadInput, Unavailable

Point = Literal[
    "before-staging",
    "after-staging",
    "before-commit",
    "after-commit",
    "after-group-commit",
]
Action = Literal["kill", "stop", "raise"]


class InjectedFailure(Unavailable):
    """A failure asked for by LOSSLESS_CRASH_POINTS."""


@dataclass(slots=True)
class CrashPoints:
    """What to do at the nth arrival at a point."""

    armed: Mapping[tuple[Point, int], Action] = field(default_factory=dict)
    log: Path | None = None
    arrivals: Counter[Point] = field(default_factory=Counter)

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] = os.environ) -> CrashPoints:
        text = environment.get("LOSSLESS_CRASH_POINTS", "")
        log = environment.get("LOSSLESS_CRASH_LOG")
        armed = dict(_parse(item) for item in text.split(",") if item)
        return cls(armed=armed, log=Path(log) if log else None)

    def reached(self, point: Point) -> None:
        if not self.armed:
            return
        self.arrivals[point] += 1
        action = self.armed.get((point, self.arrivals[point]))
        if action is None:
            return
        self._write_log(f"{point}@{self.arrivals[point]}:{action} {os.getpid()}")
        if action == "raise":
            raise InjectedFailure(f"injected at {point}")
        _signal_driver(signal.SIGKILL if action == "kill" else signal.SIGSTOP)

    def _write_log(self, line: str) -> None:
        if self.log is None:
            return
        with self.log.open("a") as log:
            log.write(line + "\n")
            log.flush()
            os.fsync(log.fileno())


def _signal_driver(number: signal.Signals) -> None:
    from pyspark import SparkContext

    gateway = SparkContext._gateway
    java = getattr(gateway, "proc", None)
    if java is not None:
        os.kill(java.pid, number)
    # To this thread, not to the process: another thread could take the signal, and this one would
    # run on for a moment before the stop reaches it, as far as into the sink's commit.
    signal.pthread_kill(threading.get_ident(), number)


def _parse(item: str) -> tuple[tuple[Point, int], Action]:
    place, _, action = item.strip().partition(":")
    name, _, arrival = place.partition("@")
    if name not in get_args(Point) or action not in get_args(Action):
        raise BadInput(
            f"LOSSLESS_CRASH_POINTS: {item!r} is not POINT@N:ACTION",
            hint=f"points: {', '.join(get_args(Point))}; actions: {', '.join(get_args(Action))}",
        )
    return (cast(Point, name), int(arrival or "1")), cast(Action, action)
