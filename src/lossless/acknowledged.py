"""What producers say was acknowledged: the format of the topic `__lossless_audit`, fixed once.

A producer counts its delivery reports per topic partition and per minute of the record's Kafka
timestamp, and sends the counts to the audit topic. Sending is at least once, so a report must be
safe to receive twice:

- A *series* is one count that grows: one producer instance, one partition, one minute. A report is
  the whole of its series so far, never a difference, and carries a revision that grows with it.
- A reader keeps the highest revision of every series and adds the series up. Reports that come
  twice, late or out of order change nothing.
- A series that was closed and forgotten is never reopened: a delivery that comes later still
  begins a new one, which a reader adds.

Pure: the time is an argument, and nobody here talks to Kafka.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from lossless.errors import BadInput
from lossless.tally import HASH_MODULUS, Tally, offset_hash, offset_hashes, partition_seed

AUDIT_TOPIC = "__lossless_audit"
VERSION = 1
MINUTE_MS = 60_000
REMEMBERED_FOR_MS = 60 * MINUTE_MS


@dataclass(frozen=True, slots=True, kw_only=True)
class AcknowledgedCount:
    """One report: what one producer instance had acknowledged in one partition and minute."""

    producer: str  # for people: application@host#pid
    instance: str  # unique per start of a producer
    series: int  # unique within the instance
    revision: int  # grows with every report of the series
    topic: str
    topic_id: str
    partition: int
    start_ms: int  # of the minute, by the records' Kafka timestamps
    width_ms: int = MINUTE_MS
    tally: Tally
    first_offset: int
    last_offset: int

    def key(self) -> bytes:
        """The record key: all reports of one series meet in one partition, in order."""
        return f"{self.instance}/{self.series}".encode()

    def to_bytes(self) -> bytes:
        return json.dumps(
            {
                "version": VERSION,
                "producer": self.producer,
                "instance": self.instance,
                "series": self.series,
                "revision": self.revision,
                "topic": self.topic,
                "topic_id": self.topic_id,
                "partition": self.partition,
                "start_ms": self.start_ms,
                "width_ms": self.width_ms,
                "count": self.tally.count,
                "hash": f"{self.tally.hash:016x}",
                "first_offset": self.first_offset,
                "last_offset": self.last_offset,
            },
            separators=(",", ":"),
        ).encode()

    @classmethod
    def from_bytes(cls, data: bytes) -> AcknowledgedCount:
        try:
            document: dict[str, Any] = json.loads(data)
            version = document["version"]
        except (ValueError, TypeError, KeyError, RecursionError) as error:
            raise BadInput(
                f"a record of {AUDIT_TOPIC} is not a report of acknowledged records: {data[:80]!r}",
                hint="only Lossless producers may write to this topic",
            ) from error
        if version != VERSION:
            raise BadInput(
                f"a report in {AUDIT_TOPIC} has version {version}; this release reads {VERSION}",
                hint="a newer Lossless wrote it: upgrade this one",
            )
        try:
            return cls(
                producer=_text(document, "producer"),
                instance=_text(document, "instance"),
                series=_number(document, "series"),
                revision=_number(document, "revision"),
                topic=_text(document, "topic"),
                topic_id=_text(document, "topic_id"),
                partition=_number(document, "partition"),
                start_ms=_number(document, "start_ms", least=-(2**63)),
                width_ms=_number(document, "width_ms", least=1),
                tally=Tally(
                    _number(document, "count"), int(_text(document, "hash"), 16) % HASH_MODULUS
                ),
                first_offset=_number(document, "first_offset"),
                last_offset=_number(document, "last_offset"),
            )
        except (ValueError, TypeError, KeyError) as error:
            raise BadInput(
                f"a report in {AUDIT_TOPIC} lacks a field or has it wrong: {error!r}",
                hint="only Lossless producers may write to this topic",
            ) from error


def _text(document: dict[str, Any], name: str) -> str:
    value = document[name]
    if not isinstance(value, str):
        raise TypeError(f"{name} is {value!r}")
    return value


def _number(document: dict[str, Any], name: str, *, least: int = 0) -> int:
    value = document[name]
    if type(value) is not int or not least <= value < 2**63:
        raise TypeError(f"{name} is {value!r}")
    return value


def latest_revisions(reports: Iterable[AcknowledgedCount]) -> list[AcknowledgedCount]:
    """One report per series, the highest revision: what may be added up."""
    latest: dict[tuple[str, int], AcknowledgedCount] = {}
    for report in reports:
        series = (report.instance, report.series)
        if series not in latest or latest[series].revision < report.revision:
            latest[series] = report
    return list(latest.values())


@dataclass(slots=True)
class _Series:
    number: int
    first_offset: int
    last_offset: int
    count: int = 0
    hash: int = 0
    revision: int = 0
    changed: bool = False


class PartitionCounter:
    """Counts the delivery reports of one partition. This is asked for every record that is sent,
    so the minute at hand is kept at hand."""

    __slots__ = ("_counter", "_end_ms", "_key", "_seed", "_series", "_start_ms", "topic")

    _series: _Series

    def __init__(
        self, counter: AcknowledgedCounter, *, topic: str, topic_id: str, partition: int
    ) -> None:
        self.topic = topic
        self._counter = counter
        self._key = (topic_id, partition)
        self._seed = partition_seed(topic_id, partition)
        self.put_away()

    def delivered(self, offset: int, timestamp_ms: int) -> None:
        if not self._start_ms <= timestamp_ms < self._end_ms:
            self._take_up(offset, timestamp_ms)
        series = self._series
        series.count += 1
        series.hash += offset_hash(offset, self._seed)  # the modulus can wait for the report
        if offset > series.last_offset:
            series.last_offset = offset
        elif offset < series.first_offset:
            series.first_offset = offset
        series.changed = True

    def delivered_run(self, offsets: Sequence[int], timestamp_ms: int) -> None:
        """Many of one minute, in any order: a good deal cheaper than one by one."""
        if not self._start_ms <= timestamp_ms < self._end_ms:
            self._take_up(offsets[0], timestamp_ms)
        series = self._series
        series.count += len(offsets)
        series.hash += offset_hashes(offsets, self._seed)
        series.first_offset = min(series.first_offset, min(offsets))
        series.last_offset = max(series.last_offset, max(offsets))
        series.changed = True

    def put_away(self) -> None:
        """The minute at hand may have been forgotten."""
        self._start_ms = self._end_ms = 0

    def _take_up(self, offset: int, timestamp_ms: int) -> None:
        width_ms = self._counter.width_ms
        self._start_ms = timestamp_ms - timestamp_ms % width_ms
        self._end_ms = self._start_ms + width_ms
        self._series = self._counter.series(*self._key, self._start_ms, offset)


class AcknowledgedCounter:
    """Counts delivery reports of one producer instance and says what to report, and when."""

    def __init__(self, *, producer: str, instance: str, width_ms: int = MINUTE_MS) -> None:
        if MINUTE_MS % width_ms:
            raise ValueError(f"{width_ms} ms do not divide a minute: buckets could not be added up")
        self.width_ms = width_ms
        self._producer = producer
        self._instance = instance
        self._partitions: dict[tuple[str, int], PartitionCounter] = {}
        self._series: dict[tuple[str, int, int], _Series] = {}
        self._next_series = 0

    def delivered(
        self, *, topic: str, topic_id: str, partition: int, offset: int, timestamp_ms: int
    ) -> None:
        """One record was acknowledged. Only a delivery with an offset is one (not acks=0)."""
        counting = self.partition(topic=topic, topic_id=topic_id, partition=partition)
        counting.delivered(offset, timestamp_ms)

    def is_same_series(self, first_ms: int, last_ms: int) -> bool:
        """Whether records of these times, in one partition, are counted together."""
        return first_ms // self.width_ms == last_ms // self.width_ms

    def partition(self, *, topic: str, topic_id: str, partition: int) -> PartitionCounter:
        """For whoever counts many records of one partition."""
        found = self._partitions.get((topic_id, partition))
        if found is None:
            found = PartitionCounter(self, topic=topic, topic_id=topic_id, partition=partition)
            self._partitions[topic_id, partition] = found
        return found

    def series(self, topic_id: str, partition: int, start_ms: int, offset: int) -> _Series:
        """The count of one partition and minute; begun with this offset if it is new."""
        key = (topic_id, partition, start_ms)
        found = self._series.get(key)
        if found is None:
            found = self._series[key] = _Series(self._next_series, offset, offset)
            self._next_series += 1
        return found

    def reports(self, now_ms: int, *, flush: bool = False) -> list[AcknowledgedCount]:
        """What changed since it was last given out: of closed minutes, or of all on `flush`.

        Call it again and again while the producer runs, and with `flush` when it closes.
        """
        given = []
        for (topic_id, partition, start_ms), series in sorted(self._series.items()):
            if series.changed and (flush or start_ms + self.width_ms <= now_ms):
                series.revision += 1
                series.changed = False
                given.append(
                    AcknowledgedCount(
                        producer=self._producer,
                        instance=self._instance,
                        series=series.number,
                        revision=series.revision,
                        topic=self._partitions[topic_id, partition].topic,
                        topic_id=topic_id,
                        partition=partition,
                        start_ms=start_ms,
                        width_ms=self.width_ms,
                        tally=Tally(series.count, series.hash % HASH_MODULUS),
                        first_offset=series.first_offset,
                        last_offset=series.last_offset,
                    )
                )
        self._forget(now_ms)
        return given

    def _forget(self, now_ms: int) -> None:
        for key in [
            key
            for key, series in self._series.items()
            if not series.changed and key[2] + self.width_ms + REMEMBERED_FOR_MS <= now_ms
        ]:
            del self._series[key]
            self._partitions[key[:2]].put_away()
