"""A user's transform: what it may do, and what happens to the record it fails on."""

from __future__ import annotations

import json

import pytest

from lossless.errors import BadInput
from lossless.pipeline.outcomes import DEAD_LETTER
from shop import MakeShop, Shop
from topics import produce


def transformed(orders: Shop, body: str, name: str) -> str:
    """Writes a module with a transform beside the contract; gives the contract's line."""
    (orders.folder / f"{name}.py").write_text(
        "from pyspark.sql import functions as F\n" + body.strip() + "\n"
    )
    return f'transform = "{name}:transform"'


def test_what_a_transform_drops_is_counted_as_filtered(shop: MakeShop) -> None:
    orders = shop()
    orders.produce(range(10))
    line = transformed(orders, "def transform(rows): return rows.where('number % 2 = 0')", "evens")
    ledger = orders.pipeline(line).run(once=True)
    (position,) = ledger.positions.values()
    assert orders.numbers() == [0, 2, 4, 6, 8]
    assert (position.read.count, position.stored.count, position.filtered.count) == (10, 5, 5)


def test_several_rows_from_one_record_count_once_as_stored(shop: MakeShop) -> None:
    orders = shop()
    orders.produce(range(4))
    body = """
def transform(rows):
    return rows.withColumn("part", F.explode(F.array(F.lit("a"), F.lit("b"))))
"""
    ledger = orders.pipeline(transformed(orders, body, "twice")).run(once=True)
    (position,) = ledger.positions.values()
    assert (position.rows, position.stored.count, position.filtered.count) == (8, 4, 0)


def test_a_record_that_the_transform_fails_on_becomes_a_dead_letter(shop: MakeShop) -> None:
    orders = shop(partitions=2)
    orders.produce(range(20), partition=0)
    orders.produce(range(20, 40), partition=1)
    body = """
@F.udf("bigint")
def picky(number):
    if number in (7, 33):
        raise ValueError(f"cannot stand {number}")
    return number

def transform(rows):
    return rows.withColumn("number", picky("number"))
"""
    ledger = orders.pipeline(transformed(orders, body, "picky")).run(once=True)
    assert orders.numbers() == [n for n in range(40) if n not in (7, 33)]
    assert sum(p.dead.count for p in ledger.positions.values()) == 2
    files = (orders.folder / "table").glob("lossless_commit=*/_dead_letters/*.parquet")
    written = orders.spark.read.parquet(*[str(path) for path in files])
    letters = [json.loads(row[DEAD_LETTER]) for row in written.collect()]
    messages = {letter["headers"]["kafka_dlt-exception-message"] for letter in letters}
    assert messages == {"ValueError: cannot stand 7", "ValueError: cannot stand 33"}
    assert {letter["headers"]["kafka_dlt-exception-fqcn"] for letter in letters} == {
        "lossless.TransformFailed"
    }


def test_a_transform_that_fails_on_every_record_stops_the_run(shop: MakeShop) -> None:
    orders = shop()
    orders.produce(range(5))
    produce(orders.bootstrap_servers, orders.topic, [(0, b"k", b"not json")])
    body = """
@F.udf("bigint")
def broken(number):
    raise KeyError("no such thing")

def transform(rows):
    return rows.withColumn("number", broken("number"))
"""
    with pytest.raises(BadInput, match="fails on every record: KeyError"):
        orders.pipeline(transformed(orders, body, "broken")).run(once=True)
    assert not list((orders.folder / "table").glob("lossless_commit=*2"))


def test_a_transform_that_drops_provenance_is_refused_with_the_line_to_add(
    shop: MakeShop,
) -> None:
    orders = shop()
    line = transformed(orders, "def transform(rows): return rows.select('number')", "drops")
    with pytest.raises(BadInput, match=r'drops the column _lossless[\s\S]*select\("_lossless"'):
        orders.pipeline(line).run(once=True)
    assert not (orders.folder / "table").exists()


def test_a_transform_that_raises_before_any_record_is_refused(shop: MakeShop) -> None:
    orders = shop()
    line = transformed(orders, "def transform(rows): return rows.select('nothing')", "raises")
    with pytest.raises(BadInput, match=r"raises:transform fails before it sees a record"):
        orders.pipeline(line).run(once=True)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('transform = "nowhere_at_all:clean"', "no module 'nowhere_at_all'"),
        ('transform = "json:nothing_there"', "json has no function nothing_there"),
    ],
)
def test_a_transform_that_cannot_be_found_is_refused(
    line: str, message: str, shop: MakeShop
) -> None:
    with pytest.raises(BadInput, match=message):
        shop().pipeline(line).run(once=True)
