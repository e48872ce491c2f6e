"""A table, and two drivers of it."""

from __future__ import annotations

from pathlib import Path

import pytest
from parquet_writer import ROWS
from pyspark.sql import SparkSession

from lossless.pipeline.sinks.parquet import ParquetSink


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "orders"


@pytest.fixture
def sink(spark: SparkSession, path: Path) -> ParquetSink:
    opened = ParquetSink(spark, "orders", str(path))
    opened.prepare(ROWS, add_columns=False)
    return opened


@pytest.fixture
def another_driver(spark: SparkSession, path: Path, sink: ParquetSink) -> ParquetSink:  # noqa: ARG001
    """A second driver of the same pipeline."""
    return ParquetSink(spark, "orders", str(path))
