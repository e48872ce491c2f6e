"""`lossless_cluster`: three brokers for a test run, started when the first test asks.

pytest --lossless-kafka apache     the same tests on Apache Kafka
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from lossless.engines.local.planned import PlannedCluster


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.getgroup("lossless").addoption(
        "--lossless-kafka",
        choices=("embedded", "apache"),
        default="embedded",
        help="the engine behind the fixture lossless_cluster",
    )


@pytest.fixture(scope="session")
def lossless_cluster(pytestconfig: pytest.Config) -> Iterator[PlannedCluster]:
    """Three brokers, each in a process. One that dies is noticed after 1 s instead of 9."""
    from lossless.engines import cluster

    with cluster(
        kafka=pytestconfig.getoption("--lossless-kafka"),
        brokers=3,
        config={"broker.session.timeout.ms": "1000"},
        processes=True,
    ) as started:
        yield started
