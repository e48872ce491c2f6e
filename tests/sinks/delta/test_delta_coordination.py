"""Storage on which two drivers can publish the same version is refused, whatever it is called."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pytest
from delta_driver import ROWS

from lossless.errors import BadInput
from lossless.pipeline.ledger import Ledger
from lossless.pipeline.sinks.delta import DeltaSink

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

OVERWRITING = Path(__file__).parent / "OverwritingFileSystem.java"
LOG_STORE = "spark.delta.logStore.viewfs.impl"


@pytest.fixture
def remote_path(spark: SparkSession, tmp_path: Path) -> Iterator[str]:
    """A path that is not of the scheme `file`, so that no local lock guards it."""
    # Another name each time: Hadoop remembers file systems, and Delta the logs of tables.
    name = f"lossless-{secrets.token_hex(4)}"
    mount = f"fs.viewfs.mounttable.{name}.link./data"
    hadoop = cast(Any, spark._jsc).hadoopConfiguration()
    hadoop.set(mount, tmp_path.as_uri())
    yield f"viewfs://{name}/data/orders"
    hadoop.unset(mount)


@pytest.fixture
def log_store(spark: SparkSession) -> Iterator[Any]:
    """Sets the class of the log store for `remote_path`."""
    live = cast(Any, spark._jsc).sc().conf()
    yield lambda name: live.set(LOG_STORE, name)
    live.remove(LOG_STORE)


@pytest.fixture
def overwriting_path(spark: SparkSession, tmp_path: Path) -> Iterator[str]:
    """A path on a file system that creates files as an object store does."""
    jvm = cast(Any, spark._jvm)
    hadoop = cast(Any, spark._jsc).hadoopConfiguration()
    before = hadoop.getClassLoader()
    compiler = jvm.org.codehaus.janino.SimpleCompiler()  # Spark ships it, to compile its queries
    compiler.setParentClassLoader(before)
    compiler.cook(OVERWRITING.read_text())
    hadoop.setClassLoader(compiler.getClassLoader())
    hadoop.set("fs.overwriting.impl", OVERWRITING.stem)
    live = cast(Any, spark._jsc).sc().conf()
    store = "spark.delta.logStore.overwriting.impl"
    live.set(store, "io.delta.storage.S3SingleDriverLogStore")
    yield f"overwriting://{tmp_path}/orders"
    live.remove(store)
    hadoop.unset("fs.overwriting.impl")
    hadoop.setClassLoader(before)


def test_a_log_store_that_coordinates_only_its_own_jvm_is_refused(
    spark: SparkSession, overwriting_path: str, tmp_path: Path
) -> None:
    """Delta's default for s3 and s3a."""
    sink = DeltaSink(spark, "orders", overwriting_path)
    assert sink.ledger() == Ledger()
    with pytest.raises(BadInput, match=r"S3SingleDriverLogStore both succeed") as refusal:
        sink.prepare(ROWS, add_columns=False)
    assert "S3DynamoDBLogStore" in str(refusal.value)
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


def test_a_log_store_that_publishes_by_an_exclusive_rename_is_accepted(
    spark: SparkSession, remote_path: str, tmp_path: Path, log_store: Any
) -> None:
    log_store("io.delta.storage.HDFSLogStore")
    sink = DeltaSink(spark, "orders", remote_path)
    sink.prepare(ROWS, add_columns=False)
    assert sorted(path.name for path in (tmp_path / "orders").iterdir()) == ["_delta_log"]


def test_a_log_store_that_cannot_be_examined_is_refused(
    spark: SparkSession, remote_path: str, log_store: Any
) -> None:
    log_store("org.apache.spark.sql.delta.storage.HDFSLogStore")
    with pytest.raises(BadInput, match=r"is not an io.delta.storage.LogStore"):
        DeltaSink(spark, "orders", remote_path).prepare(ROWS, add_columns=False)
