"""The sinks, one file each; `open_sink` gives the one that a contract names."""

from __future__ import annotations

from typing import TYPE_CHECKING, assert_never

from lossless.contract import (
    DeltaSinkContract,
    ParquetSinkContract,
    PipelineContract,
    PostgresSinkContract,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from lossless.pipeline.sinks.interface import Sink


def open_sink(spark: SparkSession, pipeline: PipelineContract) -> Sink:
    """Imports only the sink that is asked for: psycopg is not needed for a Delta table."""
    match pipeline.sink:
        case DeltaSinkContract(path=path):
            from lossless.pipeline.sinks.delta import DeltaSink

            return DeltaSink(spark, pipeline.name, path)
        case ParquetSinkContract(path=path):
            from lossless.pipeline.sinks.parquet import ParquetSink

            return ParquetSink(spark, pipeline.name, path)
        case PostgresSinkContract(dsn=dsn, table=table):
            from lossless.pipeline.sinks.postgres import PostgresSink

            return PostgresSink(spark, pipeline.name, dsn, table)
        case other:
            assert_never(other)
