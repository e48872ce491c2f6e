"""Partitions as most messages have them: each topic once, with what is said of its partitions."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from lossless.core.messages import TopicPartition


def by_topic(said: Iterable[tuple[TopicPartition, Any]]) -> dict[str, list[Any]]:
    """In the order in which they come."""
    topics: dict[str, list[Any]] = {}
    for partition, what in said:
        topics.setdefault(partition.topic, []).append(what)
    return topics


def numbers_by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    return by_topic((partition, partition.partition) for partition in partitions)
