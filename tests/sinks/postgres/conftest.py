"""A database, and a sink in it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from postgres_orders import orders_schema

from lossless.pipeline.sinks.postgres import PostgresSink

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from postgres_server import PostgresServer


@pytest.fixture
def dsn(postgres_server: PostgresServer) -> str:
    return postgres_server.dsn(postgres_server.create_database())


@pytest.fixture
def sink(spark: SparkSession, dsn: str) -> PostgresSink:
    sink = PostgresSink(spark, "orders", dsn, "orders")
    sink.prepare(orders_schema(), add_columns=False)
    return sink
