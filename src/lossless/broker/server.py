"""A listener: takes requests, finds who serves them, and puts the answers in their places.

What cannot be understood is answered by closing the connection, as Kafka does: an unknown API, a
version that was not offered, bytes that are no message. Only ApiVersions is answered in any case.

Whoever is silent for `connections.max.idle.ms` is let go. Descriptors are shared with the logs, and
a log that cannot be opened stops a broker: the last of them are not given to clients. Whoever comes
then is let go at once, and may come again.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import resource
import ssl
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any, NamedTuple, Protocol

from lossless.broker.beside import LARGE_BYTES, encoded, encoded_beside, read_beside
from lossless.broker.connection import Connection, Slot
from lossless.broker.throttling import Throttling
from lossless.broker.unsent import Unsent
from lossless.core.messages import Error
from lossless.log.batch import new
from lossless.wire import api_versions
from lossless.wire.bounds import BadMessage
from lossless.wire.codec import Fields, make, read, request_class, response_class, write
from lossless.wire.context import Call
from lossless.wire.frames import (
    AFTER_CORRELATION,
    CORRELATION_AT,
    BadFrame,
    Header,
    header_of,
    peek,
    response,
)
from lossless.wire.reading import INT32
from lossless.wire.versions import API_VERSIONS, APIS, ENVELOPE, FETCH, Api, Listener

Serve = Callable[[Call], Awaitable[Fields]]
Take = Callable[[Connection, Header, Any, bytes], None]  # a request that is answered by hand

HEAVY = FETCH  # its answers are large
# A few bytes can ask for everything that a node knows; such requests are served one by one, so that
# a client that sends many of them leaves time for others.
LISTS_ALL = frozenset(
    api.key
    for api in APIS.values()
    if api.name
    in (
        "metadata",
        "list_groups",
        "describe_acls",
        "describe_configs",
        "describe_log_dirs",
        "list_partition_reassignments",
        "describe_client_quotas",
        "describe_user_scram_credentials",
        "list_transactions",
        "describe_topic_partitions",
    )
)
DESCRIPTORS_KEPT_MAX = 1024  # for logs and for other nodes; an eighth, where there are few
WARNED_EVERY_S = 60.0
SWEEPS = 10  # in the time that a connection may be idle
BEGINNING_BYTES_MAX = 512  # what is kept for each connection; a client id may be 32 KB long

_logger = logging.getLogger(__name__)


class Beginning(NamedTuple):
    """What a request begins with, and what follows from it. Most requests on a connection begin as
    the one before did, but for the correlation id: nothing of it has to be read again."""

    api_and_version: bytes
    after_correlation: bytes
    api: Api
    version: int
    client_id: str | None
    message_at: int
    entity: Any
    take: Take | None


class Gate(Protocol):
    """Who looks at connections and requests before they are served."""

    def on_open(self, connection: Connection, /) -> None: ...

    def admit(
        self, connection: Connection, header: Header, entity: Any, frame: bytes, /
    ) -> bytes | None:
        """The request to serve, as it came or less of it; None if there is nothing to serve."""


class Server:
    def __init__(
        self,
        listener: Listener,
        name: str,
        *,
        serve: Mapping[int, Serve],
        take: Mapping[int, Take],
        frame_bytes_max: int,
        idle_ms_max: int,
        unsent: Unsent,
        gate: Gate | None = None,
        throttling: Throttling | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self._listener = listener
        self._spoken = frozenset(api.key for api in APIS.values() if api.listeners & listener)
        self.name = name
        self._serve = serve
        self._take = take
        self.frame_bytes_max = frame_bytes_max
        self.unsent = unsent
        self._idle_s_max = idle_ms_max / 1000  # below zero: for ever
        self._gate = gate
        self._throttling = throttling
        self._tls = tls
        self._server: asyncio.Server | None = None
        self._sweeping: asyncio.TimerHandle | None = None
        self._warned_s = -WARNED_EVERY_S
        self._deaf_to: frozenset[str] = frozenset()
        self.connections: set[Connection] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    async def start(self, host: str, port: int) -> None:
        await self.bind(host, port)
        await self.open()

    async def bind(self, host: str, port: int) -> None:
        """The port is this one's; nobody can connect yet."""
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(
            lambda: Connection(self), host, port, backlog=1024, ssl=self._tls, start_serving=False
        )

    async def open(self) -> None:
        assert self._server is not None
        await self._server.start_serving()
        if self._idle_s_max >= 0:
            self._sweep()

    def stop(self) -> None:
        """At once: whoever waits for an answer loses the connection."""
        if self._server is not None:
            self._server.close()
        if self._sweeping is not None:
            self._sweeping.cancel()
        for connection in list(self.connections):
            connection.abort()
        for task in self._tasks:
            task.cancel()

    # Connections

    def on_open(self, connection: Connection) -> None:
        self.connections.add(connection)
        if self._gate is not None:
            self._gate.on_open(connection)
        if self._throttling is not None:
            self._throttling.on_open(connection)
        descriptors_max, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        if descriptors_max == resource.RLIM_INFINITY:
            return
        kept = min(descriptors_max // 8, DESCRIPTORS_KEPT_MAX)
        # Of the free numbers a system gives the lowest.
        if connection.descriptor() >= descriptors_max - kept:
            self._warn_of_descriptors(descriptors_max)
            connection.abort()

    def turn_deaf(self, client_ids: frozenset[str]) -> None:
        """To these clients, and to no others: a network that is cut."""
        self._deaf_to = client_ids
        for connection in list(self.connections):
            if connection.client_id in client_ids:
                connection.abort()

    def on_close(self, connection: Connection) -> None:
        self.connections.discard(connection)

    def _warn_of_descriptors(self, descriptors_max: int) -> None:
        now_s = asyncio.get_running_loop().time()
        if now_s - self._warned_s >= WARNED_EVERY_S:
            self._warned_s = now_s
            _logger.warning(
                "connections are refused: %d are open on %s, and of %d file descriptors the last "
                "are kept for logs; raise the limit (ulimit -n)",
                len(self.connections) - 1,
                self.name,
                descriptors_max,
            )

    def _sweep(self) -> None:
        loop = asyncio.get_running_loop()
        now_s = loop.time()
        for connection in list(self.connections):
            if connection.idle_s(now_s) > self._idle_s_max:
                connection.abort()  # what it has not read by now it never will
        wait_s = max(self._idle_s_max / SWEEPS, 0.01)
        self._sweeping = loop.call_later(wait_s, self._sweep)

    # Requests

    def on_frame(self, connection: Connection, frame: bytes) -> None:
        try:
            begun: Beginning | None = connection.begun
            if (
                begun is None
                or not frame.startswith(begun.after_correlation, AFTER_CORRELATION)
                or not frame.startswith(begun.api_and_version)
            ):
                begun = self._beginning(connection, frame)
                if begun is None:
                    return
            _, _, api, version, client_id, message_at, entity, _ = begun
            (correlation_id,) = INT32.unpack_from(frame, CORRELATION_AT)
            header = new(Header, (api.key, version, correlation_id, client_id, message_at))
            if client_id in self._deaf_to:
                connection.abort()
                return
            if self._gate is not None:
                admitted = self._gate.admit(connection, header, entity, frame)
                if admitted is None:
                    return
                frame = admitted
            throttling = self._throttling
            measured = None
            if throttling is not None and throttling.is_needed:
                measured = throttling.begin(connection, header, frame)
            if measured is None:
                self._hand_on(connection, begun, header, frame)
            else:
                self._hand_on(connection, begun, header, measured.frame)
                measured.on_handed_on()
        except (BadFrame, BadMessage) as error:  # nothing was changed yet
            _logger.info("a request from %s is refused: %s", connection.peer_host, error)
            connection.close()
            return
        except Exception:
            _logger.exception("a request from %s", connection.peer_host)
            connection.close()

    def _hand_on(
        self, connection: Connection, begun: Beginning, header: Header, frame: bytes
    ) -> None:
        api = begun.api
        if begun.take is not None:
            begun.take(connection, header, begun.entity, frame)
            if api.key == HEAVY:
                connection.wait_for_answers()
            return
        if api.key not in self._serve:
            raise BadFrame(f"{api.name} is not served here")
        slot = connection.slot()
        if len(frame) > LARGE_BYTES:
            connection.wait_for_answers()
            self.spawn(self._answer_large(begun, header, frame, slot))
            return
        if api.key in LISTS_ALL:
            connection.wait_for_answers()
        message = read(begun.entity, frame, header.message_at)
        call = Call(message, header.version, header.client_id, connection.peer_host, self.name)
        self.spawn(self._answer(api, header, call, slot, len(frame)))

    async def _answer_large(
        self, begun: Beginning, header: Header, frame: bytes, slot: Slot
    ) -> None:
        connection = slot.connection
        try:
            message = await read_beside(begun.entity, frame, header.message_at)
        except BadMessage as error:
            _logger.info("a request from %s is refused: %s", connection.peer_host, error)
            connection.close()
            return
        call = Call(message, header.version, header.client_id, connection.peer_host, self.name)
        await self._answer(begun.api, header, call, slot, len(frame))

    def _beginning(self, connection: Connection, frame: bytes) -> Beginning | None:
        """None if there is nothing to serve."""
        key, version, correlation_id = peek(frame)
        api = APIS.get(key)
        if api is None or key not in self._spoken:
            raise BadFrame(f"API {key} is not spoken here")
        if not api.lowest <= version <= api.highest:
            self._on_version(connection, api, version, correlation_id)
            return None
        entity = request_class(key, version)
        header = header_of(frame, is_flexible=entity.__flexible__)
        message_at = header.message_at
        begun = Beginning(
            frame[:CORRELATION_AT],
            frame[AFTER_CORRELATION:message_at],
            api,
            version,
            header.client_id,
            message_at,
            entity,
            self._take.get(key),
        )
        connection.client_id = header.client_id
        connection.begun = begun if message_at <= BEGINNING_BYTES_MAX else None
        return begun

    def _on_version(
        self, connection: Connection, api: Api, version: int, correlation_id: int
    ) -> None:
        if api.key != API_VERSIONS:
            raise BadFrame(f"version {version} of {api.name} is not spoken")
        fields = api_versions.unsupported(self._listener)
        message = write(make(response_class(API_VERSIONS, 0), fields))
        connection.slot().fill([response(correlation_id, message, tagged=False)])

    async def _answer(
        self, api: Api, header: Header, call: Call, slot: Slot, request_bytes: int
    ) -> None:
        try:
            fields = await self._serve[api.key](call)
            slot.fill([await encoded_beside(header, fields, request_bytes)])
        except Unanswerable as error:
            _logger.warning("%s from %s: %s", api.name, call.client_host, error)
            slot.connection.close()
        except Exception as error:
            # A mistake of ours in one API is not to take the broker down.
            is_bad = isinstance(error, BadFrame | BadMessage)  # within an envelope
            if is_bad:
                _logger.info("%s from %s is refused: %s", api.name, call.client_host, error)
            else:
                _logger.exception(
                    "%s version %d from %s", api.name, header.version, call.client_host
                )
            if api.key != ENVELOPE:
                slot.connection.close()
            else:  # others' requests come by the same connection
                code = Error.INVALID_REQUEST if is_bad else Error.UNKNOWN_SERVER_ERROR
                slot.fill([encoded(header, {"error_code": code})])

    def spawn(self, work: Any) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def raise_descriptor_limit() -> None:
    """To what this process may have at most: every connection takes one, every log some."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        with contextlib.suppress(ValueError, OSError):  # macOS gives less than it says
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


class Unanswerable(Exception):
    """The one who would know cannot be reached: the client has to ask again."""


def filling(slot: Slot, header: Header, told: Callable[[Any], Fields]) -> Callable[[Any], None]:
    """A token: what the machine answers becomes the answer's frame. Who is not answered at all
    (None) loses the connection, and asks again."""
    return partial(_fill, slot, header, told)


def _fill(slot: Slot, header: Header, told: Callable[[Any], Fields], answer: Any) -> None:
    if answer is None:
        slot.connection.close()
    else:
        slot.fill([encoded(header, told(answer))])
