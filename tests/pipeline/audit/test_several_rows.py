"""Records that a transform made several rows of: which rows are there, not only how many."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from audited_topic import AuditedTopic, Delivered, tally
from psycopg import sql
from pyspark.sql import types as T

from lossless.contract import (
    DeltaSinkContract,
    ParquetSinkContract,
    PipelineContract,
    PostgresSinkContract,
)
from lossless.pipeline.audit import AuditReport, FindingKind, Verdict
from lossless.pipeline.audit.contents import COUNTED_ONLY
from lossless.pipeline.ledger import AcceptedLoss, ContentSum, Ledger, Position, Receipt
from lossless.pipeline.outcomes import DEAD_LETTER, DEAD_LETTER_TYPE, PROVENANCE, PROVENANCE_TYPE
from lossless.pipeline.sinks import open_sink
from lossless.tally import Tally
from outcomes_from import outcomes_from

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from lossless.pipeline.sinks.interface import Sink
    from postgres_server import PostgresServer

Auditor = Callable[..., AuditReport]
COUNT = 6
EQUAL_ROWS = 2  # of this record the transform makes the same row twice
ROWS = T.StructType(
    [
        T.StructField("number", T.LongType()),
        T.StructField("part", T.IntegerType()),
        T.StructField(PROVENANCE, PROVENANCE_TYPE),
    ]
)


@dataclass(frozen=True)
class Table:
    topic: AuditedTopic
    sink: Sink
    run: Callable[[str], None]


@pytest.fixture
def table(
    request: pytest.FixtureRequest,
    spark: SparkSession,
    client_settings: Mapping[str, str],
    postgres_server: PostgresServer,
    tmp_path: Path,
) -> Table:
    topic = AuditedTopic(client_settings, partitions=1)
    records = topic.send(0, COUNT)
    contract: Any
    match request.param:
        case "postgres":
            dsn = postgres_server.dsn(postgres_server.create_database())
            contract = PostgresSinkContract(dsn=dsn, table="orders")

            def run(statement: str) -> None:
                with psycopg.connect(dsn, autocommit=True) as connection:
                    connection.execute(sql.SQL(statement))

        case "delta":
            contract = DeltaSinkContract(path=str(tmp_path / "orders"))

            def run(statement: str) -> None:
                spark.sql(statement.replace("orders", f"delta.`{tmp_path / 'orders'}`"))

        case _:
            contract = ParquetSinkContract(path=str(tmp_path / "orders"))

            def run(statement: str) -> None:
                raise NotImplementedError(statement)

    sink = open_sink(
        spark, PipelineContract(name="orders", sink=contract, topics=("unused",), group="unused")
    )
    for batch in (records[: COUNT // 2], records[COUNT // 2 :]):
        store(spark, sink, batch)
    return Table(topic, sink, run)


def store(spark: SparkSession, sink: Sink, records: list[Delivered]) -> None:
    """What the runner does with a batch of which a transform made two rows of each record."""
    before = sink.ledger()
    data = [
        (
            r.offset,
            1 if r.offset == EQUAL_ROWS else part,
            (
                r.topic_id,
                r.partition,
                r.offset,
                datetime.datetime.fromtimestamp(r.timestamp_ms / 1000, datetime.UTC),
            ),
            None,
        )
        for r in records
        for part in (1, 2)
    ]
    schema = T.StructType([*ROWS.fields, T.StructField(DEAD_LETTER, DEAD_LETTER_TYPE)])
    sink.prepare(ROWS, add_columns=True)
    staged = sink.stage(outcomes_from(spark.createDataFrame(data, schema)), may_expand=True)
    source = records[0].source
    receipt = replace(staged.receipts[source.topic_id, source.partition], read=tally(records))
    position = before.positions.get(source, Position(start_offset=0, next_offset=0))
    after = position.advanced(records[-1].offset + 1, receipt, hashed=bool(staged.columns))
    sink.commit(before, before.successor({source: after}, columns=staged.columns), staged)


@pytest.mark.parametrize("table", ["delta", "parquet", "postgres"], indirect=True)
def test_equal_rows_that_a_transform_made_are_balanced(table: Table, audited: Auditor) -> None:
    (position,) = table.sink.ledger().positions.values()
    assert position.content_sum is not None
    assert (position.content_sum.first, position.content_sum.end) == (0, COUNT)
    report = audited(table.topic, table.sink, contents=True)
    assert report.verdict is Verdict.BALANCED
    assert not [note for note in report.notes if "sum of contents" in note]
    assert COUNTED_ONLY in audited(table.topic, table.sink).notes


@pytest.mark.parametrize("table", ["delta", "postgres"], indirect=True)
def test_a_row_that_is_there_twice_in_place_of_another_of_its_record_is_named(
    table: Table, audited: Auditor
) -> None:
    table.run("DELETE FROM orders WHERE number = 3 AND part = 2")
    table.run("INSERT INTO orders SELECT * FROM orders WHERE number = 3 AND part = 1")
    report = audited(table.topic, table.sink, contents=True)
    assert report.verdict is Verdict.NOT_BALANCED
    named = [(f.kind, f.offset) for f in report.findings]
    assert (FindingKind.DUPLICATED, 3) in named
    # Of equal rows nobody can tell which was written.
    assert named == [(FindingKind.DUPLICATED, EQUAL_ROWS), (FindingKind.DUPLICATED, 3)]


def batch(next_offset: int, rows: int, content_sum: int | None) -> tuple[int, Receipt]:
    stored = Tally(min(rows, 1), 1)
    return next_offset, Receipt(read=stored, stored=stored, rows=rows, content_sum=content_sum)


def test_a_sum_of_contents_covers_what_follows_without_a_gap() -> None:
    position = Position(start_offset=0, next_offset=0).advanced(*batch(5, 2, 7))
    assert position.content_sum == ContentSum(0, 5, 7)
    position = position.advanced(*batch(8, 0, None)).given_up_to(9).advanced(*batch(10, 2, 4))
    assert position.content_sum == ContentSum(0, 10, 11)
    assert position.accepted_losses == (AcceptedLoss(8, 9),)
    position = position.advanced(*batch(12, 1, None))
    assert position.content_sum == ContentSum(0, 10, 11)
    position = position.advanced(*batch(14, 2, 5))
    assert position.content_sum == ContentSum(12, 14, 5)


def test_a_sum_of_contents_survives_its_ledger() -> None:
    source = Delivered("orders", "id", 0, 0, 0, b"", b"").source
    position = Position(start_offset=0, next_offset=0).advanced(*batch(5, 2, 2**64 - 1))
    ledger = Ledger(sequence=1, positions={source: position})
    assert Ledger.from_json(ledger.to_json()) == ledger
