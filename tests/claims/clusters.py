"""How the clusters of these tests are configured, and how they are handed on."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from lossless.engines.local.planned import PlannedCluster
from lossless.engines.waiting import wait_until
from lossless.errors import Unavailable

CONFIG = {
    "broker.session.timeout.ms": "1000",
    "group.min.session.timeout.ms": "500",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
}


def restart(kafka: PlannedCluster, *nodes: int) -> None:
    """All at once, which takes as long as the slowest."""
    with ThreadPoolExecutor(max_workers=max(1, len(nodes))) as starting:
        for started in [starting.submit(kafka.restart, node) for node in nodes]:
            started.result()


def whole_again(running: PlannedCluster) -> None:
    for row in running.status():
        if row.state == "paused":
            running.resume(row.broker)
    restart(running, *(row.broker for row in running.status() if row.state == "dead"))

    def in_sync() -> bool:
        try:
            everybody = len(running.metadata().brokers) == len(running.plan.brokers)
            return everybody and running.in_sync()
        except Unavailable:
            return False

    assert wait_until(in_sync, timeout_s=60)
