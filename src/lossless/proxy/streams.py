"""The two directions of a connection, cut into frames and followed.

A frame is not held unless it may have to be changed: its bytes pass as they come, and only its
head is looked at. So a large frame costs no memory. Held are answers that may name brokers (see
rewriting.py), because their length stands before what changes it.

    Requests    notes which answer is to come, for each request but those that get none (acks=0)
    Answers     takes the notes in order: brokers answer in the order of the requests

Both are pure: bytes go in, bytes come out, and each frame is told.
"""

from __future__ import annotations

import collections
import struct
from collections.abc import Callable
from enum import Enum, auto
from typing import NamedTuple

from lossless.proxy.apis import API_VERSIONS, PRODUCE, SASL_HANDSHAKE, api_name, version_max
from lossless.proxy.rewriting import Relocate, may_name_brokers, rewritten
from lossless.proxy.skipping import after_bytes, after_tags
from lossless.wire.frames import LENGTH

Buffer = bytes | memoryview

FRAME_BYTES_MAX = 256 * 1024 * 1024

_HEAD = struct.Struct(">ihhih")  # length, key, version, correlation id, length of the client id
_ANSWER_HEAD = struct.Struct(">ii")
_VERSION_AT = 6
_TOO_NEW = struct.pack(">h", 0x7FFF)
_PRODUCE_FLEXIBLE = 9
_PRODUCE_TRANSACTIONAL = 3
_TLS = {0x15: "a TLS alert", 0x16: "a TLS handshake"}
_TLS_MAJOR = 0x03


class BadStream(ValueError):
    """Bytes that are not Kafka's. The connection cannot be followed any further."""


class SpeaksTls(BadStream):
    """The other side expects TLS, or starts it."""


class Request(NamedTuple):
    key: int
    version: int
    correlation_id: int
    client_id: str | None
    is_answered: bool


class Expected(NamedTuple):
    """An answer that is to come."""

    key: int
    version: int
    correlation_id: int
    is_dropped: bool


class Handling(Enum):
    PASS = auto()
    HOLD = auto()
    MORE = auto()  # the head is not there yet
    STOP = auto()  # nothing from here on is handed on


class _Stream:
    def __init__(self) -> None:
        self._rest: Buffer = b""  # the beginning of a head
        self._left = 0  # of the frame that is under way
        self._held: list[Buffer] | None = None
        self._is_first = True
        self.is_stopped = False

    def feed(self, data: bytes) -> list[Buffer]:
        """What can be handed on now."""
        if self._rest:
            data = bytes(self._rest) + data
            self._rest = b""
        out: list[Buffer] = []
        view = memoryview(data)
        size = len(data)
        at = run = 0  # what lies between passes as it is
        while at < size and not self.is_stopped:
            if self._left:
                step = min(self._left, size - at)
                self._left -= step
                at += step
                if self._held is not None:
                    self._held.append(view[at - step : at])
                    run = at
                    if not self._left:
                        frame = b"".join(self._held)
                        self._held = None
                        out.append(self._whole(frame))
                continue
            handling = self._start(view, at)
            if handling is Handling.MORE or handling is Handling.STOP:
                break
            if handling is Handling.HOLD:
                if run < at:
                    out.append(view[run:at])
                run = at
                self._held = []
        if run < at:
            out.append(data if run == 0 and at == size else view[run:at])
        if at < size and not self.is_stopped:
            self._rest = view[at:]
        return out

    def _start(self, view: memoryview, at: int) -> Handling:
        available = len(view) - at
        if self._is_first and available >= 2:
            tls = _TLS.get(view[at]) if view[at + 1] == _TLS_MAJOR else None
            if tls is not None:
                raise SpeaksTls(tls)
        if available < LENGTH.size:
            return Handling.MORE
        (length,) = LENGTH.unpack_from(view, at)
        if not 4 <= length <= FRAME_BYTES_MAX:
            raise BadStream(f"a frame of {length} bytes: this is not Kafka's protocol")
        head = view[at : at + LENGTH.size + length]
        handling = self._begin(head)
        if handling is Handling.STOP:
            self.is_stopped = True
        elif handling is not Handling.MORE:
            self._is_first = False
            self._left = LENGTH.size + length
        return handling

    def _begin(self, head: memoryview) -> Handling:
        raise NotImplementedError

    def _whole(self, frame: bytes) -> Buffer:
        raise NotImplementedError


class Requests(_Stream):
    """Client to broker. `on_request` says whether the answer is to be dropped."""

    def __init__(self, on_request: Callable[[Request], bool]) -> None:
        super().__init__()
        self._on_request = on_request
        self._is_last = False
        self.expected: collections.deque[Expected] = collections.deque()
        self.follows = True  # False: nothing arrives at the broker, so nothing is answered

    def _begin(self, head: memoryview) -> Handling:
        request = _request(head)
        if request is None:
            return Handling.MORE
        if request.key == SASL_HANDSHAKE and request.version == 0:
            raise BadStream(
                "a client authenticates with SaslHandshake version 0, whose tokens have no header "
                "and cannot be followed; version 1 can"
            )
        is_dropped = self._on_request(request)
        if request.is_answered:
            if self.follows:
                self.expected.append(Expected(*request[:3], is_dropped))
        elif is_dropped:
            # No answer will tell that it has arrived: it goes out whole, and nothing after it.
            self._is_last = True
            return Handling.HOLD
        is_too_new = request.key == API_VERSIONS and request.version > version_max(API_VERSIONS)
        return Handling.HOLD if is_too_new else Handling.PASS

    def _whole(self, frame: bytes) -> Buffer:
        if self._is_last:
            self.is_stopped = True
            return frame
        # A version of ApiVersions that the broker may know and we do not: asked for one that nobody
        # knows, the broker answers in version 0, and the client asks again.
        return b"".join((frame[:_VERSION_AT], _TOO_NEW, frame[_VERSION_AT + 2 :]))


class Answers(_Stream):
    """Broker to client. Stops before an answer that is to be dropped."""

    def __init__(
        self,
        expected: collections.deque[Expected],
        relocate: Relocate,
        *,
        on_answer: Callable[[Expected], None],
        on_rewritten: Callable[[str], None],
    ) -> None:
        super().__init__()
        self._expected = expected
        self._relocate = relocate
        self._on_answer = on_answer
        self._on_rewritten = on_rewritten
        self._current: Expected | None = None

    def _begin(self, head: memoryview) -> Handling:
        if len(head) < _ANSWER_HEAD.size:
            return Handling.MORE
        _, correlation_id = _ANSWER_HEAD.unpack_from(head)
        # A request that a broker leaves without an answer is passed over by the next answer.
        expected = None
        while self._expected:
            expected = self._expected.popleft()
            if expected.correlation_id == correlation_id:
                break
        if expected is None or expected.correlation_id != correlation_id:
            raise BadStream(f"an answer to request {correlation_id}, which nobody has sent")
        self._current = expected
        self._on_answer(expected)
        if expected.is_dropped:
            return Handling.STOP
        if may_name_brokers(expected.key, expected.version):
            return Handling.HOLD
        return Handling.PASS

    def _whole(self, frame: bytes) -> Buffer:
        assert self._current is not None
        key, version = self._current.key, self._current.version
        changed = rewritten(key, version, frame, self._relocate)
        if changed is None:
            return frame
        self._on_rewritten(api_name(key))
        return changed


def _request(head: memoryview) -> Request | None:
    """None while the head is not complete."""
    is_whole = len(head) == LENGTH.size + LENGTH.unpack_from(head)[0]
    if len(head) < _HEAD.size:
        if is_whole:
            raise BadStream(f"a request of {len(head)} bytes")
        return None
    _, key, version, correlation_id, client_id_size = _HEAD.unpack_from(head)
    at = _HEAD.size + max(0, client_id_size)
    try:
        client_id = None
        if client_id_size >= 0:
            if at > len(head):
                raise IndexError
            client_id = bytes(head[_HEAD.size : at]).decode(errors="replace")
        is_answered = key != PRODUCE or _acks(head, at, version) != 0
    except (IndexError, struct.error):
        if is_whole:
            raise BadStream(f"a request to {api_name(key)} that ends too early") from None
        return None
    return Request(key, version, correlation_id, client_id, is_answered)


def _acks(head: memoryview, at: int, version: int) -> int:
    if version >= _PRODUCE_FLEXIBLE:
        at = after_bytes(head, after_tags(head, at))
    elif version >= _PRODUCE_TRANSACTIONAL:
        (size,) = struct.unpack_from(">h", head, at)
        at += 2 + max(0, size)
    (acks,) = struct.unpack_from(">h", head, at)
    return int(acks)
