"""The parquet sink: a directory per commit, published by one rename.

    <path>/
      lossless_commit=0000000001/     one commit; a reader sees all of it or nothing
        part-….parquet                the rows
        _dead_letters/part-….parquet  the records that became none, as JSON
        _ledger.json                  the ledger after this commit, and what the commit consists of
      _common_metadata                the table's schema, for readers
      _lossless/                      the lock and what is being staged; readers skip it

`spark.read.parquet(path)` gives the rows, and `lossless_commit`, the sequence number of the commit
that brought them. The name has the form of a partition because Spark does not look for files in
other sub-directories. Spark takes the table's schema from `_common_metadata`: columns added later
are there, and one that only the files have is not: `_lossless_dead_letter`, null in every row,
which is the price of writing rows and dead letters in one evaluation. Other readers, and Spark with
`mergeSchema`, show that column.

How a commit is made
1. `stage` writes rows and dead letters in one job to `_lossless/staging-<token>/`, reads them back
   for the receipts and flushes them to disk.
2. `commit` compares the newest `_ledger.json` with what it expects, writes its own beside the
   staged files, and renames the staged directory to the next commit. The rename refuses a target
   that exists, so of two drivers one loses, also where there is no lock.
3. `sweep` first renames what it removes. A driver that is still alive then finds its staging gone
   (see parquet_staging.py), even if Spark's tasks went on writing under the old name, and its
   rename fails: half a batch is never published.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from py4j.protocol import Py4JJavaError
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import functions as F
from pyspark.sql import types as T

from lossless.errors import BadInput, Fenced
from lossless.pipeline.contents import (
    Uncoverings,
    content_hashes,
    doubtful_rows,
    hashed,
    hashed_columns,
    with_hash_column,
)
from lossless.pipeline.ledger import Ledger, LedgerEntry
from lossless.pipeline.outcomes import (
    CONTENT_HASH,
    DEAD_LETTER,
    IS_DEAD,
    PROVENANCE,
    PROVENANCE_TYPE,
    opened,
    receipts,
    row_schema,
)
from lossless.pipeline.sinks.folder import open_folder
from lossless.pipeline.sinks.interface import (
    CommitUnknown,
    SchemaDifference,
    SinkUnavailable,
    Staged,
    no_ledger,
)
from lossless.pipeline.sinks.parquet_log import (
    COMMIT_COLUMN,
    LEDGER_FILE,
    CommitLog,
    CommitRecord,
    commit_name,
    compare_schemas,
    merge_schemas,
    refuse_unfit,
)
from lossless.pipeline.sinks.parquet_staging import (
    DEAD_LETTERS,
    SUMMARY,
    WORK,
    Attempt,
    Staging,
)
from lossless.pipeline.sinks.unreadable_files import (
    ListedFile,
    UnreadableFile,
    find_unreadable,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, DataFrameReader, SparkSession

DEAD_LETTER_FILE_TYPE = T.StructType(
    [T.StructField(PROVENANCE, PROVENANCE_TYPE), T.StructField(DEAD_LETTER, T.StringType())]
)

# What the operating system says when a disk or a permission, not a record, is the trouble. Spark
# passes a task's failure on as text only.
STORAGE_FAILURE = re.compile(
    "No space left on device|Disk quota exceeded|File too large|Input/output error"
    "|Read-only file system|Permission denied|Mkdirs failed to create [^\n(]+"
)


class ParquetSink:
    """Rows as parquet files, at a path on `file:` or `hdfs:` that belongs to one pipeline."""

    def __init__(self, spark: SparkSession, pipeline: str, path: str) -> None:
        self._spark = spark
        self._pipeline = pipeline
        self._path = path
        self._folder = open_folder(spark, path, lock_name=f"{WORK}/lock")
        self._log = CommitLog(self._folder, pipeline)
        self._staging = Staging(spark, self._folder)
        self._prepared: T.StructType | None = None
        self._left_out: frozenset[str] = frozenset()

    def describe(self) -> str:
        return f"parquet files {self._path}"

    def ledger(self) -> Ledger:
        with self._reporting("read"):
            self._log.refuse_foreign_entries()
            newest = self._log.newest()
            return newest.ledger if newest else Ledger()

    def history(self) -> Sequence[LedgerEntry]:
        with self._reporting("read"):
            return [self._log.read(sequence).entry for sequence in self._log.sequences()]

    def other_ledgers(self) -> Mapping[str, Ledger]:
        return {}  # a path belongs to one pipeline

    def take_over(self, old: str) -> Ledger:
        with self._reporting("rename a pipeline in"):
            log = CommitLog(self._folder, old)
            attempt = self._staging.begin()
            try:
                with self._folder.lock():
                    newest = log.newest()
                    if newest is None:
                        raise no_ledger(old, self.describe(), ())
                    successor = newest.ledger.successor({})
                    self._commit(newest.ledger, successor, attempt, log)
            finally:
                self._staging.discard(attempt)
            return successor

    def cancel(self) -> None:
        """There is no server to wait for."""

    def sweep(self) -> None:
        with self._reporting("sweep"):
            self._staging.sweep()

    def schema_difference(self, rows: T.StructType) -> SchemaDifference:
        with self._reporting("read"):
            newest = self._log.newest()
        return compare_schemas(newest.schema if newest else None, rows)

    def prepare(self, rows: T.StructType, *, add_columns: bool) -> None:
        with self._reporting("prepare"):
            self._log.refuse_foreign_entries()
            difference = self.schema_difference(rows)
            rows = with_hash_column(rows)
            refuse_unfit(difference, self._pipeline, self.describe(), add_columns)
            self._folder.make(WORK)
            self._staging.check_that_executors_share_the_path()
            with self._folder.lock():
                newest = self._log.newest()
                table = newest.schema if newest else None
                self._prepared = merge_schemas(table, rows)
                if self._prepared != table or SUMMARY not in self._folder.names():
                    self._staging.write_summary(self._prepared)

    def stage(self, outcomes: DataFrame, *, may_expand: bool) -> Staged:
        columns = hashed_columns(outcomes.schema)
        outcomes = hashed(outcomes)
        with self._reporting("write"):
            attempt = self._staging.begin(row_schema(outcomes.schema))
            try:
                staged = self._stage(outcomes, attempt, may_expand=may_expand)
                return replace(staged, columns=columns)
            except BaseException as error:
                # A sweep makes everything fail that comes after it, in many words.
                swept = isinstance(error, Exception) and self._staging.is_swept(attempt)
                self._staging.discard(attempt)
                if swept:
                    raise self._fenced_by_sweep() from error
                raise

    def commit(self, expected: Ledger, successor: Ledger, staged: Staged | None) -> None:
        if successor.sequence != expected.sequence + 1:
            raise ValueError(f"{successor.sequence} does not follow {expected.sequence}")
        with self._reporting("commit to"):
            attempt: Attempt = staged.handle if staged else self._staging.begin()
            try:
                with self._folder.lock():
                    self._commit(expected, successor, attempt, self._log)
            except BaseException as error:
                swept = isinstance(error, OSError) and self._staging.is_swept(attempt)
                # What was staged can be committed again, unless another driver was there first.
                if staged is None or swept or isinstance(error, Fenced):
                    self._staging.discard(attempt)
                if swept:
                    raise self._fenced_by_sweep() from error
                raise
            self._staging.discard(attempt)

    def rows(self) -> DataFrame:
        with self._reporting("read"):
            self._log.refuse_foreign_entries()
            newest = self._log.newest()
            if newest is None or newest.schema is None:
                schema = T.StructType([T.StructField(PROVENANCE, PROVENANCE_TYPE)])
                return self._spark.createDataFrame([], self._prepared or schema)
            rows = self._reader(newest.schema).parquet(self._folder.uri())
            return self._without_left_out(rows).drop(COMMIT_COLUMN)

    def unreadable_files(self, *, read: bool) -> Sequence[UnreadableFile]:
        with self._reporting("read"):
            rows, letters = self._listed_files()

            def rows_of(files: Sequence[ListedFile]) -> DataFrame:
                paths = [file.uri for file in files]
                return self._spark.read.schema(self._schema()).parquet(*paths)

            def letters_of(files: Sequence[ListedFile]) -> DataFrame:
                paths = [file.uri for file in files]
                return self._spark.read.schema(DEAD_LETTER_FILE_TYPE).parquet(*paths)

            find = partial(find_unreadable, self._spark, size_of=self._size)
            return [
                *find(rows, read=rows_of if read else None),
                *find(letters, read=letters_of if read else None),
            ]

    def leave_out(self, files: Sequence[UnreadableFile]) -> None:
        self._left_out = frozenset(file.path for file in files)

    def contents(self, covered: Sequence[str], uncovered: Uncoverings) -> DataFrame:
        return doubtful_rows(self.rows(), covered, uncovered)

    def content_hashes(self) -> DataFrame:
        return content_hashes(self.rows())

    def dead_letters(self) -> DataFrame:
        with self._reporting("read"):
            found = self._read_dead_letters([commit_name(n) for n in self._log.sequences()])
            letter = opened(F.col(DEAD_LETTER)).alias(DEAD_LETTER)
            return found.select(PROVENANCE, letter).select(PROVENANCE, f"{DEAD_LETTER}.*")

    # Reading what is there

    def _schema(self) -> T.StructType:
        newest = self._log.newest()
        schema = newest.schema if newest else None
        return schema.toNullable() if schema else T.StructType([])

    def _listed_files(self) -> tuple[list[ListedFile], list[ListedFile]]:
        """What the commits wrote down about their files of rows, and of dead letters."""
        rows: list[ListedFile] = []
        letters: list[ListedFile] = []
        for sequence in self._log.sequences():
            for file in self._log.read(sequence).files:
                path = f"{commit_name(sequence)}/{file.name}"
                listed = ListedFile(
                    path=path, uri=self._folder.uri(path), size=file.size, rows=file.rows
                )
                (letters if file.name.startswith(f"{DEAD_LETTERS}/") else rows).append(listed)
        return rows, letters

    def _size(self, file: ListedFile) -> int | None:
        folder, _, name = file.path.rpartition("/")
        return self._folder.sizes(folder).get(name)

    def _without_left_out(self, frame: DataFrame) -> DataFrame:
        """Spark does not open files that a filter on their path leaves out."""
        if not self._left_out:
            return frame
        path = F.col("_metadata.file_path")
        for ending in sorted(self._left_out):
            frame = frame.where(~path.endswith(f"/{ending}"))
        return frame

    def _reader(self, schema: T.StructType) -> DataFrameReader:
        # A session may be told to skip files that are gone or damaged; a count may not.
        return self._spark.read.schema(schema.toNullable()).options(
            ignoreMissingFiles="false", ignoreCorruptFiles="false"
        )

    def _read_dead_letters(self, commits: Sequence[str]) -> DataFrame:
        paths = [
            self._folder.uri(f"{commit}/{DEAD_LETTERS}")
            for commit in commits
            if self._folder.names(f"{commit}/{DEAD_LETTERS}")
        ]
        if not paths:
            return self._spark.createDataFrame([], DEAD_LETTER_FILE_TYPE)
        return self._without_left_out(self._reader(DEAD_LETTER_FILE_TYPE).parquet(*paths))

    # Staging and committing

    def _stage(self, outcomes: DataFrame, attempt: Attempt, *, may_expand: bool) -> Staged:
        self._staging.write_split(outcomes, attempt)
        rows = self._reader(row_schema(outcomes.schema)).parquet(self._folder.uri(attempt.commit))
        letters = self._read_dead_letters([attempt.commit])
        no_hash = F.lit(None).cast("long").alias(CONTENT_HASH)
        written = rows.select(PROVENANCE, F.lit(False).alias(IS_DEAD), CONTENT_HASH).union(
            letters.select(PROVENANCE, F.lit(True).alias(IS_DEAD), no_hash)
        )
        counted = receipts(written, may_expand=may_expand)
        files = [
            *self._staging.files(attempt.commit),
            *self._staging.files(f"{attempt.commit}/{DEAD_LETTERS}", prefix=f"{DEAD_LETTERS}/"),
        ]
        read_back = sum(receipt.rows + receipt.dead.count for receipt in counted.values())
        in_footers = sum(file.rows for file in files)
        if read_back != in_footers:
            raise SinkUnavailable(
                f"{self.describe()}: {in_footers} rows were written but {read_back} read back",
                hint="the batch was not committed; check the file system, then start again",
            )
        self._folder.flush(attempt.commit, recursive=True)
        self._check_not_swept(attempt)
        return Staged(receipts=counted, handle=replace(attempt, files=files))

    def _commit(
        self, expected: Ledger, successor: Ledger, attempt: Attempt, log: CommitLog
    ) -> None:
        newest = log.newest()
        stored = newest.ledger if newest else Ledger()
        if stored != expected:
            raise self._fenced(expected, stored)
        self._check_not_swept(attempt)
        table = newest.schema if newest else None
        schema = merge_schemas(table, attempt.schema) if attempt.schema else table or self._prepared
        record = CommitRecord(
            pipeline=self._pipeline,
            attempt=attempt.token,
            ledger=successor,
            entry=LedgerEntry.between(expected, successor, committed_at_ms=int(time.time() * 1000)),
            schema=schema,
            files=attempt.files,
        )
        if attempt.schema is None:
            self._folder.make(attempt.commit)
        self._folder.remove(f"{attempt.commit}/{LEDGER_FILE}")  # of a commit that failed before
        self._folder.create(f"{attempt.commit}/{LEDGER_FILE}", record.to_json())
        self._folder.flush(attempt.commit)
        if schema and schema != table and not self._staging.has_summary(schema):
            # Before the commit: until then, readers see columns without values, and no harm done.
            self._staging.write_summary(schema)
        self._publish(attempt, expected, successor)

    def _publish(self, attempt: Attempt, expected: Ledger, successor: Ledger) -> None:
        target = commit_name(successor.sequence)
        try:
            # From here on nothing of ours brings the staging directory back: if it is swept now,
            # the rename fails.
            self._check_not_swept(attempt)
            self._folder.rename(attempt.commit, target)
        except (FileExistsError, FileNotFoundError) as error:
            # A file system that repeats a request whose answer was lost can say either of our own.
            if target not in self._folder.names():
                raise
            published = self._log.read(successor.sequence)
            if published.attempt != attempt.token:
                raise self._fenced(expected, published.ledger) from error
        except OSError as error:
            raise self._commit_unknown(target, error) from error
        try:
            self._folder.flush()
        except OSError as error:
            raise self._commit_unknown(target, error) from error

    def _check_not_swept(self, attempt: Attempt) -> None:
        if self._staging.is_swept(attempt):
            raise self._fenced_by_sweep()

    def _fenced(self, expected: Ledger, stored: Ledger) -> Fenced:
        return Fenced(
            f"another driver of pipeline {self._pipeline!r} has committed to {self._path}: its "
            f"ledger stands at commit {stored.sequence}, not at the {expected.sequence} that this "
            "batch began from",
            hint="only one driver may run a pipeline; this one stops without writing",
        )

    def _fenced_by_sweep(self) -> Fenced:
        return Fenced(
            f"another driver of pipeline {self._pipeline!r} has started and removed what this one "
            f"had staged in {self._path}",
            hint="only one driver may run a pipeline; this one stops without writing",
        )

    def _commit_unknown(self, target: str, error: OSError) -> CommitUnknown:
        return CommitUnknown(
            f"{self._folder.uri(target)} may or may not have been published: {_reason(error)}",
            hint="the ledger says which when it can be read again",
        )

    @contextmanager
    def _reporting(self, doing: str) -> Iterator[None]:
        """Turns what the file system says into one sentence with the path."""
        try:
            yield
        except (NotADirectoryError, FileExistsError) as error:
            if self._prepared:
                raise SinkUnavailable(
                    f"cannot {doing} {self.describe()}: {_reason(error)}",
                    hint="it was a directory when the pipeline started",
                ) from error
            raise BadInput(
                f"cannot {doing} {self.describe()}: {_reason(error)}",
                hint="the path must be a directory, or not exist yet",
            ) from error
        except OSError as error:
            if isinstance(error, PermissionError) and not self._prepared:
                raise BadInput(
                    f"cannot {doing} {self.describe()}: {_reason(error)}",
                    hint="give permission to write there, or choose another path",
                ) from error
            raise SinkUnavailable(
                f"cannot {doing} {self.describe()}: {_reason(error)}",
                hint="nothing was committed; make room or give permission, then start again",
            ) from error
        except AnalysisException as error:
            raise BadInput(f"cannot {doing} {self.describe()}: {_first_line(error)}") from error
        except (Py4JJavaError, PySparkException) as error:
            failure = STORAGE_FAILURE.search(str(error))
            if failure is None:
                raise
            raise SinkUnavailable(
                f"cannot {doing} {self.describe()}: {failure[0]}",
                hint="nothing was committed; make room or give permission, then start again",
            ) from error


def _reason(error: OSError) -> str:
    where = f" ({error.filename})" if error.filename else ""
    return f"{error.strerror or error}{where}"


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]
