"""All letters of dead letter topics, from where is said up to the end at that time."""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

from confluent_kafka import (
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    TopicPartition,
)

from lossless.client.retrying.bytes_in_headers import placed
from lossless.client.retrying.letters import DeadLetter, read_letter
from lossless.errors import Unavailable

_AT_ONCE = 500
_PATIENCE_S = 30.0

# What librdkafka says of connections that come and go; errors that matter are raised.
_SILENT = logging.getLogger("lossless.client.librdkafka")
_SILENT.addHandler(logging.NullHandler())
_SILENT.propagate = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """Which letters; what is None does not matter."""

    exception: str | None = None  # its name, with or without where it is from; may have * and ?
    since_ms: int | None = None
    until_ms: int | None = None  # not itself
    original_topic: str | None = None

    def matches(self, letter: DeadLetter) -> bool:
        return (
            (self.exception is None or _is_named(letter.exception, self.exception))
            and (self.original_topic is None or letter.original_topic == self.original_topic)
            and (self.since_ms is None or (letter.timestamp_ms or 0) >= self.since_ms)
            and (self.until_ms is None or (letter.timestamp_ms or 0) < self.until_ms)
        )


@dataclass(frozen=True, slots=True)
class End:
    """Nothing more in this partition; what lies before is read."""

    partition: int
    next_offset: int


class LetterReader:
    """One topic, read without joining a group. `settings` are librdkafka's."""

    def __init__(self, settings: Mapping[str, Any], topic: str, *, group: str) -> None:
        self.topic = topic
        self._consumer = Consumer(
            {
                **settings,
                "group.id": group,
                "enable.auto.commit": False,
                "enable.auto.offset.store": False,
                "enable.partition.eof": True,
                "auto.offset.reset": "earliest",
                "isolation.level": "read_committed",
                "logger": _SILENT,
            }
        )

    def __enter__(self) -> LetterReader:
        return self

    def __exit__(self, *_: object) -> None:
        self._consumer.close()

    def partitions(self) -> list[int]:
        topic = _answered(self._consumer.list_topics, self.topic).topics[self.topic]
        if topic.error is not None:  # without partitions, which is not the same as empty
            raise _failed(topic.error)
        return sorted(topic.partitions)

    def topics(self) -> dict[str, int]:
        """How many partitions each topic of the cluster has."""
        found = _answered(self._consumer.list_topics).topics
        return {name: len(topic.partitions) for name, topic in found.items()}

    def bounds(self, partition: int) -> tuple[int, int]:
        """The first offset there is, and the one after the last."""
        place = TopicPartition(self.topic, partition)
        low, high = _answered(self._consumer.get_watermark_offsets, place)
        return low, high

    def committed(self) -> dict[int, TopicPartition]:
        places = [TopicPartition(self.topic, partition) for partition in self.partitions()]
        return {each.partition: each for each in _answered(self._consumer.committed, places)}

    def commit(self, positions: list[TopicPartition]) -> None:
        try:
            answers = self._consumer.commit(offsets=positions, asynchronous=False)
        except KafkaException as error:
            raise _failed(error.args[0]) from error
        for answer in answers or ():
            if answer.error is not None:
                raise _failed(answer.error)

    def read(self, starts: Mapping[int, int]) -> Generator[list[DeadLetter | End], None, None]:
        """Letters in the order of each partition, in chunks; ends when all partitions have."""
        left = {partition: self.bounds(partition)[1] for partition in starts}
        ended = [partition for partition, end in left.items() if starts[partition] >= end]
        if ended:
            yield [End(partition, left.pop(partition)) for partition in ended]
        if not left:
            return
        places = [TopicPartition(self.topic, each, starts[each]) for each in left]
        self._consumer.assign(places)
        try:
            while left:
                # `consume` alone would wait until it has all that it was asked for.
                first = self._consumer.poll(_PATIENCE_S)
                if first is None:
                    raise Unavailable(
                        f"{self.topic}: no answer for {_PATIENCE_S:g} s",
                        hint="are all brokers of the cluster up? see `lossless status`",
                    )
                messages = [first, *self._consumer.consume(_AT_ONCE - 1, timeout=0)]
                yield [found for each in messages for found in _found(each, left)]
        finally:
            self._consumer.unassign()


def letters_of(settings: Mapping[str, Any], topic: str) -> Iterator[DeadLetter]:
    """Every letter there is now."""
    with LetterReader(settings, topic, group="lossless-dead-letters") as reader:
        starts = {each: reader.bounds(each)[0] for each in reader.partitions()}
        with closing(reader.read(starts)) as chunks:
            for chunk in chunks:
                yield from (each for each in chunk if isinstance(each, DeadLetter))


def _found(message: Message, left: dict[int, int]) -> list[DeadLetter | End]:
    error = message.error()
    _, partition, offset = placed(message)
    if error is not None:
        if error.code() != KafkaError._PARTITION_EOF:
            raise _failed(error)
        # A leader just elected may tell of an end that comes too soon (R19): there is more.
        if partition not in left or offset < left[partition]:
            return []
        del left[partition]
        return [End(partition, offset)]
    if partition not in left:
        return []
    letter = read_letter(message)
    if offset + 1 >= left[partition]:
        del left[partition]
        return [letter, End(partition, offset + 1)]
    return [letter]


def _answered(ask: Callable[..., Any], *what: Any) -> Any:
    try:
        return ask(*what, timeout=_PATIENCE_S)
    except KafkaException as error:
        raise _failed(error.args[0]) from error


def _failed(error: KafkaError) -> Unavailable:
    return Unavailable(
        f"Kafka says: {error.str()} ({error.name()})",
        hint="what was done so far stands; run the same command again",
    )


def _is_named(exception: str | None, wanted: str) -> bool:
    if exception is None:
        return False
    short = exception.rpartition(".")[2].rpartition("$")[2]
    return fnmatchcase(exception, wanted) or fnmatchcase(short, wanted)
