"""A topic of orders and a pipeline into Parquet files: enough for what no sink decides."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lossless.pipeline.pipeline import Pipeline
from topics import produce

if TYPE_CHECKING:
    from pyspark.sql import Row, SparkSession


@dataclass(slots=True, kw_only=True)
class Shop:
    """A topic of numbered orders and the folder of a contract."""

    folder: Path
    topic: str
    bootstrap_servers: str
    spark: SparkSession

    def contract(self, lines: str = "", *, topics: str | None = None, sink: str = "") -> Path:
        path = self.folder / "lossless.toml"
        path.write_text(
            f"""
[cluster]
client.bootstrap.servers = "{self.bootstrap_servers}"
[pipelines.orders]
{topics or f'topics = ["{self.topic}"]'}
format = "json"
schema = "number BIGINT NOT NULL, text STRING"
{lines}
[pipelines.orders.sink]
{sink or 'type = "parquet"'}
path = "./table"
"""
        )
        return path

    def pipeline(self, lines: str = "", **settings: Any) -> Pipeline:
        return Pipeline("orders", contract=self.contract(lines, **settings), spark=self.spark)

    def produce(self, numbers: range, *, partition: int = 0, topic: str | None = None) -> None:
        produce(
            self.bootstrap_servers,
            topic or self.topic,
            ((partition, str(n).encode(), order(n)) for n in numbers),
        )

    def rows(self) -> list[Row]:
        return self.spark.read.parquet(str(self.folder / "table")).orderBy("number").collect()

    def numbers(self) -> list[int]:
        return [row["number"] for row in self.rows()]


MakeShop = Callable[..., Shop]


def order(number: int) -> bytes:
    return json.dumps({"number": number, "text": f"order {number}"}).encode()
