"""The fixture `lossless_cluster`: three brokers, started for the first test that uses them.

pytest --lossless-kafka apache     runs the same tests on Apache Kafka
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
        help="engine of the fixture lossless_cluster: this package's brokers, or Apache Kafka's",
    )


@pytest.fixture(scope="session")
def lossless_cluster(pytestconfig: pytest.Config) -> Iterator[PlannedCluster]:
    """Three brokers, each in its own process. The session timeout is 1 s instead of 9."""
    from lossless.engines import cluster

    with cluster(
        kafka=pytestconfig.getoption("--lossless-kafka"),
        brokers=3,
        config={"broker.session.timeout.ms": "1000"},
        processes=True,
    ) as started:
        yield started
