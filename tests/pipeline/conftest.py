"""The shop: see shop.py."""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from shop import MakeShop, Shop
from topics import create_topic

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def shop(lossless_cluster: Any, spark: SparkSession, tmp_path: Path) -> MakeShop:
    def make(*, partitions: int = 1, **config: str) -> Shop:
        made = Shop(
            folder=tmp_path,
            topic=f"orders-{uuid.uuid4().hex[:8]}",
            bootstrap_servers=lossless_cluster.bootstrap_servers,
            spark=spark,
        )
        create_topic(made.bootstrap_servers, made.topic, partitions=partitions, **config)
        return made

    return make
