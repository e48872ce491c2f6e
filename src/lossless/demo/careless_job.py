"""A common but unsafe job: Kafka to Delta by a plain append in `foreachBatch`.

    python -m lossless.demo.careless_job FOLDER BOOTSTRAP_SERVERS RECORDS_PER_BATCH [--once]

It runs until it is killed. With --once it stops when all existing records are written, then counts
how often each order is in the table. Spark writes its checkpoint after the batch: if the driver
dies in between, the batch is written again, and nothing in the table shows it.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from lossless.demo.folder import TOPIC, DemoFolder
from lossless.demo.orders import SCHEMA_DDL
from lossless.pipeline.crash_points import CrashPoints
from lossless.pipeline.session import build_session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

# Shorter than Kafka's default of a minute, to keep the demo short, and longer than an election: the
# job stops when a client gives up.
CLIENT_TIMEOUT_MS = 15_000


def main(folder: DemoFolder, bootstrap_servers: str, records_per_batch: int, *, once: bool) -> None:
    spark = build_session("careless", settings=folder.spark_settings())
    crash_points = CrashPoints.from_environment()
    rows = (
        spark.read.format("delta").load(str(folder.table)).count() if folder.table.exists() else 0
    )
    _print_event(event="started", offsets={"rows in the table": rows})

    def append(batch: DataFrame, _batch_id: int) -> None:
        batch.write.format("delta").mode("append").save(str(folder.table))
        crash_points.reached("after-commit")

    orders = (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", bootstrap_servers)
        .option("subscribe", TOPIC)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", records_per_batch)
        .option("kafka.request.timeout.ms", CLIENT_TIMEOUT_MS)
        .option("kafka.default.api.timeout.ms", CLIENT_TIMEOUT_MS)
        .option("fetchOffset.numRetries", 10)
        .load()
        .select(F.from_json(F.col("value").cast("string"), SCHEMA_DDL).alias("order"))
        .select("order.*")
    )
    writer = orders.writeStream.option("checkpointLocation", str(folder.checkpoint))
    trigger = writer.trigger(availableNow=True) if once else writer
    _watch(trigger.foreachBatch(append).start())
    _count_copies(spark, folder)
    spark.stop()


def _watch(query: StreamingQuery) -> None:
    """Prints an event per finished batch, in the format of `lossless run --log-format json`."""
    last = -1
    ended = False
    while not ended:
        ended = bool(query.awaitTermination(1))
        for progress in query.recentProgress:
            if progress["batchId"] > last and progress["numInputRows"]:
                last = progress["batchId"]
                _print_event(event="committed", records=progress["numInputRows"])


def _print_event(**event: object) -> None:
    print(json.dumps(event), file=sys.stderr, flush=True)


def _count_copies(spark: SparkSession, folder: DemoFolder) -> None:
    counted = spark.read.format("delta").load(str(folder.table)).groupBy("order_id").count()
    folder.copies.write_text(json.dumps({row[0]: row[1] for row in counted.collect()}))


if __name__ == "__main__":
    main(DemoFolder(Path(sys.argv[1])), sys.argv[2], int(sys.argv[3]), once="--once" in sys.argv)
