"""Each claim of the client is shown twice, by the same test: on embedded brokers, on Apache Kafka.

The clusters are shared, and handed back whole. A broker's session lasts a second, so that elections
are soon; the controller is a process of its own, so that all brokers may die.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from client.claims.client_claim import ENGINES, ClientClaim
from client.claims.client_clusters import CONFIG, whole_again
from lossless.engines import cluster
from lossless.engines.local.planned import PlannedCluster
from postgres_server import PostgresServer, running_postgres

PAUSE_S_OFTEN = 5.0
PAUSE_S = 60.0


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "engine" in metafunc.fixturenames:
        stated: ClientClaim = metafunc.function.claim  # type: ignore[attr-defined]
        engines = [
            pytest.param(engine, marks=() if engine in stated.often else pytest.mark.full)
            for engine in ENGINES
        ]
        metafunc.parametrize("engine", engines, scope="package")
    if "pause_s" in metafunc.fixturenames:
        long = pytest.param(PAUSE_S, marks=pytest.mark.full)
        metafunc.parametrize("pause_s", [PAUSE_S_OFTEN, long])


@pytest.fixture(scope="package")
def three_brokers(engine: str) -> Iterator[PlannedCluster]:
    with cluster(kafka=engine, brokers=3, controllers=1, config=CONFIG, processes=True) as started:
        yield started


@pytest.fixture
def kafka(three_brokers: PlannedCluster) -> Iterator[PlannedCluster]:
    yield three_brokers
    whole_again(three_brokers)


@pytest.fixture(scope="package")
def database_server() -> Iterator[PostgresServer]:
    """Of these tests only: they kill it."""
    with running_postgres(fsync="off") as server:
        yield server
