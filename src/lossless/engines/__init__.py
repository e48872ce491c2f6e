"""Kafka behind one interface: this package's brokers (`embedded`), Apache Kafka in our processes
(`apache`), or anybody's address (`external`)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING

from lossless.engines.interface import BrokerStatus, Cluster, ClusterSpec, Engine
from lossless.errors import BadInput

if TYPE_CHECKING:
    from lossless.engines.local.planned import PlannedCluster

__all__ = ["BrokerStatus", "Cluster", "ClusterSpec", "Engine", "cluster"]


@contextmanager
def cluster(
    *,
    kafka: str = "embedded",
    brokers: int = 3,
    controllers: int = 0,
    racks: Sequence[str] = (),
    config: Mapping[str, str] | None = None,
    data: str | PathLike[str] | None = None,
    processes: bool = False,
) -> Iterator[PlannedCluster]:
    """A cluster for as long as the `with` block runs.

        with lossless.cluster(brokers=3) as kafka:
            producer = Producer({"bootstrap.servers": kafka.bootstrap_servers})
            kafka.kill(kafka.leader_of("orders", 0))

    Its brokers are a part of this process, which is quickest, or with `processes` have one each,
    which can be paused; Apache Kafka (`kafka="apache"`) always does. Its data is kept in `data` if
    that is given, and thrown away with the cluster if not.
    """
    _check(brokers=brokers, controllers=controllers, racks=racks, config=config, data=data)
    started = _start(
        kafka,
        ClusterSpec(
            brokers=brokers,
            controllers=controllers,
            racks=tuple(racks),
            config=dict(config or {}),
            data=Path(data) if data is not None else None,
        ),
        processes=processes,
    )
    try:
        yield started
    finally:
        started.stop()


def _check(
    *, brokers: object, controllers: object, racks: object, config: object, data: object
) -> None:
    """Raises BadInput for arguments of other types than `cluster` has."""
    for name, number in (("brokers", brokers), ("controllers", controllers)):
        if not isinstance(number, int) or isinstance(number, bool):
            raise BadInput(f"{name}={number!r} is not a whole number", hint=f"such as {name}=3")
    if isinstance(racks, str) or not isinstance(racks, Sequence):
        raise BadInput(f"racks={racks!r} is not a list of names", hint='such as racks=["a", "b"]')
    if config is not None and not isinstance(config, Mapping):
        raise BadInput(
            f"config={config!r} is not a mapping of settings of brokers",
            hint='such as config={"min.insync.replicas": "2"}',
        )
    if data is not None and not isinstance(data, str | PathLike):
        raise BadInput(f"data={data!r} is not a folder", hint="give its path")


def _start(kafka: str, spec: ClusterSpec, *, processes: bool) -> PlannedCluster:
    if kafka not in ("embedded", "apache"):
        raise BadInput(f"kafka={kafka!r}: an engine is `embedded` or `apache`")
    if kafka == "embedded" and not processes:
        from lossless.engines.local.in_process import InProcessCluster  # kio, uvloop: on use

        return InProcessCluster(spec)
    from lossless.engines.local.start import LocalEngine  # confluent-kafka, psutil: on use

    return LocalEngine(kafka).start(spec)
