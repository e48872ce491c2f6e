"""Every API of a broker, asked by somebody with one right only, and what the answer denies.

Requests are made from the registry of APIs: one element in every list, `thing` in every name. Some
name what is not there, so that nothing is changed where they are allowed.
"""

from __future__ import annotations

import dataclasses
import socket
import struct
import types
import typing
import uuid
from collections.abc import Iterator
from typing import Any

from lossless.core.messages import Error
from lossless.log.batch import Record, build
from lossless.wire import frames
from lossless.wire.codec import make, read, request_class, response_class, write
from lossless.wire.versions import APIS, BROKER

NAME, GONE = "thing", "gone"
CLOSED = "closed"
LOGIN = (17, 36)
# They leave out what may not be seen.
LISTS = {"metadata of every topic", "describe_topic_partitions of every topic", "list_groups"}


def filled(entity: Any, topic_id: uuid.UUID) -> Any:
    """A message with one element in every list, and a name in every text."""
    hints = typing.get_type_hints(entity)
    given: dict[str, Any] = {}
    for field in dataclasses.fields(entity):
        hint = hints[field.name]
        if isinstance(hint, types.UnionType) or typing.get_origin(hint) is typing.Union:
            hint = next(one for one in typing.get_args(hint) if one is not type(None))
        is_many = typing.get_origin(hint) is tuple
        if is_many:
            hint = typing.get_args(hint)[0]
        kind = field.metadata.get("kafka_type")
        if dataclasses.is_dataclass(hint):
            value: Any = filled(hint, topic_id)
        elif kind == "string":
            value = NAME
        elif kind == "uuid":
            value = topic_id
        elif field.name == "resource_type":
            value = 2
        elif field.name == "session_epoch":
            value = -1
        elif is_many:
            value = 0
        else:
            continue
        given[field.name] = (value,) if is_many else value
    return dataclasses.replace(make(entity, {}), **given)


def errors_in(message: Any) -> set[int]:
    found: set[int] = set()
    for field in dataclasses.fields(message):
        value = getattr(message, field.name)
        if "error_code" in field.name:
            found.add(value if isinstance(value, int) else value.value)
        for one in value if isinstance(value, tuple) else (value,):
            if dataclasses.is_dataclass(one):
                found |= errors_in(one)
    return found - {0}


class Asked(typing.NamedTuple):
    """One request, and how the table names it."""

    label: str
    key: int
    version: int
    message: Any


# What a filled request would not say well: an ACL that cannot be, a topic that would be gone.
_RULE = {"resource_type": 2, "resource_name": GONE, "resource_pattern_type": 3}
_ENTRY = {"principal": "User:nobody", "host": "*", "operation": 3, "permission_type": 3}
_FILTER = {
    "resource_type_filter": 2,
    "resource_name_filter": GONE,
    "pattern_type_filter": 3,
    "principal_filter": "User:nobody",
    "host_filter": "*",
    "operation": 3,
    "permission_type": 3,
}
_VALUES = {"configs": [{"name": "retention.ms", "value": "1000", "config_operation": 0}]}


def _given(topic_id: uuid.UUID) -> Iterator[tuple[str, int, int, dict[str, Any]]]:
    """Besides what the registry says: what, API, version, fields."""
    part = {"index": 0, "records": build([Record(0, 1, None, b"value")]).data}
    data = {"topic_data": [{"name": NAME, "partition_data": [part]}]}
    produced = {"acks": -1, "timeout": 5000, **data}
    yield "", 0, 12, {**produced, "transactional_id": None}
    batch = build(
        [Record(0, 1, None, b"value")],
        producer_id=1,
        producer_epoch=0,
        base_sequence=0,
        transactional=True,
    )
    part = {"index": 0, "records": batch.data}
    data = {"topic_data": [{"name": NAME, "partition_data": [part]}]}
    yield "in a transaction", 0, 12, {**produced, **data, "transactional_id": NAME}
    fetched = {"topics": [{"topic_id": topic_id, "partitions": [{"partition": 0}]}]}
    follower = {"replica_state": {"replica_id": 2, "replica_epoch": -1}}
    yield "of a follower", 1, 18, {**fetched, **follower, "max_wait": 0}
    yield "of every topic", 3, 13, {"topics": None}
    yield "of a new topic", 3, 13, {"topics": [{"name": GONE}], "allow_auto_topic_creation": True}
    for kind, what in enumerate(("a group", "a transaction")):
        yield f"of {what}", 10, 6, {"key_type": kind, "coordinator_keys": [NAME]}
    topics = [{"name": GONE, "num_partitions": 1, "replication_factor": 1}]
    yield "", 19, 7, {"topics": topics, "timeout": 5000, "validate_only": True}
    yield "in version 4", 19, 4, {"topics": topics, "timeout": 5000, "validate_only": True}
    yield "", 20, 6, {"topics": [{"name": GONE, "topic_id": None}], "timeout": 5000}
    yield "of any transaction", 22, 5, {"transactional_id": None, "transaction_timeout": 1000}
    of_client = {"v3_and_below_topics": [{"name": NAME, "partitions": [0]}]}
    yield "of a client", 24, 3, {"v3_and_below_transactional_id": NAME, **of_client}
    yield "", 29, 3, _FILTER
    yield "", 30, 3, {"creations": [{**_RULE, **_ENTRY}]}
    yield "", 31, 3, {"filters": [_FILTER]}
    for kind, what, name in ((2, "a topic", NAME), (4, "a broker", "1"), (32, "a group", NAME)):
        resource = {"resource_type": kind, "resource_name": name}
        yield f"of {what}", 32, 4, {"resources": [resource]}
        yield f"of {what}", 44, 1, {"resources": [{**resource, **_VALUES}], "validate_only": True}
    topics = [{"name": NAME, "count": 2, "assignments": None}]
    yield "", 37, 3, {"topics": topics, "timeout": 5000, "validate_only": True}
    yield "", 42, 2, {"groups_names": [GONE]}
    yield "", 51, 0, {"deletions": [{"name": "nobody", "mechanism": 1}], "upsertions": []}
    yield "", 16, 5, {}
    yield "", 66, 2, {}
    yield "of every partition", 46, 0, {"topics": None}
    yield "of every topic", 75, 0, {"topics": [], "cursor": None}


def requests(topic_id: uuid.UUID) -> list[Asked]:
    given = [
        Asked(_label(key, what), key, version, make(request_class(key, version), fields))
        for what, key, version, fields in _given(topic_id)
    ]
    instead = {asked.key for asked in given if asked.label == APIS[asked.key].name}
    filled_in = [
        Asked(api.name, api.key, api.highest, filled(request_class(api.key, api.highest), topic_id))
        for api in APIS.values()
        if api.listeners & BROKER and api.key not in {*instead, *LOGIN}
    ]
    return sorted([*filled_in, *given], key=lambda asked: (asked.key, asked.label))


def _label(key: int, what: str) -> str:
    return f"{APIS[key].name} {what}".rstrip()


class Asker:
    """Somebody who has logged in, and does so again when the connection was closed."""

    def __init__(self, address: str, user: str, password: str) -> None:
        self._address = address
        self._token = f"\0{user}\0{password}".encode()
        self._socket: socket.socket | None = None

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def outcome(self, asked: Asked) -> str:
        """Which rights the answer misses; `served` if none."""
        answer = self._ask(asked.key, asked.version, asked.message)
        if answer is None:
            return CLOSED
        denied = sorted(
            name
            for name in (Error(code).name for code in errors_in(answer) if code in set(Error))
            if name.endswith("AUTHORIZATION_FAILED")
        )
        shown = asked.label in LISTS and NAME in str(answer)
        return " ".join(denied) or ("served, and shows it" if shown else "served")

    def _ask(self, key: int, version: int, message: Any) -> Any | None:
        if self._socket is None:
            self._log_in()
        assert self._socket is not None
        flexible = request_class(key, version).__flexible__
        frame = frames.request(key, version, 1, "asker", write(message), tagged=flexible)
        self._socket.sendall(frame)
        length = self._received(4)
        if length is None:
            self.close()
            return None
        answer = self._received(*struct.unpack(">i", length))
        assert answer is not None
        at = 5 if frames.has_tagged_answer(key, version) else 4
        return read(response_class(key, version), answer, at)

    def _log_in(self) -> None:
        host, _, port = self._address.rpartition(":")
        self._socket = socket.create_connection((host, int(port)), 30)
        for key, version, fields in (
            (17, 1, {"mechanism": "PLAIN"}),
            (36, 2, {"auth_bytes": self._token}),
        ):
            answer = self._ask(key, version, make(request_class(key, version), fields))
            assert answer is not None
            assert answer.error_code.value == 0

    def _received(self, size: int) -> bytes | None:
        assert self._socket is not None
        received = b""
        while len(received) < size:
            try:
                chunk = self._socket.recv(size - len(received))
            except ConnectionResetError:
                return None
            if not chunk:
                return None
            received += chunk
        return received
