"""Whether the log still holds the very records that were read (`--contents`).

An offset names a place, not a record. The scan compares timestamps as sums, which filtered records
prevent: they are in the log and nowhere else. Here the outcomes of such partitions are joined with
the log by offset, and dead letters also by their key and value, which both sides have.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from lossless.pipeline.audit.balance import Examination, OffsetRange, hides_timestamps
from lossless.pipeline.audit.differences import DIFFERENCES_MAX, inside
from lossless.pipeline.audit.log import AuditedLog
from lossless.pipeline.audit.model import Finding, FindingKind, Region
from lossless.pipeline.audit.scan import records_of_log, records_of_table, run_job
from lossless.pipeline.ledger import SourcePartition

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

Ranges = Mapping[SourcePartition, OffsetRange]
_PLACE = ["topic_id", "partition", "offset"]


@dataclass(frozen=True, slots=True, kw_only=True)
class OtherRecords:
    """Outcomes of other records than those that the log holds at their offsets."""

    findings: Mapping[SourcePartition, list[Finding]]
    cut: bool  # there are more than were looked at


def note_on_timestamps(examinations: Sequence[Examination]) -> list[str]:
    """What an audit without `--contents` did not compare."""
    hidden = sum(hides_timestamps(examination) for examination in examinations)
    if not hidden:
        return []
    where = "1 partition" if hidden == 1 else f"{hidden} partitions"
    note = f"timestamps were not compared in {where} with filtered records"
    return [f"{note}; --contents compares them record by record"]


def find_other_records(
    spark: SparkSession,
    log: AuditedLog,
    examinations: Sequence[Examination],
    rows: DataFrame,
    letters: DataFrame,
) -> OtherRecords:
    """Compares rows that the scan could not, and all dead letters, with the log."""
    of_rows = {
        e.evidence.source: settled
        for e in examinations
        if hides_timestamps(e) and (settled := _settled(e)) is not None
    }
    of_letters = {
        e.evidence.source: settled
        for e in examinations
        if (settled := _settled(e, only_letters=True)) is not None
    }
    if "value" not in letters.columns:
        of_letters = {}  # a table without a ledger has no dead letters
    outcomes = []
    if of_rows:
        outcomes.append(
            records_of_table(rows)
            .where(inside(of_rows))
            .select("*", F.lit(False).alias("is_letter"), F.lit(None).cast("bigint").alias("bytes"))
        )
    if of_letters:
        outcomes.append(
            records_of_table(letters, _content("key", "value").alias("bytes"))
            .where(inside(of_letters))
            .select(*_PLACE, "timestamp_ms", F.lit(True).alias("is_letter"), "bytes")
        )
    ranges = _united(of_rows, of_letters)
    frame = log.frame(spark, {s: (r.first, r.end or r.first) for s, r in ranges.items()})
    if frame is None or not outcomes:
        return OtherRecords(findings={}, cut=False)
    logged = records_of_log(
        frame,
        ranges,
        F.col("key"),
        _content("key", "value").alias("logged_bytes"),
    )
    return _compare(logged.withColumnRenamed("timestamp_ms", "logged_at_ms"), outcomes, ranges)


def _compare(logged: DataFrame, outcomes: Sequence[DataFrame], ranges: Ranges) -> OtherRecords:
    together = outcomes[0]
    for one in outcomes[1:]:
        together = together.unionByName(one)
    other_time = ~F.col("timestamp_ms").eqNullSafe(F.col("logged_at_ms"))
    other_bytes = F.col("is_letter") & (F.col("bytes") != F.col("logged_bytes"))
    found = (
        together.join(logged, _PLACE)
        .where(other_time | other_bytes)
        .select(*_PLACE, "logged_at_ms", "key", other_bytes.alias("other_bytes"))
        .distinct()
        .orderBy(*_PLACE)
        .limit(DIFFERENCES_MAX + 1)
    )
    sources = {(s.topic_id, s.partition): s for s in ranges}
    rows = run_job(found.collect)
    findings: dict[SourcePartition, list[Finding]] = {}
    for row in rows[:DIFFERENCES_MAX]:
        source = sources[row["topic_id"], row["partition"]]
        other = FindingKind.OTHER_RECORD if row["other_bytes"] else FindingKind.OTHER_TIMESTAMP
        findings.setdefault(source, []).append(
            Finding(
                kind=other,
                topic=source.topic,
                topic_id=source.topic_id,
                partition=source.partition,
                offset=row["offset"],
                key=bytes(row["key"]) if row["key"] is not None else None,
                timestamp_ms=row["logged_at_ms"],
            )
        )
    return OtherRecords(findings=findings, cut=len(rows) > DIFFERENCES_MAX)


def _content(key: str, value: str) -> Column:
    # Spark's xxhash64 passes over nulls: without the flag a key could become a value unseen.
    return F.xxhash64(F.col(key).isNull(), F.col(key), F.col(value))


def _settled(examination: Examination, *, only_letters: bool = False) -> OffsetRange | None:
    """The offsets that the pipeline has settled and the log still holds."""
    evidence, position = examination.evidence, examination.position
    if evidence.log is None:
        return None
    first = max(position.start_offset, evidence.log.start)
    end = min(position.next_offset, evidence.log.end)
    if only_letters:
        groups = [g for (_, region), g in evidence.letters.items() if region is Region.SETTLED]
        if not groups:
            return None
        first = max(first, min(group.first_offset for group in groups))
        end = min(end, max(group.last_offset for group in groups) + 1)
    return OffsetRange(first=first, end=end) if first < end else None


def _united(*of: Ranges) -> dict[SourcePartition, OffsetRange]:
    united: dict[SourcePartition, OffsetRange] = {}
    for source, offsets in (item for ranges in of for item in ranges.items()):
        known = united.get(source, offsets)
        united[source] = OffsetRange(
            first=min(known.first, offsets.first),
            end=max(known.end or known.first, offsets.end or offsets.first),
        )
    return united
