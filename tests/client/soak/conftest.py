"""The soak has a cluster and a database of its own: they are killed again and again.

LOSSLESS_CLIENT_SOAK_KAFKA=apache runs it on Apache Kafka.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from client.claims.client_clusters import CONFIG
from lossless.engines import cluster
from lossless.engines.local.planned import PlannedCluster
from postgres_server import PostgresServer, running_postgres


@pytest.fixture
def soaked_kafka() -> Iterator[PlannedCluster]:
    engine = os.environ.get("LOSSLESS_CLIENT_SOAK_KAFKA", "embedded")
    with cluster(kafka=engine, brokers=3, controllers=1, config=CONFIG, processes=True) as started:
        yield started


@pytest.fixture
def soaked_database() -> Iterator[PostgresServer]:
    with running_postgres(fsync="off") as server:
        yield server
