"""Staging for the parquet sink: directories that no reader sees, written by Spark jobs.

A staging directory holds the file ATTEMPT from before its first row. Sweeping renames the directory
away before removing it, and Spark's tasks may then go on writing under the old name; the file that
is missing there tells that what is left is only a part.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from py4j.java_gateway import JavaClass
from pyspark.sql import types as T

from lossless.errors import BadInput
from lossless.pipeline.outcomes import IS_DEAD
from lossless.pipeline.sinks.folder import Folder
from lossless.pipeline.sinks.interface import SinkUnavailable
from lossless.pipeline.sinks.parquet_log import DataFile

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

WORK = "_lossless"
ATTEMPT = "_attempt"
SUMMARY = "_common_metadata"  # the name under which Spark looks for a schema
DEAD_LETTERS = "_dead_letters"


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """A staging directory of ours."""

    token: str
    schema: T.StructType | None = None  # of the rows in it
    files: Sequence[DataFile] = ()

    @property
    def name(self) -> str:
        return f"{WORK}/staging-{self.token}"

    @property
    def commit(self) -> str:
        """What becomes the commit's directory."""
        return f"{self.name}/commit"


class Staging:
    """Writes, counts and removes what is staged below one folder."""

    def __init__(self, spark: SparkSession, folder: Folder) -> None:
        self._spark = spark
        self._folder = folder
        self._summary: tuple[T.StructType, Sequence[int] | None] | None = None  # as last written
        self._client = cast(Any, spark._jvm)._gateway_client
        self._configuration = spark._jsc.hadoopConfiguration()

    def begin(self, rows: T.StructType | None = None) -> Attempt:
        attempt = Attempt(token=uuid.uuid4().hex, schema=rows)
        self._folder.make(attempt.name)
        self._folder.create(f"{attempt.name}/{ATTEMPT}", attempt.token)
        return attempt

    def sweep(self) -> None:
        """Takes every staging directory away with one rename before it removes the first file."""
        for name in self._folder.names(WORK):
            if name.startswith("staging-"):
                swept = f"{WORK}/swept-{uuid.uuid4().hex}"
                with suppress(FileNotFoundError):  # published or swept by somebody else
                    self._folder.rename(f"{WORK}/{name}", swept)
        for name in self._folder.names(WORK):
            if name.startswith("swept-"):
                self._folder.remove(f"{WORK}/{name}")

    def write_split(self, outcomes: DataFrame, attempt: Attempt) -> None:
        """Rows and dead letters in one job, and each in its place."""
        split = f"{attempt.name}/split"
        self._write(outcomes, split, partition_by=[IS_DEAD])
        written = self._folder.names(split)
        if f"{IS_DEAD}=false" in written:
            self._folder.rename(f"{split}/{IS_DEAD}=false", attempt.commit)
        else:
            self._folder.make(attempt.commit)
        if f"{IS_DEAD}=true" in written:
            self._folder.rename(f"{split}/{IS_DEAD}=true", f"{attempt.commit}/{DEAD_LETTERS}")

    def _write(self, frame: DataFrame, name: str, *, partition_by: Sequence[str] = ()) -> None:
        """Writes `frame` so that nothing of a failed or a second attempt of a task is left."""
        frame.write.options(
            **{
                # Version 2 publishes what a task wrote before the job has decided that it counts.
                "mapreduce.fileoutputcommitter.algorithm.version": "1",
                "mapreduce.fileoutputcommitter.marksuccessfuljobs": "true",
            }
        ).parquet(self._folder.uri(name), mode="error", partitionBy=list(partition_by))
        written = self._folder.names(name)
        if "_SUCCESS" not in written or "_temporary" in written:
            raise SinkUnavailable(
                f"Spark did not finish writing {self._folder.uri(name)}: _SUCCESS is missing",
                hint="nothing was committed; check the session's output committer settings",
            )

    def files(self, directory: str, *, prefix: str = "") -> list[DataFile]:
        return [
            DataFile(f"{prefix}{name}", size, self._rows_in(f"{directory}/{name}"))
            for name, size in sorted(self._folder.sizes(directory).items())
        ]

    def _rows_in(self, name: str) -> int:
        """What the file's own footer says."""
        file = self._java("org.apache.parquet.hadoop.ParquetFileReader").open(
            self._java("org.apache.parquet.hadoop.util.HadoopInputFile").fromPath(
                self._path(name), self._configuration
            )
        )
        try:
            return int(file.getRecordCount())
        finally:
            file.close()

    def is_swept(self, attempt: Attempt) -> bool:
        return ATTEMPT not in self._folder.names(attempt.name)

    def discard(self, attempt: Attempt) -> None:
        """Whatever it cannot remove, the next sweep will."""
        with suppress(OSError):
            self._folder.remove(attempt.name)

    def check_that_executors_share_the_path(self) -> None:
        """BadInput when a `file:` path is another directory on another machine.

        Executors would write to their own disks, the driver would commit what it finds on its own,
        and Spark would call that a success.
        """
        context = self._spark.sparkContext
        if str(context.master).startswith("local") or not self._folder.uri().startswith("file:"):
            return
        attempt = self.begin()
        tasks = 2 * context.defaultParallelism
        try:
            self._write(self._spark.range(0, tasks, 1, tasks).toDF("task"), f"{attempt.name}/probe")
            found = sum(file.rows for file in self.files(f"{attempt.name}/probe"))
        finally:
            self.discard(attempt)
        if found != tasks:
            raise BadInput(
                f"{self._folder.uri()} is not the same directory on every machine: of {tasks} "
                f"tasks only {found} wrote where the driver can see it",
                hint="use a path that all machines share",
            )

    def has_summary(self, schema: T.StructType) -> bool:
        """Whether the table's schema is there as we wrote it: another driver may have its own."""
        return self._summary == (schema, self._folder.identity(SUMMARY))

    def write_summary(self, schema: T.StructType) -> None:
        """Puts the table's schema where Spark looks for it: a parquet file without rows."""
        attempt = self.begin()
        written = f"{attempt.name}/summary"
        try:
            self._folder.make(written)
            self._write_empty(schema, f"{written}/{SUMMARY}")
            self._folder.flush(written, recursive=True)
            self._folder.replace(f"{written}/{SUMMARY}", SUMMARY)
            self._summary = (schema, self._folder.identity(SUMMARY))
        finally:
            self.discard(attempt)

    def _write_empty(self, schema: T.StructType, name: str) -> None:
        """What Spark would write for a frame without rows, without a job for it."""
        session: Any = self._spark._jsparkSession
        settings = session.sessionState().conf()
        columns = session.parseDataType(schema.json())
        sources = "org.apache.spark.sql.execution.datasources"
        # A job would begin with these: schemas that cannot be stored are refused here.
        self._java("org.apache.spark.sql.util.SchemaUtils").checkSchemaColumnNameDuplication(
            columns, settings.caseSensitiveAnalysis()
        )
        self._java(f"{sources}.DataSource").validateSchema("parquet", columns, settings)
        self._java(f"{sources}.DataSourceUtils").verifySchema(
            self._java(f"{sources}.parquet.ParquetFileFormat")(), columns, False
        )
        converter = self._java(f"{sources}.parquet.SparkToParquetSchemaConverter")(settings)
        writer = self._java("org.apache.parquet.hadoop.ParquetFileWriter")
        defaults = self._java("org.apache.parquet.hadoop.ParquetWriter")
        file = writer(
            self._java("org.apache.parquet.hadoop.util.HadoopOutputFile").fromPath(
                self._path(name), self._configuration
            ),
            converter.convert(columns),
            writer.Mode.CREATE,
            defaults.DEFAULT_BLOCK_SIZE,
            defaults.MAX_PADDING_SIZE_DEFAULT,
        )
        try:
            file.start()
            # The keys by which Spark knows its own files; the first holds the schema as it is.
            file.end(
                {
                    "org.apache.spark.sql.parquet.row.metadata": columns.json(),
                    "org.apache.spark.version": self._spark.version,
                }
            )
        finally:
            file.close()

    def _path(self, name: str) -> Any:
        return self._java("org.apache.hadoop.fs.Path")(self._folder.uri(name))

    def _java(self, name: str) -> Any:
        """A Java class by its name: on the way of dots every dot is a question to the JVM."""
        return JavaClass(name, self._client)
