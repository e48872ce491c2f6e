"""Tables that a release with ledgers of format 1 has written: read as they are, and carried on.

`ledgers_of_format_1` was written by that release: ten orders and two dead letters, then five orders
deleted unread and given up with `--accept-loss`, then five more orders.
"""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.sql import types as T

from lossless.contract import DeltaSinkContract, ParquetSinkContract, PipelineContract
from lossless.pipeline.contents import uncoverings
from lossless.pipeline.ledger import (
    FORMAT,
    AcceptedLoss,
    Ledger,
    LedgerEntry,
    SourcePartition,
    place_losses,
)
from lossless.pipeline.outcomes import DEAD_LETTER, DEAD_LETTER_TYPE, PROVENANCE, PROVENANCE_TYPE
from lossless.pipeline.sinks import open_sink
from outcomes_from import outcomes_from

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

COLUMNS = T.StructType(
    [
        T.StructField("number", T.LongType()),
        T.StructField("text", T.StringType()),
        T.StructField(PROVENANCE, PROVENANCE_TYPE),
    ]
)
WRITTEN = Path(__file__).parent / "ledgers_of_format_1"


def check(ledger: Ledger, history: list[LedgerEntry]) -> SourcePartition:
    """What every sink must still find; gives the partition that lost records."""
    assert ledger.sequence == 4
    orders, letters = sorted(ledger.positions)
    read = ledger.positions[orders]
    assert (read.start_offset, read.next_offset, read.rows, read.lost) == (0, 20, 15, 5)
    assert (read.read.count, read.stored.count, read.leader_epoch) == (15, 15, None)
    assert ledger.positions[letters].dead.count == 2
    assert [entry.sequence for entry in history] == [1, 2, 3, 4]
    placed = place_losses(read, orders, history)
    assert placed.accepted_losses == (AcceptedLoss(10, 15),)
    assert placed.unplaced_losses == 0
    return orders


def test_a_ledger_in_postgres_is_read() -> None:
    document = json.loads((WRITTEN / "postgres.json").read_text())
    ledger = Ledger.from_json(json.dumps(document["ledger"]))
    history = [LedgerEntry.from_json(json.dumps(entry)) for entry in document["history"]]
    check(ledger, history)
    assert json.loads(ledger.to_json())["format"] == FORMAT
    assert Ledger.from_json(ledger.to_json()) == ledger


@pytest.mark.parametrize("kind", ["delta", "parquet"])
def test_a_table_is_read_and_its_next_commit_writes_the_new_format(
    spark: SparkSession, tmp_path: Path, kind: str
) -> None:
    shutil.copytree(WRITTEN, tmp_path, dirs_exist_ok=True)
    place = str(tmp_path / kind)
    pipeline = PipelineContract(
        name="orders",
        sink=DeltaSinkContract(path=place) if kind == "delta" else ParquetSinkContract(path=place),
        topics=("orders",),
        group="orders",
    )
    sink = open_sink(spark, pipeline)
    ledger = sink.ledger()
    source = check(ledger, list(sink.history()))
    assert (sink.rows().count(), sink.dead_letters().count()) == (15, 2)

    moved = replace(ledger.positions[source].given_up_to(22), leader_epoch=3)
    successor = ledger.successor({source: moved})
    sink.commit(ledger, successor, None)
    stored = open_sink(spark, pipeline).ledger()
    assert stored == successor
    position = stored.positions[source]
    assert (position.accepted_losses, position.unplaced_losses) == ((AcceptedLoss(20, 22),), 5)
    assert position.leader_epoch == 3
    assert (sink.rows().count(), sink.dead_letters().count()) == (15, 2)

    # The rows of the old release have no hash, and the next batch has.
    sink.prepare(COLUMNS, add_columns=False)
    letters = T.StructType([*COLUMNS.fields, T.StructField(DEAD_LETTER, DEAD_LETTER_TYPE)])
    row = (30, "order 30", (source.topic_id, source.partition, 30, None), None)
    staged = sink.stage(outcomes_from(spark.createDataFrame([row], letters)), may_expand=False)
    receipt = staged.receipts[source.topic_id, source.partition]
    hashed = position.advanced(31, replace(receipt, read=receipt.stored), hashed=True)
    grown = successor.successor({source: hashed}, columns=staged.columns)
    sink.commit(successor, grown, staged)
    sink = open_sink(spark, pipeline)
    assert sink.ledger() == grown
    assert (grown.columns, hashed.hashed_from) == (("number", "text"), 22)
    doubtful = sink.contents(grown.columns, uncoverings(grown.positions)).collect()
    assert {row["is_altered"] for row in doubtful} == {False}
    assert len(doubtful) == 15
