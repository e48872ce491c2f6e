"""What rows hold, against the hashes that they were written with (pipeline/contents.py).

The rest of the audit compares which records are there, not what became of them: a row whose amount
was changed is still one row of its record.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from lossless.pipeline.audit.balance import OffsetRange, expands
from lossless.pipeline.audit.differences import DIFFERENCES_MAX, inside
from lossless.pipeline.audit.model import Finding, FindingKind
from lossless.pipeline.audit.scan import run_job
from lossless.pipeline.contents import IS_ALTERED
from lossless.pipeline.ledger import ContentSum, Position, SourcePartition
from lossless.pipeline.outcomes import CONTENT_HASH, hash_sums, tally

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

NOT_COMPARED = (
    "compared: which records are there, by partition, offset and timestamp; what their rows hold "
    "is compared with --contents"
)
COUNTED_ONLY = (
    "the transform made several rows of a record: they are counted; whether one is there twice in "
    "place of another is compared with --contents"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Contents:
    """What comparing the contents of rows gave."""

    findings: Mapping[SourcePartition, list[Finding]]
    notes: list[str]
    cut: bool  # there are more differences than were looked at


def compare_contents(
    doubtful: DataFrame, positions: Mapping[SourcePartition, Position]
) -> Contents:
    """`doubtful` are the rows that do not match their hash or have none."""
    sources = {(s.topic_id, s.partition): s for s in positions}
    counted = doubtful.groupBy("topic_id", "partition", IS_ALTERED).agg(
        F.count(F.lit(1)).alias("rows"),
        F.min("offset").alias("first"),
        F.max("offset").alias("last"),
    )
    notes = []
    suspect: dict[SourcePartition, int | None] = {}  # rows without a hash: from which offset on
    for row in run_job(counted.collect):
        source = sources.get((row["topic_id"], row["partition"]))
        if source is None:
            continue  # rows of another pipeline, or findings of their own
        hashed_from = positions[source].hashed_from
        if row[IS_ALTERED]:
            suspect.setdefault(source, hashed_from)
            continue
        if hashed_from is not None and row["last"] >= hashed_from:
            suspect[source] = hashed_from
        if hashed_from is None or row["first"] < hashed_from:
            notes.append(
                f"{source}: rows without a hash of their contents, from offset {row['first']} on, "
                "were written by an earlier release: what they hold cannot be compared"
            )
    findings, cut = _altered(doubtful, suspect) if suspect else ({}, False)
    return Contents(findings=findings, notes=sorted(notes), cut=cut)


def compare_sums(hashes: DataFrame, positions: Mapping[SourcePartition, Position]) -> Contents:
    """Whether the rows of records that became several are those that were written.

    `hashes` are the rows' provenance and stored hashes. One row lost and another stored twice leave
    every count as it was. A transform may also make equal rows of one record: so the hashes are
    added up and compared with what the batches wrote.
    """
    notes, sums = [], dict[SourcePartition, ContentSum]()
    for source, position in sorted(positions.items()):
        if not expands(position):
            continue
        summed = position.content_sum
        if summed is not None:
            sums[source] = summed
        if summed is None or summed.first > position.start_offset:
            end = position.next_offset if summed is None else summed.first
            notes.append(
                f"{source}: of the rows below offset {end} no sum of contents was recorded: "
                "several rows of one record can only be counted there"
            )
    ranges = {source: OffsetRange(first=s.first, end=s.end) for source, s in sums.items()}
    if not ranges:
        return Contents(findings={}, notes=notes, cut=False)
    high, low = hash_sums(F.col(CONTENT_HASH))
    added_up = (
        hashes.where(inside(ranges))
        .groupBy("topic_id", "partition")
        .agg(high.alias("high"), low.alias("low"))
    )
    found = {
        (row["topic_id"], row["partition"]): tally(0, row["high"], row["low"]).hash
        for row in run_job(added_up.collect)
    }
    wrong = {
        source: offsets
        for source, offsets in ranges.items()
        if found.get((source.topic_id, source.partition), 0) != sums[source].hash
    }
    if not wrong:
        return Contents(findings={}, notes=notes, cut=False)
    findings, cut = _repeated(hashes, wrong)
    for source, offsets in wrong.items():
        if source not in findings:
            last = None if offsets.end is None else offsets.end - 1
            findings[source] = [
                Finding(
                    kind=FindingKind.ALTERED,
                    topic=source.topic,
                    topic_id=source.topic_id,
                    partition=source.partition,
                    offset=offsets.first,
                    last_offset=last,
                    detail="the hashes of the rows' contents do not add up to those written",
                )
            ]
    return Contents(findings=findings, notes=notes, cut=cut)


def _repeated(
    hashes: DataFrame, ranges: Mapping[SourcePartition, OffsetRange]
) -> tuple[dict[SourcePartition, list[Finding]], bool]:
    """Rows that are there more than once, where the rows are not those that were written."""
    listed = (
        hashes.where(inside(ranges))
        .groupBy("topic_id", "partition", "offset", CONTENT_HASH)
        .agg(
            F.count(F.lit(1)).alias("copies"),
            F.unix_millis(F.min("timestamp")).alias("timestamp_ms"),
        )
        .where("copies > 1")
        .orderBy("topic_id", "partition", "offset")
        .limit(DIFFERENCES_MAX + 1)
    )
    rows = run_job(listed.collect)
    sources = {(s.topic_id, s.partition): s for s in ranges}
    findings: dict[SourcePartition, list[Finding]] = {}
    for row in rows[:DIFFERENCES_MAX]:
        source = sources[row["topic_id"], row["partition"]]
        findings.setdefault(source, []).append(
            Finding(
                kind=FindingKind.DUPLICATED,
                topic=source.topic,
                topic_id=source.topic_id,
                partition=source.partition,
                offset=row["offset"],
                records=row["copies"] - 1,
                timestamp_ms=row["timestamp_ms"],
                detail=f"{row['copies']} equal rows of this record, and the hashes of the "
                "partition's rows do not add up to those written",
            )
        )
    return findings, len(rows) > DIFFERENCES_MAX


def _altered(
    doubtful: DataFrame, suspect: Mapping[SourcePartition, int | None]
) -> tuple[dict[SourcePartition, list[Finding]], bool]:
    conditions = F.lit(False)
    for source, hashed_from in suspect.items():
        wrong = F.col(IS_ALTERED)
        if hashed_from is not None:
            wrong = wrong | (F.col("offset") >= hashed_from)
        conditions = conditions | (
            (F.col("topic_id") == source.topic_id)
            & (F.col("partition") == source.partition)
            & wrong
        )
    listed = (
        doubtful.where(conditions)
        .withColumn("timestamp_ms", F.unix_millis("timestamp"))
        .orderBy("topic_id", "partition", "offset")
        .limit(DIFFERENCES_MAX + 1)
    )
    rows = run_job(listed.collect)
    sources = {(s.topic_id, s.partition): s for s in suspect}
    findings: dict[SourcePartition, list[Finding]] = {}
    for row in rows[:DIFFERENCES_MAX]:
        source = sources[row["topic_id"], row["partition"]]
        findings.setdefault(source, []).append(
            Finding(
                kind=FindingKind.ALTERED,
                topic=source.topic,
                topic_id=source.topic_id,
                partition=source.partition,
                offset=row["offset"],
                timestamp_ms=row["timestamp_ms"],
                detail="" if row[IS_ALTERED] else "the hash of its contents was removed",
            )
        )
    return findings, len(rows) > DIFFERENCES_MAX
