"""Asking one broker, and only that one, and without a client that would wait for the others."""

from __future__ import annotations

import socket
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from typing import Any

from lossless.engines.local import security
from lossless.engines.local.plan import Node, Plan
from lossless.engines.local.software import SOFTWARE
from lossless.wire import frames
from lossless.wire.codec import Fields
from lossless.wire.outgoing import outgoing

METADATA, METADATA_VERSION = 3, 12
API_VERSIONS = 18
DESCRIBE_QUORUM, DESCRIBE_QUORUM_VERSION = 55, 0
_WHOLE_QUORUM = [{"topic_name": "__cluster_metadata", "partitions": [{"partition_index": 0}]}]


def lists(plan: Plan, node: Node, brokers: set[int]) -> bool:
    """Whether this broker tells clients that these brokers are in the cluster."""
    answer = metadata_of(plan, node, topics=())
    return answer is not None and brokers <= {broker.node_id for broker in answer.brokers}


def metadata_of(plan: Plan, node: Node, topics: tuple[str, ...] | None = None) -> Any | None:
    """What this broker tells of all topics, or of some, as kio has it; None if nothing."""
    asked = None if topics is None else [{"name": name} for name in topics]
    return _ask(_broker(plan, node), METADATA, METADATA_VERSION, {"topics": asked})


def active_controller(plan: Plan, brokers: Sequence[Node]) -> int | None:
    """Brokers hand the question on, so whoever answers, the answer is the controller's own."""
    for node in brokers:
        leader = _quorum_leader(_broker(plan, node))
        if leader is not None:
            return plan.node_of_voter(leader)
    return None


def has_quorum(plan: Plan, node: Node) -> bool:
    """Whether this controller answers, and one of them is active."""
    listens = _ask(_controller(plan, node), API_VERSIONS, 0, {}) is not None
    return listens and any(
        _quorum_leader(_controller(plan, other)) is not None for other in plan.controllers
    )


_Connect = Callable[[float, ExitStack], socket.socket]


def _broker(plan: Plan, node: Node) -> _Connect:
    return partial(security.connected, plan.config, plan.host, node.port or 0)


def _controller(plan: Plan, node: Node) -> _Connect:
    login = SOFTWARE[plan.engine].node_login(plan.secret)
    return partial(security.connected_as_node, login, node.controller_port or 0)


def _quorum_leader(connect: _Connect) -> int | None:
    topics = {"topics": _WHOLE_QUORUM}
    answer = _ask(connect, DESCRIBE_QUORUM, DESCRIBE_QUORUM_VERSION, topics)
    if answer is None or answer.error_code.value or not answer.topics:
        return None
    said = answer.topics[0].partitions[0]
    return int(said.leader_id) if not said.error_code.value and said.leader_id >= 0 else None


def _ask(
    connect: _Connect, key: int, version: int, fields: Fields, *, timeout_s: float = 2.0
) -> Any | None:
    """None when nobody answered in time, or not in these terms."""
    asked = outgoing(key, version, fields)
    frame = frames.request(key, version, 1, "lossless", asked.message, tagged=asked.is_flexible)
    try:
        with ExitStack() as held:
            connection = connect(timeout_s, held)
            connection.sendall(frame)
            answer = security.receive_frame(connection)
            return asked.read(answer, 5 if asked.is_flexible else 4)
    except (OSError, ValueError):
        return None
