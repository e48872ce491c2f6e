"""A table, and a driver of it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from delta_driver import Driver

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "orders [eu]")  # what a glob would trip over


@pytest.fixture
def driver(spark: SparkSession, path: str) -> Driver:
    return Driver(spark, path)
