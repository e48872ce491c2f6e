"""Orders that are written to a PostgreSQL table, and what is found there."""

from __future__ import annotations

import datetime
import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import psycopg
from psycopg import sql
from pyspark.sql import types as T

from lossless.errors import LosslessError
from lossless.pipeline.ledger import Ledger, Position, SourcePartition, Tally
from lossless.pipeline.outcomes import DEAD_LETTER, DEAD_LETTER_TYPE, PROVENANCE, PROVENANCE_TYPE
from lossless.pipeline.sinks.interface import Staged
from lossless.pipeline.sinks.postgres import PostgresSink
from lossless.tally import record_hash
from outcomes_from import outcomes_from

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


TOPIC_ID = "kZ3vQ0m1T0uYl2Qb7Xw9Aw"
NOON = datetime.datetime(2026, 3, 1, 12, 0, 0, 123456, tzinfo=datetime.UTC)
ORDERS = "order_id long, note string"
Order = tuple[int, str | None]


def orders_schema(columns: str = ORDERS) -> T.StructType:
    fields = T.StructType.fromDDL(columns).fields
    return T.StructType([*fields, T.StructField(PROVENANCE, PROVENANCE_TYPE)])


def outcomes(
    spark: SparkSession,
    rows: Sequence[tuple[Any, ...]],
    *,
    columns: str = ORDERS,
    start: int = 0,
    dead: Sequence[int] = (),
    timestamp: datetime.datetime = NOON,
) -> DataFrame:
    """Rows at offsets from `start`, then dead letters at the offsets in `dead`."""
    schema = T.StructType(
        [*orders_schema(columns).fields, T.StructField(DEAD_LETTER, DEAD_LETTER_TYPE)]
    )
    width = len(schema.fields) - 2
    data = [
        (*row, (TOPIC_ID, 0, offset, timestamp), None) for offset, row in enumerate(rows, start)
    ]
    data += [(*[None] * width, (TOPIC_ID, 0, offset, timestamp), letter(offset)) for offset in dead]
    return outcomes_from(spark.createDataFrame(data, schema))


def letter(offset: int) -> tuple[Any, ...]:
    headers = {"kafka_dlt-exception-message": f"bad\0record {offset}"}
    return (b"k\x00", b'\xff{"', [("trace", b"\x01\x02"), ("none", None)], headers)


def tally(*offsets: int) -> Tally:
    return Tally(len(offsets), sum(record_hash(TOPIC_ID, 0, o) for o in offsets) % 2**64)


def after(expected: Ledger, next_offset: int, staged: Staged | None = None) -> Ledger:
    source = SourcePartition("shop.orders", TOPIC_ID, 0)
    position = expected.positions.get(source, Position(start_offset=0, next_offset=0))
    if staged is not None and (receipt := staged.receipts.get((TOPIC_ID, 0))):
        position = position.advanced(next_offset, receipt)
    return expected.successor({source: position})


def write(
    sink: PostgresSink, frame: DataFrame, next_offset: int, *, may_expand: bool = False
) -> Staged:
    """One batch, staged and committed on what the ledger says now."""
    expected = sink.ledger()
    staged = sink.stage(frame, may_expand=may_expand)
    sink.commit(expected, after(expected, next_offset, staged), staged)
    return staged


def query(dsn: str, text: str) -> list[tuple[Any, ...]]:
    with psycopg.connect(dsn, autocommit=True) as connection:
        cursor = connection.execute(sql.SQL(text))
        return cursor.fetchall() if cursor.description else []


def stored(dsn: str) -> list[Order]:
    return [(a, b) for a, b in query(dsn, "SELECT order_id, note FROM orders ORDER BY 1")]


def staging_tables(dsn: str) -> int:
    found = query(
        dsn, "SELECT relname FROM pg_class WHERE relname ~ '^lossless_staging.*(rows|dead)$'"
    )
    return len(found)


def together(*actions: Callable[[], None], failing_with: type[LosslessError] | None = None) -> None:
    """Runs all at the same time; all but one must fail as named, or all succeed."""
    ready = threading.Barrier(len(actions))
    failures: list[BaseException] = []

    def run(action: Callable[[], None]) -> None:
        ready.wait(30)
        try:
            action()
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=run, args=(action,)) for action in actions]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    expected = [failing_with] * (len(actions) - 1) if failing_with else []
    assert [type(failure) for failure in failures] == expected, failures
