"""What the parts of the consumer know of each other, and of what stands beside them.

    poll thread (polling.py)  ──records──▶  Work (chunks.py or lanes.py)  ──▶  loop or workers
                              ◀─what may be committed, which partitions to pause──

A `Work` is told of records and of partitions by the poll thread only; whoever processes records
talks to it from other threads. Its lock is inside.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from confluent_kafka import Message, TopicPartition

from lossless.client.finished_runs import Run

Place = tuple[str, int]  # topic and partition
Hook = Callable[[list[TopicPartition]], None]


class Work(Protocol):
    """Records between being read and being finished."""

    def wait_for_room(self, timeout_s: float) -> bool:
        """Whether more may be taken in now, or within the time."""

    def take_in(self, records: list[Message], ends: Mapping[Place, TopicPartition]) -> None:
        """`ends` is where each partition stands after these records, gaps behind them included."""

    def begin(self, place: Place, next_offset: int, finished_beyond: Sequence[Run]) -> None:
        """The partition is ours; a negative offset is not known yet."""

    def hold(self, places: set[Place]) -> None:
        """Nothing of these is handed out any more. Returns at once; what is in hand may finish."""

    def wait_for_hands(self, places: set[Place], timeout_s: float) -> bool:
        """Whether nothing of these is in hand any more, in time."""

    def forget(self, places: set[Place]) -> None:
        """Whatever still finishes there changes nothing."""

    def collect(self) -> dict[Place, TopicPartition]:
        """What may be committed and was not collected before."""

    def finished(self) -> int:
        """How many records are finished, since the beginning."""

    def buffered(self) -> int:
        """Records read and not finished."""

    def to_pause(self, assigned: set[Place]) -> set[Place]:
        """The partitions that have enough waiting."""

    def end(self, failure: BaseException | None) -> None:
        """Nothing more comes; who asks for the next record is told so, or the failure raised."""


def place_of(message: Message) -> Place:
    topic, partition = message.topic(), message.partition()
    if topic is None or partition is None:
        raise AssertionError("a record that was read has a topic and a partition")
    return topic, partition


def offset_of(message: Message) -> int:
    offset = message.offset()
    if offset is None:
        raise AssertionError("a record that was read has an offset")
    return offset


def after(message: Message) -> TopicPartition:
    """What to commit when this record and all before it are finished."""
    topic, partition = place_of(message)
    epoch = message.leader_epoch()
    position = TopicPartition(topic, partition, offset_of(message) + 1)
    return position if epoch is None else with_epoch(position, epoch)


def has_epoch(position: TopicPartition) -> bool:
    epoch = position.leader_epoch
    return position.offset >= 0 and epoch is not None and epoch >= 0


def with_epoch(position: TopicPartition, leader_epoch: int) -> TopicPartition:
    return TopicPartition(
        position.topic,
        position.partition,
        position.offset,
        metadata=position.metadata or "",
        leader_epoch=leader_epoch,
    )


def shown(places: set[Place] | Sequence[Place]) -> str:
    return ", ".join(f"{topic}-{partition}" for topic, partition in sorted(places)) or "nothing"
