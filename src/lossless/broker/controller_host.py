"""A controller's process: the machine, its listener, its links to the other voters."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from lossless.broker.apis import forwarded_to, served_by_a_controller
from lossless.broker.beside import beside, encoded, encoded_beside, read_beside
from lossless.broker.connection import Connection
from lossless.broker.host import Clock, Failure, Host
from lossless.broker.links import Address
from lossless.broker.peers import Peers, names_of
from lossless.broker.security.listeners import InterBroker
from lossless.broker.security.login import opener
from lossless.broker.security.nodes import CONTROLLER_LISTENER, node_gate
from lossless.broker.server import Server, filling
from lossless.broker.unsent import Unsent
from lossless.core.controller_node import ControllerConfig, ControllerNode
from lossless.core.messages import Error
from lossless.core.metadata import Image
from lossless.core.quorum import NODE, QUORUM_STATE, Quorum
from lossless.core.quorum_messages import (
    BeginQuorumEpoch,
    CorruptElection,
    EndQuorumEpoch,
    Vote,
)
from lossless.core.settings.broker_settings import BrokerSettings
from lossless.log.store import Store
from lossless.wire import (
    allocate_producer_ids,
    alter_partition,
    begin_quorum_epoch,
    broker_heartbeat,
    broker_registration,
    end_quorum_epoch,
    quorum_fetch,
    vote,
)
from lossless.wire.codec import Fields, read, request_class
from lossless.wire.context import Call
from lossless.wire.envelope import decode_principal
from lossless.wire.frames import Header, header_of, peek
from lossless.wire.versions import APIS, CONTROLLER, ENVELOPE


class ControllerHost:
    kind = CONTROLLER

    def __init__(
        self,
        number: int,
        *,
        cluster_id: str,
        voters: Mapping[int, Address],
        login: InterBroker,
        stores: Callable[[str], Store],
        draw: Callable[[int], int],
        config: ControllerConfig,
        settings: BrokerSettings,
        clock: Clock,
        on_failure: Failure,
    ) -> None:
        self.number = number
        self.cluster_id = cluster_id
        self.settings = settings
        self.machine = ControllerNode(
            number,
            voters=tuple(sorted(voters)),
            stores=stores,
            draw=draw,
            config=config,
        )
        if self.machine.metadata_log.log_end_offset and not stores(NODE).size(QUORUM_STATE):
            # Who has records has heard of an epoch, and has written that down before.
            raise CorruptElection(
                "the quorum state is gone: it is not known how this node has voted. Restore the "
                "file, or give the node a new id and an empty disk."
            )
        self._address = voters[number]
        name = f"controller-{number}"
        self._peers = Peers(
            name,
            cluster_id,
            lambda: self.machine.image,
            voters.get,
            lambda _: opener(login, name),
        )
        self.host = Host(
            self.machine,
            clock=clock,
            send=self._peers.send,
            logs=lambda _: self.machine.metadata_log,
            on_failure=on_failure,
        )
        self._forwarded = forwarded_to(self)
        frame_bytes_max = settings.network.socket_request_max_bytes
        self.server = Server(
            CONTROLLER,
            CONTROLLER_LISTENER,
            serve={
                **served_by_a_controller(self),
                ENVELOPE: self._on_envelope,
                alter_partition.KEY: self._on_alter_partition,
            },
            take={
                quorum_fetch.KEY: self._taking(quorum_fetch),
                vote.KEY: self._taking(vote),
                begin_quorum_epoch.KEY: self._taking(begin_quorum_epoch),
                end_quorum_epoch.KEY: self._taking(end_quorum_epoch),
                broker_registration.KEY: self._taking(broker_registration),
                broker_heartbeat.KEY: self._taking(broker_heartbeat),
                allocate_producer_ids.KEY: self._taking(allocate_producer_ids),
            },
            frame_bytes_max=frame_bytes_max,
            idle_ms_max=settings.network.connections_max_idle_ms,
            unsent=Unsent(),
            gate=node_gate(login, frame_bytes_max=frame_bytes_max),
        )

    async def start(self) -> None:
        await self.server.start(*self._address)
        self.host.start()

    def stop(self) -> None:
        self.host.stop()
        self.server.stop()
        self._peers.close()

    async def resign(self) -> None:
        """Before a planned stop: another one should lead at once."""
        self.host.event(self.machine.resign)
        await asyncio.sleep(0)

    def cut_off(self, nodes: frozenset[int]) -> None:
        """The network between this node and these is cut."""
        self._peers.cut_off(nodes)
        names = names_of(nodes)
        self.server.turn_deaf(names)

    # What APIs may ask

    @property
    def image(self) -> Image:
        return self.machine.image

    async def ask(self, request: Any) -> Any:
        return await self.host.ask(request)

    async def ask_all(self, requests: Sequence[Any]) -> list[Any]:
        return await self.host.ask_all(requests)

    @property
    def quorum(self) -> Quorum:
        return self.machine.quorum

    # Requests that a machine answers

    def _taking(self, api: Any) -> Callable[[Connection, Header, Any, bytes], None]:
        def take(connection: Connection, header: Header, entity: Any, frame: bytes) -> None:
            message = read(entity, frame, header.message_at)
            source, request = api.understood(message)
            error = self._distrusts(source, message, request)
            if error is not Error.NONE:
                connection.slot().fill([encoded(header, {"error_code": error})])
                return
            self.host.request(source, filling(connection.slot(), header, api.told), request)

        return take

    def _distrusts(self, source: int, message: Any, request: Any) -> Error:
        """Whether somebody speaks for whom it cannot be: of another cluster, or no other voter."""
        if getattr(message, "cluster_id", None) not in (None, self.cluster_id):
            return Error.INCONSISTENT_CLUSTER_ID
        voters = self.machine.quorum.voters
        is_of_voters = isinstance(request, Vote | BeginQuorumEpoch | EndQuorumEpoch)
        if source == self.number or (is_of_voters and source not in voters):
            return Error.INVALID_REQUEST
        return Error.NONE

    async def _on_alter_partition(self, call: Call) -> Fields:
        source, asked = alter_partition.understood(call.request, self.image.topic_names)
        answers = [(topic_id, await self.host.ask(request, source)) for topic_id, request in asked]
        return alter_partition.told(answers)

    # What brokers hand on

    async def _on_envelope(self, call: Call) -> Fields:
        if self.machine.active is None:
            return {"error_code": Error.NOT_CONTROLLER}
        frame = call.request.request_data
        key, version, _ = peek(frame)
        api = APIS.get(key)
        if api is None or not api.is_forwarded or not api.lowest <= version <= api.highest:
            return {"error_code": Error.INVALID_REQUEST}
        entity = request_class(key, version)
        header = header_of(frame, is_flexible=entity.__flexible__)
        message = await read_beside(entity, frame, header.message_at)
        user = decode_principal(call.request.request_principal)
        inner = Call(message, version, header.client_id, call.client_host, call.listener, user)
        fields = await self._forwarded[key](inner)
        if await beside(len(frame), _has_resigned, fields):
            # It has resigned meanwhile: the broker is to ask the next one, not to tell its client.
            return {"error_code": Error.NOT_CONTROLLER}
        # Without the length: the envelope has one.
        return {
            "response_data": (await encoded_beside(header, fields, len(frame)))[4:],
            "error_code": Error.NONE,
            "metadata_end_offset": self.machine.committed.end_offset,
        }


def _has_resigned(fields: Fields) -> bool:
    return Error.NOT_CONTROLLER in _error_codes(fields)


def _error_codes(fields: Any) -> Iterator[Any]:
    """Of an answer, and of every part of it."""
    if isinstance(fields, Mapping):
        for name, value in fields.items():
            if name == "error_code":
                yield value
            else:
                yield from _error_codes(value)
    elif isinstance(fields, list | tuple):
        for part in fields:
            yield from _error_codes(part)
