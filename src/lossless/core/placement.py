"""Where the replicas of a new topic go: never two on one broker, and over as many racks as can be.

Brokers stand in a circle in which racks take turns; every partition takes its replicas from its own
place on, so that leaders spread too. A broker of a rack that has a replica already is passed over
as long as there are racks without one (B2: the loss of a rack leaves a replica of everything).
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import zip_longest


class NotEnoughBrokers(ValueError):
    def __init__(self, replication_factor: int, brokers: int) -> None:
        super().__init__(
            f"replication factor {replication_factor} needs as many brokers; there are {brokers}"
        )


def place(
    racks: Mapping[int, str | None], partitions: int, replication_factor: int, *, first: int = 0
) -> tuple[tuple[int, ...], ...]:
    """The replicas of each partition, the preferred leader first; of a topic that has `first`
    partitions already, of those that come after them."""
    if not 1 <= replication_factor <= len(racks):
        raise NotEnoughBrokers(replication_factor, len(racks))
    circle = _racks_in_turn(racks)
    return tuple(
        _replicas(circle, racks, partition, replication_factor)
        for partition in range(first, first + partitions)
    )


def _racks_in_turn(racks: Mapping[int, str | None]) -> list[int]:
    by_rack: dict[str | None, list[int]] = {}
    for broker in sorted(racks):
        by_rack.setdefault(racks[broker], []).append(broker)
    rounds = zip_longest(*(by_rack[rack] for rack in sorted(by_rack, key=str)))
    return [broker for one_round in rounds for broker in one_round if broker is not None]


def _replicas(
    circle: list[int], racks: Mapping[int, str | None], partition: int, count: int
) -> tuple[int, ...]:
    first = partition % len(circle)
    # After every full turn the followers of a leader are others.
    shift = partition // len(circle)
    rest = circle[first + 1 :] + circle[:first]
    if rest:
        shift %= len(rest)
        rest = rest[shift:] + rest[:shift]
    chosen = [circle[first]]
    while len(chosen) < count:
        used = {racks[broker] for broker in chosen}
        left = [broker for broker in rest if broker not in chosen]
        fresh = [broker for broker in left if racks[broker] not in used]
        chosen.append((fresh or left)[0])
    return tuple(chosen)
