"""The PostgreSQL sink on a real server: what a commit is, and once, whoever tries again."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import psycopg
import pytest
from postgres_orders import after, outcomes, query, staging_tables, stored, tally, together, write
from psycopg import sql
from pyspark.errors import PySparkException
from pyspark.sql import functions as F

from lossless.errors import Fenced
from lossless.pipeline.ledger import Ledger
from lossless.pipeline.outcomes import DEAD_LETTER, PROVENANCE
from lossless.pipeline.sinks.interface import SinkUnavailable
from lossless.pipeline.sinks.postgres import PostgresSink

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# PySpark leaves the sockets that collect() reads from to the garbage collector.
pytestmark = pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")


# What a commit is


def test_a_commit_shows_rows_dead_letters_and_ledger_together(
    spark: SparkSession, sink: PostgresSink, dsn: str
) -> None:
    expected = sink.ledger()
    staged = sink.stage(outcomes(spark, [(1, "a"), (2, "b")], dead=[2]), may_expand=False)
    assert stored(dsn) == []
    assert sink.dead_letters().count() == 0
    assert sink.ledger() == Ledger()

    successor = after(expected, 3, staged)
    sink.commit(expected, successor, staged)

    assert stored(dsn) == [(1, "a"), (2, "b")]
    assert sink.ledger() == successor
    assert sorted(row[PROVENANCE]["offset"] for row in sink.rows().collect()) == [0, 1]
    assert [row[PROVENANCE]["offset"] for row in sink.dead_letters().collect()] == [2]
    (entry,) = sink.history()
    assert entry.sequence == 1
    assert entry.after == successor.positions
    assert staging_tables(dsn) == 0


def test_receipts_count_and_hash_what_was_staged(spark: SparkSession, sink: PostgresSink) -> None:
    frame = outcomes(spark, [(n, "x") for n in range(50)], start=7, dead=[100, 101]).repartition(3)
    staged = sink.stage(frame, may_expand=False)
    (receipt,) = staged.receipts.values()
    assert receipt.stored == tally(*range(7, 57))
    assert receipt.dead == tally(100, 101)
    assert receipt.rows == 50


def test_an_expanded_record_is_stored_once_and_has_all_its_rows(
    spark: SparkSession, sink: PostgresSink, dsn: str
) -> None:
    frame = outcomes(spark, [(1, "a"), (2, "b")], dead=[9])
    twice = frame.union(frame.where(f"{DEAD_LETTER} IS NULL")).repartition(4)
    staged = write(sink, twice, 10, may_expand=True)
    (receipt,) = staged.receipts.values()
    assert (receipt.stored, receipt.dead, receipt.rows) == (tally(0, 1), tally(9), 4)
    assert receipt.row_hash == tally(0, 0, 1, 1).hash
    assert (receipt.first_offset, receipt.last_offset) == (0, 9)
    assert stored(dsn) == [(1, "a"), (1, "a"), (2, "b"), (2, "b")]


def test_a_commit_can_move_the_ledger_alone(sink: PostgresSink) -> None:
    successor = after(Ledger(), 0)
    sink.commit(Ledger(), successor, None)
    assert sink.ledger() == successor


def test_an_empty_batch_moves_the_ledger(spark: SparkSession, sink: PostgresSink, dsn: str) -> None:
    staged = write(sink, outcomes(spark, []), 5)
    assert staged.receipts == {}
    assert sink.ledger().sequence == 1
    assert stored(dsn) == []


# Once, whoever tries again


def test_a_committed_batch_that_is_replayed_changes_nothing(
    spark: SparkSession, sink: PostgresSink, dsn: str
) -> None:
    frame = outcomes(spark, [(1, "a")], dead=[1])
    write(sink, frame, 2)
    ledger = sink.ledger()
    again = sink.stage(frame, may_expand=False)
    with pytest.raises(Fenced, match="at commit 1, this one counted on 0"):
        sink.commit(Ledger(), after(Ledger(), 2, again), again)
    assert stored(dsn) == [(1, "a")]
    assert sink.dead_letters().count() == 1
    assert sink.ledger() == ledger
    assert len(sink.history()) == 1


@pytest.mark.parametrize("first_to_stage", ["zombie", "successor"])
def test_a_zombie_driver_loses(
    spark: SparkSession, sink: PostgresSink, dsn: str, first_to_stage: str
) -> None:
    write(sink, outcomes(spark, [(1, "a")]), 1)
    expected = sink.ledger()
    zombie, successor = sink, PostgresSink(spark, "orders", dsn, "orders")
    frame = outcomes(spark, [(2, "b")], start=1)
    drivers = [zombie, successor] if first_to_stage == "zombie" else [successor, zombie]
    batches = {driver: driver.stage(frame, may_expand=False) for driver in drivers}

    successor.commit(expected, after(expected, 2, batches[successor]), batches[successor])
    with pytest.raises(Fenced):
        zombie.commit(expected, after(expected, 2, batches[zombie]), batches[zombie])
    assert stored(dsn) == [(1, "a"), (2, "b")]
    successor.sweep()
    assert staging_tables(dsn) == 0


def test_a_zombie_whose_staging_was_swept_writes_nothing(
    spark: SparkSession, sink: PostgresSink, dsn: str
) -> None:
    staged = sink.stage(outcomes(spark, [(1, "a")]), may_expand=False)
    PostgresSink(spark, "orders", dsn, "orders").sweep()
    with pytest.raises(SinkUnavailable, match="its staging tables were dropped"):
        sink.commit(Ledger(), after(Ledger(), 1, staged), staged)
    assert stored(dsn) == []
    assert sink.ledger() == Ledger()


def test_of_two_first_drivers_one_commits(
    spark: SparkSession, sink: PostgresSink, dsn: str
) -> None:
    drivers = [sink, PostgresSink(spark, "orders", dsn, "orders")]
    batches = [d.stage(outcomes(spark, [(1, "a")]), may_expand=False) for d in drivers]
    together(
        *(
            lambda d=driver, s=staged: d.commit(Ledger(), after(Ledger(), 1, s), s)  # type: ignore[misc]
            for driver, staged in zip(drivers, batches, strict=True)
        ),
        failing_with=Fenced,
    )
    assert stored(dsn) == [(1, "a")]
    assert sink.ledger().sequence == 1


def test_rows_of_an_attempt_without_a_receipt_are_never_inserted(
    spark: SparkSession, sink: PostgresSink, dsn: str
) -> None:
    expected = sink.ledger()
    staged = sink.stage(outcomes(spark, [(1, "a")], dead=[1]), may_expand=False)
    for table in staged.handle.tables.names:
        # A speculative twin of the attempt that counts: the same content under another number.
        query(dsn, f"CREATE TABLE twin AS SELECT * FROM {table}")
        query(dsn, "UPDATE twin SET _lossless_attempt = -1")
        query(dsn, f"INSERT INTO {table} SELECT * FROM twin")
        query(dsn, "DROP TABLE twin")
    sink.commit(expected, after(expected, 2, staged), staged)
    assert stored(dsn) == [(1, "a")]
    assert sink.dead_letters().count() == 1


def test_a_batch_whose_tasks_fail_leaves_nothing_that_is_seen(
    spark: SparkSession, sink: PostgresSink, dsn: str
) -> None:
    frame = outcomes(spark, [(n, "x") for n in range(20)]).repartition(4)
    poisoned = frame.withColumn(
        "note",
        F.when(F.col("order_id") == 7, F.raise_error(F.lit("boom"))).otherwise(F.col("note")),
    )
    # The transform's failure reaches the runner as it is: it is not the sink's.
    with pytest.raises(PySparkException, match="boom"):
        sink.stage(poisoned, may_expand=False)
    assert stored(dsn) == []
    deadline = time.monotonic() + 60
    # A task of the failed job may still be at it, and what it holds is left to a later sweep.
    while staging_tables(dsn) and time.monotonic() < deadline:
        sink.sweep()
    assert staging_tables(dsn) == 0
    write(sink, frame, 20)
    assert len(stored(dsn)) == 20


def test_sweeping_leaves_what_may_still_be_committed_and_what_is_in_use(
    spark: SparkSession, sink: PostgresSink, dsn: str
) -> None:
    mine = sink.stage(outcomes(spark, [(1, "a")]), may_expand=False)
    zombie = PostgresSink(spark, "orders", dsn, "orders")
    other = PostgresSink(spark, "other", dsn, "orders")
    staging = zombie.stage(outcomes(spark, [(2, "b")]), may_expand=False)
    others = other.stage(outcomes(spark, [(3, "c")]), may_expand=False)
    with psycopg.connect(dsn) as connection:
        # The zombie is in the middle of a COPY into one of its two tables.
        busy = sql.Identifier(staging.handle.tables.names[0])
        connection.execute(sql.SQL("INSERT INTO {0} SELECT * FROM {0}").format(busy))
        sink.sweep()
    assert staging_tables(dsn) == 2 + 1 + 2
    sink.commit(Ledger(), after(Ledger(), 1, mine), mine)
    other.commit(Ledger(), after(Ledger(), 1, others), others)
    assert stored(dsn) == [(1, "a"), (3, "c")]
