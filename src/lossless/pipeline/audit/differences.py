"""Comparing single offsets, only in the ranges that do not balance.

Log, table and dead letters of a range are brought together by offset; what is once in the log and
once in the table (or among the letters) is dropped in Spark, so that only differences come back.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import reduce
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from lossless.pipeline.audit.balance import Examination, OffsetRange
from lossless.pipeline.audit.log import AuditedLog
from lossless.pipeline.audit.model import Difference, Finding, FindingKind
from lossless.pipeline.audit.scan import records_of_log, records_of_table, run_job
from lossless.pipeline.ledger import SourcePartition

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

# More than a person reads; beyond it the counts still stand and the report says so.
DIFFERENCES_MAX = 200_000

Ranges = Mapping[SourcePartition, OffsetRange]


class DifferenceSearch:
    def __init__(
        self, spark: SparkSession, log: AuditedLog, rows: DataFrame, letters: DataFrame
    ) -> None:
        self._spark = spark
        self._log = log
        self._rows = rows
        self._letters = letters

    def within(
        self, examinations: Sequence[Examination]
    ) -> tuple[dict[SourcePartition, list[Difference]], bool]:
        """Differences by partition, and whether there were too many to bring them all."""
        found: dict[SourcePartition, list[Difference]] = {}
        cut = False
        for ranges, only_outcomes in (
            ({e.evidence.source: e.compare for e in examinations if e.compare}, False),
            (
                {
                    e.evidence.source: OffsetRange(first=e.next_offset_after, end=None)
                    for e in examinations
                    if e.beyond
                },
                True,
            ),
            (
                {
                    e.evidence.source: OffsetRange(first=0, end=e.position.start_offset)
                    for e in examinations
                    if e.before
                },
                True,
            ),
        ):
            if not ranges:
                continue
            expected = self._only_outcomes() if only_outcomes else _as_expected(examinations)
            rows = self._compare(examinations, ranges, expected)
            cut |= len(rows) > DIFFERENCES_MAX
            for source, difference in rows[:DIFFERENCES_MAX]:
                found.setdefault(source, []).append(difference)
        return found, cut

    @staticmethod
    def _only_outcomes() -> Column:
        return F.col("rows") + F.col("letters") == 0

    def _compare(
        self, examinations: Sequence[Examination], ranges: Ranges, expected: Column
    ) -> list[tuple[SourcePartition, Difference]]:
        sides = [
            _side(records_of_table(self._rows).where(inside(ranges)), rows=1),
            _side(records_of_table(self._letters).where(inside(ranges)), letters=1),
        ]
        log_ranges = _log_ranges(examinations, ranges)
        log = self._log.frame(self._spark, log_ranges)
        if log is not None:
            sides.append(_side(records_of_log(log, log_ranges, F.col("key")), logged=1))
        together = reduce(lambda left, right: left.unionByName(right), sides)
        compared = (
            together.groupBy("topic_id", "partition", "offset")
            .agg(
                F.sum("logged").alias("logged"),
                F.sum("rows").alias("rows"),
                F.sum("letters").alias("letters"),
                F.max("key").alias("key"),
                F.max("logged_at_ms").alias("logged_at_ms"),
                F.min("stored_at_ms").alias("first_stored_at_ms"),
                F.max("stored_at_ms").alias("last_stored_at_ms"),
            )
            # Of a record with several rows, the timestamp that is not the log's.
            .withColumn(
                "stored_at_ms",
                F.when(
                    F.col("first_stored_at_ms") == F.col("logged_at_ms"),
                    F.col("last_stored_at_ms"),
                ).otherwise(F.col("first_stored_at_ms")),
            )
            .where(~expected)
            .orderBy("topic_id", "partition", "offset")
            .limit(DIFFERENCES_MAX + 1)
        )
        sources = {(s.topic_id, s.partition): s for s in ranges}
        return [
            (
                sources[row["topic_id"], row["partition"]],
                Difference(
                    offset=row["offset"],
                    logged=row["logged"],
                    rows=row["rows"],
                    letters=row["letters"],
                    key=bytes(row["key"]) if row["key"] is not None else None,
                    logged_at_ms=row["logged_at_ms"],
                    stored_at_ms=row["stored_at_ms"],
                ),
            )
            for row in run_job(compared.collect)
        ]


def _side(records: DataFrame, *, logged: int = 0, rows: int = 0, letters: int = 0) -> DataFrame:
    timestamp = F.col("timestamp_ms")
    nothing = F.lit(None).cast("bigint")
    return records.select(
        "topic_id",
        "partition",
        "offset",
        F.lit(logged).alias("logged"),
        F.lit(rows).alias("rows"),
        F.lit(letters).alias("letters"),
        (F.col("key") if logged else F.lit(None).cast("binary")).alias("key"),
        (timestamp if logged else nothing).alias("logged_at_ms"),
        (nothing if logged else timestamp).alias("stored_at_ms"),
    )


def _is_source(source: SourcePartition) -> Column:
    return (F.col("topic_id") == source.topic_id) & (F.col("partition") == source.partition)


def inside(ranges: Ranges) -> Column:
    """Whether a record is within the range of its partition."""

    def one(source: SourcePartition, offsets: OffsetRange) -> Column:
        above = _is_source(source) & (F.col("offset") >= offsets.first)
        return above if offsets.end is None else above & (F.col("offset") < offsets.end)

    return reduce(_or, (one(source, offsets) for source, offsets in ranges.items()))


def _or(left: Column, right: Column) -> Column:
    return left | right


def _log_ranges(
    examinations: Sequence[Examination], ranges: Ranges
) -> dict[SourcePartition, tuple[int, int]]:
    clipped = {}
    for examination in examinations:
        source, log = examination.evidence.source, examination.evidence.log
        if source in ranges and log is not None:
            offsets = ranges[source]
            end = log.end if offsets.end is None else min(offsets.end, log.end)
            clipped[source] = (max(offsets.first, log.start), end)
    return clipped


def _as_expected(examinations: Sequence[Examination]) -> Column:
    """True where log and outcomes agree: nothing to report about such an offset."""
    logged, letters = F.col("logged"), F.col("letters")
    same_time = F.col("logged_at_ms").eqNullSafe(F.col("stored_at_ms"))

    def agrees(examination: Examination) -> Column:
        rows = F.least(F.col("rows"), F.lit(1)) if examination.expands else F.col("rows")
        once = rows + letters == 1
        evidence = examination.evidence
        if evidence.log is None:
            return once
        gone = F.lit(True) if evidence.compacted else F.col("offset") < evidence.log.start
        return once & (((logged == 1) & same_time) | ((logged == 0) & gone))

    return _by_source(examinations, agrees)


def _by_source(
    examinations: Sequence[Examination], condition: Callable[[Examination], Column]
) -> Column:
    return reduce(
        _or, (_is_source(e.evidence.source) & condition(e) for e in examinations if e.compare)
    )


def unknown_sources(
    rows: DataFrame, letters: DataFrame, strangers: Collection[tuple[str | None, int | None]]
) -> list[Finding]:
    """Rows and letters of topic ids and partitions that neither ledger nor topics know."""
    strange = reduce(
        _or,
        (
            F.col("topic_id").eqNullSafe(F.lit(topic_id))
            & F.col("partition").eqNullSafe(F.lit(partition))
            for topic_id, partition in strangers
        ),
    )
    findings = []
    for frame, where in ((rows, "in the table"), (letters, "among the dead letters")):
        found = (
            records_of_table(frame)
            .where(strange)
            .groupBy("topic_id", "partition", "offset")
            .agg(F.count(F.lit(1)).alias("copies"), F.max("timestamp_ms").alias("timestamp_ms"))
            .orderBy("topic_id", "partition", "offset")
            .limit(DIFFERENCES_MAX)
        )
        findings += [
            Finding(
                kind=FindingKind.UNKNOWN_SOURCE,
                topic="(unknown)",
                topic_id=row["topic_id"] or "(none)",
                partition=row["partition"] if row["partition"] is not None else -1,
                offset=row["offset"],
                records=row["copies"],
                timestamp_ms=row["timestamp_ms"],
                detail=where,
            )
            for row in run_job(found.collect)
        ]
    return findings
