"""Kafka records read by tasks of our own, where Spark's Kafka source fails on a timestamp.

A Kafka timestamp is any 64-bit number of milliseconds. Spark's is a 64-bit number of microseconds,
and its source fails ("long overflow") at a record whose timestamp does not fit, such as one that a
producer gave in nanoseconds. The failure names no offset, and it comes again with every attempt.

`direct_records` reads the same offsets with confluent-kafka and keeps such a timestamp in a column
of its own. confluent-kafka raises an error for a header whose name is not UTF-8, and hands over no
header of that record; a second column marks it. This source is slower than Spark's, and is only
used for ranges on which Spark's failed.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pyarrow as pa
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition
from pyspark.sql import functions as F

from lossless.contract import librdkafka_settings
from lossless.errors import with_causes
from lossless.pipeline.outcomes import EARLIEST_MS
from lossless.pipeline.source import REQUEST_TIMEOUT_S
from lossless.pipeline.transform import OffsetRange

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

# The Kafka timestamp, in milliseconds, of a record whose timestamp Spark cannot hold; else null.
OUT_OF_RANGE_MS = "_lossless_out_of_range_ms"
# Whether the record has headers that cannot be read; `headers` is null then.
HEADERS_UNREADABLE = "_lossless_headers_unreadable"

HELD_MS_MAX = (2**63 - 1) // 1000
HELD_MS_MIN = -HELD_MS_MAX
GREGORIAN_SINCE_MS = -12_219_292_800_000  # 1582-10-15
# What `timestamp` holds instead: moments that every sink can store and every tool can show.
LAST_SHOWN_MS = 253_402_300_799_999  # the end of the year 9999
FIRST_SHOWN_MS = EARLIEST_MS

DAY_MS = 86_400_000
DAYS_FROM_MARCH_OF_YEAR_0 = 719_470  # of the Julian calendar, to 1970-01-01 of the Gregorian

READ_SCHEMA = (
    "key binary, value binary, topic string, partition int, offset long, timestamp_ms long, "
    "headers array<struct<key: string, value: binary>>, headers_unreadable boolean"
)
RECORDS_PER_POLL = 500
# For a name that is not UTF-8, confluent-kafka returns a damaged list besides setting an error.
# Python notices both only in calls that come from C: a direct call, once the interpreter has
# specialized it, hands over the list, and touching it ends the process.
_headers_of = operator.methodcaller("headers")


def is_timestamp_overflow(error: BaseException | None) -> bool:
    """Whether an error may come from a timestamp that Spark cannot hold."""
    return error is not None and any("long overflow" in str(each) for each in with_causes(error))


@dataclass(frozen=True, slots=True, kw_only=True)
class _ReadTask:
    """Everything a task needs. It travels pickled, so that no plan or log shows a password."""

    settings: Mapping[str, str] = field(repr=False)
    ranges: Sequence[OffsetRange]
    with_headers: bool


def direct_records(
    spark: SparkSession,
    client_settings: Mapping[str, str],
    ranges: Iterable[OffsetRange],
    *,
    isolation: str,
    with_headers: bool = True,
) -> DataFrame:
    """The records of these offsets with the columns of Spark's source that a pipeline reads.

    OUT_OF_RANGE_MS and HEADERS_UNREADABLE come on top. Without `with_headers` every record has
    null for its headers. A task fails when the log no longer holds an offset of its range.
    """
    task = _ReadTask(
        settings={
            **librdkafka_settings(client_settings),
            "group.id": "lossless-direct",  # never joined, never committed
            "enable.auto.commit": "false",
            "enable.partition.eof": "true",
            "auto.offset.reset": "error",
            "isolation.level": isolation,
            "log_level": "0",
        },
        ranges=[part for part in ranges if len(part) > 0],
        with_headers=with_headers,
    )
    read = spark.range(0, len(task.ranges), 1, max(1, len(task.ranges)))
    milliseconds = F.col("timestamp_ms")
    out_of_range = ~milliseconds.between(HELD_MS_MIN, HELD_MS_MAX)
    shown = (
        F.when(milliseconds > HELD_MS_MAX, F.lit(LAST_SHOWN_MS))
        .when(milliseconds < HELD_MS_MIN, F.lit(FIRST_SHOWN_MS))
        .otherwise(milliseconds)
    )
    return read.mapInArrow(_reading(task), READ_SCHEMA).select(
        *("key", "value", "topic", "partition", "offset"),
        F.timestamp_millis(shown).alias("timestamp"),
        "headers",
        F.when(out_of_range, milliseconds).alias(OUT_OF_RANGE_MS),
        F.col("headers_unreadable").alias(HEADERS_UNREADABLE),
    )


def _reading(task: _ReadTask) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """The function for mapInArrow: each number that comes in is that of a range to read."""

    def read_from_kafka(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                yield from _read(task, task.ranges[number])

    return read_from_kafka


def _read(task: _ReadTask, part: OffsetRange) -> Iterator[pa.RecordBatch]:
    consumer = Consumer(dict(task.settings))
    try:
        consumer.assign([TopicPartition(part.topic, part.partition, part.start)])
        reached = part.start
        while reached < part.end:
            first = consumer.poll(REQUEST_TIMEOUT_S)
            if first is None:
                raise KafkaException(
                    KafkaError(
                        KafkaError._TIMED_OUT,
                        f"{part.topic}-{part.partition} gave no record from offset {reached} on "
                        f"within {REQUEST_TIMEOUT_S:g} s",
                    )
                )
            records = []
            # Without waiting: to ask for many would be to wait for many.
            for message in (first, *consumer.consume(RECORDS_PER_POLL - 1, timeout=0)):
                offset = message.offset() or 0
                error = message.error()
                if error is None:
                    if offset < part.end:
                        records.append(message)
                    # Markers of transactions and compaction leave offsets without a record.
                    reached = max(reached, offset + 1)
                elif error.code() == KafkaError._PARTITION_EOF:
                    # A leader just elected may tell of an end that comes too soon: there is more.
                    reached = max(reached, offset)
                else:
                    raise KafkaException(error)
            if records:
                yield _arrow(records, with_headers=task.with_headers)
    finally:
        consumer.close()


def _as_spark_reads(timestamp_ms: int) -> int:
    """A timestamp before 1582-10-15 as Spark's source reads it, so that both agree.

    Java gives the date of such a moment in the Julian calendar, and Spark takes the moment that has
    this date in the Gregorian one.
    """
    if not HELD_MS_MIN <= timestamp_ms < GREGORIAN_SINCE_MS:
        return timestamp_ms
    # Years begin in March here, so that a leap day is the last day of its year.
    days = timestamp_ms // DAY_MS + DAYS_FROM_MARCH_OF_YEAR_0
    year = (4 * days + 3) // 1461
    return timestamp_ms - (year // 100 - year // 400 - 2) * DAY_MS


def _arrow(records: Sequence[Message], *, with_headers: bool) -> pa.RecordBatch:
    header = pa.struct([("key", pa.string()), ("value", pa.binary())])
    headers: list[list[tuple[str, bytes | None]] | None] = [None] * len(records)
    unreadable = [False] * len(records)
    for number, record in enumerate(records if with_headers else ()):
        try:
            headers[number] = _headers_of(record) or None
        except SystemError:  # confluent-kafka's way to say that a name is not UTF-8
            unreadable[number] = True
    columns = {
        "key": pa.array([r.key() for r in records], pa.binary()),
        "value": pa.array([r.value() for r in records], pa.binary()),
        "topic": pa.array([r.topic() for r in records], pa.string()),
        "partition": pa.array([r.partition() for r in records], pa.int32()),
        "offset": pa.array([r.offset() for r in records], pa.int64()),
        "timestamp_ms": pa.array([_as_spark_reads(r.timestamp()[1]) for r in records], pa.int64()),
        "headers": pa.array(headers, pa.list_(header)),
        "headers_unreadable": pa.array(unreadable, pa.bool_()),
    }
    return pa.RecordBatch.from_pydict(columns)
