"""A driver of a delta table, and what it writes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import types as T

from lossless.pipeline.ledger import Ledger, Position, SourcePartition
from lossless.pipeline.outcomes import DEAD_LETTER, DEAD_LETTER_TYPE, PROVENANCE, PROVENANCE_TYPE
from lossless.pipeline.sinks import delta_log
from lossless.pipeline.sinks.delta import DeltaSink
from lossless.pipeline.sinks.interface import Staged
from lossless.tally import Tally, record_hash
from outcomes_from import outcomes_from

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

TOPIC_ID = "q8F7Zc1mQ2eXo9nJ0kLh_w"
SOURCES = {p: SourcePartition("shop.orders", TOPIC_ID, p) for p in (0, 1)}
ROWS = T.StructType(
    [T.StructField("amount", T.LongType()), T.StructField(PROVENANCE, PROVENANCE_TYPE)]
)
At = tuple[int, int]  # partition, offset


def outcomes(
    spark: SparkSession, rows: Iterable[At], dead: Iterable[At] = (), schema: T.StructType = ROWS
) -> DataFrame:
    """Rows whose amount is ten times their offset, and dead letters."""
    wide = T.StructType([*schema.fields, T.StructField(DEAD_LETTER, DEAD_LETTER_TYPE)])
    values: list[dict[str, Any]] = [
        {"amount": offset * 10, PROVENANCE: (TOPIC_ID, partition, offset, None), DEAD_LETTER: None}
        for partition, offset in rows
    ]
    values += [
        {
            PROVENANCE: (TOPIC_ID, partition, offset, None),
            DEAD_LETTER: (b"key", b"{broken", [("h", b"1")], {"kafka_dlt-exception-message": "no"}),
        }
        for partition, offset in dead
    ]
    return outcomes_from(
        spark.createDataFrame(
            [tuple(each.get(name) for name in wide.fieldNames()) for each in values], wide
        )
    )


def after(expected: Ledger, staged: Staged) -> Ledger:
    """The ledger after a batch that read exactly what it stored and buried."""
    changed = {}
    for (_, partition), receipt in staged.receipts.items():
        source = SOURCES[partition]
        before = expected.positions.get(source, Position(start_offset=0, next_offset=0))
        full = replace(receipt, read=receipt.stored + receipt.dead)
        changed[source] = before.advanced(before.next_offset + full.read.count, full)
    return expected.successor(changed)


def tally_of(*records: At) -> Tally:
    total = Tally()
    for partition, offset in records:
        total = total + Tally(1, record_hash(TOPIC_ID, partition, offset))
    return total


def all_letters(spark: SparkSession, path: str) -> list[int]:
    """The sequences of all letters in the table, visible or not."""
    found = spark.read.format("delta").load(f"{path}_dlt").collect()
    return sorted(row["_sequence"] for row in found)


def parquet_files(path: str) -> set[str]:
    return {str(file.relative_to(path)) for file in Path(path).rglob("*.parquet")}


class Driver:
    """What a driver does: reads the ledger once, at its start, and goes on from there."""

    def __init__(self, spark: SparkSession, path: str, pipeline: str = "orders") -> None:
        self.spark = spark
        self.sink = DeltaSink(spark, pipeline, path)
        self.head = self.sink.ledger()
        self.sink.sweep()
        self.sink.prepare(ROWS, add_columns=False)

    def stage(self, rows: Iterable[At], dead: Iterable[At] = ()) -> Staged:
        return self.sink.stage(outcomes(self.spark, rows, dead), may_expand=False)

    def commit(self, staged: Staged) -> None:
        successor = after(self.head, staged)
        self.sink.commit(self.head, successor, staged)
        self.head = successor

    def write(self, rows: Iterable[At], dead: Iterable[At] = ()) -> None:
        self.commit(self.stage(rows, dead))

    @property
    def contents(self) -> tuple[list[At], list[At]]:
        """The rows and the dead letters that count."""
        return _records(self.sink.rows()), _records(self.sink.dead_letters())


def _records(frame: DataFrame) -> list[At]:
    found = frame.select(f"{PROVENANCE}.partition", f"{PROVENANCE}.offset").collect()
    return sorted((row["partition"], row["offset"]) for row in found)


@contextmanager
def before_commit(monkeypatch: pytest.MonkeyPatch, act: Callable[[], Any]) -> Iterator[None]:
    """Acts once, between the check of the ledger and the commit of the data table."""
    commit = delta_log.Transaction.commit
    acted: list[bool] = []

    def interrupted(self: delta_log.Transaction, *arguments: Any, **keywords: Any) -> int:
        if keywords.get("user_metadata") is not None and not acted:
            acted.append(True)
            act()
        return commit(self, *arguments, **keywords)

    with monkeypatch.context() as patch:
        patch.setattr(delta_log.Transaction, "commit", interrupted)
        # The other driver may not wait for the lock that this one holds: as on an object store.
        patch.setattr(delta_log.DeltaLog, "locked", _unlocked)
        yield
    assert acted, "nobody came between"


@contextmanager
def _unlocked(self: delta_log.DeltaLog) -> Iterator[None]:  # noqa: ARG001
    yield
