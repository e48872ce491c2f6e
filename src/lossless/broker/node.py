"""A node: what one process, or one part of a test's process, runs. A broker, a controller, or both.

    <folder>/meta.properties     which cluster and which node this disk belongs to
    <folder>/broker/<log>/       a broker's logs, one folder each
    <folder>/controller/<log>/   a controller's

Where a broker is a controller too, they are two machines with two numbers: broker 1 and controller
101. Each has the metadata log as if it were alone, so that there is one kind of each to reason
about.
"""

from __future__ import annotations

import asyncio
import base64
import logging
import random
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from lossless.broker.broker_host import BrokerHost
from lossless.broker.controller_host import ControllerHost
from lossless.broker.faults import Faults, FaultyStore
from lossless.broker.host import Clock
from lossless.broker.links import Address
from lossless.broker.meta import read_cluster_id
from lossless.broker.security.first_users import first_users
from lossless.broker.security.listeners import (
    InterBroker,
    NodeSecurity,
    node_security,
)
from lossless.broker.security.nodes import CONTROLLER_LISTENER, node_login
from lossless.core.messages import Endpoint
from lossless.core.settings.broker_settings import BrokerSettings
from lossless.core.settings.kinds import InvalidSetting
from lossless.core.settings.machines import broker_config, controller_config
from lossless.log.files import stored_in

_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeConfig:
    """What a node is, read from Kafka's properties."""

    number: int
    cluster_id: str
    folder: Path
    is_broker: bool
    controller: int | None  # its number, if it is one
    voters: Mapping[int, Address]
    listeners: Mapping[str, Address]
    endpoints: tuple[Endpoint, ...]
    security: NodeSecurity
    node_login: InterBroker  # with controllers
    settings: BrokerSettings

    @classmethod
    def from_properties(cls, properties: Mapping[str, str]) -> NodeConfig:
        settings, warnings = BrokerSettings.from_properties(properties)
        for warning in warnings:
            _logger.warning("%s", warning)
        number = int(_required(properties, "node.id"))
        folder = Path(_required(properties, "log.dirs"))
        voters = _voters(_required(properties, "controller.quorum.voters"))
        roles = _required(properties, "process.roles").split(",")
        listening = _listeners(properties.get("listeners", ""))
        own = {address for name, address in listening.items() if name == CONTROLLER_LISTENER}
        controller = next((voter for voter, address in voters.items() if address in own), None)
        if "controller" in roles and controller is None:
            raise InvalidSetting(
                "no voter of controller.quorum.voters listens where this node does"
            )
        listening.pop(CONTROLLER_LISTENER, None)
        advertised = _listeners(properties.get("advertised.listeners", "")) or listening
        strange = set(advertised) - set(listening) - {CONTROLLER_LISTENER}
        if strange:
            raise InvalidSetting(f"advertised.listeners has no listener {', '.join(strange)}")
        security = node_security(properties, listening)
        return cls(
            number=number,
            cluster_id=read_cluster_id(folder),
            folder=folder,
            is_broker="broker" in roles,
            controller=controller if "controller" in roles else None,
            voters=voters,
            listeners=listening,
            endpoints=tuple(
                Endpoint(name, host, port, security.listeners[name].protocol)
                for name, (host, port) in advertised.items()
                if name in listening
            ),
            security=security,
            node_login=node_login(properties),
            settings=settings,
        )


def _required(properties: Mapping[str, str], name: str) -> str:
    try:
        return properties[name]
    except KeyError:
        raise InvalidSetting(f"{name} is not set") from None


def _voters(text: str) -> dict[int, Address]:
    voters = {}
    for part in text.split(","):
        number, _, address = part.strip().partition("@")
        voters[int(number)] = _address(address)
    return voters


def _listeners(text: str) -> dict[str, Address]:
    found = {}
    for part in filter(None, (part.strip() for part in text.split(","))):
        name, _, address = part.partition("://")
        found[name] = _address(address)
    return found


def _address(text: str) -> Address:
    host, _, port = text.rpartition(":")
    return host.strip("[]"), int(port)


class Node:
    """Started, stopped in order, or dropped as if its process had been killed."""

    def __init__(self, config: NodeConfig, on_failure: Callable[[BaseException], None]) -> None:
        self.config = config
        self._on_failure = on_failure
        self._stores: list[FaultyStore] = []
        self._faults = Faults()
        clock = Clock()
        # Its own: the numbers of the program that a cluster runs in are that program's affair.
        draw = random.Random().randrange
        settings = config.settings
        self.controller: ControllerHost | None = None
        self.broker: BrokerHost | None = None
        if config.controller is not None:
            controller = controller_config(settings)
            self.controller = ControllerHost(
                config.controller,
                cluster_id=config.cluster_id,
                voters=config.voters,
                login=config.node_login,
                stores=self._stores_in("controller"),
                draw=draw,
                config=replace(
                    controller,
                    topic_id_base=_topic_id_base(config.cluster_id),
                    first_users=first_users(config.security),
                ),
                settings=settings,
                clock=clock,
                on_failure=on_failure,
            )
        if config.is_broker:
            self.broker = BrokerHost(
                config.number,
                cluster_id=config.cluster_id,
                voters=config.voters,
                listeners=config.listeners,
                endpoints=config.endpoints,
                security=config.security,
                node_login=config.node_login,
                rack=settings.membership.broker_rack,
                stores=self._stores_in("broker"),
                stored=lambda: stored_in(config.folder / "broker"),
                draw=draw,
                incarnation=secrets.randbits(127),
                config=broker_config(settings),
                settings=settings,
                clock=clock,
                on_failure=on_failure,
            )

    def suffer(self, faults: Faults) -> None:
        """From now on, and instead of what it suffered before."""
        self._faults.cut = faults.cut
        self._faults.disk_is_full = faults.disk_is_full
        self._faults.disk_delay_ms = faults.disk_delay_ms
        for part in (self.broker, self.controller):
            if part is not None:
                part.cut_off(frozenset(faults.cut))

    def _stores_in(self, name: str) -> Callable[[str], FaultyStore]:
        def store(log: str) -> FaultyStore:
            opened = FaultyStore(self.config.folder / name / log, self._faults)
            self._stores.append(opened)
            return opened

        return store

    async def start(self) -> None:
        if self.controller is not None:
            await self.controller.start()
        if self.broker is not None:
            await self.broker.start()

    async def shut_down(self, *, timeout_s: float) -> bool:
        """In order; whether it came to its end in time. The node is stopped in any case."""
        try:
            async with asyncio.timeout(timeout_s):
                if self.broker is not None:
                    await self.broker.shut_down()
                if self.controller is not None:
                    await self.controller.resign()
        except TimeoutError:
            return False
        finally:
            self.stop()
        return True

    def stop(self) -> None:
        """At once, as a killed process stops: nothing is flushed, nobody is told."""
        if self.broker is not None:
            self.broker.stop()
        if self.controller is not None:
            self.controller.stop()
        for store in self._stores:
            store.close()


def _topic_id_base(cluster_id: str) -> int:
    """The upper half of every topic id of a cluster."""
    padded = cluster_id + "=" * (-len(cluster_id) % 4)
    return int.from_bytes(base64.urlsafe_b64decode(padded)[:8].ljust(8, b"\1"), "big") << 64
