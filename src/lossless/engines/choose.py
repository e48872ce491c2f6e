"""Which Kafka a command talks to: `--kafka`, else the contract's address, else `lossless up`'s."""

from __future__ import annotations

import re
from pathlib import Path

from lossless.contract import Contract
from lossless.engines.detached import find_cluster, nearest_home
from lossless.engines.external import ExternalCluster
from lossless.engines.interface import Cluster
from lossless.engines.metadata import read_metadata
from lossless.errors import BadInput, Unavailable

ENGINES = ("embedded", "apache")
_ADDRESS = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[^\s:,\[\]]+):\d{1,5}")


def connect(kafka: str | None, contract: Contract | None, *, data: Path | None = None) -> Cluster:
    """A cluster that answers. BadInput for a choice that is none, Unavailable for no answer."""
    client = dict(contract.cluster.client) if contract else {}
    if kafka is not None:
        check_choice(kafka)
    if kafka is not None and kafka not in ENGINES:
        # Where to connect is said; how to be let in still stands in the contract.
        client["bootstrap.servers"] = kafka
    if kafka not in ENGINES and client.get("bootstrap.servers"):
        read_metadata(client)
        return ExternalCluster(client)
    place = nearest_home(contract.folder if contract else None)
    running = find_cluster(place, data)
    if running is None or not running.nodes_in("running", brokers=True):
        raise Unavailable(
            f"no broker is running here ({data or place})",
            hint="start one with `lossless up --detach`"
            + ("" if kafka else ", or name an address with --kafka or in the contract"),
        )
    if kafka is not None and running.plan.engine != kafka:
        raise BadInput(
            f"--kafka {kafka}: the cluster that runs here is {running.plan.engine}",
            hint="leave the option out, or stop that cluster with `lossless down`",
        )
    return running


def check_choice(kafka: str) -> None:
    """An engine's name, or an address (`host:port`, several with commas)."""
    if kafka in ENGINES:
        return
    if not all(_ADDRESS.fullmatch(part.strip()) for part in kafka.split(",")):
        raise BadInput(
            f"--kafka {kafka} is neither `embedded`, `apache` nor an address",
            hint="an address is host:port, several are separated by commas",
        )
