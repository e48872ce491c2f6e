"""Replicas on this broker's disk that belong to no partition any more.

A topic may be deleted, or a partition moved elsewhere, while a broker is away. When it is back, and
its metadata is of its own life, what it keeps beyond its partitions is removed, as in Kafka. It
cannot be needed: a partition that this broker had was given to it by a record which was committed,
and so comes before its registration.
"""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Set as AbstractSet


def strays(stored: Iterable[str], kept: AbstractSet[str]) -> list[str]:
    """The names of stores to remove."""
    return sorted(set(stored) - kept)
