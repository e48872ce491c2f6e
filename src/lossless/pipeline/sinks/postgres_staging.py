"""What a task does with its share of a batch: COPY it into the staging tables, give a receipt.

Rows arrive as Arrow and leave in COPY's binary form: no Python object per row. A task stages in
one transaction of its own, which commits before the receipt is given; rows of an attempt whose
receipt never reached the driver stay where they are and are never inserted.

A row that PostgreSQL cannot store (the character NUL, text that is not UTF-8, more characters than
the column takes, a null where none may be) is not staged. The receipt names its record and the
reason; the batch is then staged again with a dead letter in its place.
"""

from __future__ import annotations

import base64
import itertools
import json
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark import TaskContext
from pyspark.sql import functions as F

from lossless.pipeline.outcomes import DEAD_LETTER, EARLIEST_MS, PROVENANCE, provenance_hash
from lossless.pipeline.sinks.interface import Place
from lossless.pipeline.sinks.postgres_binary import HEADER, TRAILER, binary_rows, jsonb
from lossless.pipeline.sinks.postgres_connection import connect, failing_as_task, set_timeouts
from lossless.pipeline.sinks.postgres_types import (
    PLACE_COLUMNS,
    PROVENANCE_COLUMNS,
    StagedColumn,
    copied,
    own_fields,
)
from lossless.pipeline.sinks.postgres_unstorable import (
    TOO_EARLY,
    too_early,
    unstorable,
    without_nul,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

ATTEMPT = "_lossless_attempt"
HASH = "_lossless_hash"
_TIMESTAMP = f"{PROVENANCE}_timestamp"
LETTER_COLUMNS = ("key", "value", "record_headers", "headers")
RECEIPT_SCHEMA = (
    "attempt long, topic_id string, partition int, "
    "rows long, rows_hash long, dead long, dead_hash long, "
    "refused array<struct<offset: long, reason: string>>"
)
# A task that refuses more names only these: the driver holds them in memory.
REFUSED_MAX = 100_000
# Dead letters wait here while the rows' COPY holds the connection; more of them go to disk.
SPOOL_BYTES_MAX = 8 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class StagingTask:
    """Everything a task needs. It travels pickled, so that no plan or log shows the DSN."""

    dsn: str = field(repr=False)
    pipeline: str
    rows_copy: str  # COPY … FROM STDIN, for the rows and for the dead letters
    dead_copy: str
    columns: Sequence[StagedColumn]
    with_hash: bool  # stage the hash too, for rows that must be counted by distinct offset


def projected(outcomes: DataFrame, rows: StructType) -> DataFrame:
    """Outcomes as tasks take them: copyable columns, provenance, hash, the dead letter."""
    topic_id, partition, offset, timestamp = (
        F.col(f"{PROVENANCE}.{part}") for part in ("topic_id", "partition", "offset", "timestamp")
    )
    source = zip((topic_id, partition, offset, timestamp), PROVENANCE_COLUMNS, strict=True)
    return outcomes.select(
        # Positional names: the rows' own columns may be called anything.
        *(copied(one).alias(f"row_{number}") for number, one in enumerate(own_fields(rows))),
        *(column.alias(name) for column, name in source),
        provenance_hash(topic_id, partition, offset).alias(HASH),
        F.col(DEAD_LETTER).alias("letter"),
    )


def staging(task: StagingTask) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """The function for mapInArrow."""

    def stage_in_postgres(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with failing_as_task():
            yield from _stage(task, batches)

    return stage_in_postgres


def _stage(task: StagingTask, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    context = TaskContext.get()
    assert context is not None
    attempt = context.taskAttemptId()
    filled = (batch for batch in batches if batch.num_rows)
    first = next(filled, None)
    if first is None:
        return
    receipts = _Receipts()
    with (
        tempfile.SpooledTemporaryFile(SPOOL_BYTES_MAX) as spool,
        connect(task.dsn) as connection,
    ):
        set_timeouts(connection)
        # What COPY takes for text depends on it, and a DSN may have chosen another.
        connection.execute("SET client_encoding = 'UTF8'")
        with connection.cursor().copy(task.rows_copy) as copy:
            copy.write(HEADER)
            for batch in itertools.chain([first], filled):
                dead = batch.column("letter").is_valid()
                letters = batch.filter(dead)
                rows, refused = _refuse(task.columns, batch.filter(pc.invert(dead)))
                receipts.refuse(refused)
                if len(rows):
                    receipts.add("rows", rows)
                    copy.write(binary_rows(_row_values(task, attempt, rows)))
                if len(letters):
                    receipts.add("dead", letters)
                    spool.write(binary_rows(_letter_values(task, attempt, letters)))
            copy.write(TRAILER)
        if spool.tell():
            spool.seek(0)
            with connection.cursor().copy(task.dead_copy) as copy:
                copy.write(HEADER)
                while chunk := spool.read(SPOOL_BYTES_MAX):
                    copy.write(chunk)
                copy.write(TRAILER)
    # Leaving the connection committed: only now is there something to give a receipt for.
    yield receipts.batch(attempt)


def _row_values(task: StagingTask, attempt: int, rows: pa.RecordBatch) -> list[pa.Array]:
    own = [_field(column, rows.column(f"row_{n}")) for n, column in enumerate(task.columns)]
    source = [rows.column(name) for name in PROVENANCE_COLUMNS]
    return _marked(task, attempt, rows, [*own, *source])


def _field(column: StagedColumn, values: pa.Array) -> pa.Array:
    return jsonb(values) if column.staged_as == "jsonb" else values


def _letter_values(task: StagingTask, attempt: int, letters: pa.RecordBatch) -> list[pa.Array]:
    # The headers of a letter say what the Kafka timestamp was.
    source = [
        _held(letters.column(name)) if name == _TIMESTAMP else letters.column(name)
        for name in PROVENANCE_COLUMNS
    ]
    pipeline = pa.repeat(task.pipeline, len(letters))
    parts = [_letter_parts(letter) for letter in letters.column("letter").to_pylist()]
    key, value, *documents = (
        pa.array([part[name] for part in parts], pa.binary()) for name in LETTER_COLUMNS
    )
    return _marked(task, attempt, letters, [*source, pipeline, key, value, *map(jsonb, documents)])


def _held(moments: pa.Array) -> pa.Array:
    """Timestamps with EARLIEST_MS in place of those that PostgreSQL cannot hold."""
    first = pa.scalar(EARLIEST_MS * 1000, pa.int64()).cast(moments.type)
    return pc.if_else(too_early(moments), first, moments)


def _letter_parts(letter: str) -> dict[str, bytes | None]:
    """LETTER_COLUMNS from the JSON of a dead letter: bytes, and documents as JSON."""
    found = json.loads(letter)
    texts = {name: found.get(name) for name in ("key", "value")}
    headers = found.get("record_headers")
    documents = {
        # Spark leaves out what is null.
        "record_headers": headers and [{"key": None, "value": None, **one} for one in headers],
        "headers": found.get("headers"),
    }
    return {
        **{name: None if text is None else base64.b64decode(text) for name, text in texts.items()},
        **{name: None if one is None else _document(one) for name, one in documents.items()},
    }


def _document(content: object) -> bytes:
    return without_nul(json.dumps(content)).encode()


def _marked(
    task: StagingTask, attempt: int, batch: pa.RecordBatch, columns: list[pa.Array]
) -> list[pa.Array]:
    """The columns with what tells attempts apart in front, and the hash at the end if wanted."""
    hashes = [batch.column(HASH)] if task.with_hash else []
    return [pa.repeat(attempt, len(batch)), *columns, *hashes]


def _refuse(
    columns: Sequence[StagedColumn], rows: pa.RecordBatch
) -> tuple[pa.RecordBatch, Mapping[Place, str]]:
    """The rows that can be stored, and why the others cannot."""
    reasons: dict[int, str] = {}
    found = [(too_early(rows.column(_TIMESTAMP)), f"its Kafka timestamp {TOO_EARLY}")]
    for number, column in enumerate(columns):
        for mask, reason in unstorable(column, rows.column(f"row_{number}")):
            found.append((mask, f"column {column.name} {reason}"))
    for mask, reason in found:
        for row in pc.indices_nonzero(mask.fill_null(False)).to_pylist():
            reasons.setdefault(row, reason)
    if not reasons:
        return rows, {}
    refused = rows.take(pa.array(list(reasons)))
    places = zip(*(refused.column(name).to_pylist() for name in PLACE_COLUMNS), strict=True)
    keep = pa.array([row not in reasons for row in range(len(rows))])
    named = zip(map(Place._make, places), reasons.values(), strict=True)
    return rows.filter(keep), dict(named)


class _Receipts:
    """What a task has staged so far, by source partition."""

    def __init__(self) -> None:
        self._sums: dict[tuple[str, int], dict[str, int]] = defaultdict(lambda: defaultdict(int))
        self._refused: dict[Place, str] = {}

    def refuse(self, reasons: Mapping[Place, str]) -> None:
        for place, reason in reasons.items():
            if len(self._refused) <= REFUSED_MAX:
                self._refused.setdefault(place, reason)
                self._sums[place.topic_id, place.partition]  # a receipt of its own

    def add(self, kind: str, batch: pa.RecordBatch) -> None:
        topic_id, partition, *_ = PROVENANCE_COLUMNS
        # Arrow's sum of 64-bit integers wraps around, as a sum modulo 2^64 should.
        grouped = (
            pa.Table.from_batches([batch.select([topic_id, partition, HASH])])
            .group_by([topic_id, partition])
            .aggregate([(HASH, "count"), (HASH, "sum")])
        )
        for one in grouped.to_pylist():
            sums = self._sums[one[topic_id], one[partition]]
            sums[kind] += one[f"{HASH}_count"]
            sums[f"{kind}_hash"] += one[f"{HASH}_sum"]

    def batch(self, attempt: int) -> pa.RecordBatch:
        columns = ("rows", "rows_hash", "dead", "dead_hash")
        refused: dict[tuple[str, int], list[dict[str, Any]]] = defaultdict(list)
        for place, reason in self._refused.items():
            source = (place.topic_id, place.partition)
            refused[source].append({"offset": place.offset, "reason": reason})
        return pa.RecordBatch.from_pylist(
            [
                {
                    "attempt": attempt,
                    "topic_id": topic_id,
                    "partition": partition,
                    **{column: _signed(sums[column]) for column in columns},
                    "refused": refused[topic_id, partition],
                }
                for (topic_id, partition), sums in self._sums.items()
            ],
            pa.schema(
                [
                    ("attempt", pa.int64()),
                    ("topic_id", pa.string()),
                    ("partition", pa.int32()),
                    *((column, pa.int64()) for column in columns),
                    (
                        "refused",
                        pa.list_(pa.struct([("offset", pa.int64()), ("reason", pa.string())])),
                    ),
                ]
            ),
        )


def _signed(value: int) -> int:
    """The number modulo 2^64 as Spark's long holds it."""
    return (value + (1 << 63)) % (1 << 64) - (1 << 63)
