"""Which tables the sink takes: new ones, grown ones, those that others made."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from delta_driver import ROWS, TOPIC_ID, Driver, after
from pyspark.sql import types as T

from lossless.errors import BadInput, Unavailable
from lossless.pipeline.ledger import Ledger
from lossless.pipeline.outcomes import (
    CONTENT_HASH,
    DEAD_LETTER,
    DEAD_LETTER_TYPE,
    PROVENANCE,
    PROVENANCE_TYPE,
)
from lossless.pipeline.sinks import delta, delta_log
from lossless.pipeline.sinks.delta import DeltaSink
from lossless.pipeline.sinks.interface import SinkUnavailable
from outcomes_from import outcomes_from

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# The table


def with_columns(*fields: T.StructField) -> T.StructType:
    return T.StructType([*fields, T.StructField(PROVENANCE, PROVENANCE_TYPE)])


def test_columns_are_added_only_when_allowed(spark: SparkSession, driver: Driver) -> None:
    driver.write([(0, 0)])
    sink = driver.sink
    grown = with_columns(
        T.StructField("AMOUNT", T.LongType(), False),
        T.StructField("note", T.StringType(), False),
    )
    difference = sink.schema_difference(grown)
    assert (difference.exists, difference.added) == (True, ("note string",))
    assert not difference.incompatible
    with pytest.raises(BadInput, match="note string"):
        sink.prepare(grown, add_columns=False)
    sink.prepare(grown, add_columns=True)
    frame = spark.createDataFrame(
        [(7, "hi", (TOPIC_ID, 0, 1, None), None)],
        T.StructType([*grown.fields, T.StructField(DEAD_LETTER, DEAD_LETTER_TYPE)]),
    )
    driver.commit(sink.stage(outcomes_from(frame), may_expand=False))
    rows = sink.rows().orderBy("amount").select("amount", "note").collect()
    assert [tuple(row) for row in rows] == [(0, None), (7, "hi")]
    sink.prepare(ROWS, add_columns=False)  # a table may have more columns than the rows


@pytest.mark.parametrize(
    ("properties", "columns"),
    [
        ("", {"amount"}),
        ("'delta.dataSkippingNumIndexedCols' = '1'", {"amount"}),
        ("'delta.dataSkippingNumIndexedCols' = '2'", {"amount", PROVENANCE}),
        ("'delta.dataSkippingNumIndexedCols' = '-1'", {"amount", PROVENANCE, CONTENT_HASH}),
        ("'delta.dataSkippingStatsColumns' = 'amount'", {"amount"}),
    ],
)
def test_statistics_are_those_that_the_table_asks_for_and_of_no_dead_letter(
    spark: SparkSession,
    driver: Driver,
    path: str,
    monkeypatch: pytest.MonkeyPatch,
    properties: str,
    columns: set[str],
) -> None:
    driver.write([(0, 0)])
    if properties:
        spark.sql(f"ALTER TABLE delta.`{path}` SET TBLPROPERTIES ({properties})")
    written: list[delta_log.AddedFile] = []
    # As they were written: what the table gets has lost the dead letter's column anyway.
    monkeypatch.setattr(delta, "table_file", lambda file: written.append(file) or file)
    driver.stage([(0, 1)], [(0, 2)])
    assert written
    for file in written:
        assert set(file.statistics["nullCount"]) == columns


def test_a_dead_letter_comes_back_byte_by_byte(spark: SparkSession, path: str) -> None:
    sink = DeltaSink(spark, "orders", path)
    sink.prepare(ROWS, add_columns=False)
    head = sink.ledger()
    letter = (
        None,
        bytes(range(256)),
        [("h", None), ('\x01"é', b"\xff\x00")],
        {"a": '"\n', "b": None},
    )
    frame = spark.createDataFrame(
        [(None, (TOPIC_ID, 0, 0, None), letter)],
        T.StructType([*ROWS.fields, T.StructField(DEAD_LETTER, DEAD_LETTER_TYPE)]),
    )
    staged = sink.stage(outcomes_from(frame), may_expand=False)
    sink.commit(head, after(head, staged), staged)
    [found] = sink.dead_letters().select(*DEAD_LETTER_TYPE.names).collect()
    assert found["key"] is None
    assert bytes(found["value"]) == letter[1]
    assert [tuple(header) for header in found["record_headers"]] == letter[2]
    assert found["headers"] == letter[3]


@pytest.mark.full
def test_a_field_inside_a_struct_is_added_too(spark: SparkSession, path: str) -> None:
    def address(*names: str) -> T.StructType:
        inner = T.StructType([T.StructField(name, T.StringType()) for name in names])
        return with_columns(T.StructField("address", inner))

    sink = DeltaSink(spark, "orders", path)
    sink.prepare(address("city"), add_columns=False)
    grown = address("zip", "city")
    assert sink.schema_difference(grown).added == ("address.zip string",)
    sink.prepare(grown, add_columns=True)
    head = sink.ledger()
    frame = spark.createDataFrame(
        [(("8001", "Zurich"), (TOPIC_ID, 0, 0, None), None)],
        T.StructType([*grown.fields, T.StructField(DEAD_LETTER, DEAD_LETTER_TYPE)]),
    )
    staged = sink.stage(outcomes_from(frame), may_expand=False)
    sink.commit(head, after(head, staged), staged)
    assert [r.asDict() for r in sink.rows().select("address.*").collect()] == [
        {"city": "Zurich", "zip": "8001"}
    ]


def test_incompatible_columns_are_listed(driver: Driver) -> None:
    with pytest.raises(BadInput, match="column amount is bigint in the table and string in the"):
        driver.sink.prepare(with_columns(T.StructField("amount", T.StringType())), add_columns=True)


def test_a_table_that_does_not_exist_yet_has_no_difference_ledger_or_letters(
    spark: SparkSession, path: str
) -> None:
    sink = DeltaSink(spark, "orders", path)
    assert sink.ledger() == Ledger()
    assert not sink.schema_difference(ROWS).exists
    assert (list(sink.history()), sink.dead_letters().collect()) == ([], [])
    sink.sweep()
    assert not Path(path).exists()
    with pytest.raises(BadInput, match="no Delta table"):
        sink.rows()


def test_a_folder_with_something_else_in_it_is_refused(spark: SparkSession, path: str) -> None:
    Path(path).mkdir()
    (Path(path) / "holiday.jpg").touch()
    with pytest.raises(BadInput, match=r"holiday\.jpg"):
        DeltaSink(spark, "orders", path).prepare(ROWS, add_columns=True)
    assert [each.name for each in Path(path).iterdir()] == ["holiday.jpg"]


@pytest.mark.parametrize("below", ["", "/orders"])
def test_a_path_at_or_below_a_file_is_refused(
    spark: SparkSession, tmp_path: Path, below: str
) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(BadInput, match="file"):
        DeltaSink(spark, "orders", f"{tmp_path}/file{below}").prepare(ROWS, add_columns=True)


@pytest.mark.full
def test_a_partitioned_table_with_deletion_vectors_and_change_feed_takes_rows(
    spark: SparkSession, path: str
) -> None:
    features = "'delta.enableDeletionVectors' = 'true', 'delta.enableChangeDataFeed' = 'true'"
    create(spark, path, "amount BIGINT", features, partitioned_by="amount")
    driver = Driver(spark, path)
    driver.write([(0, 0), (0, 1)], [(0, 2)])
    assert driver.contents == ([(0, 0), (0, 1)], [(0, 2)])
    assert driver.sink.rows().where("amount = 10").count() == 1
    spark.sql(f"DELETE FROM delta.`{path}` WHERE amount = 0")
    assert driver.contents == ([(0, 1)], [(0, 2)])
    changes = spark.read.format("delta").option("readChangeFeed", "true")
    inserted = changes.option("startingVersion", 0).load(path).where("_change_type = 'insert'")
    assert inserted.count() == 2


@pytest.mark.parametrize(
    ("columns", "properties", "named"),
    [
        ("amount BIGINT", "'delta.columnMapping.mode' = 'name'", "column mapping"),
        ("amount BIGINT NOT NULL", "", "NOT NULL (column amount)"),
        ("amount BIGINT", "'delta.constraints.positive' = 'amount > 0'", "CHECK constraint pos"),
        ("amount BIGINT, doubled BIGINT GENERATED ALWAYS AS (amount * 2)", "", "generated column"),
        ("amount BIGINT", "'delta.enableRowTracking' = 'true'", "rowTracking"),
    ],
)
def test_a_feature_that_staged_files_would_go_around_is_refused_by_name(
    spark: SparkSession, path: str, columns: str, properties: str, named: str
) -> None:
    create(spark, path, columns, properties)
    with pytest.raises(BadInput) as refused:
        DeltaSink(spark, "orders", path).prepare(ROWS, add_columns=True)
    assert named in str(refused.value)


def create(
    spark: SparkSession, path: str, columns: str, properties: str, partitioned_by: str = ""
) -> None:
    names = f"{columns}, {PROVENANCE} {PROVENANCE_TYPE.simpleString()}"
    chosen = f"PARTITIONED BY ({partitioned_by}) " if partitioned_by else ""
    chosen += f"TBLPROPERTIES ({properties})" if properties else ""
    spark.sql(f"CREATE TABLE delta.`{path}` ({names}) USING delta {chosen}")


def test_a_table_altered_after_staging_is_not_committed_to(
    spark: SparkSession, driver: Driver, path: str
) -> None:
    staged = driver.stage([(0, 0)])
    spark.sql(f"ALTER TABLE delta.`{path}` ADD CONSTRAINT few CHECK (amount < 0)")
    with pytest.raises(SinkUnavailable, match="other columns or properties"):
        driver.commit(staged)
    assert driver.contents == ([], [])


def test_a_session_without_delta_is_told_what_to_add() -> None:
    class Nothing:
        def __getattr__(self, name: str) -> Nothing:
            return self

    class Session:
        _jvm = Nothing()
        _jsparkSession = Nothing()  # noqa: N815

    with pytest.raises(Unavailable, match="Delta Lake") as refused:
        DeltaSink(Session(), "orders", "somewhere")  # type: ignore[arg-type]
    assert "spark.driver.extraClassPath" in str(refused.value)
