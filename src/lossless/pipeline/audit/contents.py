"""What rows hold, against the hashes that they were written with (pipeline/contents.py).

The rest of the audit compares which records are there, not what became of them: a row whose amount
was changed is still one row of its record.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from lossless.pipeline.audit.differences import DIFFERENCES_MAX
from lossless.pipeline.audit.model import Finding, FindingKind
from lossless.pipeline.audit.scan import run_job
from lossless.pipeline.contents import IS_ALTERED
from lossless.pipeline.ledger import Position, SourcePartition

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

NOT_COMPARED = (
    "compared: which records are there, by partition, offset and timestamp; what their rows hold "
    "is compared with --contents"
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
