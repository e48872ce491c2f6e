"""Every claim is shown twice, by the same test: on the embedded engine, then on Apache Kafka.

The clusters are shared, and handed back whole. A broker's session lasts a second, so that elections
are soon; the controller is a process of its own, so that two brokers of three may die.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from claim import ENGINES, Claim
from clusters import CONFIG, whole_again

from lossless.engines import cluster
from lossless.engines.local.planned import PlannedCluster


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "engine" in metafunc.fixturenames:
        stated: Claim = metafunc.function.claim  # type: ignore[attr-defined]
        engines = [
            pytest.param(engine, marks=() if engine in stated.often else pytest.mark.full)
            for engine in ENGINES
        ]
        metafunc.parametrize("engine", engines, scope="package")


@pytest.fixture(scope="package")
def three_brokers(engine: str) -> Iterator[PlannedCluster]:
    with cluster(kafka=engine, brokers=3, controllers=1, config=CONFIG, processes=True) as started:
        yield started


@pytest.fixture
def kafka(three_brokers: PlannedCluster) -> Iterator[PlannedCluster]:
    yield three_brokers
    whole_again(three_brokers)


@pytest.fixture(scope="package")
def controller() -> int:
    """The one controller of `kafka`."""
    return 101
