"""Where the replicas of a new topic go: never two on one broker, and over as many racks as can be.

Brokers stand in a circle in which racks take turns; every partition takes its replicas from its own
place on, so that leaders spread too. A broker of a rack that has a replica already is passed over
as long as there are racks without one (B2: the loss of a rack leaves a replica of everything).

A broker that is away for now is one nevertheless, as in Kafka: with one of three dead, a topic of
three replicas can be made, the coordinators' among them. It leads nothing, and comes after others.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from itertools import zip_longest


class NotEnoughBrokers(ValueError):
    """For so many replicas, or for a leader."""


def place(
    racks: Mapping[int, str | None],
    partitions: int,
    replication_factor: int,
    *,
    first: int = 0,
    away: Collection[int] = (),
) -> tuple[tuple[int, ...], ...]:
    """The replicas of each partition, the preferred leader first; of a topic that has `first`
    partitions already, of those that come after them."""
    if not 1 <= replication_factor <= len(racks):
        raise NotEnoughBrokers(
            f"replication factor {replication_factor} needs as many brokers; there are {len(racks)}"
        )
    circle = _racks_in_turn(racks)
    leaders = [broker for broker in circle if broker not in away]
    if not leaders:
        raise NotEnoughBrokers("no broker is there to lead")
    placed = []
    for partition in range(first, first + partitions):
        turn, place_in_turn = divmod(partition, len(leaders))
        at = circle.index(leaders[place_in_turn])
        # After every full turn the followers of a leader are others.
        others = _turned(circle[at + 1 :] + circle[:at], turn)
        placed.append(_replicas(circle[at], others, racks, away, replication_factor))
    return tuple(placed)


def _racks_in_turn(racks: Mapping[int, str | None]) -> list[int]:
    by_rack: dict[str | None, list[int]] = {}
    for broker in sorted(racks):
        by_rack.setdefault(racks[broker], []).append(broker)
    rounds = zip_longest(*(by_rack[rack] for rack in sorted(by_rack, key=str)))
    return [broker for one_round in rounds for broker in one_round if broker is not None]


def _turned(brokers: list[int], turn: int) -> list[int]:
    shift = turn % len(brokers) if brokers else 0
    return brokers[shift:] + brokers[:shift]


def _replicas(
    leader: int,
    others: list[int],
    racks: Mapping[int, str | None],
    away: Collection[int],
    count: int,
) -> tuple[int, ...]:
    chosen = [leader]
    while len(chosen) < count:
        used = {racks[broker] for broker in chosen}
        left = [broker for broker in others if broker not in chosen]
        chosen.append(min(left, key=lambda broker: (racks[broker] in used, broker in away)))
    return tuple(chosen)
