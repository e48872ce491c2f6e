"""What people run today, as its experts would set it up: Spark's connector and nothing else."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from benchmarks.orders import DDL

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def stream(
    spark: SparkSession,
    bootstrap_servers: str,
    topic: str,
    consumer: Mapping[str, str] | None = None,
    keep: Sequence[str] = (),
) -> DataFrame:
    """The same decode as ours: JSON by a schema, each value parsed once; `keep` adds columns of the
    record itself."""
    records = (
        spark.readStream.format("kafka")
        .options(**{f"kafka.{name}": value for name, value in (consumer or {}).items()})
        .option("kafka.bootstrap.servers", bootstrap_servers)
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .load()
    )
    order = F.from_json(F.col("value").cast("string"), DDL).alias("order")
    return records.select(order, *keep).select("order.*", *keep)


def files(records: DataFrame, format_: str, folder: Path) -> None:
    """A streaming query into files: no validation, no dead letters, no provenance, no ledger."""
    shutil.rmtree(folder, ignore_errors=True)
    query = (
        records.writeStream.format(format_)
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(availableNow=True)
        .start(str(folder / "table"))
    )
    query.awaitTermination()


def jdbc(
    records: DataFrame,
    url: str,
    login: Mapping[str, str],
    table: str,
    folder: Path,
) -> None:
    """foreachBatch and df.write.jdbc, tuned: batches of 10,000 rewritten into multi-row inserts."""
    shutil.rmtree(folder, ignore_errors=True)

    def append(batch: DataFrame, _batch_id: int) -> None:
        batch.write.jdbc(
            f"{url}?reWriteBatchedInserts=true",
            table,
            mode="append",
            properties={
                **login,
                "driver": "org.postgresql.Driver",
                "batchsize": "10000",
            },
        )

    query = (
        records.writeStream.foreachBatch(append)
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()


def scan_log(spark: SparkSession, bootstrap_servers: str, topic: str) -> int:
    records = (
        spark.read.format("kafka")
        .option("kafka.bootstrap.servers", bootstrap_servers)
        .option("subscribe", topic)
        .load()
    )
    return int(records.agg(F.sum("offset")).first()[0])  # type: ignore[index]


def scan_table(spark: SparkSession, path: str) -> int:
    rows = spark.read.format("delta").load(path)
    return int(rows.agg(F.sum("_lossless.offset")).first()[0])  # type: ignore[index]
