"""What tests share: one Spark session for the whole run, started when the first test asks."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytest_plugins = ["postgres_server"]

# A shell that starts the tests in the background has them ignore Ctrl-C, and every command that
# they start would ignore it too.
signal.signal(signal.SIGINT, signal.default_int_handler)


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
