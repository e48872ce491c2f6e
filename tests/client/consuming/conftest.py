"""One embedded cluster for the tests of this folder, and a topic of its own for each of them."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest
from consumed import Kafka

import lossless
from lossless.engines.local.planned import PlannedCluster

_numbers = itertools.count()


@pytest.fixture(scope="package")
def consumed_cluster() -> Iterator[PlannedCluster]:
    config = {
        "broker.session.timeout.ms": "1000",
        "broker.heartbeat.interval.ms": "200",
        "group.initial.rebalance.delay.ms": "0",
        "group.min.session.timeout.ms": "500",
        "group.consumer.min.session.timeout.ms": "500",
        "group.consumer.session.timeout.ms": "3000",
        "group.consumer.min.heartbeat.interval.ms": "100",
        "group.consumer.heartbeat.interval.ms": "200",
    }
    with lossless.cluster(brokers=1, config=config) as cluster:
        yield cluster


@pytest.fixture
def kafka(consumed_cluster: PlannedCluster) -> Kafka:
    number = next(_numbers)
    return Kafka(consumed_cluster.bootstrap_servers, f"orders-{number}", f"billing-{number}")
