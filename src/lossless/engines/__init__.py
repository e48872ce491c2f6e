"""Kafka behind one interface: brokers of ours (`apache`) or anybody's address (`external`)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING

from lossless.engines.interface import BrokerStatus, Cluster, ClusterSpec, Engine

if TYPE_CHECKING:
    from lossless.engines.apache.cluster import ApacheCluster

__all__ = ["BrokerStatus", "Cluster", "ClusterSpec", "Engine", "cluster"]


@contextmanager
def cluster(
    *,
    brokers: int = 3,
    controllers: int = 0,
    racks: Sequence[str] = (),
    config: Mapping[str, str] | None = None,
    data: str | PathLike[str] | None = None,
) -> Iterator[ApacheCluster]:
    """A cluster of Apache Kafka for as long as the `with` block runs.

        with lossless.cluster(brokers=3) as kafka:
            producer = Producer({"bootstrap.servers": kafka.bootstrap_servers})
            kafka.kill(kafka.leader_of("orders", 0))

    Its data is kept in `data` if that is given, and thrown away with the cluster if not.
    """
    from lossless.engines.apache.start import ApacheEngine  # confluent-kafka, psutil: on use

    started = ApacheEngine().start(
        ClusterSpec(
            brokers=brokers,
            controllers=controllers,
            racks=tuple(racks),
            config=dict(config or {}),
            data=Path(data) if data is not None else None,
        )
    )
    try:
        yield started
    finally:
        started.stop()
