"""A pipeline under another name: refused until it takes the ledger over, and then continued."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from postgres_orders import TOPIC_ID, after, orders_schema, outcomes, query, stored, write

from lossless.errors import BadInput, Fenced
from lossless.pipeline.continuation import refuse_doubling
from lossless.pipeline.ledger import SourcePartition
from lossless.pipeline.sinks.postgres import PostgresSink

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SOURCE = SourcePartition("shop.orders", TOPIC_ID, 0)


def test_a_renamed_pipeline_continues_where_the_old_one_stopped(
    spark: SparkSession, sink: PostgresSink, dsn: str
) -> None:
    write(sink, outcomes(spark, [(1, "a")], dead=[1]), 2)
    before = sink.ledger()
    staged = sink.stage(outcomes(spark, [(2, "b")], start=2), may_expand=False)
    renamed = PostgresSink(spark, "shop-orders", dsn, "orders")
    with pytest.raises(BadInput, match="holds 1 row with provenance of ours") as refused:
        refuse_doubling("shop-orders", renamed, orders_schema(), [SOURCE])
    assert "lossless rename orders shop-orders" in (refused.value.hint or "")
    with pytest.raises(BadInput, match="payments has no ledger"):
        renamed.take_over("payments")

    assert renamed.take_over("orders") == before
    with pytest.raises(Fenced):
        sink.commit(before, after(before, 3, staged), staged)
    with pytest.raises(BadInput, match="orders has no ledger") as known:
        renamed.take_over("orders")
    assert known.value.hint == "pipelines that have one there: shop-orders"
    assert len(renamed.history()) == 1
    assert (renamed.dead_letters().count(), sink.dead_letters().count()) == (1, 0)
    write(renamed, outcomes(spark, [(2, "b")], start=2), 3)
    assert stored(dsn) == [(1, "a"), (2, "b")]

    # The ledger is lost: nothing says who wrote the rows.
    query(dsn, "DROP TABLE lossless_ledger")
    with pytest.raises(BadInput, match="no ledger there says which pipeline wrote them"):
        refuse_doubling("shop-orders", renamed, orders_schema(), [SOURCE])
    query(dsn, "DROP TABLE orders")
    refuse_doubling("shop-orders", renamed, orders_schema(), [SOURCE])
    query(dsn, "CREATE TABLE orders (order_id bigint, note text)")
    refuse_doubling("shop-orders", renamed, orders_schema(), [SOURCE])
