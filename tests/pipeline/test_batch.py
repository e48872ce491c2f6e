"""Which records a batch blames when its transform fails."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import PythonException
from pyspark.sql import functions as F

from lossless.errors import Unavailable
from lossless.pipeline.batch import Batcher
from lossless.pipeline.decode import decoder
from lossless.pipeline.outcomes import DEAD_LETTER, PROVENANCE, opened, receipts
from lossless.pipeline.sinks.interface import Staged
from lossless.pipeline.transform import OffsetRange, Transform

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

SOURCE = (
    "key binary, value binary, topic string, partition int, offset long, timestamp timestamp, "
    "headers array<struct<key:string,value:binary>>"
)
RECORDS = 4


@dataclass
class Shelf:
    """A sink that keeps what it is given in memory."""

    numbers: list[int] = field(default_factory=list)
    messages: list[str] = field(default_factory=list)

    def stage(self, outcomes: DataFrame, *, may_expand: bool) -> Staged:
        header = opened(F.col(DEAD_LETTER))["headers"]["kafka_dlt-exception-message"]
        rows = outcomes.select("number", header.alias("message"), PROVENANCE).collect()
        self.numbers = sorted(row["number"] for row in rows if row["message"] is None)
        self.messages = [row["message"] for row in rows if row["message"] is not None]
        return Staged(receipts=receipts(outcomes, may_expand=may_expand))


def stage(spark: SparkSession, batcher: Batcher) -> None:
    now = datetime(2026, 1, 2, tzinfo=UTC)
    rows: list[Any] = [
        (b"k", b'{"number":%d}' % n, "orders", 0, n, now, None) for n in range(RECORDS)
    ]
    ranges = [OffsetRange("orders", 0, 0, RECORDS)]
    batcher.stage(spark.createDataFrame(rows, SOURCE), {"orders": "id"}, ranges)


def batcher(shelf: Shelf, transform: Transform, *, retry_max_s: float = 600) -> Batcher:
    return Batcher(
        decoder=decoder("json", "number BIGINT"),
        transform=transform,
        sink=shelf,  # type: ignore[arg-type]
        group="orders",
        retry_max_s=retry_max_s,
    )


def failing_on(number: int, raised: str, *, unless: Path | None = None) -> Transform:
    """Raises on one number what `raised` evaluates to, unless the file exists."""

    @F.udf(returnType="bigint", useArrow=False)
    def picky(found: int) -> int:
        if found == number and not (unless and unless.exists()):
            raise eval(raised)
        return found

    def transform(rows: DataFrame) -> DataFrame:
        checked: Column = picky("number")
        return rows.withColumn("number", checked)

    return transform


def test_an_unreachable_service_is_tried_again_and_no_record_is_blamed(
    spark: SparkSession, tmp_path: Path
) -> None:
    shelf, is_back = Shelf(), tmp_path / "is back"
    made = batcher(shelf, failing_on(2, 'ConnectionError("refused")', unless=is_back))
    with pytest.raises(PythonException, match="ConnectionError: refused"):
        stage(spark, made)  # the runner tries again
    is_back.touch()
    stage(spark, made)
    assert (shelf.numbers, shelf.messages) == ([0, 1, 2, 3], [])


def test_a_record_that_is_never_reached_becomes_a_dead_letter_when_patience_ends(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lossless.pipeline.batch.PATIENCE", 0)
    shelf = Shelf()
    stage(spark, batcher(shelf, failing_on(2, 'TimeoutError("no answer")')))
    assert (shelf.numbers, shelf.messages) == ([0, 1, 3], ["TimeoutError: no answer"])


def test_a_record_is_blamed_only_when_it_fails_twice_in_the_same_way(spark: SparkSession) -> None:
    shelf = Shelf()
    moody = """__import__("random").choice([ValueError, KeyError])(
        "".join(__import__("random").choices("abcdefgh", k=20))
    )"""
    with pytest.raises(Unavailable, match="offset 2, and not in the same way when it was tried"):
        stage(spark, batcher(shelf, failing_on(2, moody)))
    stage(spark, batcher(shelf, failing_on(2, 'ValueError(f"at {id(object()):#x}")')))
    assert shelf.numbers == [0, 1, 3]


def test_the_search_for_records_ends_with_retry_max_s(spark: SparkSession) -> None:
    made = batcher(Shelf(), failing_on(2, 'ValueError("no")'), retry_max_s=-1)
    with pytest.raises(Unavailable, match="were not found within retry_max_s"):
        stage(spark, made)
