"""The ports of a proxy, and whose they are. All of it lives in the event loop's thread."""

from __future__ import annotations

import asyncio
import logging
import random

from lossless.proxy.address import Address
from lossless.proxy.conditions import Rules, Target
from lossless.proxy.listener import Listener
from lossless.proxy.rewriting import Role

TROUBLES_MAX = 100  # kept for whoever asks; then only the log has them
_CLOSING_TURNS_MAX = 1000

_logger = logging.getLogger(__name__)


class Routes:
    def __init__(
        self, loop: asyncio.AbstractEventLoop, listen_host: str, chance: random.Random
    ) -> None:
        self.loop = loop
        self.rules = Rules()
        self.draw = chance.random
        self.listeners: list[Listener] = []
        self.brokers: dict[int, Listener] = {}
        self.troubles: list[str] = []
        self._listen_host = listen_host
        self._controllers: dict[tuple[int, Address], Listener] = {}

    def open(self, address: Address, broker: int | None) -> Listener:
        listener = Listener(self, self._listen_host, address, broker)
        self.listeners.append(listener)
        return listener

    def relocate(self, role: Role, node_id: int, address: Address) -> Address:
        """Where clients find a node that says it is at `address`."""
        if any(address == listener.listens_at for listener in self.listeners):
            return address  # it is one of ours already
        if role == "controller":
            # A node may have several listeners for controllers: each has a port of its own.
            key = (node_id, address)
            if key not in self._controllers:
                self._controllers[key] = self._listener(node_id, address)
            return self._controllers[key].listens_at
        listener = self.brokers.get(node_id)
        if listener is None:
            listener = self.brokers[node_id] = self._listener(node_id, address)
        listener.address = address  # a broker that has moved keeps its port
        return listener.listens_at

    def _listener(self, node_id: int, address: Address) -> Listener:
        """The one that clients start with, if it leads to this node; otherwise a new one."""
        for listener in self.listeners:
            if listener.broker is None and listener.address == address:
                listener.broker = node_id
                listener.apply()
                return listener
        return self.open(address, node_id)

    def trouble(self, what: str) -> None:
        _logger.warning("%s", what)
        if what not in self.troubles and len(self.troubles) < TROUBLES_MAX:
            self.troubles.append(what)

    def struck(self, target: Target) -> int:
        """How many connections there are now that a rule strikes."""
        return sum(
            target.covers(listener.broker, link.client_id)
            for listener in self.listeners
            for link in listener.links
        )

    def apply(self) -> None:
        for listener in self.listeners:
            listener.apply()

    def resets(self) -> int:
        return sum(listener.tally.resets for listener in self.listeners)

    async def stop(self) -> None:
        await asyncio.gather(*(listener.stop() for listener in self.listeners))
        # A socket is closed in the turn of the loop after the one in which it was told to.
        for _ in range(_CLOSING_TURNS_MAX):
            if not any(listener.links for listener in self.listeners):
                return
            await asyncio.sleep(0)
