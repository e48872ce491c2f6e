"""The evidence: one aggregation over log, table and dead letters, in one Spark job.

Each side is reduced to a handful of groups (partition, bucket of the Kafka timestamp, region), each
a count and a sum of hashes. No join, no distinct (unless the transform expands records into several
rows) and no record leaves its task. Only where the groups do not balance, `differences.py` looks at
single records.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING, TypeVar

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import functions as F

from lossless.errors import Unavailable, Undecided
from lossless.pipeline.audit.model import Group, Region, Side
from lossless.pipeline.ledger import SourcePartition
from lossless.pipeline.outcomes import EARLIEST_MS, PROVENANCE, hash_sums, provenance_hash, tally

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_REGIONS = tuple(Region)
_UNKNOWN = len(_REGIONS)

Result = TypeVar("Result")


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The offsets at which the regions of one partition begin."""

    start: int  # below: BEFORE
    log_start: int  # below: PURGED
    next: int  # below: SETTLED


@dataclass(frozen=True, slots=True, kw_only=True)
class UnknownGroup:
    """Rows of a topic id or partition that nobody knows."""

    side: Side
    topic_id: str | None
    partition: int | None
    group: Group


@dataclass(frozen=True, slots=True, kw_only=True)
class Scan:
    groups: Mapping[tuple[Side, str, int], Mapping[tuple[int, Region], Group]]
    unknown: Sequence[UnknownGroup]


def scan(
    *,
    log: DataFrame | None,
    logged: Iterable[SourcePartition],
    rows: DataFrame | None = None,
    letters: DataFrame | None = None,
    limits: Mapping[SourcePartition, Limits],
    bucket_ms: int,
    count_distinct: bool = False,
) -> Scan:
    """`logged` are the partitions that `log` reads: it knows topics by name only."""
    sides = []
    if rows is not None:
        records = records_of_table(rows)
        sides.append(_groups(Side.TABLE, records, limits, bucket_ms, distinct=count_distinct))
    if letters is not None:
        sides.append(_groups(Side.LETTERS, records_of_table(letters), limits, bucket_ms))
    if log is not None:
        sides.append(_groups(Side.LOG, records_of_log(log, logged), limits, bucket_ms))
    if not sides:
        return Scan(groups={}, unknown=())
    together = reduce(lambda left, right: left.unionByName(right), sides)
    found: dict[tuple[Side, str, int], dict[tuple[int, Region], Group]] = {}
    unknown = []
    for row in run_job(together.collect):
        group = Group(
            tally=tally(row["count"], row["high"], row["low"]),
            rows=row["rows"],
            first_offset=row["first_offset"],
            last_offset=row["last_offset"],
            row_hash=tally(row["rows"], row["row_high"], row["row_low"]).hash,
            moment_hash=tally(0, row["moment_high"], row["moment_low"]).hash,
        )
        side = Side(row["side"])
        if row["region"] == _UNKNOWN:
            unknown.append(
                UnknownGroup(
                    side=side, topic_id=row["topic_id"], partition=row["partition"], group=group
                )
            )
            continue
        of_partition = found.setdefault((side, row["topic_id"], row["partition"]), {})
        of_partition[row["bucket"], _REGIONS[row["region"]]] = group
    return Scan(groups=found, unknown=unknown)


def records_of_table(frame: DataFrame, *more: Column) -> DataFrame:
    """topic_id, partition, offset, timestamp_ms of rows or letters, and what else is wanted."""
    return frame.select(
        F.col(f"{PROVENANCE}.topic_id").alias("topic_id"),
        F.col(f"{PROVENANCE}.partition").alias("partition"),
        F.col(f"{PROVENANCE}.offset").alias("offset"),
        _moment(F.col(f"{PROVENANCE}.timestamp")).alias("timestamp_ms"),
        *more,
    )


def records_of_log(
    log: DataFrame, partitions: Iterable[SourcePartition], *more: Column
) -> DataFrame:
    """The same of the connector's frame; topics are known there by name."""
    ids = {source.topic: source.topic_id for source in partitions}
    return log.select(
        _choose(F.col("topic"), {topic: F.lit(topic_id) for topic, topic_id in ids.items()}).alias(
            "topic_id"
        ),
        "partition",
        "offset",
        _moment(F.col("timestamp")).alias("timestamp_ms"),
        *more,
    )


def _moment(timestamp: Column) -> Column:
    return F.greatest(F.unix_millis(timestamp), F.lit(EARLIEST_MS))


def _groups(
    side: Side,
    records: DataFrame,
    limits: Mapping[SourcePartition, Limits],
    bucket_ms: int,
    *,
    distinct: bool = False,
) -> DataFrame:
    rows: Column = F.lit(1)
    timestamp = F.col("timestamp_ms")
    moment = timestamp
    if distinct:
        records = records.groupBy("topic_id", "partition", "offset").agg(
            F.min("timestamp_ms").alias("timestamp_ms"),
            F.max("timestamp_ms").alias("last_timestamp_ms"),
            F.count(F.lit(1)).alias("rows"),
        )
        rows = F.col("rows")
        # Rows of one record with different timestamps match no record of the log.
        moment = F.when(timestamp == F.col("last_timestamp_ms"), timestamp)
    digest = provenance_hash(F.col("topic_id"), F.col("partition"), F.col("offset"))
    high, low = hash_sums(digest)
    row_high, row_low = hash_sums(digest, times=rows) if distinct else (high, low)
    moment_high, moment_low = hash_sums(F.xxhash64(F.col("offset"), moment))
    return (
        records.groupBy(
            "topic_id",
            "partition",
            (timestamp - F.pmod(timestamp, F.lit(bucket_ms))).alias("bucket"),
            region_of(limits).alias("region"),
        )
        .agg(
            F.count(F.lit(1)).alias("count"),
            F.sum(rows).alias("rows"),
            high.alias("high"),
            low.alias("low"),
            row_high.alias("row_high"),
            row_low.alias("row_low"),
            moment_high.alias("moment_high"),
            moment_low.alias("moment_low"),
            F.min("offset").alias("first_offset"),
            F.max("offset").alias("last_offset"),
        )
        .withColumn("side", F.lit(side.value))
    )


def region_of(limits: Mapping[SourcePartition, Limits]) -> Column:
    """The number of an offset's region; `_UNKNOWN` where the partition has no limits."""
    offset = F.col("offset")

    def limit(of: Callable[[Limits], int]) -> Column:
        by_topic: dict[str, dict[int, int]] = {}
        for source, limits_of_source in limits.items():
            by_topic.setdefault(source.topic_id, {})[source.partition] = of(limits_of_source)
        # An array of literals is folded into one constant: a look-up costs an index access,
        # however many partitions there are.
        return _choose(
            F.col("topic_id"),
            {
                topic_id: F.get(
                    F.array(*(F.lit(values.get(p)).cast("bigint") for p in range(max(values) + 1))),
                    F.col("partition"),
                )
                for topic_id, values in by_topic.items()
            },
        )

    return (
        F.when(offset >= limit(lambda each: each.next), _REGIONS.index(Region.AHEAD))
        .when(offset < limit(lambda each: each.start), _REGIONS.index(Region.BEFORE))
        .when(offset < limit(lambda each: each.log_start), _REGIONS.index(Region.PURGED))
        .when(offset < limit(lambda each: each.next), _REGIONS.index(Region.SETTLED))
        .otherwise(_UNKNOWN)
    )


def _choose(key: Column, values: Mapping[str, Column]) -> Column:
    chosen: Column | None = None
    for name, value in values.items():
        chosen = F.when(key == name, value) if chosen is None else chosen.when(key == name, value)
    return chosen if chosen is not None else F.lit(None)


def run_job(action: Callable[[], Result]) -> Result:
    """Runs a Spark job and says in one sentence why it failed."""
    try:
        return action()
    except (PySparkException, Py4JJavaError) as error:
        text = str(error)
        if "data loss" in text.lower() or "OffsetOutOfRange" in text:
            raise Undecided(
                "the log lost records while the audit was reading it: retention, most likely",
                hint="run the audit again",
            ) from error
        first = next((line for line in text.splitlines() if line.strip()), type(error).__name__)
        raise Unavailable(
            f"the audit could not read log and table: {first.strip()[:300]}",
            hint="are Kafka and the sink up?",
        ) from error
