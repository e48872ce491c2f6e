"""Dead letters of a Delta table: a second table, `<path>_dlt`, decided by the first.

One Delta commit covers one table, so letters are added first and the data table's commit decides
whether they count. Their files are written before either, beside the table's own; those of a batch
that is never committed are removed by the table's next VACUUM.

- A letter carries its pipeline, the `_sequence` of the commit that it belongs to and a random
  `_token` that tells attempts at the same sequence apart.
- The data table names the last commit that had letters: (dead_sequence, dead_token).
- This table keeps, per pipeline, `settled`: every letter up to that sequence is committed.
- A letter counts if its sequence is settled, or if it is the one that the data table names.

Invariants
- To add letters for sequence n, the data table's ledger has been seen at n - 1. Attempts at
  lower sequences can no longer commit, so what they left is removed, and `settled` becomes n - 1
  in the commit that adds the letters. Other attempts at n may still win and are left alone.
- That commit has read `settled`: of two attempts at once one has to look again, and a zombie at a
  sequence that is settled by now is refused.
- A driver looks for abandoned letters when it first adds some. After that it knows what is there:
  if its own are the last that were added, and the data table names them, nothing is abandoned.
- `settled` never exceeds the ledger's sequence, unless the data table was put back from a backup
  without this one. Then the letters above the ledger are of records that will be read again.
"""

from __future__ import annotations

import secrets
from collections.abc import Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql import functions as F
from pyspark.sql import types as T

from lossless.pipeline.outcomes import DEAD_LETTER_TYPE, PROVENANCE, PROVENANCE_TYPE
from lossless.pipeline.sinks.delta_errors import JAVA_ERRORS, is_conflict
from lossless.pipeline.sinks.delta_ledger import letters_token_id, settled_id
from lossless.pipeline.sinks.delta_log import (
    AddedFile,
    DeltaLog,
    Snapshot,
    TableMetadata,
    Transaction,
)
from lossless.pipeline.sinks.delta_schema import refuse_forgetting
from lossless.pipeline.sinks.interface import SinkUnavailable

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

    from lossless.pipeline.sinks.unreadable_files import UnreadableFile

ATTEMPTS_MAX = 10

LETTER_SCHEMA = T.StructType(
    [
        T.StructField(PROVENANCE, PROVENANCE_TYPE),
        *DEAD_LETTER_TYPE.fields,
    ]
)
_TABLE_SCHEMA = T.StructType(
    [
        *LETTER_SCHEMA.fields,
        T.StructField("_pipeline", T.StringType()),
        T.StructField("_sequence", T.LongType()),
        T.StructField("_token", T.LongType()),
    ]
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Named:
    """The last commit with letters, as the data table names it."""

    sequence: int
    token: int

    def is_it(self) -> Column:
        return (F.col("_sequence") == self.sequence) & (F.col("_token") == self.token)


@dataclass(frozen=True, slots=True, kw_only=True)
class StagedLetters:
    """The letters of one batch, in files beside the table's own. Adding them twice is adding them
    once: it is the same files."""

    sequence: int
    token: int
    metadata: TableMetadata  # of the table that they were written for
    files: tuple[AddedFile, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Known:
    """At `version` the letters of this pipeline above `settled` are at most the named ones and
    those with `token`."""

    version: int
    token: int | None


class LettersSettled(Exception):
    """Letters for a sequence that is settled: the ledger that they were computed from is old."""


class DeltaLetters:
    def __init__(self, spark: SparkSession, pipeline: str, path: str) -> None:
        self._delta = DeltaLog(spark, path)
        self._pipeline = pipeline
        self._settled = settled_id(pipeline)
        self._last_token = letters_token_id(pipeline)
        self._known: _Known | None = None
        self.path = self._delta.path

    def forget(self) -> None:
        self._delta.forget()

    def stage(self, letters: DataFrame, *, sequence: int) -> StagedLetters:
        if not self._delta.snapshot().exists:
            self._create()
        token = secrets.randbits(63)
        labelled = letters.select(
            *LETTER_SCHEMA.fieldNames(),
            F.lit(self._pipeline).alias("_pipeline"),
            F.lit(sequence).cast("long").alias("_sequence"),
            F.lit(token).cast("long").alias("_token"),
        ).coalesce(1)
        transaction = self._delta.begin()
        return StagedLetters(
            sequence=sequence,
            token=token,
            metadata=transaction.metadata,
            files=tuple(transaction.write(labelled)),
        )

    def add(self, staged: StagedLetters, *, named: Named | None) -> None:
        """Nobody sees them before they are named. `named` is what the data table named before."""
        sequence = staged.sequence
        for _ in range(ATTEMPTS_MAX):
            transaction = self._delta.begin()
            refuse_forgetting(transaction.metadata, self.path)
            self._refuse_changed(staged, transaction)
            settled = transaction.version_of(self._settled) or 0
            if settled >= sequence:
                raise LettersSettled
            alone = self._is_known(transaction, named)
            if not alone:
                found = self._delta.load(transaction.read_version)
                alone = found.where(self._unsettled(settled, named)).isEmpty()
                abandoned = self._abandoned(settled, sequence - 1, named)
                if not alone and not found.where(abandoned).isEmpty():
                    self._delta.delete(abandoned)
                    continue
            self._known = None
            try:
                version = transaction.commit(
                    staged.files,
                    {self._settled: sequence - 1, self._last_token: staged.token},
                    query=self._pipeline,
                    epoch=sequence,
                )
            except JAVA_ERRORS as error:
                if not is_conflict(error):
                    raise
            else:
                if alone and version == transaction.read_version + 1:
                    self._known = _Known(version=version, token=staged.token)
                return
        raise SinkUnavailable(
            f"the dead letter table {self.path} kept changing: {ATTEMPTS_MAX} attempts failed"
        )

    def visible(self, named: Named | None, left_out: Collection[str] = ()) -> DataFrame:
        """The letters that count, but for those in the files that are left out.

        `named` must have been read before this is called: what was named then is settled or still
        named in any later version of this table.
        """
        snapshot = self._delta.snapshot()
        if not snapshot.exists:
            return self._delta.spark.createDataFrame([], LETTER_SCHEMA)
        settled = self._settled_in(snapshot)
        counts = F.col("_sequence") <= settled
        if named is not None:
            counts = counts | named.is_it()
        if left_out:
            letters = snapshot.load_without(left_out)
        else:
            letters = self._delta.load(snapshot.version)
        letters = letters.where(self._is_ours() & counts)
        return letters.select(*LETTER_SCHEMA.fieldNames())

    def unreadable_files(self, *, read: bool) -> list[UnreadableFile]:
        return self._delta.unreadable_files(read=read)

    def settled(self) -> int:
        snapshot = self._delta.snapshot()
        return self._settled_in(snapshot) if snapshot.exists else 0

    def sweep(self, sequence: int, named: Named | None) -> None:
        """Removes the letters that can no longer count. The ledger was seen at `sequence`, with
        `named`, before this is called: so whatever else is committed is settled by now."""
        if self._delta.snapshot().exists:
            self._remove(self._abandoned(self.settled(), sequence, named))

    def take_over(self, old: str) -> None:
        """The letters of the pipeline `old` become those of this one. Can be done twice."""
        snapshot = self._delta.snapshot()
        if not snapshot.exists:
            return
        self._delta.update(F.col("_pipeline") == old, {"_pipeline": F.lit(self._pipeline)})
        settled = snapshot.transactions(settled_id(old)).get(settled_id(old), 0)
        transaction = self._delta.begin()
        transaction.version_of(self._settled)
        transaction.commit([], {self._settled: settled}, query=self._pipeline, epoch=settled)
        self._known = None

    def go_back(self, sequence: int) -> None:
        """Follows a data table that was put back to `sequence`, below what is settled here."""
        # First the letters: as long as `settled` is ahead nobody can write new ones.
        self._remove(self._is_ours() & (F.col("_sequence") > sequence))
        transaction = self._delta.begin()
        transaction.version_of(self._settled)
        transaction.commit([], {self._settled: sequence}, query=self._pipeline, epoch=sequence)

    def _refuse_changed(self, staged: StagedLetters, transaction: Transaction) -> None:
        if transaction.metadata != staged.metadata:
            what = "got other columns or properties"
        elif not all(self._delta.has(file.path) for file in staged.files):
            what = "lost files"
        else:
            return
        raise SinkUnavailable(
            f"the dead letter table {self.path} {what} after the batch was staged",
            hint="the batch is staged again",
        )

    def _settled_in(self, snapshot: Snapshot) -> int:
        refuse_forgetting(snapshot.metadata, self.path)
        return snapshot.transactions(self._settled).get(self._settled, 0)

    def _remove(self, condition: Column) -> None:
        if not self._delta.load().where(condition).isEmpty():
            self._delta.delete(condition)

    def _is_known(self, transaction: Transaction, named: Named | None) -> bool:
        """Whether the named letters are the only ones above `settled`, without looking."""
        known = self._known
        return (
            known is not None
            and known.version == transaction.read_version
            # Ours have not vanished from that version, and they count.
            and known.token == transaction.version_of(self._last_token)
            and (known.token is None or (named is not None and named.token == known.token))
        )

    def _unsettled(self, settled: int, named: Named | None) -> Column:
        """Letters above `settled` that the data table does not name."""
        condition = self._is_ours() & (F.col("_sequence") > settled)
        return condition if named is None else condition & ~named.is_it()

    def _abandoned(self, settled: int, sequence: int, named: Named | None) -> Column:
        """Those up to `sequence`: nobody can commit them any more."""
        return self._unsettled(settled, named) & (F.col("_sequence") <= sequence)

    def _is_ours(self) -> Column:
        return F.col("_pipeline") == self._pipeline

    def _create(self) -> None:
        try:
            version = self._delta.set_schema(_TABLE_SCHEMA)
            self._known = _Known(version=version, token=None) if version == 0 else None
        except JAVA_ERRORS:
            if not self._delta.snapshot().exists:  # otherwise another driver was quicker
                raise
