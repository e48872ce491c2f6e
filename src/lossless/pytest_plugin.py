"""`lossless_cluster`: three real brokers for a test run, started when the first test asks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from lossless.engines.apache.cluster import ApacheCluster


@pytest.fixture(scope="session")
def lossless_cluster() -> Iterator[ApacheCluster]:
    """Three brokers of Apache Kafka. One that dies is noticed after 1 s instead of 9."""
    from lossless.engines import cluster

    with cluster(brokers=3, config={"broker.session.timeout.ms": "1000"}) as started:
        yield started
