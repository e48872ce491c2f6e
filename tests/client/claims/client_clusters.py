"""How the clusters of these tests are configured; the rest is as in tests/claims."""

from __future__ import annotations

from collections.abc import Callable

from claims.clusters import CONFIG as BROKER_CONFIG
from claims.clusters import restart, whole_again
from claims.observing import QUICK, reachable, until
from lossless.engines.local.planned import PlannedCluster

CONFIG = {
    **BROKER_CONFIG,
    "group.initial.rebalance.delay.ms": "0",
    "group.consumer.min.session.timeout.ms": "500",
    "group.consumer.session.timeout.ms": "3000",
    "group.consumer.min.heartbeat.interval.ms": "100",
    "group.consumer.heartbeat.interval.ms": "200",
    "offsets.topic.replication.factor": "3",
    "transaction.state.log.replication.factor": "3",
}
OFFSETS = "__consumer_offsets"
CONTROLLER = 101

__all__ = ["CONFIG", "CONTROLLER", "OFFSETS", "QUICK", "reachable", "until", "whole_again"]


def kill_leader(kafka: PlannedCluster, topic: str, partition: int = 0) -> int:
    """Returns when another one leads."""
    leader = kafka.leader_of(topic, partition)
    kafka.kill(leader)
    until(
        lambda: kafka.leader_of(topic, partition) not in (leader, -1),
        f"another leader of {topic} than {leader}",
    )
    return leader


def restart_in_turn(kafka: PlannedCluster, between: Callable[[], object] = lambda: None) -> None:
    """Each broker, in order, when those before it are in sync again."""
    for node in kafka.plan.brokers:
        kafka.restart(node.id)
        until(lambda: len(kafka.metadata().brokers) == 3 and kafka.in_sync(), "all in sync")
        between()


def without_brokers(kafka: PlannedCluster) -> list[int]:
    brokers = [node.id for node in kafka.plan.brokers]
    for broker in brokers:
        kafka.kill(broker)
    return brokers


def with_brokers(kafka: PlannedCluster) -> None:
    restart(kafka, *(node.id for node in kafka.nodes_in("dead", brokers=True)))
