"""Reports of acknowledged records: the format of the topic `__lossless_audit`.

A producer counts its delivery reports per partition and per minute of the record's Kafka timestamp,
and sends the counts to the audit topic at least once. So a report must be safe to receive twice:

- A *series* is one growing count: of one producer instance, one partition and one minute. A report
  contains the whole count of its series so far, never a difference, and a revision that increases.
- A reader keeps the highest revision of each series and adds up the series. Reports that arrive
  twice, late or out of order change nothing.
- A series that was discarded is never reopened. A later delivery starts a new series, which a
  reader adds as well.

This module is pure: the time is an argument, and it does no I/O.
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
    """A report: the records of one producer instance, partition and minute acknowledged so far."""

    producer: str  # application@host#pid, for people
    instance: str  # unique per start of a producer
    series: int  # unique within the instance
    revision: int  # grows with every report of the series
    topic: str
    topic_id: str
    partition: int
    start_ms: int  # start of the minute, in Kafka timestamps
    width_ms: int = MINUTE_MS
    tally: Tally
    first_offset: int
    last_offset: int

    def key(self) -> bytes:
        """Returns the record key. It keeps the reports of a series in one partition, in order."""
        return f"{self.instance}/{self.series}".encode()

    def to_bytes(self) -> bytes:
        """Encodes the report as a record value (JSON)."""
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
        """Decodes a record value. Raises BadInput if it is not a report of this version."""
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
                hint="a newer release of Lossless wrote it; upgrade this one",
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
                f"a report in {AUDIT_TOPIC} has a missing or invalid field: {error!r}",
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
    """Returns the report with the highest revision of each series. These may be added up."""
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
    """Counts the delivery reports of one partition.

    Called for every record, so it caches the series of the current minute.
    """

    __slots__ = ("_counter", "_end_ms", "_key", "_seed", "_series", "_start_ms", "topic")

    _series: _Series

    def __init__(
        self, counter: AcknowledgedCounter, *, topic: str, topic_id: str, partition: int
    ) -> None:
        self.topic = topic
        self._counter = counter
        self._key = (topic_id, partition)
        self._seed = partition_seed(topic_id, partition)
        self.clear_cache()

    def add(self, offset: int, timestamp_ms: int) -> None:
        """Counts one acknowledged record."""
        if not self._start_ms <= timestamp_ms < self._end_ms:
            self._select_series(offset, timestamp_ms)
        series = self._series
        series.count += 1
        series.hash += offset_hash(offset, self._seed)  # `reports` applies the modulus
        if offset > series.last_offset:
            series.last_offset = offset
        elif offset < series.first_offset:
            series.first_offset = offset
        series.changed = True

    def add_many(self, offsets: Sequence[int], timestamp_ms: int) -> None:
        """Counts many acknowledged records of one minute, in any order; cheaper than one by one."""
        if not self._start_ms <= timestamp_ms < self._end_ms:
            self._select_series(offsets[0], timestamp_ms)
        series = self._series
        series.count += len(offsets)
        series.hash += offset_hashes(offsets, self._seed)
        series.first_offset = min(series.first_offset, min(offsets))
        series.last_offset = max(series.last_offset, max(offsets))
        series.changed = True

    def clear_cache(self) -> None:
        """Drops the cached series. Call it when series may have been discarded."""
        self._start_ms = self._end_ms = 0

    def _select_series(self, offset: int, timestamp_ms: int) -> None:
        width_ms = self._counter.width_ms
        self._start_ms = timestamp_ms - timestamp_ms % width_ms
        self._end_ms = self._start_ms + width_ms
        self._series = self._counter.series(*self._key, self._start_ms, offset)


class AcknowledgedCounter:
    """Counts the delivery reports of one producer instance and produces its reports."""

    def __init__(self, *, producer: str, instance: str, width_ms: int = MINUTE_MS) -> None:
        if MINUTE_MS % width_ms:
            raise ValueError(f"{width_ms} ms does not divide a minute: counts could not be added")
        self.width_ms = width_ms
        self._producer = producer
        self._instance = instance
        self._partitions: dict[tuple[str, int], PartitionCounter] = {}
        self._series: dict[tuple[str, int, int], _Series] = {}
        self._next_series = 0

    def add(
        self, *, topic: str, topic_id: str, partition: int, offset: int, timestamp_ms: int
    ) -> None:
        """Counts one acknowledged record. A delivery without offset (acks=0) does not count."""
        counter = self.partition(topic=topic, topic_id=topic_id, partition=partition)
        counter.add(offset, timestamp_ms)

    def is_same_series(self, first_ms: int, last_ms: int) -> bool:
        """Whether records with these timestamps, in one partition, belong to the same series."""
        return first_ms // self.width_ms == last_ms // self.width_ms

    def partition(self, *, topic: str, topic_id: str, partition: int) -> PartitionCounter:
        """Returns the counter of a partition, for callers that count many of its records."""
        found = self._partitions.get((topic_id, partition))
        if found is None:
            found = PartitionCounter(self, topic=topic, topic_id=topic_id, partition=partition)
            self._partitions[topic_id, partition] = found
        return found

    def series(self, topic_id: str, partition: int, start_ms: int, offset: int) -> _Series:
        """Returns the series of a partition and minute. A new one starts with this offset."""
        key = (topic_id, partition, start_ms)
        found = self._series.get(key)
        if found is None:
            found = self._series[key] = _Series(self._next_series, offset, offset)
            self._next_series += 1
        return found

    def reports(self, now_ms: int, *, flush: bool = False) -> list[AcknowledgedCount]:
        """Returns the series that changed since the last call: of past minutes, or all on `flush`.

        Call it regularly while the producer runs, and with `flush` when it closes.
        """
        changed = []
        for (topic_id, partition, start_ms), series in sorted(self._series.items()):
            if series.changed and (flush or start_ms + self.width_ms <= now_ms):
                series.revision += 1
                series.changed = False
                changed.append(
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
        self._discard_old(now_ms)
        return changed

    def _discard_old(self, now_ms: int) -> None:
        for key in [
            key
            for key, series in self._series.items()
            if not series.changed and key[2] + self.width_ms + REMEMBERED_FOR_MS <= now_ms
        ]:
            del self._series[key]
            self._partitions[key[:2]].clear_cache()
