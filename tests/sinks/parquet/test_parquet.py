"""The parquet sink: together or not at all, and what ordinary readers see of it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from parquet_writer import (
    ROWS,
    SOURCE,
    TOPIC_ID,
    after,
    commit_directory,
    deliver,
    ids,
    outcomes,
    staging_directories,
    tally,
)
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from lossless.pipeline.ledger import Ledger, Position
from lossless.pipeline.outcomes import CONTENT_HASH, DEAD_LETTER, DEAD_LETTER_TYPE, PROVENANCE
from lossless.pipeline.sinks.parquet import ParquetSink
from lossless.tally import Tally
from outcomes_from import outcomes_from

# Together or not at all


def test_a_pipeline_that_never_committed_has_an_empty_ledger_and_no_rows(
    spark: SparkSession, path: Path
) -> None:
    fresh = ParquetSink(spark, "orders", str(path))

    assert fresh.ledger() == Ledger()
    assert fresh.history() == []
    assert fresh.rows().count() == 0
    assert fresh.dead_letters().count() == 0
    assert not fresh.schema_difference(ROWS).exists
    fresh.sweep()
    assert not path.exists()


def test_rows_dead_letters_and_ledger_appear_with_the_commit_and_not_before(
    spark: SparkSession, sink: ParquetSink, another_driver: ParquetSink, path: Path
) -> None:
    staged = sink.stage(outcomes(spark, [0, 1, 3], dead=[2]), may_expand=False)

    assert another_driver.ledger() == Ledger()
    assert spark.read.parquet(str(path)).count() == 0
    assert another_driver.dead_letters().count() == 0

    successor = after(Ledger(), staged, next_offset=4)
    sink.commit(Ledger(), successor, staged)

    assert another_driver.ledger() == successor
    assert ids(another_driver.rows()) == [100, 101, 103]
    (letter,) = another_driver.dead_letters().collect()
    assert letter[PROVENANCE]["offset"] == 2
    assert (letter["key"], letter["value"]) == (b"key", b"{bad")
    assert letter["headers"] == {"kafka_dlt-exception-message": "bad"}
    assert staging_directories(path) == []


def test_receipts_count_and_hash_what_was_written(spark: SparkSession, sink: ParquetSink) -> None:
    staged = sink.stage(outcomes(spark, [0, 1, 3], dead=[2, 7]), may_expand=False)

    receipt = staged.receipts[TOPIC_ID, 0]
    assert receipt.stored == tally(0, 1, 3)
    assert receipt.dead == tally(2, 7)
    assert receipt.rows == 3
    assert receipt.read == Tally()


def test_an_expanded_record_is_stored_once_with_several_rows(
    spark: SparkSession, sink: ParquetSink
) -> None:
    batch = outcomes(spark, [0, 0, 0, 1])

    ledger = deliver(sink, batch, next_offset=2, may_expand=True)

    assert ledger.positions[SOURCE].stored == tally(0, 1)
    assert ledger.positions[SOURCE].rows == 4
    assert sink.rows().count() == 4


def test_a_batch_is_evaluated_once(spark: SparkSession, sink: ParquetSink) -> None:
    evaluations = spark.sparkContext.accumulator(0)

    @F.udf("boolean")
    def is_bad(_identifier):
        evaluations.add(1)
        return bool(os.urandom(1)[0] % 2)

    rows = outcomes(spark, range(20)).withColumn("bad", is_bad.asNondeterministic()("id"))
    letter = F.struct(*[F.lit(None).cast(f.dataType).alias(f.name) for f in DEAD_LETTER_TYPE])
    batch = outcomes_from(rows.withColumn(DEAD_LETTER, F.when(F.col("bad"), letter)).drop("bad"))
    staged = sink.stage(batch, may_expand=False)

    receipt = staged.receipts[TOPIC_ID, 0]
    assert evaluations.value == 20
    assert receipt.stored + receipt.dead == tally(*range(20))


@pytest.mark.parametrize(
    ("offsets", "dead"), [([], []), ([], [0, 1]), ([0, 1], [])], ids=["empty", "dead", "rows"]
)
def test_a_batch_without_rows_or_without_dead_letters_is_a_commit_like_any_other(
    spark: SparkSession, sink: ParquetSink, path: Path, offsets: list[int], dead: list[int]
) -> None:
    deliver(sink, outcomes(spark, offsets, dead=dead), next_offset=2)

    assert sink.ledger().sequence == 1
    assert spark.read.parquet(str(path)).count() == len(offsets)
    assert sink.rows().count() == len(offsets)
    assert sink.dead_letters().count() == len(dead)


def test_history_tells_every_commit(spark: SparkSession, sink: ParquetSink) -> None:
    first = deliver(sink, outcomes(spark, [0, 1]), next_offset=2)
    second = deliver(sink, outcomes(spark, [2]), next_offset=3)

    entries = sink.history()
    assert [entry.sequence for entry in entries] == [1, 2]
    assert entries[0].before == {}
    assert entries[1].before == first.positions
    assert entries[1].after == second.positions


# What ordinary readers see


def test_the_plain_call_reads_the_rows_of_all_commits_and_nothing_else(
    spark: SparkSession, sink: ParquetSink, path: Path
) -> None:
    deliver(sink, outcomes(spark, [0, 1], dead=[2]), next_offset=3)
    deliver(sink, outcomes(spark, [3], dead=[4]), next_offset=5)
    sink.stage(outcomes(spark, [5], dead=[6]), may_expand=False)  # never committed

    rows = spark.read.parquet(str(path))
    assert rows.columns == ["id", "name", PROVENANCE, CONTENT_HASH, "lossless_commit"]
    assert sorted((r["id"], r["lossless_commit"]) for r in rows.collect()) == [
        (100, 1),
        (101, 1),
        (103, 2),
    ]
    assert sink.rows().columns == ["id", "name", PROVENANCE, CONTENT_HASH]


def test_a_commit_that_only_moves_the_ledger_leaves_readers_as_they_were(
    spark: SparkSession, sink: ParquetSink, path: Path
) -> None:
    opening = Ledger().successor({SOURCE: Position(start_offset=5, next_offset=5)})
    sink.commit(Ledger(), opening, None)

    assert sink.ledger() == opening
    assert os.listdir(commit_directory(path, 1)) == ["_ledger.json"]
    assert spark.read.parquet(str(path)).count() == 0

    deliver(sink, outcomes(spark, [5]), next_offset=6)
    sink.commit(sink.ledger(), sink.ledger().successor({}), None)
    assert ids(spark.read.parquet(str(path))) == [105]
    assert ids(sink.rows()) == [105]
    assert staging_directories(path) == []
