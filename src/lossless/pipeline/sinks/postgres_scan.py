"""Reading tables of PostgreSQL on the executors, in ranges of pages, without a JDBC driver.

All ranges of one scan are read in one snapshot, which the driver exports and holds open: a row
that an UPDATE moves to another page meanwhile is seen once. Provenance is packed by the server,
one value for thousands of rows, because a message per row costs more than the row.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from lossless.pipeline.contents import IS_ALTERED, Uncoverings
from lossless.pipeline.ledger import SourcePartition, Uncovered
from lossless.pipeline.outcomes import CONTENT_HASH
from lossless.pipeline.sinks.postgres_connection import connect, failing_as_task, psycopg, sql
from lossless.pipeline.sinks.postgres_contents import content_hash
from lossless.pipeline.sinks.postgres_types import PROVENANCE_COLUMNS

if TYPE_CHECKING:
    from psycopg import Connection, Cursor
    from pyspark.sql import DataFrame, SparkSession

PROVENANCE_SCHEMA = "topic_id string, partition int, offset long, timestamp timestamp"
CONTENT_SCHEMA = f"{PROVENANCE_SCHEMA}, {IS_ALTERED} boolean"
CONTENT_HASH_SCHEMA = f"{PROVENANCE_SCHEMA}, {CONTENT_HASH} long"
LETTER_SCHEMA = (
    f"{PROVENANCE_SCHEMA}, key binary, value binary, record_headers string, headers string"
)
# How many pages a range has: of provenance some megabytes, of dead letters what their values weigh.
PROVENANCE_PAGES = 4096
LETTER_PAGES = 64
ROWS_PER_BATCH = 10_000

_POSTGRES_EPOCH_US = 946_684_800_000_000  # 2000-01-01, where its timestamps count from
_NO_OFFSET = np.iinfo(np.int64).min  # in place of a null
_INFINITE_US = (np.iinfo(np.int64).min, np.iinfo(np.int64).max)
_TIMESTAMP = pa.timestamp("us", "UTC")

_TREE = """
WITH RECURSIVE tree AS (
    SELECT to_regclass(%s)::oid AS oid
    UNION ALL
    SELECT inhrelid FROM pg_inherits JOIN tree ON inhparent = tree.oid
)
SELECT n.nspname, c.relname, pg_relation_size(c.oid) / current_setting('block_size')::int
FROM tree JOIN pg_class c ON c.oid = tree.oid JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE c.relkind = 'r'
"""
_PROVENANCE = """
SELECT {topic_id}, {partition},
       string_agg(
           int8send(coalesce({offset}, {no_offset}))
               || coalesce(timestamptz_send({timestamp}), timestamptz_send('-infinity')),
           ''
       )
FROM ONLY {table} WHERE {range} GROUP BY 1, 2
"""
_CONTENTS = """
SELECT {topic_id}, {partition}, {offset}, timestamptz_send({timestamp}), {is_altered}
FROM ONLY {table} WHERE {topic_id} IS NOT NULL AND {doubtful} AND {range}
"""
_CONTENT_HASHES = """
SELECT {topic_id}, {partition}, {offset}, timestamptz_send({timestamp}), {content_hash}
FROM ONLY {table} WHERE {topic_id} IS NOT NULL AND {content_hash} IS NOT NULL AND {range}
"""
_LETTERS = """
SELECT {topic_id}, {partition}, {offset}, timestamptz_send({timestamp}),
       key, value, record_headers::text, headers::text
FROM ONLY {table} WHERE pipeline = {pipeline} AND {range}
"""


@dataclass(slots=True, kw_only=True)
class Snapshot:
    """What the database was at one moment, for as long as the connection is held."""

    connection: Connection[Any]
    name: str

    @classmethod
    def take(cls, dsn: str) -> Snapshot:
        connection = connect(dsn)
        connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        connection.read_only = True
        row = connection.execute("SELECT pg_export_snapshot()").fetchone()
        assert row is not None
        return cls(connection=connection, name=row[0])

    def close(self) -> None:
        self.connection.close()


@dataclass(frozen=True, slots=True, kw_only=True)
class ScanTask:
    """What the tasks of one scan need. It travels pickled: no plan or log shows the DSN."""

    dsn: str = field(repr=False)
    snapshot: str
    statements: Sequence[str]  # one for each range
    convert: Callable[[Cursor[Any]], Iterator[pa.RecordBatch]]


def provenance_statements(connection: Connection[Any], table: sql.Identifier) -> list[str]:
    no_offset = sql.Literal(_NO_OFFSET)
    return _ranges(connection, table, _PROVENANCE, PROVENANCE_PAGES, no_offset=no_offset)


def content_statements(
    connection: Connection[Any],
    table: sql.Identifier,
    covered: Mapping[str, str] | None,
    uncovered: Uncoverings,
) -> list[str]:
    """`covered` gives the types of the columns that hashes cover; None: there are no hashes."""
    parts: dict[str, sql.Composable] = {"is_altered": sql.SQL("false"), "doubtful": sql.SQL("true")}
    if covered is not None:
        column = sql.Identifier(CONTENT_HASH)
        values = {
            name: _absent_in(ranges, name)
            for name in covered
            if (ranges := uncovered.get(name.lower()))
        }
        differs = sql.SQL("{} IS DISTINCT FROM {}").format(column, content_hash(covered, values))
        parts = {"is_altered": sql.SQL("{} IS NOT NULL").format(column), "doubtful": differs}
    return _ranges(connection, table, _CONTENTS, PROVENANCE_PAGES, **parts)


def _absent_in(ranges: Iterable[tuple[SourcePartition, Uncovered]], column: str) -> sql.Composed:
    """The column, null in the rows whose hashes do not cover it."""
    topic_id, partition, offset, _ = map(sql.Identifier, PROVENANCE_COLUMNS)
    inside = sql.SQL(" OR ").join(
        sql.SQL("({} = {} AND {} = {} AND {} >= {} AND {} < {})").format(
            *(topic_id, sql.Literal(source.topic_id), partition, sql.Literal(source.partition)),
            *(offset, sql.Literal(one.first), offset, sql.Literal(one.end)),
        )
        for source, one in ranges
    )
    return sql.SQL("(CASE WHEN {} THEN NULL ELSE {} END)").format(inside, sql.Identifier(column))


def content_hash_statements(connection: Connection[Any], table: sql.Identifier) -> list[str]:
    column = sql.Identifier(CONTENT_HASH)
    return _ranges(connection, table, _CONTENT_HASHES, PROVENANCE_PAGES, content_hash=column)


def letter_statements(
    connection: Connection[Any], table: sql.Identifier, pipeline: str
) -> list[str]:
    return _ranges(connection, table, _LETTERS, LETTER_PAGES, pipeline=sql.Literal(pipeline))


def scan_provenance(
    spark: SparkSession, dsn: str, snapshot: Snapshot, statements: Sequence[str]
) -> DataFrame:
    """topic_id, partition, offset and timestamp of every row; null where it has none."""
    task = ScanTask(
        dsn=dsn, snapshot=snapshot.name, statements=statements, convert=_provenance_batches
    )
    return _scan(spark, task, PROVENANCE_SCHEMA)


def scan_contents(
    spark: SparkSession, dsn: str, snapshot: Snapshot, statements: Sequence[str]
) -> DataFrame:
    """Provenance of the rows that do not match their hash, or have none."""
    task = ScanTask(
        dsn=dsn, snapshot=snapshot.name, statements=statements, convert=_content_batches
    )
    return _scan(spark, task, CONTENT_SCHEMA)


def scan_content_hashes(
    spark: SparkSession, dsn: str, snapshot: Snapshot, statements: Sequence[str]
) -> DataFrame:
    """Provenance and stored hash of the rows that have one."""
    task = ScanTask(dsn=dsn, snapshot=snapshot.name, statements=statements, convert=_hash_batches)
    return _scan(spark, task, CONTENT_HASH_SCHEMA)


def scan_letters(
    spark: SparkSession, dsn: str, snapshot: Snapshot, statements: Sequence[str]
) -> DataFrame:
    """The dead letters of one pipeline; both kinds of headers are JSON."""
    task = ScanTask(dsn=dsn, snapshot=snapshot.name, statements=statements, convert=_letter_batches)
    return _scan(spark, task, LETTER_SCHEMA)


def _ranges(
    connection: Connection[Any],
    table: sql.Identifier,
    template: str,
    pages_per_range: int,
    **parts: sql.Composable,
) -> list[str]:
    """One statement for each range of pages of the table and of its partitions or children.

    None when the table does not exist.
    """
    statements = []
    topic_id, partition, offset, timestamp = map(sql.Identifier, PROVENANCE_COLUMNS)
    for schema, name, pages in connection.execute(_TREE, [table.as_string(connection)]):
        starts = range(0, max(pages, 1), pages_per_range)
        for start in starts:
            # The last range has no end: the table may have grown since its size was read.
            pages_read = sql.SQL("ctid >= {}::tid").format(f"({start},0)")
            if start != starts[-1]:
                end = f"({start + pages_per_range},0)"
                pages_read += sql.SQL(" AND ctid < {}::tid").format(end)
            statement = sql.SQL(template).format(
                topic_id=topic_id,
                partition=partition,
                offset=offset,
                timestamp=timestamp,
                table=sql.Identifier(schema, name),
                range=pages_read,
                **parts,
            )
            statements.append(statement.as_string(connection))
    return statements


def _scan(spark: SparkSession, task: ScanTask, schema: str) -> DataFrame:
    tasks = max(1, min(len(task.statements), 4 * spark.sparkContext.defaultParallelism))

    def scan_postgres(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with failing_as_task():
            for batch in batches:
                for number in batch.column(0).to_pylist():
                    yield from _read(task, task.statements[number::tasks])

    return spark.range(0, tasks, 1, tasks).mapInArrow(scan_postgres, schema)


def _read(task: ScanTask, statements: Sequence[str]) -> Iterator[pa.RecordBatch]:
    with connect(task.dsn) as connection:
        connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        connection.read_only = True
        snapshot = sql.SQL("SET TRANSACTION SNAPSHOT {}").format(task.snapshot)
        connection.execute(snapshot)
        cursor = connection.cursor(binary=True)
        for statement in statements:
            # Statements are whole: nothing in them is a placeholder.
            cursor.execute(sql.SQL(statement))
            yield from task.convert(cursor)


def _provenance_batches(cursor: Cursor[Any]) -> Iterator[pa.RecordBatch]:
    for topic_id, partition, packed in cursor:
        numbers = np.frombuffer(packed, dtype=">i8").astype("i8").reshape(-1, 2)
        count = len(numbers)
        yield pa.RecordBatch.from_arrays(
            [
                pa.repeat(pa.scalar(topic_id, pa.string()), count),
                pa.repeat(pa.scalar(partition, pa.int32()), count),
                pa.array(numbers[:, 0], mask=numbers[:, 0] == _NO_OFFSET),
                _timestamps(numbers[:, 1]),
            ],
            names=["topic_id", "partition", "offset", "timestamp"],
        )


def _content_batches(cursor: Cursor[Any]) -> Iterator[pa.RecordBatch]:
    return _batches_with(cursor, IS_ALTERED, pa.bool_())


def _hash_batches(cursor: Cursor[Any]) -> Iterator[pa.RecordBatch]:
    return _batches_with(cursor, CONTENT_HASH, pa.int64())


def _batches_with(cursor: Cursor[Any], name: str, kind: pa.DataType) -> Iterator[pa.RecordBatch]:
    """Provenance and one more column."""
    while rows := cursor.fetchmany(ROWS_PER_BATCH):
        topic_ids, partitions, offsets, sent, values = zip(*rows, strict=True)
        yield pa.RecordBatch.from_arrays(
            [
                pa.array(topic_ids, pa.string()),
                pa.array(partitions, pa.int32()),
                pa.array(offsets, pa.int64()),
                _timestamps(_microseconds(sent)),
                pa.array(values, kind),
            ],
            names=["topic_id", "partition", "offset", "timestamp", name],
        )


def _letter_batches(cursor: Cursor[Any]) -> Iterator[pa.RecordBatch]:
    rows = cursor.fetchall()
    if not rows:
        return
    topic_ids, partitions, offsets, sent, keys, values, record_headers, headers = zip(
        *rows, strict=True
    )
    yield pa.RecordBatch.from_arrays(
        [
            pa.array(topic_ids, pa.string()),
            pa.array(partitions, pa.int32()),
            pa.array(offsets, pa.int64()),
            _timestamps(_microseconds(sent)),
            pa.array(keys, pa.binary()),
            pa.array(values, pa.binary()),
            pa.array(record_headers, pa.string()),
            pa.array(headers, pa.string()),
        ],
        names=[name.split()[0] for name in LETTER_SCHEMA.split(", ")],
    )


def _microseconds(sent: Iterable[bytes | None]) -> np.ndarray[Any, Any]:
    times = [_INFINITE_US[0] if at is None else int.from_bytes(at, signed=True) for at in sent]
    return np.array(times, dtype="i8")


def _timestamps(sent: np.ndarray[Any, Any]) -> pa.Array:
    """From microseconds since 2000; an infinite one is no moment, so it is null."""
    infinite = np.isin(sent, _INFINITE_US)
    micros = np.where(infinite, 0, sent) + _POSTGRES_EPOCH_US
    return pa.array(micros, pa.int64(), mask=infinite).cast(_TIMESTAMP)
