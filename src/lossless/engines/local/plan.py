"""What a cluster on this machine consists of: nodes with their roles, ports and settings.

Decided once, when the cluster is created, and kept in its folder: a broker that comes back has the
address it had, so that clients find it again.

    <folder>/cluster.json            the plan with the cluster's secret, and the processes
    <folder>/broker-1/               server.properties, data/, log/server.log, log/output.log
    <folder>/controller-101/         the same, for controllers with processes of their own
"""

from __future__ import annotations

import base64
import contextlib
import dataclasses
import random
import re
import secrets
import socket
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from lossless.engines.interface import ClusterSpec
from lossless.engines.local import security
from lossless.engines.local.security import LOOPBACK
from lossless.engines.local.software import SOFTWARE
from lossless.errors import BadInput, Unavailable

BROKERS_MAX = 16  # a broker takes 350 MB of memory
CONTROLLERS_MAX = 7
FIRST_CONTROLLER = 101
EVERY_ADDRESS = "0.0.0.0"
PORT_MAX = 65_535

_HOST = re.compile(r"[A-Za-z0-9]([A-Za-z0-9.-]*[A-Za-z0-9])?")

# Below the range that systems give to outgoing connections: nobody takes the port of a dead broker.
_PORTS = range(10_000, 32_000)

# What the plan decides; a setting of the user's that contradicts it would break the cluster.
_DECIDED_HERE = frozenset(
    {
        "advertised.listeners",
        "broker.id",
        "broker.rack",
        "controller.listener.names",
        "controller.quorum.bootstrap.servers",
        "controller.quorum.voters",
        "inter.broker.listener.name",
        "listener.security.protocol.map",
        "listeners",
        "log.dir",
        "log.dirs",
        "metadata.log.dir",
        "node.id",
        "process.roles",
        "sasl.mechanism.controller.protocol",
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    id: int
    role: str  # broker | controller | broker+controller, as in process.roles
    rack: str | None = None
    port: int | None = None  # where clients connect; none on a mere controller
    controller_port: int | None = None  # where the quorum talks; none on a mere broker

    @property
    def is_broker(self) -> bool:
        return self.port is not None

    @property
    def is_controller(self) -> bool:
        return self.controller_port is not None

    @property
    def name(self) -> str:
        return f"{'broker' if self.is_broker else 'controller'} {self.id}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    engine: str  # embedded | apache
    cluster_id: str
    host: str
    nodes: Sequence[Node]
    temporary: bool  # the folder goes when the cluster stops
    secret: str = field(default="", repr=False)  # by which nodes log in with controllers
    config: Mapping[str, str] = field(default_factory=dict)

    @property
    def brokers(self) -> list[Node]:
        return [node for node in self.nodes if node.is_broker]

    @property
    def controllers(self) -> list[Node]:
        return [node for node in self.nodes if node.is_controller]

    def address(self, node: Node) -> str:
        return f"{self.host}:{node.port if node.is_broker else node.controller_port}"

    @property
    def is_local(self) -> bool:
        return self.host in (LOOPBACK, "localhost")

    @property
    def is_open_to_others(self) -> bool:
        return not (self.is_local or security.has_authentication(self.config))

    def properties(self, node: Node, folder: Path) -> dict[str, str]:
        """The node's server.properties; the user's settings win over our defaults."""
        software = SOFTWARE[self.engine]
        protocol = security.protocol_of(self.config).name
        settings = {
            **software.defaults(self.config, len(self.brokers)),
            **security.broker_settings(self.config),
            **software.controller_settings(self.secret),
            "process.roles": node.role.replace("+", ","),
            "node.id": str(node.id),
            "log.dirs": str(folder / "data"),
            "controller.listener.names": "CONTROLLER",
            "controller.quorum.voters": ",".join(
                f"{self.voter(node)}@{LOOPBACK}:{node.controller_port}" for node in self.controllers
            ),
            "listener.security.protocol.map": f"{protocol}:{protocol},CONTROLLER:SASL_PLAINTEXT",
        }
        settings.pop("security.inter.broker.protocol", None)  # the listener's name says it
        listeners = []
        if node.is_broker:
            # Reachable from elsewhere only when an address of elsewhere is advertised.
            bind = LOOPBACK if self.is_local else EVERY_ADDRESS
            listeners.append(f"{protocol}://{bind}:{node.port}")
            settings["advertised.listeners"] = f"{protocol}://{self.host}:{node.port}"
            settings["inter.broker.listener.name"] = protocol
        if node.is_controller:
            listeners.append(f"CONTROLLER://{LOOPBACK}:{node.controller_port}")
        settings["listeners"] = ",".join(listeners)
        if node.rack is not None:
            settings["broker.rack"] = node.rack
        return settings

    def voter(self, node: Node) -> int:
        return SOFTWARE[self.engine].voter(node.id, is_broker=node.is_broker)

    def node_of_voter(self, voter: int) -> int:
        return next(node.id for node in self.controllers if self.voter(node) == voter)


def make_plan(spec: ClusterSpec, *, engine: str, temporary: bool) -> Plan:
    check_spec(spec)
    security.check_security(spec.config, engine)
    # Two controllers of two would both be needed: one is more robust than that.
    voters = 0 if spec.controllers else (3 if spec.brokers >= 3 else 1)
    asked = range(spec.port, spec.port + spec.brokers) if spec.port else range(0)
    with contextlib.ExitStack() as held:
        nodes = []
        for number in range(1, spec.brokers + 1):
            combined = number <= voters
            nodes.append(
                Node(
                    id=number,
                    role="broker+controller" if combined else "broker",
                    rack=spec.racks[(number - 1) % len(spec.racks)] if spec.racks else None,
                    port=asked[number - 1] if asked else _free_port(held),
                    controller_port=_free_port(held, asked) if combined else None,
                )
            )
        nodes += [
            Node(id=number, role="controller", controller_port=_free_port(held, asked))
            for number in range(FIRST_CONTROLLER, FIRST_CONTROLLER + spec.controllers)
        ]
    return Plan(
        engine=engine,
        cluster_id=_cluster_id(),
        host=spec.advertised_host,
        nodes=nodes,
        temporary=temporary,
        secret=new_secret(),
        config=dict(spec.config),
    )


def kept_plan(plan: Plan, spec: ClusterSpec) -> Plan:
    """The plan of a folder, started once more: ports and ids stay, settings are those of now. A
    folder of an earlier version has no secret yet."""
    return dataclasses.replace(
        plan,
        secret=plan.secret or new_secret(),
        config=dict(spec.config),
    )


def new_secret() -> str:
    return secrets.token_urlsafe(32)


def _cluster_id() -> str:
    """A UUID as Kafka writes it; one that starts with a dash would look like an option."""
    while True:
        written = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        if not written.startswith("-"):
            return written


def check_spec(spec: ClusterSpec) -> None:
    if not 1 <= spec.brokers <= BROKERS_MAX:
        raise BadInput(f"{spec.brokers} brokers: between 1 and {BROKERS_MAX} can be started")
    if not 0 <= spec.controllers <= CONTROLLERS_MAX:
        raise BadInput(
            f"{spec.controllers} controllers: between 1 and {CONTROLLERS_MAX} can be started, "
            "or 0 for brokers that are their own controllers"
        )
    if len(spec.racks) > spec.brokers:
        raise BadInput(f"{len(spec.racks)} racks for {spec.brokers} brokers: some would be empty")
    if spec.port is not None and not 1 <= spec.port <= PORT_MAX + 1 - spec.brokers:
        raise BadInput(
            f"{spec.brokers} brokers from port {spec.port} on: ports are from 1 to {PORT_MAX}"
        )
    if not _HOST.fullmatch(spec.advertised_host):
        raise BadInput(
            f"{spec.advertised_host!r} is no name of a machine",
            hint="a name or an IPv4 address, without a port: the engine chooses ports itself",
        )
    if spec.advertised_host == EVERY_ADDRESS:
        raise BadInput(
            f"{EVERY_ADDRESS} is every address of this machine, and none that others can call",
            hint="give the name or the address that they use: brokers listen on all of them",
        )
    decided = sorted(name for name in spec.config if _is_decided_here(name))
    if decided:
        raise BadInput(
            f"{', '.join(decided)} cannot be configured: the engine chooses ports, roles, folders "
            "and the login of controllers itself"
        )


def check_host(name: str) -> None:
    """Brokers call each other by this name, too: one that leads nowhere would be found late."""
    try:
        socket.getaddrinfo(name, None)
    except OSError as error:
        raise BadInput(
            f"the name {name} cannot be resolved: {error.strerror}",
            hint="--host takes the name or the address by which other machines reach this one",
        ) from error


def _is_decided_here(name: str) -> bool:
    return name in _DECIDED_HERE or name.startswith("listener.name.controller.")


def check_ports_free(node: Node) -> None:
    for port in (node.port, node.controller_port):
        if port is not None and not _is_free(port):
            raise Unavailable(
                f"port {port} of {node.name} is taken by another process",
                hint="stop that process; or, for a new cluster, choose other ports with --port "
                "(a cluster that was started before keeps its ports)",
            )


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        # As Kafka binds: connections of the broker that died here do not count.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOOPBACK, port))
        except OSError:
            return False
        return True


def _free_port(held: contextlib.ExitStack, besides: range = range(0)) -> int:
    """A free port, held until all are chosen, so that none is given out twice."""
    chance = random.Random()  # programs that seed the module's own would all try the same ports
    for _ in range(1000):
        chosen = chance.choice(_PORTS)
        if chosen in besides:
            continue
        probe = socket.socket()
        try:
            probe.bind((LOOPBACK, chosen))
        except OSError:
            probe.close()
        else:
            held.callback(probe.close)
            return chosen
    raise Unavailable(f"no free port between {_PORTS.start} and {_PORTS.stop}")
