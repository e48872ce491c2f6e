"""What was acknowledged, record by record, from a file of verifiable producer events.

    {"name": "producer_send_success", "topic": …, "partition": …, "offset": …, "key": …, "value": …}

One event per line. Keys and values tell more than offsets do: after an unclean election another
record can stand at the offset that was acknowledged, and a retry without idempotence puts one
record at two. An event without a key, or without a value, agrees with any.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql import Window
from pyspark.sql import functions as F

from lossless.errors import BadInput
from lossless.pipeline.audit.model import Finding, FindingKind, LogBounds
from lossless.pipeline.audit.scan import run_job
from lossless.pipeline.ledger import SourcePartition

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SEND_SUCCESS = "producer_send_success"
LISTED_MAX = 200_000


@dataclass(frozen=True, slots=True, kw_only=True)
class AcknowledgedRecord:
    topic: str
    partition: int
    offset: int
    key: str | None
    value: str | None


@dataclass(slots=True)
class PartitionAcknowledged:
    """What a file says about one partition."""

    acknowledged: int = 0
    by_bucket: dict[int, int] = field(default_factory=dict)  # found in the log
    lost: int = 0
    findings: list[Finding] = field(default_factory=list)


def read_acknowledged_file(path: Path) -> list[AcknowledgedRecord]:
    records = []
    try:
        with path.open(encoding="utf-8") as lines:
            for number, line in enumerate(lines, start=1):
                if not line.strip():
                    continue
                event = _event(path, number, line)
                if event.get("name") == SEND_SUCCESS:
                    records.append(_record(path, number, event))
    except OSError as error:
        raise BadInput(f"{path} cannot be read: {error.strerror}") from error
    return records


def _event(path: Path, number: int, line: str) -> dict[str, Any]:
    try:
        event = json.loads(line)
    except ValueError as error:
        raise BadInput(f"{path}, line {number}: not JSON: {error}") from error
    if not isinstance(event, dict):
        raise BadInput(f"{path}, line {number}: not an event: {line.strip()[:80]}")
    return event


def _record(path: Path, number: int, event: Mapping[str, Any]) -> AcknowledgedRecord:
    try:
        return AcknowledgedRecord(
            topic=str(event["topic"]),
            partition=int(event["partition"]),
            offset=int(event["offset"]),
            key=_text(event.get("key")),
            value=_text(event.get("value")),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise BadInput(
            f"{path}, line {number}: a {SEND_SUCCESS} event without a proper {error}",
            hint='it needs "topic", "partition" and "offset"; "key" and "value" help',
        ) from error


def _text(value: object) -> str | None:
    return None if value is None else str(value)


def compare_with_log(
    spark: SparkSession,
    records: Sequence[AcknowledgedRecord],
    log: DataFrame | None,
    bounds: Mapping[SourcePartition, LogBounds],
    bucket_ms: int,
) -> dict[SourcePartition, PartitionAcknowledged]:
    """`log` is the whole log of the partitions in `bounds`, None when it is empty."""
    sources = {(s.topic, s.partition): s for s in bounds}
    found = {source: PartitionAcknowledged() for source in bounds}
    mine = [r for r in records if (r.topic, r.partition) in sources]
    for record in mine:
        found[sources[record.topic, record.partition]].acknowledged += 1
    # Below the log start nothing can be looked up: there the ledger is the witness.
    wanted = [r for r in mine if r.offset >= bounds[sources[r.topic, r.partition]].start]
    if not wanted:
        return found
    if log is None:
        absent = wanted
    else:
        frame = _frame(spark, wanted)
        logged = log.select(
            "topic",
            "partition",
            "offset",
            F.col("key").cast("string").alias("logged_key"),
            F.col("value").cast("string").alias("logged_value"),
            F.unix_millis("timestamp").alias("timestamp_ms"),
        )
        matched = _matched(frame, logged).persist()
        try:
            timestamp = F.col("timestamp_ms")
            bucket = (timestamp - F.pmod(timestamp, F.lit(bucket_ms))).alias("bucket")
            present = matched.where("present")
            for row in run_job(present.groupBy("topic", "partition", bucket).count().collect):
                source = sources[row["topic"], row["partition"]]
                found[source].by_bucket[row["bucket"]] = row["count"]
            lost = _not_elsewhere(matched, logged).select(*frame.columns).limit(LISTED_MAX)
            absent = [AcknowledgedRecord(**row.asDict()) for row in run_job(lost.collect)]
        finally:
            matched.unpersist()
        for finding, source in _duplicates(frame, logged, sources):
            found[source].findings.append(finding)
    for record in sorted(absent, key=lambda r: (r.topic, r.partition, r.offset)):
        source = sources[record.topic, record.partition]
        found[source].lost += 1
        found[source].findings.append(_lost(record, source, bounds[source]))
    return found


def _matched(acknowledged: DataFrame, logged: DataFrame) -> DataFrame:
    """The acknowledgements with what stands at their offsets, and whether that answers for them.

    A record of the log answers for one acknowledgement: of several for one offset only the first
    that it agrees with is `present`.
    """
    joined = acknowledged.join(logged, ["topic", "partition", "offset"], "left")
    agrees = F.col("timestamp_ms").isNotNull()
    for part in ("key", "value"):
        same = F.col(part) == F.col(f"logged_{part}")
        agrees &= F.coalesce(same, F.col(part).isNull())
    # An acknowledgement that names the value comes before one that would agree with any.
    one_by_one = Window.partitionBy("topic", "partition", "offset", "agrees").orderBy(
        F.col("value").desc_nulls_last(), F.col("key").desc_nulls_last()
    )
    return (
        joined.withColumn("agrees", agrees)
        .withColumn("nth", F.row_number().over(one_by_one))
        .withColumn("present", F.col("agrees") & (F.col("nth") == 1))
    )


def _not_elsewhere(matched: DataFrame, logged: DataFrame) -> DataFrame:
    """The acknowledgements that no record of the log answers for.

    A record that was acknowledged at an offset that it does not have may stand elsewhere, after a
    retry; but only a record that answers for no other acknowledgement counts for it. First come the
    acknowledgements that name the key: one without a key takes what they leave.
    """
    absent = matched.where("NOT present").drop("logged_key", "logged_value")
    values = absent.where("value IS NOT NULL").select("topic", "value").distinct()
    standing = logged.select("topic", "logged_key", "logged_value", F.lit(1).alias("spare"))
    answering = matched.where("present").select(
        "topic", "logged_key", "logged_value", F.lit(-1).alias("spare")
    )
    spare = (
        standing.unionByName(answering)
        .withColumnsRenamed({"logged_key": "key", "logged_value": "value"})
        .join(values, ["topic", "value"], "left_semi")
        .groupBy("topic", "key", "value")
        .agg(F.sum("spare").alias("spare"))
    )
    in_order = Window.partitionBy("topic", "key", "value").orderBy("partition", "offset")
    numbered = absent.withColumn("turn", F.row_number().over(in_order))
    is_spare = F.col("turn") <= F.coalesce(F.col("spare"), F.lit(0))
    keyed = (
        numbered.where("key IS NOT NULL AND value IS NOT NULL")
        .join(spare, ["topic", "key", "value"], "left")
        .withColumn("elsewhere", is_spare)
    )
    taken = keyed.where("elsewhere").select("topic", "value", F.lit(-1).alias("spare"))
    left = (
        spare.select("topic", "value", "spare")
        .unionByName(taken)
        .groupBy("topic", "value")
        .agg(F.sum("spare").alias("spare"))
    )
    others = (
        numbered.where("key IS NULL OR value IS NULL")
        .join(left, ["topic", "value"], "left")
        .withColumn("elsewhere", is_spare & F.col("value").isNotNull())
    )
    return keyed.unionByName(others).where("NOT elsewhere")


def _frame(spark: SparkSession, records: Sequence[AcknowledgedRecord]) -> DataFrame:
    import pyarrow as pa

    return spark.createDataFrame(
        pa.table(
            {
                "topic": pa.array([r.topic for r in records], pa.string()),
                "partition": pa.array([r.partition for r in records], pa.int32()),
                "offset": pa.array([r.offset for r in records], pa.int64()),
                "key": pa.array([r.key for r in records], pa.string()),
                "value": pa.array([r.value for r in records], pa.string()),
            }
        )
    )


def _lost(record: AcknowledgedRecord, source: SourcePartition, log: LogBounds) -> Finding:
    where = (
        f"the log ends at {log.end}"
        if record.offset >= log.end
        else "another record stands at this offset, or none"
    )
    return Finding(
        kind=FindingKind.LOST,
        topic=source.topic,
        topic_id=source.topic_id,
        partition=source.partition,
        offset=record.offset,
        key=record.key.encode() if record.key is not None else None,
        detail=f"value {record.value}: {where}" if record.value is not None else where,
    )


def _duplicates(
    acknowledged: DataFrame,
    logged: DataFrame,
    sources: Mapping[tuple[str, int], SourcePartition],
) -> list[tuple[Finding, SourcePartition]]:
    """Records that were acknowledged once and stand in the log more than once."""
    by_value = Window.partitionBy("topic", "value")
    once = (
        acknowledged.where(F.col("value").isNotNull())
        .withColumns(
            {
                "times": F.count(F.lit(1)).over(Window.partitionBy("topic", "key", "value")),
                "of_value": F.count(F.lit(1)).over(by_value),
                "of_value_with_key": F.count("key").over(by_value),
            }
        )
        # Beside others of its value, one without a key could be any of the records.
        .where("times = 1 AND (of_value = 1 OR of_value = of_value_with_key)")
        .select("topic", "key", "value")
    )
    copies = (
        logged.withColumnRenamed("logged_value", "value")
        .join(once, ["topic", "value"])
        .where("key IS NULL OR key = logged_key")
        .groupBy("topic", "value", "key")
        .agg(
            F.sort_array(F.collect_list(F.struct("partition", "offset", "timestamp_ms"))).alias(
                "at"
            )
        )
        .where(F.size("at") > 1)
        .limit(LISTED_MAX)
    )
    findings = []
    for row in run_job(copies.collect):
        first = row["at"][0]
        for copy in row["at"][1:]:
            source = sources[row["topic"], copy["partition"]]
            findings.append(
                (
                    Finding(
                        kind=FindingKind.DUPLICATED_IN_LOG,
                        topic=source.topic,
                        topic_id=source.topic_id,
                        partition=source.partition,
                        offset=copy["offset"],
                        key=row["key"].encode() if row["key"] is not None else None,
                        timestamp_ms=copy["timestamp_ms"],
                        detail=f"value {row['value']} stands at offset {first['offset']} of "
                        f"partition {first['partition']} too",
                    ),
                    source,
                )
            )
    return findings
