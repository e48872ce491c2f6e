"""What an API may know and ask of the node that serves it.

An API's file has `serve`: a request in, the fields of its answer out. It decides nothing by itself;
it asks the machine, which may take its time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from lossless.core.messages import Endpoint, TopicPartition
from lossless.core.metadata import Image
from lossless.core.quorum import Quorum
from lossless.core.quotas.limits import Client
from lossless.core.replica import Replica
from lossless.core.settings.broker_settings import BrokerSettings
from lossless.wire.codec import Fields
from lossless.wire.versions import Listener


class Call(NamedTuple):
    """A request, and who asks."""

    request: Any  # as kio has it
    version: int
    client_id: str | None
    client_host: str
    listener: str
    user: str = "ANONYMOUS"  # a controller's: for whom a broker forwards

    def client(self, *, strict_from: int) -> Client:
        """Against whose limit the request counts. Versions from `strict_from` on may be refused."""
        return Client(self.user, self.client_id or "", self.version >= strict_from)


class Node(Protocol):
    """What brokers and controllers have in common."""

    number: int
    kind: Listener  # whether it is a broker or a controller
    cluster_id: str
    settings: BrokerSettings

    @property
    def image(self) -> Image: ...

    async def ask(self, request: Any) -> Any:
        """The machine's answer to a request of its own kind."""

    async def ask_all(self, requests: Sequence[Any]) -> list[Any]: ...


class Broker(Node, Protocol):
    @property
    def replicas(self) -> Mapping[TopicPartition, Replica]: ...

    def endpoints(self, listener: str) -> dict[int, Endpoint]:
        """Where clients of this listener reach the brokers that are active."""

    async def ask_controller(self, key: int, fields: Fields) -> Any:
        """What the active controller answers to an administrator's request, as kio has it."""


class Controller(Node, Protocol):
    @property
    def quorum(self) -> Quorum: ...
