"""CPU time of the tasks that decode orders, without Kafka: `python -m benchmarks.decoding`.

Wall time means little on a busy machine. CPU time of the tasks' threads leaves out the compiler,
the garbage collector and the driver.
"""

from __future__ import annotations

import json
import statistics
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import click
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import functions as F

from benchmarks import orders
from benchmarks.measure import console
from lossless.pipeline.contents import hashed
from lossless.pipeline.decode import decoder
from lossless.pipeline.outcomes import IS_DEAD
from lossless.pipeline.session import build_session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


@click.command()
@click.option("--records", default=250_000, show_default=True)
@click.option("--runs", default=5, show_default=True)
def main(records: int, runs: int) -> None:
    settings = {"spark.driver.memory": "3g", "spark.ui.enabled": "false"}
    spark = build_session("decoding", master="local[2]", settings=settings)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        pq.write_table(_records(records), folder / "records.parquet", compression="none")
        (folder / "orders.json").write_text(json.dumps(orders.JSON_SCHEMA))
        source = spark.read.parquet(str(folder / "records.parquet"))
        order = F.from_json(F.col("value").cast("string"), orders.DDL).alias("order")
        bare = source.select(order).select("order.*")
        decoded = decoder("json", folder / "orders.json", group="orders").decode(source)
        work = {"from_json alone": bare, "decoded": decoded, "with hashes": hashed(decoded)}
        for what, took in _compare(spark, work, folder / "table", runs=runs).items():
            console.print(f"{what}: {took / records * 1e6:.2f} µs of CPU a record")
    spark.stop()


def _records(count: int) -> pa.Table:
    numbers = range(count)
    columns = {
        "key": pa.array([str(number).encode() for number in numbers]),
        "value": pa.array([orders.value(number) for number in numbers]),
        "headers": pa.nulls(count, HEADERS),
        "topic": pa.array(["orders"] * count),
        "topic_id": pa.array(["abcdefghijklmnopqrstuv"] * count),
        "partition": pa.array([0] * count, pa.int32()),
        "offset": pa.array(numbers, pa.int64()),
        "timestamp": pa.array([0] * count, pa.timestamp("us", tz="UTC")),
    }
    return pa.table(columns)


def _compare(
    spark: SparkSession, work: Mapping[str, DataFrame], table: Path, *, runs: int
) -> dict[str, float]:
    """Medians of the seconds that each takes, without storing anything and into parquet files."""
    times: dict[str, list[float]] = {}
    for run in range(-4, runs):
        for name, frame in work.items():
            parts = [IS_DEAD] if IS_DEAD in frame.columns else []
            for what in (name, f"{name}, into parquet"):
                before = _task_seconds(spark)
                if what == name:
                    frame.write.format("noop").mode("overwrite").save()
                else:
                    frame.write.parquet(str(table), mode="overwrite", partitionBy=parts)
                after = _task_seconds(spark)
                if run >= 0:
                    took = sum(spent - before.get(thread, 0) for thread, spent in after.items())
                    times.setdefault(what, []).append(took)
    return {what: statistics.median(each) for what, each in times.items()}


def _task_seconds(spark: SparkSession) -> dict[int, float]:
    """CPU time that each thread of the executor has spent."""
    threads = cast(Any, spark._jvm).java.lang.management.ManagementFactory.getThreadMXBean()
    found = {thread: threads.getThreadInfo(thread) for thread in threads.getAllThreadIds()}
    return {
        thread: threads.getThreadCpuTime(thread) / 1e9
        for thread, information in found.items()
        if information is not None and information.getThreadName().startswith("Executor task")
    }


if __name__ == "__main__":
    main()
