"""What is written to a parquet table, and what is found there."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as T

from lossless.pipeline.ledger import Ledger, Position, SourcePartition
from lossless.pipeline.outcomes import (
    DEAD_LETTER,
    DEAD_LETTER_TYPE,
    PROVENANCE,
    PROVENANCE_TYPE,
    row_schema,
)
from lossless.pipeline.sinks.interface import Staged
from lossless.pipeline.sinks.parquet import ParquetSink
from lossless.tally import Tally, record_hash
from outcomes_from import outcomes_from

TOPIC_ID = "m8hGqD1bQ0uK2v7n4eXw5A"
SOURCE = SourcePartition("orders", TOPIC_ID, 0)
SCHEMA = T.StructType(
    [
        T.StructField("id", T.LongType()),
        T.StructField("name", T.StringType()),
        T.StructField(PROVENANCE, PROVENANCE_TYPE),
        T.StructField(DEAD_LETTER, DEAD_LETTER_TYPE),
    ]
)
GROWN = T.StructType([SCHEMA.fields[0], T.StructField("price", T.DoubleType()), *SCHEMA.fields[1:]])
ROWS = row_schema(SCHEMA)


def provenance(offset: int) -> tuple[str, int, int, None]:
    return (TOPIC_ID, 0, offset, None)


def outcomes(
    spark: SparkSession, offsets: Sequence[int] = (), *, dead: Sequence[int] = ()
) -> DataFrame:
    rows = [(100 + offset, f"order {offset}", provenance(offset), None) for offset in offsets]
    letters = [
        (None, None, provenance(o), (b"key", b"{bad", None, {"kafka_dlt-exception-message": "bad"}))
        for o in dead
    ]
    return outcomes_from(spark.createDataFrame([*rows, *letters], SCHEMA))


def tally(*offsets: int) -> Tally:
    total = Tally()
    for offset in offsets:
        total = total + Tally(1, record_hash(TOPIC_ID, 0, offset))
    return total


def after(expected: Ledger, staged: Staged | None, *, next_offset: int) -> Ledger:
    position = expected.positions.get(SOURCE, Position(start_offset=0, next_offset=0))
    if staged is not None and (TOPIC_ID, 0) in staged.receipts:
        position = position.advanced(next_offset, staged.receipts[TOPIC_ID, 0])
    return expected.successor({SOURCE: position})


def deliver(
    sink: ParquetSink, batch: DataFrame, *, next_offset: int, may_expand: bool = False
) -> Ledger:
    staged = sink.stage(batch, may_expand=may_expand)
    expected = sink.ledger()
    successor = after(expected, staged, next_offset=next_offset)
    sink.commit(expected, successor, staged)
    return successor


def ids(rows: DataFrame) -> list[int]:
    return sorted(row["id"] for row in rows.select("id").collect())


def everything(path: Path) -> dict[str, bytes]:
    """All that readers can see, byte for byte."""
    return {
        str(file.relative_to(path)): file.read_bytes()
        for file in sorted(path.rglob("*"))
        if file.is_file() and file.relative_to(path).parts[0] != "_lossless"
    }


def staging_directories(path: Path) -> list[str]:
    return [d.name for d in (path / "_lossless").iterdir() if d.name != "lock"]


def commit_directory(path: Path, sequence: int) -> Path:
    return path / f"lossless_commit={sequence:010d}"
