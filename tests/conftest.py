"""What tests share: no deadlines, and one Spark session, started when the first test asks."""

from __future__ import annotations

import gc
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, settings
from xdist.scheduler import LoadScopeScheduling

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from xdist.workermanage import WorkerController

pytest_plugins = ["postgres_server", "redis_server"]

# A shell that starts the tests in the background has them ignore Ctrl-C, and every command that
# they start would ignore it too.
signal.signal(signal.SIGINT, signal.default_int_handler)

# A JVM that lives for minutes spends more on optimising code than it gets back, and most of what
# a short one does is loading classes: scripts/keep-classes has them at hand.
CLASSES = Path(__file__).parents[1] / "build" / "spark.jsa"
QUICK_JVM = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
os.environ["SPARK_DAEMON_JAVA_OPTS"] = QUICK_JVM
os.environ["SPARK_SUBMIT_OPTS"] = f"{QUICK_JVM} -XX:SharedArchiveFile={CLASSES} -Xlog:cds*=off"

SHARE_A_CLUSTER = {
    "audit",
    "claims",
    "conformance",
    "proxy",
    "robustness",
    "security",
    "transactions",
}

# What runs on Spark keeps both cores busy; most of the rest waits, for a broker to be missed or for
# a session to end.
ON_SPARK = (
    "tests/crash_matrix/",
    "tests/demo/",
    "tests/docs/",
    "tests/pipeline/",
    "tests/sinks/",
)

# What takes minutes begins first, or one of the processes would be left with it at the end.
LONG = (
    "tests/client/soak/",
    "tests/crash_matrix/",
    "tests/simulator/test_scenarios.py",
    "tests/docs/",
    "tests/demo/",
)

# No test is about time, and a machine may be busy.
settings.register_profile("untimed", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("untimed")


class Folder(pytest.Package):
    """What is of a folder ("package") ends with its last test: a cluster that went on until the end
    would take from all that follows, and there are many. Without an `__init__.py`, because tests
    import what is beside them by its bare name."""

    def setup(self) -> None:
        """Nothing is to be imported."""


def pytest_collect_directory(path: Path, parent: pytest.Collector) -> Folder:
    return Folder.from_parent(parent, path=path)


class Together(LoadScopeScheduling):
    """Processes share the tests. Those of a file stay together, and those of a folder with a
    cluster of its own: it is started once. The first process takes what runs on Spark and the
    others what does not, for as long as there is some of it: who waits leaves the cores to who
    computes. Two with Spark keep both cores busy; a third is left out."""

    def _split_scope(self, nodeid: str) -> str:
        file = Path(nodeid.partition("::")[0])
        return str(file.parent if file.parent.name in SHARE_A_CLUSTER else file)

    def _reschedule(self, node: WorkerController) -> None:
        is_third = node in self.nodes[2:]
        if is_third and all(scope.startswith(ON_SPARK) for scope in self.workqueue):
            if not node.shutting_down:
                node.shutdown()
        else:
            super()._reschedule(node)

    def _assign_work_unit(self, node: WorkerController) -> None:
        is_first = node is self.nodes[0]
        for scope in self.workqueue:
            if scope.startswith(ON_SPARK) == is_first:
                self.workqueue.move_to_end(scope, last=False)
                break
        super()._assign_work_unit(node)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: not item.nodeid.startswith(LONG))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Together:
    return Together(config, log)


@pytest.fixture(scope="module", autouse=True)
def _leaves_nothing_open() -> Iterator[None]:
    """A socket left open warns when it is collected: here, not in a test that never saw it."""
    yield
    gc.collect()


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    from lossless.pipeline.session import build_session

    session = build_session(
        "tests",
        master="local[2]",
        settings={
            "spark.ui.enabled": "false",
            "spark.sql.shuffle.partitions": "2",
            "spark.driver.memory": "2g",
            "spark.log.level": "ERROR",
        },
    )
    yield session
    session.stop()
