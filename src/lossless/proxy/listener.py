"""A port of the proxy, for one broker: it stays the same for the proxy's life.

A port that refuses connections is still ours. A socket that is bound but does not listen holds it,
so that nobody else gets it before the fault is mended.
"""

from __future__ import annotations

import asyncio
import socket

from lossless.proxy.address import Address
from lossless.proxy.counters import Tally
from lossless.proxy.link import Link, Surroundings

BACKLOG = 1024


class Listener:
    def __init__(
        self, surroundings: Surroundings, host: str, address: Address, broker: int | None
    ) -> None:
        self._surroundings = surroundings
        self._loop = surroundings.loop
        self._tasks: set[asyncio.Task[None]] = set()
        self._socket = _bound(Address(host, 0))
        self._is_listening = False
        self.listens_at = Address(host, self._socket.getsockname()[1])
        self.address = address  # of the broker
        self.broker = broker
        self.tally = Tally()
        self.links: set[Link] = set()
        self.apply()

    def apply(self) -> None:
        """The rules have changed, or whose port this is."""
        is_cut = self._surroundings.rules.conditions(self.broker, None).is_cut
        if is_cut and self._is_listening:
            held = _bound(self.listens_at)
            self._close_socket()
            self._socket = held
        elif not is_cut and not self._is_listening:
            self._is_listening = True
            self._socket.listen(BACKLOG)
            self._loop.add_reader(self._socket.fileno(), self._accept)
        for link in list(self.links):
            link.refresh()

    def reset(self) -> None:
        for link in list(self.links):
            link.reset()

    async def stop(self) -> None:
        self._close_socket()
        for link in list(self.links):
            link.abort()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _close_socket(self) -> None:
        if self._is_listening:
            self._is_listening = False
            self._loop.remove_reader(self._socket.fileno())
        self._socket.close()

    def _accept(self) -> None:
        try:
            accepted, _ = self._socket.accept()
        except OSError:
            return  # it has gone again
        accepted.setblocking(False)
        link = Link(
            self._surroundings,
            broker=lambda: self.broker,
            address=lambda: self.address,
            tally=self.tally,
            on_closed=self.links.discard,
        )
        self.links.add(link)
        task = link.open(accepted)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def _bound(address: Address) -> socket.socket:
    family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
    bound = socket.socket(family, socket.SOCK_STREAM)
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        # Two sockets may have the port, for the moment in which one takes over from the other.
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        bound.bind(address)
        bound.setblocking(False)
    except OSError:
        bound.close()
        raise
    return bound
