"""Client quotas on a broker: requests are measured, and a client that uses too much waits.

    Produce         its size
    Fetch           the size of its answer. Over the limit it is answered without records, and
                    before that it asks for no more than the limit allows
    all of them     the time in which the broker's thread reads it and hands it on
    connections     how many an IP address opens
    forwarded       whatever the controller says: it counts partitions that are created or deleted

The answer goes out at once and says how long the client should wait; for so long the connection is
not read, for clients that do not wait by themselves (KIP-219). Nodes of the cluster are exempt.
Without quotas a request costs nothing here.
"""

from __future__ import annotations

import asyncio
import dataclasses
import datetime
import time
from collections.abc import Callable, Collection, Mapping
from typing import Any

from lossless.broker.connection import Amend, Buffers, Connection
from lossless.broker.host import Clock
from lossless.broker.peers import names_of
from lossless.core.messages import CONSUMER
from lossless.core.metadata import Image
from lossless.core.quotas.limits import (
    CONNECTIONS,
    CONSUMED,
    PRODUCED,
    REQUEST_TIME,
    Limit,
    limit_of,
    limit_of_address,
)
from lossless.core.quotas.metering import Use, fetch_bytes_max
from lossless.core.security.acls import ANONYMOUS
from lossless.wire import fetch
from lossless.wire.codec import make, milliseconds, read, response_class, write
from lossless.wire.encoding import INT32
from lossless.wire.frames import LENGTH, Header, has_tagged_answer, response
from lossless.wire.versions import APIS, FETCH, PRODUCE

NS_PER_S = 1_000_000_000
# Of a fetch request, behind the replica that older versions begin with.
WITHOUT_REPLICA = 15
BYTES_MAX_AT, SESSION_ID_AT, SESSION_EPOCH_AT = 8, 13, 17
WITH_SESSIONS = 7


class Throttling:
    def __init__(self, image: Callable[[], Image], voters: Collection[int], clock: Clock) -> None:
        self._image = image
        self._voters = voters
        self._clock = clock
        self._use = Use()

    @property
    def is_needed(self) -> bool:
        return bool(self._image().quotas)

    def on_open(self, connection: Connection) -> None:
        """A connection beyond the limit of its address is closed, after a while."""
        value = limit_of_address(self._image().quotas, connection.peer_host)
        if value is not None:
            limit = Limit(value, connection.peer_host, "")
            wait_ms = self._use.connected(CONNECTIONS, limit, self._clock.now_ms())
            if wait_ms > 0:
                connection.mute(2 * wait_ms)  # until it is closed
                asyncio.get_running_loop().call_later(wait_ms / 1000, connection.abort)

    def begin(self, connection: Connection, header: Header, frame: bytes) -> Measured | None:
        """Measures a request from now on. None: its sender has no limits."""
        image = self._image()
        nodes = names_of({*image.brokers, *self._voters})
        if header.client_id in nodes and not _is_of_a_client(header, frame):
            return None
        user = user_of(connection)
        limits = {
            key: limit
            for key in (PRODUCED, CONSUMED, REQUEST_TIME)
            if (limit := limit_of(image.quotas, key, user, header.client_id or "")) is not None
        }
        measured = Measured(self, connection, header, frame, limits)
        connection.amend = measured.on_answer
        return measured

    def wait_ms(self, measured: Measured, answer_bytes: int) -> int:
        """Records what a request used, and says how long its sender has to wait."""
        now_ms, key, limits = self._clock.now_ms(), measured.header.key, measured.limits
        wait_ms = 0
        if REQUEST_TIME in limits and answer_bytes:
            percent = 100 * measured.took_ns / NS_PER_S
            wait_ms = self._use.worked(REQUEST_TIME, limits[REQUEST_TIME], percent, now_ms)
        if key == PRODUCE and PRODUCED in limits:
            size = len(measured.frame)
            produced_ms = self._use.produced(PRODUCED, limits[PRODUCED], size, now_ms)
            return max(wait_ms, produced_ms)
        if key == FETCH and CONSUMED in limits and not wait_ms:
            return self._use.fetched(CONSUMED, limits[CONSUMED], answer_bytes, now_ms)
        return wait_ms


def _is_of_a_client(header: Header, frame: bytes) -> bool:
    """Whether only clients send such a request, whatever they call themselves: nodes produce
    nothing, and fetch as followers."""
    if header.key == FETCH:
        return fetch.read(frame, header.message_at, header.version, {}).replica == CONSUMER
    return header.key == PRODUCE


def user_of(connection: Connection) -> str:
    principal = ANONYMOUS if connection.session is None else connection.session.principal
    _, _, user = principal.partition(":")
    return user


class Measured:
    """One request."""

    def __init__(
        self,
        throttling: Throttling,
        connection: Connection,
        header: Header,
        frame: bytes,
        limits: Mapping[str, Limit],
    ) -> None:
        self._throttling = throttling
        self._connection = connection
        self._earlier: Amend | None = connection.amend
        self._began_ns = time.perf_counter_ns()
        self.took_ns = 0
        self.header = header
        self.frame = frame  # to be served
        self.limits = limits
        self._fields_at = header.message_at  # of a fetch: behind the replica
        if header.key == FETCH:
            self._fields_at += 0 if header.version >= WITHOUT_REPLICA else INT32.size
            if CONSUMED in limits:
                self._ask_for_less(fetch_bytes_max(limits[CONSUMED]))

    def _ask_for_less(self, bytes_max: int) -> None:
        at = self._fields_at + BYTES_MAX_AT
        if len(self.frame) >= at + INT32.size:  # else it is refused when it is read
            (asked,) = INT32.unpack_from(self.frame, at)
            less = INT32.pack(min(asked, bytes_max))
            self.frame = self.frame[:at] + less + self.frame[at + INT32.size :]

    def on_handed_on(self) -> None:
        """The request was read. A request without an answer (acks=0) is over."""
        self.took_ns = time.perf_counter_ns() - self._began_ns
        if self._connection.amend == self.on_answer:
            self._connection.amend = None
            self.on_answer([])

    def on_answer(self, buffers: Buffers) -> Buffers:
        if self._earlier is not None:
            buffers = self._earlier(buffers)
        wait_ms = self._throttling.wait_ms(self, sum(map(len, buffers)))
        if APIS[self.header.key].is_forwarded and buffers:
            wait_ms = max(wait_ms, self._said_ms(buffers))
        self._connection.mute(wait_ms)
        return self._saying(wait_ms, buffers) if wait_ms > 0 and buffers else buffers

    def _saying(self, wait_ms: int, buffers: Buffers) -> Buffers:
        """The answer with the time to wait; of a fetch, without the records."""
        header = self.header
        entity = response_class(header.key, header.version)
        if header.key == FETCH:
            answer = make(entity, {"throttle_time": wait_ms, "session_id": self._session_id()})
        else:
            answer = self._read(buffers)
            if hasattr(answer, "throttle_time"):
                wait = datetime.timedelta(milliseconds=wait_ms)
                answer = dataclasses.replace(answer, throttle_time=wait)
        tagged = has_tagged_answer(header.key, header.version)
        return [response(header.correlation_id, write(answer), tagged=tagged)]

    def _said_ms(self, buffers: Buffers) -> int:
        """How long the controller wants the client to wait."""
        answer = self._read(buffers)
        return milliseconds(answer.throttle_time) if hasattr(answer, "throttle_time") else 0

    def _read(self, buffers: Buffers) -> Any:
        key, version = self.header.key, self.header.version
        at = LENGTH.size + (5 if has_tagged_answer(key, version) else 4)
        return read(response_class(key, version), b"".join(buffers), at)

    def _session_id(self) -> int:
        """A session that was to begin with this answer does not."""
        if self.header.version < WITH_SESSIONS:
            return 0
        (session_id,) = INT32.unpack_from(self.frame, self._fields_at + SESSION_ID_AT)
        (epoch,) = INT32.unpack_from(self.frame, self._fields_at + SESSION_EPOCH_AT)
        return int(session_id) if epoch > 0 else 0
