"""What tests share: no deadlines, and one Spark session, started when the first test asks."""

from __future__ import annotations

import gc
import signal
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytest_plugins = ["postgres_server", "redis_server"]

# A shell that starts the tests in the background has them ignore Ctrl-C, and every command that
# they start would ignore it too.
signal.signal(signal.SIGINT, signal.default_int_handler)

SHARE_A_CLUSTER = {
    "audit",
    "claims",
    "conformance",
    "proxy",
    "robustness",
    "security",
    "transactions",
}

# No test is about time, and a machine may be busy.
settings.register_profile("untimed", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("untimed")


@pytest.hookimpl(tryfirst=True)  # before those who look at the marks
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Two processes share the tests. Those of a folder with a cluster of its own stay together: it
    is started once."""
    for item in items:
        folder = item.path.parent
        together = folder if folder.name in SHARE_A_CLUSTER else item.path
        item.add_marker(pytest.mark.xdist_group(str(together)))


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
            # A JVM that lives for minutes spends more on optimising code than it gets back.
            "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
            "spark.log.level": "ERROR",
        },
    )
    yield session
    session.stop()
