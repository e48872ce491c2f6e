"""What a batch waits for, said while it waits; and a cluster manager that has lost the application.

A Spark job has no deadline: without executors it waits until some are granted. A standalone master
that restarts without recovery has forgotten the application, whose driver Spark does not inform:
no executor will ever be granted, and the job would wait for good. The master itself is therefore
asked, in a thread of its own, because a question can take as long as the network does.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import TYPE_CHECKING, Any, Self, cast

from py4j.protocol import Py4JError

from lossless.errors import Unavailable

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FIRST_WARNING_S = 20.0
ASK_INTERVAL_S = 5.0
ASK_TIMEOUT_S = 10
# A master that has just been elected reads its applications back within this time.
FORGOTTEN_TIMES = 3


class ClusterManagerLost(Unavailable):
    """The cluster manager has forgotten this application; only another driver can go on."""


class Standing(Enum):
    """What a cluster manager says about our application."""

    KNOWN = auto()
    FORGOTTEN = auto()
    SILENT = auto()  # no answer, or none that decides


@dataclass(slots=True)
class BatchWatch:
    """Which step of a batch is under way, and since when; warns at 20 s, 40 s, 80 s and so on."""

    clock: Callable[[], float] = time.monotonic
    _step: str | None = field(default=None, init=False)
    _since: float = field(default=0.0, init=False)
    _warn_after_s: float = field(default=FIRST_WARNING_S, init=False)

    def begin(self, step: str) -> None:
        self._step, self._since, self._warn_after_s = step, self.clock(), FIRST_WARNING_S

    def end(self) -> None:
        self._step = None

    def warning(self, details: Callable[[], str]) -> str | None:
        """A warning when one is due; `details` is only called then."""
        step, waited_s = self._step, self.clock() - self._since
        if step is None or waited_s < self._warn_after_s:
            return None
        self._warn_after_s *= 2
        return f"{step} has taken {waited_s:.0f} s so far{details()}"


class ManagerWatch:
    """Asks the cluster manager again and again, until closed."""

    def __init__(self, ask: Callable[[], Standing], *, interval_s: float = ASK_INTERVAL_S) -> None:
        self._ask = ask
        self._interval_s = interval_s
        self._closed = threading.Event()
        self._forgotten = 0
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        # Not joined: a question to a machine that is gone may still wait for its answer.
        self._closed.set()

    def raise_if_lost(self) -> None:
        if self._forgotten >= FORGOTTEN_TIMES:
            raise ClusterManagerLost(
                "the Spark master has restarted and does not have this application any more: its "
                "executors are gone, and no others will be granted",
                hint="run the pipeline again: it resumes from its ledger. A master with "
                "spark.deploy.recoveryMode set keeps its applications",
            )

    def _watch(self) -> None:
        while not self._closed.wait(self._interval_s):
            self._forgotten = self._forgotten + 1 if self._ask() is Standing.FORGOTTEN else 0


def watch_manager(spark: SparkSession) -> ManagerWatch:
    """Of a standalone master; other managers end the SparkContext themselves when lost."""
    masters = _standalone_masters(str(spark.sparkContext.master))
    return ManagerWatch(lambda: standing(spark, masters) if masters else Standing.KNOWN)


def standing(spark: SparkSession, masters: Sequence[tuple[str, int]]) -> Standing:
    """One that has our application decides; otherwise one that is active and does not have it."""
    found = {_standing_at(spark, host, port) for host, port in masters}
    for decisive in (Standing.KNOWN, Standing.FORGOTTEN):
        if decisive in found:
            return decisive
    return Standing.SILENT


def executors(spark: SparkSession) -> int:
    """How many executors there are now, apart from the driver."""
    return int(spark.sparkContext._jsc.sc().getExecutorMemoryStatus().size()) - 1


def _standalone_masters(master: str) -> list[tuple[str, int]]:
    """The addresses in `spark://host:port,host:port`; none for any other master."""
    if not master.startswith("spark://"):
        return []
    places = [place.rpartition(":") for place in master.removeprefix("spark://").split(",")]
    return [(host, int(port)) for host, _, port in places]


def _standing_at(spark: SparkSession, host: str, port: int) -> Standing:
    jvm = cast(Any, spark._jvm)
    try:
        apache = jvm.org.apache.spark
        messages = apache.deploy
        request = getattr(getattr(messages, "DeployMessages$RequestMasterState$"), "MODULE$")
        anything = getattr(getattr(jvm.scala.reflect, "ClassTag$"), "MODULE$").Any()
        seconds = jvm.java.util.concurrent.TimeUnit.SECONDS
        duration = jvm.scala.concurrent.duration.FiniteDuration(ASK_TIMEOUT_S, seconds)
        timeout = apache.rpc.RpcTimeout(duration, "lossless: state of the master")
        rpc = apache.SparkEnv.get().rpcEnv()
        master = rpc.setupEndpointRef(apache.rpc.RpcAddress(host, port), "Master")
        state = master.askSync(request, timeout, anything)
        if str(state.status()) != "ALIVE":
            return Standing.SILENT
        ours = spark.sparkContext.applicationId
        known = any(str(application.id()) == ours for application in state.activeApps())
    except (Py4JError, OSError, AttributeError):  # no answer, or the session has ended
        return Standing.SILENT
    return Standing.KNOWN if known else Standing.FORGOTTEN
