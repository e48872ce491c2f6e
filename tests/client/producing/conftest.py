"""One cluster for these tests: brokers in processes of their own, which signals can stop."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from reading_back import new_topic

from lossless.engines import cluster
from lossless.engines.local.planned import PlannedCluster
from lossless.engines.waiting import wait_until
from lossless.errors import Unavailable

CONFIG = {
    "broker.session.timeout.ms": "1000",
    "transaction.state.log.num.partitions": "1",
    "offsets.topic.num.partitions": "1",
    "group.initial.rebalance.delay.ms": "0",
    "auto.create.topics.enable": "false",
}


@pytest.fixture(scope="package")
def three_brokers() -> Iterator[PlannedCluster]:
    with cluster(brokers=3, controllers=1, config=CONFIG, processes=True) as started:
        yield started


@pytest.fixture
def kafka(three_brokers: PlannedCluster) -> Iterator[PlannedCluster]:
    yield three_brokers
    for row in three_brokers.status():
        if row.state == "paused":
            three_brokers.resume(row.broker)
        elif row.state == "dead":
            three_brokers.restart(row.broker)

    def is_whole() -> bool:
        try:
            whole = len(three_brokers.metadata().brokers) == len(three_brokers.plan.brokers)
            return whole and three_brokers.in_sync()
        except Unavailable:
            return False

    assert wait_until(is_whole, timeout_s=60)


@pytest.fixture
def topic(kafka: PlannedCluster) -> str:
    return new_topic(kafka.bootstrap_servers)


@pytest.fixture
def outage(kafka: PlannedCluster) -> Callable[[], None]:
    """No broker answers from now on; calling it ends that."""
    for node in kafka.plan.brokers:
        kafka.pause(node.id)

    def end() -> None:
        for node in kafka.plan.brokers:
            kafka.resume(node.id)

    return end
