"""A broker's process: the machine, its listeners, its links to the other nodes."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from lossless.broker.apis import served_by_a_broker
from lossless.broker.beside import LARGE_BYTES, read_beside
from lossless.broker.connection import Connection
from lossless.broker.fetching import Fetching
from lossless.broker.host import Clock, Failure, Host, resolving
from lossless.broker.leaders import Leaders
from lossless.broker.links import Address
from lossless.broker.peers import Open, Peers, names_of
from lossless.broker.producing import Producing
from lossless.broker.security.authorizer import Authorizer
from lossless.broker.security.gate import Gate
from lossless.broker.security.listeners import InterBroker, NodeSecurity
from lossless.broker.security.login import opener
from lossless.broker.server import Server, Unanswerable
from lossless.broker.throttling import Throttling, user_of
from lossless.broker.unsent import Unsent
from lossless.core.broker import Broker, BrokerConfig
from lossless.core.dynamic_settings import settings_now
from lossless.core.messages import AwaitMetadata, Endpoint, Error, TopicPartition
from lossless.core.metadata import Image
from lossless.core.replica import Replica
from lossless.core.security.scram import ScramCredential, ScramMechanism
from lossless.core.settings.broker_settings import BrokerSettings
from lossless.core.settings.machines import topic_config
from lossless.core.standing import Phase
from lossless.log.store import Store
from lossless.wire import frames
from lossless.wire.bounds import BadMessage
from lossless.wire.codec import Fields, make, read, request_class, response_class, write
from lossless.wire.envelope import encode_principal
from lossless.wire.fetch import Asked
from lossless.wire.frames import Header
from lossless.wire.outgoing import Outgoing, outgoing
from lossless.wire.versions import APIS, BROKER, ENVELOPE, FETCH, PRODUCE

SESSIONS_MAX = 1000  # max.incremental.fetch.session.cache.slots
FORWARD_S_MAX = 30.0
APPLY_S_MAX = 5.0
BACKOFF_S = 0.05
LOOK_EVERY_S = 0.2
OPEN_EVERY_S = LEAVE_EVERY_S = 0.005
UNHEARD_MS_MAX = 5_000  # by a node that wants to stop; controllers elect one of them much sooner

_logger = logging.getLogger(__name__)


class BrokerHost:
    kind = BROKER

    def __init__(
        self,
        number: int,
        *,
        cluster_id: str,
        voters: Mapping[int, Address],
        listeners: Mapping[str, Address],  # where to listen, by the listener's name
        endpoints: tuple[Endpoint, ...],  # what to tell others
        security: NodeSecurity,
        node_login: InterBroker,  # with controllers
        rack: str | None,
        stores: Callable[[str], Store],
        stored: Callable[[], Iterable[str]],
        draw: Callable[[int], int],
        incarnation: int,
        config: BrokerConfig,
        settings: BrokerSettings,
        clock: Clock,
        on_failure: Failure,
    ) -> None:
        self.number = number
        self._clock = clock
        self.cluster_id = cluster_id
        self.settings = settings
        self._voters = voters
        self._listeners = listeners
        self._security = security
        self._node_login = node_login
        self.machine = Broker(
            number,
            voters=tuple(sorted(voters)),
            stores=stores,
            stored=stored,
            incarnation=incarnation,
            draw=draw,
            config=config,
            topic_config=lambda overrides: topic_config(
                overrides, settings_now(settings, self.image, number)
            ),
            rack=rack,
            endpoints=endpoints,
            warn=_logger.warning,
        )
        self._peers = Peers(
            f"broker-{number}",
            cluster_id,
            lambda: self.machine.image,
            self._address_of,
            self._open_to,
        )
        self.host = Host(
            self.machine,
            clock=clock,
            send=self._peers.send,
            logs=lambda _: self.machine.metadata_log,
            on_failure=on_failure,
        )
        self.leaders = Leaders(lambda: self.image, self.endpoints)
        unsent = Unsent()
        fetching = Fetching(
            self,
            clock,
            draw,
            sessions_max=SESSIONS_MAX,
            bytes_max=settings.network.fetch_max_bytes,
            by_rack=(settings.replication.replica_selector_class or "").endswith(
                "RackAwareReplicaSelector"
            ),
            unsent=unsent,
        )
        producing = Producing(self)
        served = served_by_a_broker(self)
        forwarded = {
            api.key: self._forward
            for api in APIS.values()
            if api.is_forwarded and BROKER & api.listeners and api.key not in served
        }
        throttling = Throttling(lambda: self.image, voters, clock)
        self.servers = [
            Server(
                BROKER,
                name,
                serve=served,
                take={PRODUCE: producing.take, FETCH: fetching.take, **forwarded},
                frame_bytes_max=settings.network.socket_request_max_bytes,
                idle_ms_max=settings.network.connections_max_idle_ms,
                unsent=unsent,
                gate=self._gate(name),
                throttling=throttling,
                tls=security.listeners[name].tls,
            )
            for name in listeners
        ]

    def _gate(self, listener: str) -> Gate | None:
        """None where nobody has to say who they are, and everybody may do everything."""
        secured, access = self._security.listeners[listener], self._security.access
        if access is None and not secured.protocol.has_sasl:
            return None
        authorizer = None if access is None else Authorizer(access, self)
        frame_bytes_max = self.settings.network.socket_request_max_bytes
        return Gate(secured, self._credential, authorizer, frame_bytes_max)

    def _credential(self, user: str, mechanism: ScramMechanism) -> ScramCredential | None:
        return self.image.scram.get((user, mechanism))

    async def start(self) -> None:
        for server in self.servers:
            await server.bind(*self._listeners[server.name])
        self.host.start()
        self.servers[0].spawn(self._open())

    async def _open(self) -> None:
        """Clients are let in once this broker knows what the cluster has agreed on, and is of it.
        Before that it would tell them that their topics do not exist, or that no broker does."""
        while not self.machine.may_be_asked:
            await asyncio.sleep(OPEN_EVERY_S)
        for server in self.servers:
            await server.open()

    async def shut_down(self) -> None:
        """In order: leaders move away first, and the next start finds clean logs. Leaders stay when
        no controller is left, as for the last node of a cluster that is stopped."""
        began_ms = self._clock.now_ms()
        self.host.event(self.machine.stop)
        while self.machine.phase is not Phase.STOPPED and not self._is_unheard(began_ms):
            await asyncio.sleep(LEAVE_EVERY_S)
        if self.machine.phase is not Phase.STOPPED:
            _logger.warning("no controller answers: leaders have not moved away")
            self._close_connections()
            self.host.event(self.machine.close)
        while self.machine.phase is not Phase.STOPPED:
            await asyncio.sleep(LEAVE_EVERY_S)

    def _is_unheard(self, since_ms: int) -> bool:
        return self._clock.now_ms() - max(since_ms, self.machine.heard_ms) > UNHEARD_MS_MAX

    def stop(self) -> None:
        """At once."""
        self.host.stop()
        self._close_connections()

    def _close_connections(self) -> None:
        for server in self.servers:
            server.stop()
        self._peers.close()

    def _address_of(self, node: int) -> Address | None:
        if node in self._voters:
            return self._voters[node]
        known = self.image.brokers.get(node)
        for endpoint in known.endpoints if known else ():
            if endpoint.listener == self._security.inter_broker_listener:
                return endpoint.host, endpoint.port
        return None

    def _open_to(self, node: int) -> Open:
        is_controller = node in self._voters
        login = self._node_login if is_controller else self._security.inter_broker
        return opener(login, f"broker-{self.number}")

    def cut_off(self, nodes: frozenset[int]) -> None:
        """The network between this node and these is cut."""
        self._peers.cut_off(nodes)
        names = names_of(nodes)
        for server in self.servers:
            server.turn_deaf(names)

    # What APIs may ask

    @property
    def image(self) -> Image:
        return self.machine.image

    @property
    def replicas(self) -> Mapping[TopicPartition, Replica]:
        return self.machine.replicas

    def replica(self, asked: Asked) -> Replica | None:
        return self.machine.replicas.get(asked.partition.partition)

    def endpoints(self, listener: str) -> dict[int, Endpoint]:
        return {
            number: endpoint
            for number, broker in self.image.brokers.items()
            if not broker.fenced
            for endpoint in broker.endpoints
            if endpoint.listener == listener
        }

    async def ask(self, request: Any) -> Any:
        return await self.host.ask(request)

    async def ask_all(self, requests: Sequence[Any]) -> list[Any]:
        return await self.host.ask_all(requests)

    # What the controller decides

    async def ask_controller(self, key: int, fields: Fields) -> Any:
        version = APIS[key].highest
        entity = request_class(key, version)
        message = write(make(entity, fields))
        frame = frames.request(
            key, version, 0, f"broker-{self.number}", message, tagged=entity.__flexible__
        )
        answer = await self._ask_active(frame[4:])
        tagged = frames.has_tagged_answer(key, version)
        return read(response_class(key, version), answer, 5 if tagged else 4)

    def _forward(self, connection: Connection, header: Header, entity: Any, frame: bytes) -> None:
        """As it came: the controller reads it, and its answer goes back as it is."""
        slot = connection.slot()
        if len(frame) > LARGE_BYTES:
            connection.wait_for_answers()
        else:
            read(entity, frame, header.message_at)  # a malformed message is refused here already

        async def forward() -> None:
            try:
                if len(frame) > LARGE_BYTES:
                    await read_beside(entity, frame, header.message_at)
                answer = await self._ask_active(frame, user_of(connection))
            except (Unanswerable, BadMessage):
                connection.close()
            else:
                slot.fill([len(answer).to_bytes(4, "big") + answer])

        self.servers[0].spawn(forward())

    async def _ask_active(self, frame: bytes, user: str = "") -> bytes:
        """The active controller's answer. Whoever was active may not be any more: ask again."""
        loop = asyncio.get_running_loop()
        until_s = loop.time() + FORWARD_S_MAX
        enveloped = outgoing(
            ENVELOPE,
            0,
            {
                "request_data": frame,
                "request_principal": encode_principal("User", user),
                "client_host_address": b"\x7f\0\0\1",
            },
        )
        while loop.time() < until_s:
            active = self.machine.quorum.leader
            if active is not None:
                answer = await self._forwarded(active, enveloped)
                if answer is not None and answer.error_code.value == Error.NONE:
                    await self._applied(answer.metadata_end_offset)
                    return bytes(answer.response_data)
                if answer is not None and answer.error_code.value != Error.NOT_CONTROLLER:
                    raise Unanswerable(f"the controller refuses: {answer.error_code.name}")
            await asyncio.sleep(BACKOFF_S)
        raise Unanswerable("no controller is active")

    async def _applied(self, end_offset: int) -> None:
        """Waits until this broker has applied what the controller answered. It is committed, so a
        broker that is cut off answers its client all the same."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self.host.ask(AwaitMetadata(end_offset)), APPLY_S_MAX)

    async def _forwarded(self, active: int, enveloped: Outgoing) -> Any:
        """None when the connection breaks, or when another controller has become active: the one
        that was asked may stand still for ever."""
        answered: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._peers.link(active, "forwarding").ask(enveloped, resolving(answered))
        while self.machine.quorum.leader == active:
            await asyncio.wait({answered}, timeout=LOOK_EVERY_S)
            if answered.done():
                return answered.result()
        return None
