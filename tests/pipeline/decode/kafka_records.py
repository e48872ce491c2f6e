"""Records shaped as Spark's Kafka source gives them, and what a decoder made of them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F

from lossless.pipeline.decode import Decoder
from lossless.pipeline.outcomes import DEAD_LETTER, IS_DEAD, PROVENANCE

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row, SparkSession

SOURCE = (
    "key binary, value binary, topic string, partition int, offset long, timestamp timestamp, "
    "timestampType int, headers array<struct<key:string,value:binary>>, topic_id string"
)
TIMESTAMP = datetime(2026, 1, 2, 3, 4, 5, 678000, tzinfo=UTC)


def records(spark: SparkSession, values: Sequence[str | bytes | None]) -> DataFrame:
    rows = [
        (
            b"key",
            value.encode() if isinstance(value, str) else value,
            "shop.orders",
            3,
            offset,
            TIMESTAMP,
            0,
            [("trace", b"\x01")],
            "topic-id",
        )
        for offset, value in enumerate(values)
    ]
    return spark.createDataFrame(rows, SOURCE).coalesce(1)


def decoded(
    spark: SparkSession, decoder: Decoder, values: Sequence[str | bytes | None]
) -> list[Row]:
    """The outcomes of the values, in their order."""
    frame = decoder.decode(records(spark, values))
    # The columns of a dead letter mean nothing, and Python has no dates after the year 9999.
    frame = frame.withColumns(
        {name: F.when(~F.col(IS_DEAD), frame[f"`{name}`"]) for name in decoder.schema.names}
    )
    return sorted(frame.collect(), key=lambda row: row[PROVENANCE]["offset"])


def verdict(outcome: Row) -> dict[str, Any] | str:
    """The columns of a row that are not null, or `Name: message` of a dead letter."""
    letter = outcome[DEAD_LETTER] and json.loads(outcome[DEAD_LETTER])
    columns = {
        name: value
        for name, value in outcome.asDict(recursive=True).items()
        if name not in (PROVENANCE, DEAD_LETTER, IS_DEAD) and value is not None
    }
    assert outcome[IS_DEAD] == (letter is not None)
    if letter is None:
        return columns
    name = letter["headers"]["kafka_dlt-exception-fqcn"].removeprefix("lossless.")
    return f"{name}: {letter['headers']['kafka_dlt-exception-message']}"


def verdicts(
    spark: SparkSession, decoder: Decoder, values: Sequence[str | bytes | None]
) -> list[dict[str, Any] | str]:
    return [verdict(outcome) for outcome in decoded(spark, decoder, values)]


def schema_file(folder: Path, schema: object) -> Path:
    path = folder / "schema.json"
    path.write_text(schema if isinstance(schema, str) else json.dumps(schema))
    return path
