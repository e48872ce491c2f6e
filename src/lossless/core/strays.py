"""Replicas on this broker's disk that are nobody's any more.

A topic may be deleted, or a partition moved elsewhere, while a broker is away. When it is back, and
its metadata is of its own life, whatever it keeps beyond its partitions is removed, as in Kafka. It
cannot be needed: a partition that this broker had was given to it by a record which was committed,
and so comes before its registration.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from collections.abc import Set as AbstractSet

from lossless.log.store import Store, remove_all


def remove_strays(
    stored: Iterable[str], kept: AbstractSet[str], stores: Callable[[str], Store]
) -> None:
    for name in sorted(set(stored) - kept):
        remove_all(stores(name))
