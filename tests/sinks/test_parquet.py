"""The parquet sink's promises, on real files with a real Spark."""

from __future__ import annotations

import errno
import json
import os
import resource
import shutil
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from lossless.errors import BadInput, Fenced, LosslessError, PromiseBroken
from lossless.pipeline.ledger import Ledger, Position, SourcePartition
from lossless.pipeline.outcomes import (
    DEAD_LETTER,
    DEAD_LETTER_TYPE,
    PROVENANCE,
    PROVENANCE_TYPE,
    row_schema,
)
from lossless.pipeline.sinks import parquet
from lossless.pipeline.sinks.folder import Folder, HadoopFolder, LocalFolder
from lossless.pipeline.sinks.interface import CommitUnknown, SinkUnavailable, Staged
from lossless.pipeline.sinks.parquet import ParquetSink
from lossless.pipeline.sinks.parquet_staging import Staging
from lossless.tally import Tally, record_hash
from outcomes_from import outcomes_from

TOPIC_ID = "m8hGqD1bQ0uK2v7n4eXw5A"
SOURCE = SourcePartition("orders", TOPIC_ID, 0)
SCHEMA = T.StructType(
    [
        T.StructField("id", T.LongType()),
        T.StructField("name", T.StringType()),
        T.StructField(PROVENANCE, PROVENANCE_TYPE),
        T.StructField(DEAD_LETTER, DEAD_LETTER_TYPE),
    ]
)
GROWN = T.StructType([SCHEMA.fields[0], T.StructField("price", T.DoubleType()), *SCHEMA.fields[1:]])
ROWS = row_schema(SCHEMA)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "orders"


@pytest.fixture
def sink(spark: SparkSession, path: Path) -> ParquetSink:
    opened = ParquetSink(spark, "orders", str(path))
    opened.prepare(ROWS, add_columns=False)
    return opened


@pytest.fixture
def another_driver(spark: SparkSession, path: Path, sink: ParquetSink) -> ParquetSink:  # noqa: ARG001
    """A second driver of the same pipeline."""
    return ParquetSink(spark, "orders", str(path))


def provenance(offset: int) -> tuple[str, int, int, None]:
    return (TOPIC_ID, 0, offset, None)


def outcomes(
    spark: SparkSession, offsets: Sequence[int] = (), *, dead: Sequence[int] = ()
) -> DataFrame:
    rows = [(100 + offset, f"order {offset}", provenance(offset), None) for offset in offsets]
    letters = [
        (None, None, provenance(o), (b"key", b"{bad", None, {"kafka_dlt-exception-message": "bad"}))
        for o in dead
    ]
    return outcomes_from(spark.createDataFrame([*rows, *letters], SCHEMA))


def tally(*offsets: int) -> Tally:
    total = Tally()
    for offset in offsets:
        total = total + Tally(1, record_hash(TOPIC_ID, 0, offset))
    return total


def after(expected: Ledger, staged: Staged | None, *, next_offset: int) -> Ledger:
    position = expected.positions.get(SOURCE, Position(start_offset=0, next_offset=0))
    if staged is not None and (TOPIC_ID, 0) in staged.receipts:
        position = position.advanced(next_offset, staged.receipts[TOPIC_ID, 0])
    return expected.successor({SOURCE: position})


def deliver(
    sink: ParquetSink, batch: DataFrame, *, next_offset: int, may_expand: bool = False
) -> Ledger:
    staged = sink.stage(batch, may_expand=may_expand)
    expected = sink.ledger()
    successor = after(expected, staged, next_offset=next_offset)
    sink.commit(expected, successor, staged)
    return successor


def ids(rows: DataFrame) -> list[int]:
    return sorted(row["id"] for row in rows.select("id").collect())


def everything(path: Path) -> dict[str, bytes]:
    """All that readers can see, byte for byte."""
    return {
        str(file.relative_to(path)): file.read_bytes()
        for file in sorted(path.rglob("*"))
        if file.is_file() and file.relative_to(path).parts[0] != "_lossless"
    }


def staging_directories(path: Path) -> list[str]:
    return [d.name for d in (path / "_lossless").iterdir() if d.name != "lock"]


def commit_directory(path: Path, sequence: int) -> Path:
    return path / f"lossless_commit={sequence:010d}"


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
    assert rows.columns == ["id", "name", PROVENANCE, "lossless_commit"]
    assert sorted((r["id"], r["lossless_commit"]) for r in rows.collect()) == [
        (100, 1),
        (101, 1),
        (103, 2),
    ]
    assert sink.rows().columns == ["id", "name", PROVENANCE]


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


# Replays, zombies and crashes


def test_a_replayed_commit_is_fenced_and_changes_nothing(
    spark: SparkSession, sink: ParquetSink, path: Path
) -> None:
    staged = sink.stage(outcomes(spark, [0, 1]), may_expand=False)
    successor = after(Ledger(), staged, next_offset=2)
    sink.commit(Ledger(), successor, staged)
    before = everything(path)

    with pytest.raises(Fenced):
        sink.commit(Ledger(), successor, staged)
    again = sink.stage(outcomes(spark, [0, 1]), may_expand=False)
    with pytest.raises(Fenced, match="stands at commit 1"):
        sink.commit(Ledger(), successor, again)

    assert everything(path) == before
    assert staging_directories(path) == []


@pytest.mark.parametrize(
    "expected",
    [
        Ledger(sequence=1, positions={SOURCE: Position(start_offset=0, next_offset=9)}),
        Ledger(sequence=7),
    ],
    ids=["other-content", "ahead"],
)
def test_a_commit_from_a_ledger_that_is_not_the_stored_one_is_fenced(
    spark: SparkSession, sink: ParquetSink, path: Path, expected: Ledger
) -> None:
    deliver(sink, outcomes(spark, [0]), next_offset=1)
    before = everything(path)

    with pytest.raises(Fenced):
        sink.commit(expected, expected.successor({}), None)

    assert everything(path) == before


@pytest.mark.parametrize("winner", ["first", "second"])
def test_of_two_drivers_that_staged_the_same_batch_one_commits(
    spark: SparkSession, sink: ParquetSink, another_driver: ParquetSink, path: Path, winner: str
) -> None:
    drivers = [sink, another_driver] if winner == "first" else [another_driver, sink]
    staged = {id(d): d.stage(outcomes(spark, [0, 1]), may_expand=False) for d in drivers}
    fast, zombie = drivers
    successor = after(Ledger(), staged[id(fast)], next_offset=2)
    fast.commit(Ledger(), successor, staged[id(fast)])
    before = everything(path)

    with pytest.raises(Fenced):
        zombie.commit(Ledger(), successor, staged[id(zombie)])

    assert everything(path) == before
    assert ids(fast.rows()) == [100, 101]


def test_of_two_drivers_that_commit_at_the_same_moment_one_is_fenced(
    spark: SparkSession, sink: ParquetSink, another_driver: ParquetSink
) -> None:
    start = threading.Barrier(2)
    results: list[str] = []

    def commit(driver: ParquetSink, staged: Staged) -> None:
        start.wait()
        try:
            driver.commit(Ledger(), after(Ledger(), staged, next_offset=1), staged)
            results.append("committed")
        except Fenced:
            results.append("fenced")

    threads = [
        threading.Thread(target=commit, args=(d, d.stage(outcomes(spark, [0]), may_expand=False)))
        for d in (sink, another_driver)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert sorted(results) == ["committed", "fenced"]
    assert ids(sink.rows()) == [100]


def test_what_a_dead_driver_staged_is_invisible_and_swept(
    spark: SparkSession, sink: ParquetSink, another_driver: ParquetSink, path: Path
) -> None:
    deliver(sink, outcomes(spark, [0]), next_offset=1)
    before = everything(path)
    sink.stage(outcomes(spark, [1], dead=[2]), may_expand=False)  # and dies

    assert everything(path) == before
    assert ids(spark.read.parquet(str(path))) == [100]
    assert len(staging_directories(path)) == 1
    another_driver.sweep()
    assert staging_directories(path) == []
    assert everything(path) == before


def test_a_driver_whose_staging_was_swept_publishes_nothing(
    spark: SparkSession, sink: ParquetSink, another_driver: ParquetSink, path: Path
) -> None:
    staged = sink.stage(outcomes(spark, [0, 1]), may_expand=False)
    another_driver.sweep()

    with pytest.raises(Fenced, match="removed what this one had staged"):
        sink.commit(Ledger(), after(Ledger(), staged, next_offset=2), staged)

    assert another_driver.ledger() == Ledger()
    assert not commit_directory(path, 1).exists()


def test_a_batch_that_is_swept_while_its_tasks_write_is_not_taken_for_whole(
    spark: SparkSession, sink: ParquetSink, path: Path
) -> None:
    work = str(path / "_lossless")

    @F.udf("long")
    def sweep_at_the_tenth(identifier):
        if identifier == 110:
            for name in os.listdir(work):
                if name.startswith("staging-"):
                    os.rename(f"{work}/{name}", f"{work}/swept-{name}")
        return identifier

    # What tasks wrote until then is gone; those that start later write under the old name again.
    batch = outcomes(spark, range(20)).repartitionByRange(8, "id")
    with pytest.raises(Fenced, match="removed what this one had staged"):
        sink.stage(batch.withColumn("id", sweep_at_the_tenth("id")), may_expand=False)

    sink.sweep()
    assert staging_directories(path) == []


def test_a_batch_that_fails_leaves_nothing_behind(
    spark: SparkSession, sink: ParquetSink, path: Path
) -> None:
    batch = outcomes(spark, range(10)).withColumn(
        "name", F.when(F.col("id") == 109, F.raise_error(F.lit("broken record"))).otherwise("ok")
    )
    with pytest.raises(Exception, match="broken record") as failure:
        sink.stage(batch, may_expand=False)

    assert not isinstance(failure.value, LosslessError)  # the runner must see what Spark said
    assert staging_directories(path) == []


def test_what_was_staged_is_on_disk_before_it_is_published(
    spark: SparkSession, sink: ParquetSink, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    events: list[tuple[str, int]] = []
    fsync, rename = os.fsync, os.rename

    def recording_fsync(descriptor: int) -> None:
        fsync(descriptor)
        events.append(("flushed", os.fstat(descriptor).st_ino))

    def recording_rename(source: str, target: str) -> None:
        rename(source, target)
        if target == str(commit_directory(path, 1)):
            events.append(("published", os.stat(target).st_ino))

    monkeypatch.setattr(os, "fsync", recording_fsync)
    monkeypatch.setattr(os, "rename", recording_rename)
    deliver(sink, outcomes(spark, [0, 1], dead=[2]), next_offset=3)

    published = commit_directory(path, 1)
    at = events.index(("published", published.stat().st_ino))
    must_be_flushed = {entry.stat().st_ino for entry in [published, *published.rglob("*")]}
    assert must_be_flushed <= {inode for _, inode in events[:at]}
    assert ("flushed", path.stat().st_ino) in events[at:]


# Outcomes that are not known, and sinks that cannot be written


class FailingFolder(LocalFolder):
    """Publishing fails, before or after it took effect."""

    def __init__(self, path: str, *, takes_effect: bool) -> None:
        super().__init__(path, lock_name="_lossless/lock")
        self.takes_effect = takes_effect
        self.broken = True

    def rename(self, source: str, target: str) -> None:
        publishing = self.broken and target.startswith("lossless_commit=")
        if not publishing or self.takes_effect:
            super().rename(source, target)
        if publishing:
            raise OSError(errno.EIO, os.strerror(errno.EIO))


@pytest.mark.parametrize("takes_effect", [True, False])
def test_after_an_error_while_publishing_the_ledger_tells_the_outcome(
    spark: SparkSession, path: Path, monkeypatch: pytest.MonkeyPatch, takes_effect: bool
) -> None:
    folder = FailingFolder(str(path), takes_effect=takes_effect)
    monkeypatch.setattr(parquet, "open_folder", lambda *_, **__: folder)
    sink = ParquetSink(spark, "orders", str(path))
    sink.prepare(ROWS, add_columns=False)
    staged = sink.stage(outcomes(spark, [0, 1]), may_expand=False)
    successor = after(Ledger(), staged, next_offset=2)

    with pytest.raises(CommitUnknown, match="Input/output error"):
        sink.commit(Ledger(), successor, staged)

    assert sink.ledger() == (successor if takes_effect else Ledger())
    if not takes_effect:
        folder.broken = False
        sink.commit(Ledger(), successor, staged)  # what was staged is still good
    assert sink.ledger() == successor
    assert ids(sink.rows()) == [100, 101]


@pytest.fixture
def jvm_file_size_limit(spark: SparkSession) -> Iterator[Callable[[int], None]]:
    """A disk that is full after so many bytes, for Spark's files."""
    pid = spark._jvm.java.lang.ProcessHandle.current().pid()
    before = resource.prlimit(pid, resource.RLIMIT_FSIZE)
    yield lambda size: resource.prlimit(pid, resource.RLIMIT_FSIZE, (size, before[1])) and None
    resource.prlimit(pid, resource.RLIMIT_FSIZE, before)


def test_a_full_disk_while_staging_says_so_and_the_next_try_succeeds(
    spark: SparkSession,
    sink: ParquetSink,
    path: Path,
    jvm_file_size_limit: Callable[[int], None],
) -> None:
    before = everything(path)
    jvm_file_size_limit(100)
    with pytest.raises(SinkUnavailable, match="File too large"):
        sink.stage(outcomes(spark, range(50)), may_expand=False)
    jvm_file_size_limit(resource.RLIM_INFINITY)

    assert everything(path) == before
    assert staging_directories(path) == []
    deliver(sink, outcomes(spark, [0]), next_offset=1)
    assert ids(sink.rows()) == [100]


def test_a_path_that_is_a_file_is_refused(spark: SparkSession, path: Path) -> None:
    path.write_text("not a directory")
    sink = ParquetSink(spark, "orders", str(path))

    with pytest.raises(BadInput, match="Not a directory"):
        sink.ledger()
    with pytest.raises(BadInput, match="must be a directory"):
        sink.prepare(ROWS, add_columns=False)
    assert path.read_text() == "not a directory"


def test_a_path_below_a_file_is_refused(spark: SparkSession, path: Path) -> None:
    path.write_text("not a directory")

    with pytest.raises(BadInput, match="Not a directory"):
        ParquetSink(spark, "orders", f"{path}/below").prepare(ROWS, add_columns=False)


@pytest.mark.parametrize("scheme", ["s3a", "gs", "abfss", "oss"])
def test_an_object_store_is_refused_with_the_way_out(spark: SparkSession, scheme: str) -> None:
    with pytest.raises(BadInput, match="atomic rename") as refusal:
        ParquetSink(spark, "orders", f"{scheme}://bucket/orders")
    assert "delta" in str(refusal.value)


def test_a_path_that_spark_would_take_for_a_pattern_is_refused(spark: SparkSession) -> None:
    with pytest.raises(BadInput, match="pattern"):
        ParquetSink(spark, "orders", "/data/orders-[eu]")


@pytest.mark.parametrize("seen", ["all", "some"])
def test_on_a_cluster_a_path_that_machines_do_not_share_is_refused(
    spark: SparkSession, path: Path, seen: str
) -> None:
    class DriversDisk(LocalFolder):
        def sizes(self, name: str) -> dict[str, int]:
            found = dict(super().sizes(name))
            return found if seen == "all" else dict(list(found.items())[1:])

    cluster: Any = SimpleNamespace(
        sparkContext=SimpleNamespace(master="spark://host:7077", defaultParallelism=2),
        range=spark.range,
        _jvm=spark._jvm,
        _jsc=spark._jsc,
    )
    staging = Staging(cluster, DriversDisk(str(path), lock_name="_lossless/lock"))
    if seen == "all":
        staging.check_that_executors_share_the_path()
    else:
        with pytest.raises(BadInput, match="of 4 tasks only 3 wrote"):
            staging.check_that_executors_share_the_path()
    assert staging_directories(path) == []


def test_the_sessions_committer_settings_do_not_matter(
    spark: SparkSession, sink: ParquetSink
) -> None:
    settings = spark._jsc.hadoopConfiguration()
    settings.set("mapreduce.fileoutputcommitter.marksuccessfuljobs", "false")
    try:
        deliver(sink, outcomes(spark, [0]), next_offset=1)
    finally:
        settings.unset("mapreduce.fileoutputcommitter.marksuccessfuljobs")
    assert ids(sink.rows()) == [100]


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
    assert T.StructType.fromJson(document["schema"]) == ROWS
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
    assert written == [schema]
    shutil.copy(path / "_common_metadata", tmp_path / "summary.parquet")
    stored = spark.read.parquet(str(tmp_path / "summary.parquet"))
    assert stored.schema == schema
    assert stored.count() == 0


def test_readers_get_the_schema_of_the_driver_that_commits(
    spark: SparkSession, sink: ParquetSink, another_driver: ParquetSink, path: Path
) -> None:
    other = T.StructType([T.StructField("price", T.DoubleType()), *ROWS.fields[1:]])
    another_driver.prepare(other, add_columns=False)
    deliver(sink, outcomes(spark, [0]), next_offset=1)
    assert spark.read.parquet(str(path)).columns == [*ROWS.names, "lossless_commit"]


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
