"""A pipeline under another name: refused until it takes the ledger over, and then continued."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from delta_driver import ROWS, SOURCES, Driver

from lossless.errors import BadInput, Fenced
from lossless.pipeline.continuation import refuse_doubling
from lossless.pipeline.sinks.delta import DeltaSink

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_a_renamed_pipeline_continues_where_the_old_one_stopped(
    spark: SparkSession, driver: Driver, path: str
) -> None:
    driver.write([(0, 0)], [(0, 1)])
    driver.write([(0, 2)])
    renamed = DeltaSink(spark, "shop-orders", path)
    with pytest.raises(BadInput, match="holds 2 rows with provenance of ours") as refused:
        refuse_doubling("shop-orders", renamed, ROWS, [SOURCES[0]])
    assert "shop.orders-0 offsets 0 to 2" in refused.value.what
    assert "lossless rename orders shop-orders" in (refused.value.hint or "")
    with pytest.raises(BadInput, match="payments has no ledger") as unknown:
        renamed.take_over("payments")
    assert "orders" in (unknown.value.hint or "")

    taken = renamed.take_over("orders")
    assert taken.positions == driver.head.positions
    assert taken.sequence == driver.head.sequence + 1
    assert renamed.take_over("orders") == taken  # after an interruption
    assert [entry.sequence for entry in renamed.history()] == [1, 2, 3]

    staged = driver.stage([(0, 3)])
    with pytest.raises(Fenced):
        driver.commit(staged)
    with pytest.raises(BadInput, match="continued by shop-orders"):
        DeltaSink(spark, "orders", path).ledger()

    successor = Driver(spark, path, "shop-orders")
    successor.write([(0, 3)], [(0, 4)])
    assert successor.contents == ([(0, 0), (0, 2), (0, 3)], [(0, 1), (0, 4)])

    again = DeltaSink(spark, "orders", path)
    assert again.take_over("shop-orders").positions == successor.head.positions
    assert again.dead_letters().count() == 2


def test_pipelines_with_other_topics_share_a_table_and_a_copied_table_is_refused(
    spark: SparkSession, driver: Driver, path: str
) -> None:
    other = DeltaSink(spark, "payments", path)
    refuse_doubling("payments", other, ROWS, [])
    driver.write([(0, 0)])
    refuse_doubling("payments", other, ROWS, [])

    copy = f"{path} copy"
    spark.read.format("delta").load(path).write.format("delta").save(copy)
    for pipeline, sources in (("orders", [SOURCES[0]]), ("payments", [])):
        with pytest.raises(BadInput, match="no ledger there says which pipeline wrote them"):
            refuse_doubling(pipeline, DeltaSink(spark, pipeline, copy), ROWS, sources)
