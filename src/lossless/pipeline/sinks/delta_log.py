"""Delta's transaction log, through the driver's JVM: the calls that the sink's protocol needs.

Everything that knows about py4j, Scala collections and Java exceptions lives here, so that
delta.py and delta_letters.py read as the protocol. Actions that outlive a call are kept as the
JSON that Delta writes into its log, never as Java objects.
"""

from __future__ import annotations

import json
import os
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import unquote

from py4j.java_gateway import JavaClass
from pyspark.sql import types as T

from lossless.errors import BadInput, Unavailable
from lossless.pipeline.session import setting
from lossless.pipeline.sinks.delta_replay import Replay, operations
from lossless.pipeline.sinks.file_lock import jvm_file_lock
from lossless.pipeline.sinks.unreadable_files import (
    ListedFile,
    UnreadableFile,
    find_unreadable,
)

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

LOCK_FILE = "_lossless.lock"  # the leading underscore hides it from Delta, VACUUM and Spark

INDEXED_COLUMNS = 32  # that Delta keeps statistics of, unless told otherwise

# Commits are read by the driver itself as long as they are few and small; see commit_texts.
COMMITS_READ_MAX = 20
COMMIT_BYTES_MAX = 4 * 1024 * 1024

# A task that writes to several directories sorts its rows first, unless it may keep this many open.
WRITERS_OPEN_MAX = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class AddedFile:
    """A data file that was written, as the action that would add it to a table."""

    action: Mapping[str, Any]

    @property
    def path(self) -> str:
        """Relative to the table, as the file system spells it."""
        return unquote(self.action["path"])

    @property
    def partition_values(self) -> Mapping[str, str]:
        values: Mapping[str, str] = self.action["partitionValues"]
        return values

    @property
    def statistics(self) -> dict[str, Any]:
        return json.loads(self.action.get("stats") or "{}") or {}

    def without(self, *, partition_column: str, column: str) -> AddedFile:
        """The same file in a table that has neither the partition column nor the data column."""
        values = {k: v for k, v in self.partition_values.items() if k != partition_column}
        statistics = self.statistics
        for kind in ("minValues", "maxValues", "nullCount"):
            statistics.get(kind, {}).pop(column, None)
        changed = {"partitionValues": values, "stats": json.dumps(statistics)}
        return AddedFile(action={**self.action, **changed})


@dataclass(frozen=True, slots=True, kw_only=True)
class Commit:
    """One version in the history of a table."""

    version: int
    operation: str
    parameters: Mapping[str, str]
    user_metadata: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class TableMetadata:
    """What a table says about itself."""

    schema: T.StructType
    partition_columns: tuple[str, ...]
    configuration: Mapping[str, str]
    writer_features: frozenset[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Scratch:
    """Files that were written beside a table's own, and what they hold, read back from them."""

    files: tuple[AddedFile, ...]
    read_back: DataFrame


class Snapshot:
    """One version of a table, whole."""

    def __init__(self, java: Any, delta: DeltaLog) -> None:
        self._java = java
        self._delta = delta

    @property
    def version(self) -> int:
        return int(self._java.version())

    @property
    def exists(self) -> bool:
        """Whether there is a table at all. The snapshot of none has no transactions either."""
        return self.version >= 0

    @property
    def metadata(self) -> TableMetadata:
        return self._delta.metadata_of(self._java)

    def transactions(self, prefix: str) -> dict[str, int]:
        """The transaction versions whose application id starts with `prefix`."""
        versions = self._delta.replay.at(self)
        return {name: version for name, version in versions.items() if name.startswith(prefix)}

    def all_transactions(self) -> dict[str, int]:
        """Every transaction version, by a Spark job over the whole log."""
        found = self._delta.to_list(self._java.setTransactions())
        return {str(each.appId()): int(each.version()) for each in found}

    def data_files(self) -> list[ListedFile]:
        """The files that the table consists of."""
        files = self._delta.frame(self._java.allFiles().toDF()).select("path", "size", "stats")
        listed = []
        for row in files.collect():
            path = unquote(row["path"])
            listed.append(
                ListedFile(
                    path=path,
                    uri=str(self._delta.child(path).toString()),
                    size=row["size"],
                    rows=json.loads(row["stats"] or "{}").get("numRecords"),
                )
            )
        return listed

    def load_without(self, paths: Collection[str]) -> DataFrame:
        """The rows of all files but these."""
        chosen = [
            file for file in self._java.allFiles().collect() if unquote(file.path()) not in paths
        ]
        return self._delta.read_files(self._java, chosen)

    def file_paths(self, containing: str) -> set[str]:
        """The files that the table has, or had and still keeps for time travel.

        `containing` is part of their paths, in characters that an address leaves as they are.
        """
        found: set[str] = set()
        for files in (self._java.allFiles(), self._java.tombstones()):
            paths = self._delta.frame(files.toDF()).select("path")
            chosen = paths.where(paths["path"].contains(containing)).collect()
            found.update(unquote(row["path"]) for row in chosen)
        return found


class Transaction:
    """An optimistic transaction: what it read must still be so when it commits."""

    def __init__(self, java: Any, delta: DeltaLog) -> None:
        self._java = java
        self._delta = delta

    @cached_property
    def read_version(self) -> int:
        return int(self._java.readVersion())

    @cached_property
    def metadata(self) -> TableMetadata:
        return self._delta.metadata_of(self._java)

    @cached_property
    def _versions(self) -> Mapping[str, int]:
        return self._delta.replay.at(Snapshot(self._java.snapshot(), self._delta))

    def version_of(self, application: str) -> int | None:
        """Reads a transaction version, and conflicts with whoever changes it meanwhile."""
        # Delta's own txnVersion makes the same note, and then runs a Spark job for the answer.
        self._java.readTxn().addOne(application)
        return self._versions.get(application)

    def write(self, frame: DataFrame) -> list[AddedFile]:
        return self._delta.added_files(self._java.writeFiles(frame._jdf))

    def commit(
        self,
        files: Iterable[AddedFile],
        versions: Mapping[str, int],
        *,
        query: str,
        epoch: int,
        user_metadata: str | None = None,
    ) -> int:
        """Adds the files and sets the transaction versions; the version that did it."""
        actions = [self._delta.action({"add": file.action}) for file in files]
        actions += [
            self._delta.action({"txn": {"appId": application, "version": version}})
            for application, version in versions.items()
        ]
        operation = self._delta.streaming_update(query, epoch, user_metadata)
        return int(self._java.commit(self._delta.scala_list(actions), operation))


class DeltaLog:
    """The log of the table at one path. The table need not exist yet."""

    def __init__(self, spark: SparkSession, path: str) -> None:
        self.spark = spark
        self.jvm = cast(Any, spark._jvm)
        self._session: Any = spark._jsparkSession
        _require_delta(self.jvm)
        self.none = getattr(getattr(self.jvm.scala, "None$"), "MODULE$")
        client = self.jvm._gateway_client
        # By name: on the way of dots to a class every dot is a question to the JVM.
        self._sessions = JavaClass("org.apache.spark.sql.classic.SparkSession", client)
        self._logs = JavaClass("org.apache.spark.sql.delta.DeltaLog", client)
        self._actions = JavaClass("org.apache.spark.sql.delta.actions.Action", client)
        self._operations = JavaClass("org.apache.spark.sql.delta.DeltaOperations", client)
        self._modes = JavaClass("org.apache.spark.sql.streaming.OutputMode", client)
        self._catalog = JavaClass(
            "org.apache.spark.sql.catalyst.catalog.ExternalCatalogUtils", client
        )
        self._collections = JavaClass("scala.jdk.javaapi.CollectionConverters", client)
        self._paths = JavaClass("org.apache.hadoop.fs.Path", client)
        self.replay = Replay(self)
        self.configuration = configuration = self._session.sessionState().newHadoopConf()
        if ":" not in path.split("/", 1)[0]:
            # The JVM's working folder need not be ours.
            default = self.jvm.org.apache.hadoop.fs.FileSystem.getDefaultUri(configuration)
            if default.getScheme() == "file":
                path = os.path.abspath(path)
        hadoop_path = self._paths(path)
        self._files = hadoop_path.getFileSystem(configuration)
        self._path = self._files.makeQualified(hadoop_path)
        self.path = str(self._path.toString())
        self.is_local = self._path.toUri().getScheme() == "file"

    # Reading

    def forget(self) -> None:
        """Drops what this JVM remembers: the folder may have been put back from a backup."""
        self._logs.invalidateCache(self._session, self._path)
        self.replay.forget()

    def snapshot(self) -> Snapshot:
        """The newest version, whoever wrote it: another process may have."""
        return Snapshot(self._log().update(False, self.none, self.none), self)

    def load(self, version: int | None = None) -> DataFrame:
        reader = self.spark.read.format("delta")
        if version is not None:
            reader = reader.option("versionAsOf", version)
        return reader.load(self.path)

    def commits(self, newest: int | None = None) -> list[Commit]:
        """The `newest` commits that the log still has, or all of them, newest first."""
        table = self.jvm.io.delta.tables.DeltaTable.forPath(self._session, self.path)
        history = self.frame(table.history() if newest is None else table.history(newest))
        chosen = history.select("version", "operation", "operationParameters", "userMetadata")
        return [
            Commit(
                version=row["version"],
                operation=row["operation"],
                parameters=row["operationParameters"] or {},
                user_metadata=row["userMetadata"],
            )
            for row in chosen.collect()
        ]

    def operations_after(self, version: int) -> set[str]:
        """What the commits above `version`, as far as the log still has them, did."""
        newest = self.snapshot().version
        texts = self.commit_texts(version + 1, newest)
        if texts is not None:
            return {operation for text in texts for operation in operations(text)}
        wanted = max(1, newest - version)
        while True:
            found = self.commits(wanted)
            # Others may have committed since: then the oldest ones asked for are not among them.
            if len(found) < wanted or found[-1].version <= version + 1:
                return {commit.operation for commit in found if commit.version > version}
            wanted *= 2

    def commit_texts(self, first: int, last: int) -> list[str] | None:
        """The commits from `first` to `last` as the log has them, a line for each action.

        None when one is not there (cleaned up, or kept by a catalog), or when they are so many or
        so large (another writer's OPTIMIZE) that the driver should not read them alone.
        """
        if last - first >= COMMITS_READ_MAX:
            return None
        texts: list[str] = []
        left = COMMIT_BYTES_MAX
        for version in range(first, last + 1):
            path = self.child(f"_delta_log/{version:020d}.json")
            if not self._files.exists(path):
                return None
            left -= int(self._files.getFileStatus(path).getLen())
            if left < 0:
                return None
            stream = self._files.open(path)
            try:
                texts.append(bytes(stream.readAllBytes()).decode())
            finally:
                stream.close()
        return texts

    def log_store(self) -> Any:
        """The Java object that publishes the commits of this table."""
        store = self._log().store()
        # Delta's own chooses by scheme, and wraps what is written against its public interface.
        if str(store.getClass().getSimpleName()) == "DelegatingLogStore":
            store = store.getDelegate(self._path)
        if str(store.getClass().getSimpleName()) == "LogStoreAdaptor":
            store = store.logStoreImpl()
        return store

    def unreadable_files(self, *, read: bool) -> list[UnreadableFile]:
        """The data files of the newest version that are gone or damaged."""
        snapshot = self.snapshot()
        if not snapshot.exists:
            return []
        listed = snapshot.data_files()

        def rows_of(files: Sequence[ListedFile]) -> DataFrame:
            kept = {file.path for file in files}
            return snapshot.load_without({file.path for file in listed} - kept)

        return find_unreadable(self.spark, listed, self._size, rows_of if read else None)

    def _size(self, file: ListedFile) -> int | None:
        if not self.has(file.path):
            return None
        return int(self._files.getFileStatus(self.child(file.path)).getLen())

    def read_files(self, snapshot: Any, files: Sequence[Any]) -> DataFrame:
        """The rows of some files of a version, given as Delta's own objects."""
        chosen = self.scala_list(files)
        return self.frame(self._log().createDataFrame(snapshot, chosen, False, self.none))

    # Writing

    def begin(self) -> Transaction:
        return Transaction(self._log().startTransaction(), self)

    def set_schema(self, schema: T.StructType) -> int:
        """Creates the table with these columns, all nullable, or gives it these; no rows. The
        version that did it."""
        transaction = self._log().startTransaction()
        before = transaction.metadata()
        columns = self._session.parseDataType(schema.json()).asNullable()
        after = self._with_schema(before, columns, before.partitionColumns())
        if transaction.readVersion() < 0:
            transaction.updateMetadataForNewTable(after)
            operation = self._operations.CreateTable(after, False, False, self.none)
            # The list of files in the checksum of a new table is empty. Delta knows that without
            # looking, unless it has been told to keep the list: then it runs a job.
            with setting(self.spark, "spark.databricks.delta.allFilesInCrc.enabled", "false"):
                return int(transaction.commit(self.scala_list([]), operation))
        transaction.updateMetadata(after, False)
        operation = self._operations.UpdateSchema(before.schema(), columns)
        return int(transaction.commit(self.scala_list([]), operation))

    def update(self, condition: Column, values: Mapping[str, Column]) -> None:
        table = self.jvm.io.delta.tables.DeltaTable.forPath(self._session, self.path)
        changes = self.jvm.java.util.HashMap()
        for name, value in values.items():
            changes.put(name, cast("Any", value)._jc)
        table.update(cast("Any", condition)._jc, changes)

    def delete(self, condition: Column) -> None:
        table = self.jvm.io.delta.tables.DeltaTable.forPath(self._session, self.path)
        table.delete(cast("Any", condition)._jc)

    def stage(
        self, frame: DataFrame, partition_column: str, *, rows: T.StructType, counted: T.StructType
    ) -> Scratch:
        """Writes `frame` into the table's folder, but not into the table.

        The files come from a transaction that is never committed, whose metadata have the frame's
        schema and one partition column more than the table's. `rows` are the frame's first
        columns, the only ones that have statistics; `counted` are the first of them, which have
        some unless the table says how many should.
        """
        log = self._log()
        transaction = log.startTransaction()
        metadata = transaction.metadata()
        own = self.to_list(metadata.partitionColumns())
        wide = self._with_schema(
            metadata,
            frame._jdf.schema().asNullable(),
            self.scala_list([partition_column, *own]),
            _for_staging(metadata.configuration(), rows, counted, partitioned=bool(own)),
        )
        transaction.updateMetadata(wide, False)
        with _many_writers(frame.sparkSession):
            written = transaction.writeFiles(frame._jdf)
        described = self.jvm.org.apache.spark.sql.delta.DummySnapshot(
            log.logPath(), log, wide, self.none, self.jvm.scala.Some(transaction.protocol())
        )
        return Scratch(
            files=tuple(self.added_files(written)),
            read_back=self.frame(log.createDataFrame(described, written, False, self.none)),
        )

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Alone between check and commit; see file_lock.py. Other file systems need no lock."""
        if not self.is_local:
            yield
            return
        with jvm_file_lock(self.jvm, f"{self._path.toUri().getPath()}/{LOCK_FILE}"):
            yield

    # The folder

    def entries(self) -> list[str]:
        """The names in the table's folder; none when it does not exist. BadInput for a file."""
        if not self._files.exists(self._path):
            return []
        if not self._files.getFileStatus(self._path).isDirectory():
            raise BadInput(f"{self.path} is a file, not a folder")
        return [str(each.getPath().getName()) for each in self._files.listStatus(self._path)]

    def files_below(self, directory: str) -> list[str]:
        """Every file below a directory of the table's folder, relative to that folder."""
        root = self.child(directory)
        found = self._files_in(root) if self._files.exists(root) else []
        return [path[len(self.path) + 1 :] for path in found]

    def _files_in(self, folder: Any) -> list[str]:
        """Not by Hadoop's `listFiles`: it asks for the owner of every file, on a local disk by a
        process for each."""
        found: list[str] = []
        for each in self._files.listStatus(folder):
            if each.isDirectory():
                found += self._files_in(each.getPath())
            else:
                found.append(str(each.getPath().toString()))
        return found

    def has(self, relative: str) -> bool:
        return bool(self._files.exists(self.child(relative)))

    def make_folder(self, relative: str) -> None:
        self._files.mkdirs(self.child(relative))

    def remove(self, relative: str) -> None:
        """Removes a file or a whole directory from the table's folder."""
        self._files.delete(self.child(relative), True)

    def partition_directory(self, column: str, value: str) -> str:
        """The name that Spark gives to the directory of a partition value."""
        return f"{column}={self._catalog.escapePathName(value)}"

    # Conversions

    def frame(self, java: Any) -> DataFrame:
        from pyspark.sql.classic.dataframe import DataFrame as ClassicDataFrame

        return ClassicDataFrame(java, self.spark)

    def scala_list(self, items: Sequence[Any]) -> Any:
        collected = self.jvm.java.util.ArrayList()
        for item in items:
            collected.add(item)
        return self._collections.asScala(collected).toList()

    def to_list(self, scala: Any) -> list[Any]:
        # A Java iterator ends with an exception, which costs py4j more than all its elements.
        return list(self._collections.asJava(scala).toArray())

    def action(self, document: Mapping[str, Any]) -> Any:
        return self._actions.fromJson(json.dumps(document))

    def streaming_update(self, query: str, epoch: int, user_metadata: str | None) -> Any:
        described = self.none if user_metadata is None else self.jvm.scala.Some(user_metadata)
        return self._operations.StreamingUpdate(self._modes.Append(), query, epoch, described)

    def added_files(self, actions: Any) -> list[AddedFile]:
        documents = (json.loads(each.json()) for each in self.to_list(actions))
        return [AddedFile(action=document["add"]) for document in documents]

    def metadata_of(self, java: Any) -> TableMetadata:
        metadata = json.loads(java.metadata().json())["metaData"]
        protocol = json.loads(java.protocol().json())["protocol"]
        return TableMetadata(
            schema=T.StructType.fromJson(json.loads(metadata["schemaString"])),
            partition_columns=tuple(metadata["partitionColumns"]),
            configuration=metadata["configuration"],
            writer_features=frozenset(protocol.get("writerFeatures") or ()),
        )

    def _with_schema(
        self, metadata: Any, schema: Any, partition_columns: Any, configuration: Any = None
    ) -> Any:
        return metadata.copy(
            metadata.id(),
            metadata.name(),
            metadata.description(),
            metadata.format(),
            schema.json(),
            partition_columns,
            configuration or metadata.configuration(),
            metadata.createdTime(),
        )

    def child(self, relative: str) -> Any:
        """The Hadoop path of something in the table's folder."""
        return self._paths(self._path, relative)

    def _log(self) -> Any:
        # Delta asks for the active session; a thread that Spark called us on has none of its own.
        self._sessions.setActiveSession(self._session)
        return self._logs.forTable(self._session, self.path)


def _for_staging(
    configuration: Any, rows: T.StructType, counted: T.StructType, *, partitioned: bool
) -> Any:
    """A table's properties, with statistics of the rows' columns at most, and without a copy of the
    directory's name in every row, which Delta writes for readers that do not know directories."""
    if not partitioned:
        configuration = configuration.updated("delta.writePartitionColumnsToParquet", "false")
    if configuration.contains("delta.dataSkippingStatsColumns"):
        return configuration  # the table names its columns itself
    name = "delta.dataSkippingNumIndexedCols"
    found = configuration.get(name)
    if found.isDefined():
        asked = int(found.get())
        wanted = leaves(rows) if asked < 0 else min(asked, leaves(rows))
    else:
        wanted = min(INDEXED_COLUMNS, leaves(counted))
    return configuration.updated(name, str(wanted))


def leaves(schema: T.StructType) -> int:
    """How many columns Delta counts: a struct for each of its own."""
    types = (field.dataType for field in schema.fields)
    return sum(leaves(each) if isinstance(each, T.StructType) else 1 for each in types)


@contextmanager
def _many_writers(spark: SparkSession) -> Iterator[None]:
    """Our own sessions have the setting; a user's gets it for the length of the write."""
    name = "spark.sql.maxConcurrentOutputFileWriters"
    before = spark.conf.get(name, "0")
    if before is not None and int(before) > 0:
        yield
        return
    with setting(spark, name, str(WRITERS_OPEN_MAX)):
        yield


def _require_delta(jvm: Any) -> None:
    if not isinstance(jvm.org.apache.spark.sql.delta.DeltaLog, JavaClass):
        raise Unavailable(
            "this Spark session has no Delta Lake on its driver's class path",
            hint="add delta-spark_4.1_2.13 and delta-storage 4.4.0 to spark.jars and to "
            "spark.driver.extraClassPath, set spark.sql.extensions="
            "io.delta.sql.DeltaSparkSessionExtension and spark.sql.catalog.spark_catalog="
            "org.apache.spark.sql.delta.catalog.DeltaCatalog, or use `lossless run`",
        )
