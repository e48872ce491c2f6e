"""Which folders and schemas the sink takes for a table."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from parquet_writer import (
    GROWN,
    ROWS,
    after,
    commit_directory,
    deliver,
    everything,
    ids,
    outcomes,
    provenance,
    staging_directories,
)
from pyspark.sql import SparkSession
from pyspark.sql import types as T

from lossless.errors import BadInput, Fenced, PromiseBroken
from lossless.pipeline.contents import with_hash_column
from lossless.pipeline.ledger import Ledger
from lossless.pipeline.outcomes import CONTENT_HASH, PROVENANCE, PROVENANCE_TYPE, row_schema
from lossless.pipeline.sinks import parquet
from lossless.pipeline.sinks.folder import Folder, HadoopFolder, LocalFolder
from lossless.pipeline.sinks.parquet import ParquetSink
from lossless.pipeline.sinks.parquet_staging import Staging
from outcomes_from import outcomes_from

# Whose path it is, and whether it can be trusted


def test_a_second_pipeline_on_the_same_path_is_refused(
    spark: SparkSession, sink: ParquetSink, path: Path
) -> None:
    deliver(sink, outcomes(spark, [0]), next_offset=1)
    before = everything(path)
    other = ParquetSink(spark, "invoices", str(path))

    with pytest.raises(BadInput, match="belongs to pipeline 'orders', not 'invoices'"):
        other.ledger()
    with pytest.raises(BadInput, match="belongs to pipeline"):
        other.prepare(ROWS, add_columns=True)
    staged = other.stage(outcomes(spark, [0]), may_expand=False)
    with pytest.raises(BadInput, match="belongs to pipeline"):
        other.commit(Ledger(), after(Ledger(), staged, next_offset=1), staged)
    assert everything(path) == before


def test_a_renamed_pipeline_continues_where_the_old_one_stopped(
    spark: SparkSession, sink: ParquetSink, path: Path
) -> None:
    before = deliver(sink, outcomes(spark, [0], dead=[1]), next_offset=2)
    staged = sink.stage(outcomes(spark, [2]), may_expand=False)
    renamed = ParquetSink(spark, "shop-orders", str(path))
    with pytest.raises(BadInput, match="belongs to pipeline 'orders'") as refused:
        renamed.ledger()
    assert "lossless rename orders shop-orders" in (refused.value.hint or "")

    taken = renamed.take_over("orders")
    assert (taken.positions, taken.sequence) == (before.positions, before.sequence + 1)
    with pytest.raises(BadInput, match="belongs to pipeline 'shop-orders'"):
        sink.commit(before, after(before, staged, next_offset=3), staged)
    deliver(renamed, outcomes(spark, [2]), next_offset=3)
    assert ids(renamed.rows()) == [100, 102]
    assert renamed.dead_letters().count() == 1
    assert [entry.sequence for entry in renamed.history()] == [1, 2, 3]


@pytest.mark.parametrize("name", ["old.parquet", "lossless_commit=1", "commit-0000000001"])
def test_foreign_files_that_readers_would_take_for_rows_are_refused(
    spark: SparkSession, path: Path, name: str
) -> None:
    path.mkdir()
    (path / name).mkdir()
    sink = ParquetSink(spark, "orders", str(path))

    for refused in (sink.ledger, sink.rows, lambda: sink.prepare(ROWS, add_columns=False)):
        with pytest.raises(BadInput, match=name):
            refused()
    assert [entry.name for entry in path.iterdir()] == [name]


def test_hidden_foreign_files_are_left_alone(
    spark: SparkSession, sink: ParquetSink, path: Path
) -> None:
    (path / ".notes").write_text("mine")
    (path / "_archive").mkdir()
    deliver(sink, outcomes(spark, [0]), next_offset=1)
    sink.sweep()

    assert (path / ".notes").read_text() == "mine"
    assert (path / "_archive").is_dir()
    assert ids(spark.read.parquet(str(path))) == [100]


def _edit(change: Callable[[dict[str, Any]], None]) -> Callable[[Path], None]:
    def apply(directory: Path) -> None:
        file = directory / "_ledger.json"
        document = json.loads(file.read_text())
        change(document)
        file.write_text(json.dumps(document))

    return apply


@pytest.mark.parametrize(
    ("damage", "says"),
    [
        (lambda directory: (directory / "_ledger.json").unlink(), "it is missing"),
        (lambda directory: (directory / "_ledger.json").write_text('{"form'), "JSONDecodeError"),
        (lambda directory: (directory / "_ledger.json").write_bytes(b"\xff\xfe"), "Unicode"),
        (lambda directory: (directory / "_ledger.json").write_text("[]"), "TypeError"),
        (_edit(lambda document: document.pop("ledger")), "KeyError: 'ledger'"),
        (_edit(lambda document: document.update(format=99)), "format 99 is not known"),
        (_edit(lambda d: d["ledger"].update(sequence=1)), "it is the ledger of commit 1"),
    ],
    ids=["missing", "truncated", "binary", "list", "no-ledger", "format", "copied"],
)
def test_a_damaged_ledger_is_named_and_nothing_is_written(
    sink: ParquetSink,
    path: Path,
    damage: Callable[[Path], None],
    says: str,
) -> None:
    sink.commit(Ledger(), Ledger().successor({}), None)
    ledger = sink.ledger()
    sink.commit(ledger, ledger.successor({}), None)
    damage(commit_directory(path, 2))
    before = everything(path)

    for refused in (
        sink.ledger,
        sink.history,
        lambda: sink.commit(Ledger(sequence=2), Ledger(sequence=3), None),
    ):
        with pytest.raises(PromiseBroken, match=says) as broken:
            refused()
        assert str(commit_directory(path, 2) / "_ledger.json") in str(broken.value)
    assert everything(path) == before


def test_a_missing_commit_is_named(spark: SparkSession, sink: ParquetSink, path: Path) -> None:
    for offset in range(3):
        deliver(sink, outcomes(spark, [offset]), next_offset=offset + 1)
    shutil.rmtree(commit_directory(path, 2))

    for refused in (sink.ledger, sink.history, sink.rows, sink.dead_letters):
        with pytest.raises(PromiseBroken, match="lossless_commit=0000000002 is missing"):
            refused()


def test_the_ledger_file_names_pipeline_schema_and_files(
    spark: SparkSession, sink: ParquetSink, path: Path
) -> None:
    deliver(sink, outcomes(spark, [0, 1], dead=[2]), next_offset=3)

    published = commit_directory(path, 1)
    document = json.loads((published / "_ledger.json").read_text())
    assert document["format"] == 1
    assert document["pipeline"] == "orders"
    assert T.StructType.fromJson(document["schema"]) == with_hash_column(ROWS)
    files = {file["name"]: file for file in document["files"]}
    on_disk = {str(f.relative_to(published)): f.stat().st_size for f in published.rglob("part-*")}
    assert {name: file["bytes"] for name, file in files.items()} == on_disk
    dead = [file["rows"] for name, file in files.items() if name.startswith("_dead_letters/")]
    assert sum(dead) == 1
    assert sum(file["rows"] for file in files.values()) == 3


# Schemas


def test_a_pipeline_starts_without_a_job_and_readers_get_the_schema(
    spark: SparkSession, path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written: list[T.StructType] = []
    write = Staging.write_summary

    def watched(self: Staging, schema: T.StructType) -> None:
        written.append(schema)
        write(self, schema)

    monkeypatch.setattr(Staging, "write_summary", watched)

    def jobs() -> int:
        return int(spark.sparkContext._jsc.sc().dagScheduler().numTotalJobs())

    columns = (
        "at timestamp, local timestamp_ntz, day date, tiny tinyint, price decimal(20,3), "
        "raw binary, tags map<string, array<struct<x: int, y: float>>>, free variant"
    )
    schema = T.StructType([*T.StructType.fromDDL(columns).fields, *ROWS.fields])
    before = jobs()
    fresh = ParquetSink(spark, "orders", str(path))
    fresh.prepare(schema, add_columns=False)
    fresh.commit(Ledger(), Ledger().successor({}), None)
    assert jobs() == before
    assert written == [with_hash_column(schema)]
    shutil.copy(path / "_common_metadata", tmp_path / "summary.parquet")
    stored = spark.read.parquet(str(tmp_path / "summary.parquet"))
    assert stored.schema == with_hash_column(schema)
    assert stored.count() == 0


def test_readers_get_the_schema_of_the_driver_that_commits(
    spark: SparkSession, sink: ParquetSink, another_driver: ParquetSink, path: Path
) -> None:
    other = T.StructType([T.StructField("price", T.DoubleType()), *ROWS.fields[1:]])
    another_driver.prepare(other, add_columns=False)
    deliver(sink, outcomes(spark, [0]), next_offset=1)
    assert spark.read.parquet(str(path)).columns == [*ROWS.names, CONTENT_HASH, "lossless_commit"]


def test_a_table_grows_by_columns_that_old_rows_do_not_have(
    spark: SparkSession, sink: ParquetSink, path: Path
) -> None:
    deliver(sink, outcomes(spark, [0]), next_offset=1)
    difference = sink.schema_difference(row_schema(GROWN))
    assert (difference.exists, list(difference.added)) == (True, ["price double"])

    with pytest.raises(BadInput, match="price double"):
        sink.prepare(row_schema(GROWN), add_columns=False)
    sink.prepare(row_schema(GROWN), add_columns=True)
    grown = outcomes_from(
        spark.createDataFrame([(101, 9.5, "order 1", provenance(1), None)], GROWN)
    )
    deliver(sink, grown, next_offset=2)

    for rows in (sink.rows(), spark.read.parquet(str(path))):
        assert sorted((r["id"], r["price"]) for r in rows.collect()) == [(100, None), (101, 9.5)]
    # A driver of the older release may come back: its rows have no price, the table keeps it.
    sink.prepare(ROWS, add_columns=False)
    deliver(sink, outcomes(spark, [2]), next_offset=3)
    assert ids(sink.rows().where("price is null")) == [100, 102]
    assert list(sink.schema_difference(row_schema(GROWN)).added) == []


def test_incompatible_columns_are_all_named(spark: SparkSession, sink: ParquetSink) -> None:
    deliver(sink, outcomes(spark, [0]), next_offset=1)
    rows = T.StructType(
        [
            T.StructField("id", T.StringType()),
            T.StructField("Name", T.StringType()),
            T.StructField("lossless_commit", T.LongType()),
            T.StructField(PROVENANCE, PROVENANCE_TYPE),
        ]
    )

    assert len(sink.schema_difference(rows).incompatible) == 3
    with pytest.raises(BadInput) as refusal:
        sink.prepare(rows, add_columns=True)
    assert "id is string in the rows and bigint in the table" in str(refusal.value)
    assert "Name is spelled name in the table" in str(refusal.value)
    assert "lossless_commit is taken" in str(refusal.value)


def test_nullability_is_no_difference(spark: SparkSession, sink: ParquetSink) -> None:
    deliver(sink, outcomes(spark, [0]), next_offset=1)
    strict = T.StructType([T.StructField(f.name, f.dataType, nullable=False) for f in ROWS])

    difference = sink.schema_difference(strict)
    assert not difference.added
    assert not difference.incompatible


@pytest.mark.parametrize(
    "column",
    [
        T.StructField("span", T.CalendarIntervalType()),
        T.StructField("ID", T.LongType()),
        T.StructField("nothing", T.StructType()),
    ],
)
def test_a_column_that_parquet_cannot_hold_is_refused_before_the_first_batch(
    spark: SparkSession, path: Path, column: T.StructField
) -> None:
    rows = T.StructType([*ROWS.fields, column])
    with pytest.raises(BadInput, match=r"span|`id`|empty"):
        ParquetSink(spark, "orders", str(path)).prepare(rows, add_columns=False)
    assert staging_directories(path) == []


# The folders


@pytest.fixture(params=["local", "hadoop"])
def folder(request: pytest.FixtureRequest, spark: SparkSession, path: Path) -> Folder:
    if request.param == "local":
        return LocalFolder(str(path), lock_name="lock")
    return HadoopFolder(spark, f"file://{path}")


def test_a_rename_onto_what_exists_fails_and_changes_nothing(folder: Folder, path: Path) -> None:
    for name in ("staged", "full", "empty"):
        folder.make(name)
    folder.create("staged/row", "new")
    folder.create("full/row", "old")
    folder.create("file", "old")

    for target in ("full", "empty"):
        with pytest.raises(FileExistsError):
            folder.rename("staged", target)
    with pytest.raises(OSError, match=r"exists|must both be directories"):
        folder.rename("staged", "file")

    assert folder.read("staged/row") == "new"
    assert folder.read("full/row") == "old"
    assert folder.names("empty") == []
    with pytest.raises(FileNotFoundError):
        folder.rename("nothing", "target")
    folder.rename("staged", "target")
    assert folder.read("target/row") == "new"
    assert not (path / "staged").exists()


def test_a_file_does_not_bring_its_folder_back(folder: Folder, path: Path) -> None:
    folder.make()
    with pytest.raises(FileNotFoundError):
        folder.create("gone/_ledger.json", "{}")
    assert not (path / "gone").exists()


def test_a_folder_lists_replaces_and_removes(folder: Folder) -> None:
    folder.make("a/b")
    folder.create("a/one", "1")
    folder.create("a/_hidden", "22")
    with pytest.raises(FileExistsError):
        folder.create("a/one", "again")

    assert {name for name in folder.names("a") if name[0] != "."} == {"b", "one", "_hidden"}
    assert folder.sizes("a")["one"] == 1
    assert "_hidden" not in folder.sizes("a")
    assert folder.names("nothing") == []
    assert folder.sizes("nothing") == {}
    folder.replace("a/_hidden", "a/one")
    assert folder.read("a/one") == "22"
    with pytest.raises(NotADirectoryError):
        folder.names("a/one")
    folder.remove("a")
    folder.remove("a")
    assert folder.names("a") == []


def test_the_sink_keeps_its_promises_through_hadoops_file_layer(
    spark: SparkSession, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        parquet, "open_folder", lambda *_, **__: HadoopFolder(spark, f"file://{path}")
    )
    sink, zombie = (ParquetSink(spark, "orders", str(path)) for _ in range(2))
    sink.prepare(ROWS, add_columns=False)
    late = zombie.stage(outcomes(spark, [0, 1]), may_expand=False)
    swept = zombie.stage(outcomes(spark, [2]), may_expand=False)
    ledger = deliver(sink, outcomes(spark, [0, 1], dead=[2]), next_offset=3)

    with pytest.raises(Fenced, match="has committed"):
        zombie.commit(Ledger(), after(Ledger(), late, next_offset=2), late)
    sink.sweep()
    with pytest.raises(Fenced, match="removed what this one had staged"):
        zombie.commit(ledger, after(ledger, swept, next_offset=4), swept)

    assert sink.ledger() == ledger
    assert ids(sink.rows()) == ids(spark.read.parquet(str(path))) == [100, 101]
    assert sink.dead_letters().count() == 1
    assert staging_directories(path) == []
