"""Who of a consumer group is to get which partitions: Kafka's two assignors, by their names.

    uniform   everybody gets as many partitions as everybody else, give or take one, and keeps as
              many as it can of what it was to have before
    range     of each topic everybody gets partitions that are next to each other. Members with
              the same topics get the same numbers of each, if the topics have as many partitions

Rules learnt
- The result depends on nothing but what goes in. Members and partitions are looked at in order.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from lossless.core.groups.records import NO_PARTITIONS, Partitions


class Subscriber(NamedTuple):
    member_id: str
    topic_ids: frozenset[int]
    target: Partitions = NO_PARTITIONS  # what it was to have before
    instance_id: str | None = None


Assignor = Callable[[list[Subscriber], Mapping[int, int]], dict[str, Partitions]]


def assign_range(
    subscribers: list[Subscriber], partition_counts: Mapping[int, int]
) -> dict[str, Partitions]:
    assigned: dict[str, set[tuple[int, int]]] = {one.member_id: set() for one in subscribers}
    # Static members come first: their order survives a restart.
    order = sorted(
        subscribers,
        key=lambda one: (one.instance_id is None, one.instance_id or "", one.member_id),
    )
    for topic_id, count in sorted(partition_counts.items()):
        takers = [one for one in order if topic_id in one.topic_ids]
        start = 0
        for at, taker in enumerate(takers):
            share = count // len(takers) + (at < count % len(takers))
            assigned[taker.member_id] |= {
                (topic_id, number) for number in range(start, start + share)
            }
            start += share
    return {member_id: frozenset(partitions) for member_id, partitions in assigned.items()}


def assign_uniform(
    subscribers: list[Subscriber], partition_counts: Mapping[int, int]
) -> dict[str, Partitions]:
    order = sorted(subscribers)
    existing = {
        (topic_id, number)
        for topic_id, count in partition_counts.items()
        for number in range(count)
    }
    assigned: dict[str, set[tuple[int, int]]] = {}
    free = set(existing)
    for one in order:
        kept = {part for part in one.target if part[0] in one.topic_ids} & free
        assigned[one.member_id] = kept
        free -= kept
    takers: dict[int, list[str]] = {
        topic_id: [one.member_id for one in order if topic_id in one.topic_ids]
        for topic_id in partition_counts
    }
    for partition in sorted(free):
        candidates = takers[partition[0]]
        if candidates:
            least = min(candidates, key=lambda member_id: len(assigned[member_id]))
            assigned[least].add(partition)
    while _even_out(assigned, takers):
        pass
    return {member_id: frozenset(partitions) for member_id, partitions in assigned.items()}


def _even_out(assigned: dict[str, set[tuple[int, int]]], takers: Mapping[int, list[str]]) -> bool:
    """Moves one partition to a member that has at least two less. Each move brings the numbers
    closer together, so there is a last one."""
    for giver in sorted(assigned, key=lambda member_id: -len(assigned[member_id])):
        for partition in sorted(assigned[giver], reverse=True):
            least = min(takers[partition[0]], key=lambda member_id: len(assigned[member_id]))
            if len(assigned[giver]) - len(assigned[least]) >= 2:
                assigned[giver].remove(partition)
                assigned[least].add(partition)
                return True
    return False


ASSIGNORS: dict[str, Assignor] = {"uniform": assign_uniform, "range": assign_range}
