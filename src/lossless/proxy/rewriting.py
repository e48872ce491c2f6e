"""Which answers name brokers, and how their addresses are replaced.

    Metadata, DescribeCluster                 all brokers (DescribeCluster: or all controllers)
    FindCoordinator                           the coordinator, from version 4 on several
    Produce 10+, Fetch 16+                    the leaders of what has moved, in a tagged field
    ShareFetch, ShareAcknowledge              the same, in a field of their own
    DescribeQuorum 2+                         the controllers, by listener
    ApiVersions                               no address; but versions that cannot be read here are
                                              not offered, so that no answer comes in one

An answer in which nothing is replaced is handed on as it came, byte for byte. One that should be
read and cannot be is refused: to let it pass would show clients a way around the proxy.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, Literal

from lossless.proxy.address import Address
from lossless.proxy.apis import (
    API_VERSIONS,
    DESCRIBE_CLUSTER,
    DESCRIBE_QUORUM,
    FETCH,
    FIND_COORDINATOR,
    METADATA,
    PRODUCE,
    SHARE_ACKNOWLEDGE,
    SHARE_FETCH,
    api_name,
    is_known,
    version_max,
    version_min,
)
from lossless.proxy.skipping import (
    after_fetch_topics,
    after_share_fetch_topics,
    after_tags,
)
from lossless.wire.codec import read, response_class, write
from lossless.wire.frames import LENGTH, has_tagged_answer

Role = Literal["broker", "controller"]
Relocate = Callable[[Role, int, Address], Address]  # role, node id, where it says it is

# The first version in which an answer names brokers.
_FIRST = {
    PRODUCE: 10,
    FETCH: 16,
    METADATA: 0,
    FIND_COORDINATOR: 0,
    DESCRIBE_QUORUM: 2,
    DESCRIBE_CLUSTER: 0,
    SHARE_FETCH: 0,
    SHARE_ACKNOWLEDGE: 0,
    API_VERSIONS: 0,
}
_HEADER_BYTES = LENGTH.size + 4  # length, correlation id
_UNSUPPORTED_VERSION = b"\0\x23"
# Answers with records: how to get behind them, what stands there if no brokers are named (no tags;
# an empty array), and how an answer without topics begins.
_AFTER_RECORDS = {FETCH: after_fetch_topics, SHARE_FETCH: after_share_fetch_topics}
_NONE_NAMED = {FETCH: 0, SHARE_FETCH: 1}
_NO_TOPICS = {FETCH: bytes(10) + b"\1", SHARE_FETCH: bytes(11) + b"\1"}
_CONTROLLERS = 2  # DescribeCluster's endpoint type


class Unreadable(ValueError):
    """An answer that names brokers, in bytes that make no sense."""


def may_name_brokers(key: int, version: int) -> bool:
    """Whether the answer has to be looked at. Whatever is unknown here is none of our business."""
    first = _FIRST.get(key)
    if first is None or version < first:
        return False
    # An ApiVersions request of any version may be answered in version 0.
    return key == API_VERSIONS or is_known(key, version)


def passes_unread(key: int, version: int) -> bool:
    """Whether a client has asked in a version that was not offered, so that the answer may show it
    a way around the proxy."""
    first = _FIRST.get(key)
    return first is not None and version >= first and not may_name_brokers(key, version)


def rewritten(key: int, version: int, frame: bytes, relocate: Relocate) -> bytes | None:
    """The frame with other addresses; None if it can stay as it is."""
    try:
        return _rewritten(key, version, frame, relocate)
    except Exception as error:  # kio has no common class for what is wrong with bytes
        what = f"an answer to {api_name(key)} version {version} cannot be read: {error!r}"
        raise Unreadable(what) from error


def _rewritten(key: int, version: int, frame: bytes, relocate: Relocate) -> bytes | None:
    at = _HEADER_BYTES
    if key == API_VERSIONS and frame[at : at + 2] == _UNSUPPORTED_VERSION:
        version = 0
    elif has_tagged_answer(key, version):
        at = after_tags(frame, at)
    start = b""
    if key in _AFTER_RECORDS:
        # Such an answer is read as if it had no topics; before the brokers it stays as it is.
        at = _AFTER_RECORDS[key](frame, at)
        if frame[at] == _NONE_NAMED[key]:
            return None
        start = _NO_TOPICS[key]
    message = read(response_class(key, version), start + frame[at:], 0)
    changed = _limited(message) if key == API_VERSIONS else _moved(key, message, relocate)
    if changed is None:
        return None
    body = write(changed)[len(start) :]
    length = at - LENGTH.size + len(body)
    return b"".join((LENGTH.pack(length), frame[LENGTH.size : at], body))


def _limited(message: Any) -> Any | None:
    """Offers no version of these APIs that cannot be read here and may name brokers."""
    limited = tuple(map(_limit, filter(_is_readable, message.api_keys)))
    return None if limited == message.api_keys else dataclasses.replace(message, api_keys=limited)


def _is_readable(api: Any) -> bool:
    first = _FIRST.get(api.api_key)
    return first is None or not first <= api.max_version < version_min(api.api_key)


def _limit(api: Any) -> Any:
    if api.api_key not in _FIRST or api.max_version <= version_max(api.api_key):
        return api
    return dataclasses.replace(api, max_version=version_max(api.api_key))


def _moved(key: int, message: Any, relocate: Relocate) -> Any | None:
    match key:
        case _ if key == FIND_COORDINATOR and not hasattr(message, "coordinators"):
            moved = _node(message, "broker", message.node_id, relocate)
            return None if moved is message else moved
        case _ if key == FIND_COORDINATOR:
            return _nodes(message, "coordinators", "broker", relocate)
        case _ if key == METADATA:
            return _nodes(message, "brokers", "broker", relocate)
        case _ if key == DESCRIBE_CLUSTER:
            is_controllers = getattr(message, "endpoint_type", 0) == _CONTROLLERS
            role: Role = "controller" if is_controllers else "broker"
            return _nodes(message, "brokers", role, relocate)
        case _ if key == DESCRIBE_QUORUM:
            return _quorum(message, relocate)
        case _:
            return _nodes(message, "node_endpoints", "broker", relocate)


def _nodes(message: Any, field: str, role: Role, relocate: Relocate) -> Any | None:
    nodes = getattr(message, field)
    moved = tuple(_node(node, role, _id_of(node), relocate) for node in nodes)
    return None if moved == nodes else dataclasses.replace(message, **{field: moved})


def _quorum(message: Any, relocate: Relocate) -> Any | None:
    moved = tuple(
        dataclasses.replace(
            node,
            listeners=tuple(
                _node(listener, "controller", node.node_id, relocate) for listener in node.listeners
            ),
        )
        for node in message.nodes
    )
    return None if moved == message.nodes else dataclasses.replace(message, nodes=moved)


def _id_of(node: Any) -> int:
    found: int = node.broker_id if hasattr(node, "broker_id") else node.node_id
    return found


def _node(node: Any, role: Role, node_id: int, relocate: Relocate) -> Any:
    if not node.host or node.port <= 0:
        return node  # no such node: an error is all that the answer says
    address = relocate(role, int(node_id), Address(node.host, int(node.port)))
    return dataclasses.replace(node, host=address.host, port=address.port)
