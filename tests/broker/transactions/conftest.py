"""One embedded cluster for all tests of transactions. Some kill brokers; the next has all three."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from confluent_kafka import ElectionType
from confluent_kafka.admin import AdminClient
from transactional_clients import Clients

from lossless.engines.interface import ClusterSpec
from lossless.engines.local.cluster import LocalCluster
from lossless.engines.local.start import start_cluster
from lossless.engines.waiting import wait_until


@pytest.fixture(scope="package")
def started(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    config = {
        "broker.session.timeout.ms": "1000",
        # Kafka looks for transactions that take too long every ten seconds.
        "transaction.abort.timed.out.transaction.cleanup.interval.ms": "100",
        "auto.create.topics.enable": "false",
    }
    folder = tmp_path_factory.mktemp("transactions")
    cluster = start_cluster(ClusterSpec(config=config), folder, engine="embedded", temporary=True)
    yield cluster
    cluster.stop()


@pytest.fixture
def cluster(started: LocalCluster) -> LocalCluster:
    for node in started.nodes_in("paused", brokers=True):
        started.resume(node.id)
    for node in started.nodes_in("dead", brokers=True):
        started.restart(node.id)
    assert wait_until(started.in_sync, timeout_s=60)
    admin = AdminClient({"bootstrap.servers": started.bootstrap_servers, "log_level": 0})
    admin.elect_leaders(ElectionType.PREFERRED).result(60)  # everybody coordinates something again
    return started


@pytest.fixture
def clients(cluster: LocalCluster) -> Iterator[Clients]:
    clients = Clients(cluster)
    yield clients
    clients.close()
