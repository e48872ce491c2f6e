"""The PostgreSQL sink: executors COPY into staging, one transaction of the driver decides.

    stage    a pair of unlogged tables for each batch (rows, dead letters); each task COPYs its
             share under its attempt's number and gives a receipt
    commit   in one transaction: lock the pipeline's row of lossless_ledger, compare it with what
             was expected, insert what receipted attempts staged, require as many rows as the
             receipts say, move the ledger; if a rule of the table is broken, find the records
             that break it, undo everything and name them

Append needs no key on the table: the ledger alone makes it exactly once. Staging is unlogged, so a
crash of the server empties it; the number of rows then does not fit and the batch is staged again.
A zombie's batch is in tables of its own: nobody but the zombie would insert it, and the ledger
refuses the zombie. Dropping those tables under it makes it fail sooner, nothing else.

Beside the table, in its schema: `<table>_dlt`, `lossless_ledger` and `lossless_ledger_history`.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal
from weakref import WeakSet, finalize

from pyspark.sql import functions as F

from lossless.errors import BadInput, Fenced, LosslessError, PromiseBroken, Unavailable
from lossless.pipeline.contents import Uncoverings, hashed_columns
from lossless.pipeline.ledger import Ledger, LedgerEntry, Receipt
from lossless.pipeline.outcomes import (
    CONTENT_HASH,
    DEAD_LETTER_TYPE,
    PROVENANCE,
    PROVENANCE_TYPE,
    row_schema,
)
from lossless.pipeline.sinks.interface import (
    CommitUnknown,
    RecordsRefused,
    SchemaDifference,
    SinkUnavailable,
    Staged,
    allow_columns,
    no_ledger,
    own_ledger,
)
from lossless.pipeline.sinks.postgres_connection import (
    TableName,
    checked_dsn,
    connect,
    explained,
    explained_words,
    failure_in,
    lock_holders,
    psycopg,
    server_of,
    set_timeouts,
    speaks_of_a_row,
    sql,
    words_of,
)
from lossless.pipeline.sinks.postgres_contents import can_hash
from lossless.pipeline.sinks.postgres_expansion import settle
from lossless.pipeline.sinks.postgres_refusals import refusals, refused_records
from lossless.pipeline.sinks.postgres_scan import (
    Snapshot,
    content_hash_statements,
    content_statements,
    letter_statements,
    provenance_statements,
    scan_content_hashes,
    scan_contents,
    scan_letters,
    scan_provenance,
)
from lossless.pipeline.sinks.postgres_staging import (
    RECEIPT_SCHEMA,
    StagingTask,
    projected,
    staging,
)
from lossless.pipeline.sinks.postgres_tables import (
    HISTORY,
    LEDGER,
    StagingTables,
    add_columns,
    columns,
    create_tables,
    drop_staging,
    forget,
    is_there,
    lock_tables,
    rename_pipeline,
    resolved,
)
from lossless.pipeline.sinks.postgres_types import (
    TableColumn,
    difference,
    new_columns,
    staged_columns,
)
from lossless.tally import HASH_MODULUS, Tally

if TYPE_CHECKING:
    from psycopg import Connection
    from pyspark.sql import DataFrame, Row, SparkSession
    from pyspark.sql.types import StructType

    from lossless.pipeline.sinks.unreadable_files import UnreadableFile

CANCEL_TIMEOUT_S = 5.0
_UNDEFINED_TABLE = "42P01"
_NOT_ON_EXECUTORS = re.compile(
    r"No module named '(?:lossless|psycopg)|\(psycopg\) is not installed"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class StagedBatch:
    """The handle of a staged batch: where it is, and what the receipts say is there."""

    tables: StagingTables
    attempts: Sequence[int]
    rows: int
    dead: int


class PostgresSink:
    """Rows of one pipeline into one table. `table` is `table` or `schema.table`, case kept."""

    def __init__(self, spark: SparkSession, pipeline: str, dsn: str, table: str) -> None:
        self._spark = spark
        self._pipeline = pipeline
        self._dsn = checked_dsn(dsn)
        self._table = TableName.parse(table)
        # What may still be committed: forgotten by itself when the runner lets go of it.
        self._staged: WeakSet[StagingTables] = WeakSet()
        self._snapshots: dict[str, Snapshot] = {}
        self._open: set[Connection[Any]] = set()
        finalize(self, _close, self._snapshots)

    def describe(self) -> str:
        return f"postgres table {self._table} on {server_of(self._dsn)}"

    # --- the ledger

    def ledger(self) -> Ledger:
        with self._connected("reading the ledger") as (connection, table):
            stored = self._read_ledger(connection, table, lock=False)
            if stored.sequence and not columns(connection, table):
                raise PromiseBroken(
                    f"the ledger of {self._pipeline} has {stored.sequence} commits, but the table "
                    f"{table} they went to is gone",
                    hint="restore the table, or, to read the topics again from the start, forget "
                    f"what the pipeline did: {forget(connection, table, self._pipeline)}",
                )
            return stored

    def history(self) -> Sequence[LedgerEntry]:
        with self._connected("reading the ledger's history") as (connection, table):
            try:
                found = connection.execute(
                    sql.SQL(
                        "SELECT entry::text FROM {} WHERE pipeline = {} ORDER BY sequence"
                    ).format(table.beside(HISTORY), self._pipeline)
                ).fetchall()
            except psycopg.errors.UndefinedTable:
                return ()
            return [LedgerEntry.from_json(entry) for (entry,) in found]

    def other_ledgers(self) -> Mapping[str, Ledger]:
        with self._connected("reading the ledgers of other pipelines") as (connection, table):
            try:
                found = connection.execute(
                    sql.SQL(
                        "SELECT pipeline, ledger::text FROM {} WHERE target = {} AND pipeline <> {}"
                    ).format(table.beside(LEDGER), table.name, self._pipeline)
                ).fetchall()
            except psycopg.errors.UndefinedTable:
                return {}
            return {pipeline: Ledger.from_json(ledger) for pipeline, ledger in found}

    def take_over(self, old: str) -> Ledger:
        others = self.other_ledgers()
        if old not in others:
            mine = [self._pipeline] if self.ledger().sequence else []
            raise no_ledger(old, self.describe(), [*others, *mine])
        with self._connected("renaming a pipeline") as (connection, table):
            own = self._read_ledger(connection, table, lock=True)
            if own.sequence:
                raise own_ledger(self._pipeline, self.describe(), own)
            rename_pipeline(connection, table, old, self._pipeline)
            ledger = self._read_ledger(connection, table, lock=True)
            connection.commit()
            drop_staging(connection, table, old, ())
            return ledger

    def _read_ledger(self, connection: Connection[Any], table: TableName, *, lock: bool) -> Ledger:
        query = "SELECT target, ledger::text FROM {} WHERE pipeline = {}"
        if lock:
            query += " FOR UPDATE"
        try:
            row = connection.execute(
                sql.SQL(query).format(table.beside(LEDGER), self._pipeline)
            ).fetchone()
        except psycopg.errors.UndefinedTable:
            if lock:
                raise
            connection.rollback()
            row = None
        if row is None:
            return Ledger()
        target, ledger = row
        if target != table.name:
            raise BadInput(
                f"the pipeline {self._pipeline} has so far written to the table {target}, and its "
                f"ledger says nothing of {table.name}",
                hint="give the pipeline another name; or, if the table was renamed: UPDATE "
                f"{LEDGER} SET target = '{table.name}' WHERE pipeline = '{self._pipeline}'",
            )
        return Ledger.from_json(ledger)

    # --- the table

    def schema_difference(self, rows: StructType) -> SchemaDifference:
        with self._connected("reading the table's columns") as (connection, table):
            return difference(rows, columns(connection, table))

    def prepare(self, rows: StructType, *, add_columns: bool) -> None:
        with self._connected("preparing the table") as (connection, table):
            encoding = connection.info.parameter_status("server_encoding")
            if encoding != "UTF8":
                raise BadInput(
                    f"the database of {self.describe()} is encoded in {encoding}, which does not "
                    "hold every character",
                    hint="CREATE DATABASE … ENCODING 'UTF8' TEMPLATE template0",
                )
            lock_tables(connection, table)
            self._grow(connection, table, rows, allowed=add_columns)
            create_tables(connection, table, new_columns(rows))

    def require_fit(self, rows: StructType | None, *, add_columns: bool) -> None:
        """Reaches the server and raises BadInput when its table does not fit the rows, if they are
        known yet. Needs no Spark session."""
        with self._connected("reading the table's columns") as (connection, table):
            present = columns(connection, table)
            if rows is not None and present:
                self._refuse_unfit(rows, present, allowed=add_columns)

    def _grow(
        self, connection: Connection[Any], table: TableName, rows: StructType, *, allowed: bool
    ) -> None:
        present = columns(connection, table)
        self._refuse_unfit(rows, present, allowed=allowed)
        if present:
            known = {column.name for column in present}
            needed = new_columns(rows)
            hash_type = needed.pop(CONTENT_HASH)
            lacking = {name: kind for name, kind in needed.items() if name not in known}
            add_columns(connection, table, lacking)
            if CONTENT_HASH not in known:
                # A user that may insert rows and not alter the table goes without hashes.
                with suppress(psycopg.errors.InsufficientPrivilege), connection.transaction():
                    add_columns(connection, table, {CONTENT_HASH: hash_type})

    def _refuse_unfit(
        self, rows: StructType, present: Sequence[TableColumn], *, allowed: bool
    ) -> None:
        found = difference(rows, present)
        problems = list(found.incompatible)
        if not allowed:
            problems += [f"column {column} is not in the table" for column in found.added]
        if problems:
            raise BadInput(
                f"the rows of {self._pipeline} do not fit {self.describe()}:\n  "
                + "\n  ".join(problems),
                hint="change the transform or the table"
                + (f"; {allow_columns(self._pipeline)}" if found.added and not allowed else ""),
            )

    # --- a batch

    def sweep(self) -> None:
        with self._connected("sweeping what earlier runs staged") as (connection, table):
            drop_staging(connection, table, self._pipeline, self._staged)

    def stage(self, outcomes: DataFrame, *, may_expand: bool) -> Staged:
        rows = row_schema(outcomes.schema)
        with self._connected("creating the staging tables of a batch") as (connection, table):
            present = columns(connection, table)
            found = difference(rows, present)
            if found.added or found.incompatible or not found.exists:
                raise BadInput(
                    f"{self.describe()} was changed while the pipeline ran: "
                    + "; ".join([*found.added, *found.incompatible] or ["it is gone"]),
                    hint="start the pipeline again",
                )
            own = staged_columns(rows, present)
            hashes_contents = can_hash(connection, present)
            tables = StagingTables.fresh(
                table,
                self._pipeline,
                own,
                with_hash=may_expand,
                hashes_contents=hashes_contents,
            )
            self._staged.add(tables)
            tables.create(connection, self._pipeline)
        rows_copy, dead_copy = tables.copies()
        task = StagingTask(
            dsn=self._dsn,
            pipeline=self._pipeline,
            rows_copy=rows_copy,
            dead_copy=dead_copy,
            columns=own,
            with_hash=may_expand,
        )
        try:
            parts = projected(outcomes, rows).mapInArrow(staging(task), RECEIPT_SCHEMA).collect()
        except Exception as error:
            self._staged.discard(tables)
            if failure := self._staging_failure(str(error)):
                raise failure from error
            raise
        if refused := refusals(parts):
            self._staged.discard(tables)
            raise RecordsRefused(self.describe(), refused)
        attempts = sorted({part["attempt"] for part in parts})
        receipts = self._expanded(tables, attempts, parts) if may_expand else _receipts(parts)
        return Staged(
            receipts=receipts,
            columns=hashed_columns(rows) if hashes_contents else (),
            handle=StagedBatch(
                tables=tables,
                attempts=attempts,
                rows=sum(receipt.rows for receipt in receipts.values()),
                dead=sum(receipt.dead.count for receipt in receipts.values()),
            ),
        )

    def _expanded(
        self, tables: StagingTables, attempts: Sequence[int], parts: Sequence[Row]
    ) -> Mapping[tuple[str, int], Receipt]:
        with self._connected("counting a staged batch") as (connection, _):
            receipted = sum(part["rows"] for part in parts), sum(part["dead"] for part in parts)
            staged = tables.count(connection, attempts)
            if staged != receipted:
                raise self._gone(f"of {sum(receipted)} rows and letters {sum(staged)} are left")
            return settle(connection, tables, attempts)

    def commit(self, expected: Ledger, successor: Ledger, staged: Staged | None) -> None:
        with self._connected("committing a batch") as (connection, table):
            committed_at_ms = self._compare(connection, table, expected)
            if staged is not None and staged.handle.attempts:
                self._insert(connection, staged.handle)
            entry = LedgerEntry.between(expected, successor, committed_at_ms=committed_at_ms)
            connection.execute(
                sql.SQL("UPDATE {} SET sequence = {}, ledger = {} WHERE pipeline = {}").format(
                    table.beside(LEDGER),
                    successor.sequence,
                    successor.to_json(),
                    self._pipeline,
                )
            )
            connection.execute(
                sql.SQL("INSERT INTO {} VALUES ({}, {}, to_timestamp({} / 1000.0), {})").format(
                    table.beside(HISTORY),
                    self._pipeline,
                    successor.sequence,
                    committed_at_ms,
                    entry.to_json(),
                )
            )
            self._finish(connection, successor)
            if staged is not None:
                self._staged.discard(staged.handle.tables)
            # The batch is in: what is left over can wait for the next commit or the next start.
            with suppress(psycopg.Error):
                drop_staging(connection, table, self._pipeline, self._staged)

    def _compare(self, connection: Connection[Any], table: TableName, expected: Ledger) -> int:
        """Locks the ledger's row until the transaction ends; gives the server's time in ms."""
        # A commit that a crash of the server can undo would still be undone with its ledger, but
        # what Kafka is told about it would not: a weaker setting of the user's is lifted.
        connection.execute(
            "SELECT set_config('synchronous_commit', 'on', true) "
            "WHERE current_setting('synchronous_commit') = 'off'"
        )
        # Two first drivers: the second waits here for the first, and then finds its row.
        connection.execute(
            sql.SQL("INSERT INTO {} VALUES ({}, {}, 0, {}) ON CONFLICT DO NOTHING").format(
                table.beside(LEDGER), self._pipeline, table.name, Ledger().to_json()
            )
        )
        stored = self._read_ledger(connection, table, lock=True)
        if stored != expected:
            raise Fenced(
                f"another driver has taken over the pipeline {self._pipeline}: its ledger in "
                f"{self.describe()} is at commit {stored.sequence}, this one counted on "
                f"{expected.sequence}",
                hint="nothing was written; stop the other driver, or leave this one stopped",
            )
        row = connection.execute(
            "SELECT floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint"
        ).fetchone()
        assert row is not None
        milliseconds: int = row[0]
        return milliseconds

    def _insert(self, connection: Connection[Any], batch: StagedBatch) -> None:
        expected = (batch.rows, batch.dead)
        try:
            rows = self._insert_rows(connection, batch)
            if (rows, batch.tables.insert_letters(connection, batch.attempts)) == expected:
                return
            staged = batch.tables.count(connection, batch.attempts)
        except psycopg.errors.UndefinedTable as error:
            if batch.tables.prefix not in str(error):
                raise
            raise self._gone("its staging tables were dropped") from error
        if staged == expected:
            raise BadInput(
                f"a trigger or a rule of {self.describe()} keeps rows out or adds some",
                hint="every row must go in as it is: drop the trigger, or filter in the transform",
            )
        raise self._gone(
            f"of {batch.rows} rows and {batch.dead} dead letters {staged[0]} and {staged[1]} "
            "are left"
        )

    def _insert_rows(self, connection: Connection[Any], batch: StagedBatch) -> int:
        try:
            with connection.transaction():
                rows = batch.tables.insert_rows(connection, batch.attempts)
                # A deferred constraint would fail at COMMIT, where it names nothing.
                connection.execute("SET CONSTRAINTS ALL IMMEDIATE")
                return rows
        except psycopg.Error as error:
            if not speaks_of_a_row(error):
                raise
            refused = refused_records(connection, batch.tables, batch.attempts, self.describe())
            if refused:
                raise RecordsRefused(self.describe(), refused) from error
            raise SinkUnavailable(
                f"committing a batch, {self.describe()}: {words_of(error)}",
                hint="no record is to blame when they are inserted in turn: was the table changed "
                "meanwhile? nothing was written, and the batch can be staged again",
            ) from error

    def _gone(self, how: str) -> SinkUnavailable:
        return SinkUnavailable(
            f"a batch staged for {self.describe()} is gone: {how}",
            hint="a crash of the server or another driver that started does that; nothing was "
            "written, and the batch can be staged again",
        )

    def _finish(self, connection: Connection[Any], successor: Ledger) -> None:
        try:
            connection.commit()
        except psycopg.Error as error:
            if not connection.broken:
                raise
            raise CommitUnknown(
                f"the connection to {self.describe()} broke during COMMIT: commit "
                f"{successor.sequence} of {self._pipeline} may or may not have happened",
                hint="the ledger tells, as soon as the server can be reached",
            ) from error

    # --- what the audit reads

    def rows(self) -> DataFrame:
        """PROVENANCE alone: the rows of a table can be wide, and the audit needs no more.

        Rows of another pipeline into the same table are told apart by their topic. Readable until
        `rows` is called again, or `close`: the snapshot that it reads ends then.
        """
        with self._connected("reading the stored rows") as (connection, table):
            statements = provenance_statements(connection, table.identifier)
            snapshot = self._snapshot("rows")
        frame = scan_provenance(self._spark, self._dsn, snapshot, statements)
        return frame.select(F.struct(*PROVENANCE_TYPE.names).alias(PROVENANCE))

    def unreadable_files(self, *, read: bool) -> tuple[()]:  # noqa: ARG002
        return ()

    def leave_out(self, files: Sequence[UnreadableFile]) -> None:
        """There are no files to leave out."""

    def contents(self, covered: Sequence[str], uncovered: Uncoverings) -> DataFrame:
        """The server hashes every row again; only those that differ leave it. Readable until
        `contents` is called again, or `close`."""
        with self._connected("reading the contents of rows") as (connection, table):
            present = columns(connection, table)
            types = {column.name: column.type for column in present if column.name in covered}
            statements = content_statements(
                connection,
                table.identifier,
                types if can_hash(connection, present) else None,
                uncovered,
            )
            snapshot = self._snapshot("contents")
        return scan_contents(self._spark, self._dsn, snapshot, statements)

    def content_hashes(self) -> DataFrame:
        """Readable until `content_hashes` is called again, or `close`."""
        with self._connected("reading the hashes of rows") as (connection, table):
            has_column = any(column.name == CONTENT_HASH for column in columns(connection, table))
            statements = content_hash_statements(connection, table.identifier) if has_column else []
            snapshot = self._snapshot("content hashes")
        return scan_content_hashes(self._spark, self._dsn, snapshot, statements)

    def dead_letters(self) -> DataFrame:
        """The pipeline's own; readable until `dead_letters` is called again, or `close`."""
        with self._connected("reading the dead letters") as (connection, table):
            statements = letter_statements(connection, table.dead_letters, self._pipeline)
            snapshot = self._snapshot("dead letters")
        frame = scan_letters(self._spark, self._dsn, snapshot, statements)
        key, value, record_headers, headers = DEAD_LETTER_TYPE.fields
        return frame.select(
            F.struct(*PROVENANCE_TYPE.names).alias(PROVENANCE),
            key.name,
            value.name,
            # Its binary values were written in base64, which from_json reads back as bytes.
            F.from_json(record_headers.name, record_headers.dataType.simpleString()).alias(
                record_headers.name
            ),
            F.from_json(headers.name, headers.dataType.simpleString()).alias(headers.name),
        )

    def close(self) -> None:
        """Ends the snapshots that DataFrames of `rows` and `dead_letters` read."""
        _close(self._snapshots)

    def _snapshot(
        self, what: Literal["rows", "contents", "content hashes", "dead letters"]
    ) -> Snapshot:
        if earlier := self._snapshots.pop(what, None):
            earlier.close()
        self._snapshots[what] = Snapshot.take(self._dsn)
        return self._snapshots[what]

    # --- connections and failures

    def cancel(self) -> None:
        for connection in tuple(self._open):
            with suppress(psycopg.Error):
                connection.cancel_safe(timeout=CANCEL_TIMEOUT_S)

    @contextmanager
    def _connected(self, doing: str) -> Iterator[tuple[Connection[Any], TableName]]:
        """A transaction that commits at the end, and errors that people can act on."""
        try:
            with connect(self._dsn) as connection:
                self._open.add(connection)
                try:
                    set_timeouts(connection)
                    table = resolved(connection, self._table)
                    try:
                        yield connection, table
                    except psycopg.errors.LockNotAvailable as error:
                        connection.rollback()
                        raise self._locked_out(connection, table, doing) from error
                finally:
                    self._open.discard(connection)
        except psycopg.Error as error:
            raise explained(error, f"{doing}, {self.describe()}") from error

    def _locked_out(
        self, connection: Connection[Any], table: TableName, doing: str
    ) -> SinkUnavailable:
        """Another session kept a lock for longer than lock_timeout: says which one it may be."""
        tables = (table.identifier, table.dead_letters, table.beside(LEDGER))
        there = [one for one in tables if is_there(connection, one)]
        holders = lock_holders(connection, there)
        return SinkUnavailable(
            f"{doing}, {self.describe()}: another session holds a lock"
            + (f": {'; '.join(holders)}" if holders else ", and has ended by now"),
            hint="end a session that does not end by itself: SELECT pg_terminate_backend(PROCESS)",
        )

    def _staging_failure(self, text: str) -> LosslessError | None:
        """What a failed Spark job says about PostgreSQL; None when it failed for another reason."""
        if _NOT_ON_EXECUTORS.search(text):
            return Unavailable(
                "the executors cannot import lossless and psycopg",
                hint="on their machines too: pip install 'lossless[postgres]'",
            )
        failure = failure_in(text)
        if failure is None:
            return None
        sqlstate, words = failure
        if sqlstate == _UNDEFINED_TABLE:
            return self._gone("its staging tables were dropped")
        return explained_words(sqlstate, words, f"staging a batch, {self.describe()}")


def _close(snapshots: dict[str, Snapshot]) -> None:
    while snapshots:
        snapshots.popitem()[1].close()


def _receipts(parts: Sequence[Row]) -> Mapping[tuple[str, int], Receipt]:
    """The tasks' receipts added up, when every offset gave one row or one dead letter."""
    stored: dict[tuple[str, int], Tally] = defaultdict(Tally)
    dead: dict[tuple[str, int], Tally] = defaultdict(Tally)
    for part in parts:
        place = (part["topic_id"], part["partition"])
        stored[place] += Tally(part["rows"], part["rows_hash"] % HASH_MODULUS)
        dead[place] += Tally(part["dead"], part["dead_hash"] % HASH_MODULUS)
    return {
        place: Receipt(stored=stored[place], dead=dead[place], rows=stored[place].count)
        for place in stored
    }
