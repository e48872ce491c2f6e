"""Asking one broker, and only that one."""

from __future__ import annotations

import socket
from collections.abc import Sequence
from contextlib import suppress

from lossless.engines.apache.plan import Node, Plan
from lossless.engines.apache.quorum import quorum_leader
from lossless.engines.metadata import read_metadata
from lossless.errors import Unavailable


def lists(plan: Plan, node: Node, brokers: set[int]) -> bool:
    """Whether this broker tells clients that these brokers are in the cluster."""
    with suppress(Unavailable, OSError):
        # A closed port is the usual answer while it starts, and the cheapest to find out.
        socket.create_connection((plan.host, node.port or 0), timeout=1).close()
        listed = read_metadata({"bootstrap.servers": plan.address(node)}, timeout_s=3).brokers
        return brokers <= set(listed)
    return False


def active_controller(plan: Plan, brokers: Sequence[Node]) -> int | None:
    for node in brokers:
        leader = quorum_leader(plan.host, node.port or 0)
        if leader is not None:
            return leader
    return None
