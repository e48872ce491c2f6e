"""Staged files: in the table's folder, in no table, one directory for each pipeline and sequence.

    <table>/lossless_stage=<pipeline>.<sequence>.rows/     becomes part of the table by the commit
    <table>/lossless_stage=<pipeline>.<sequence>.dead/     copied to the dead letters, then removed

The directories come from a partition column that only the staged files have; committed files keep
their paths. The column has no leading underscore, so that VACUUM looks into its directories too.

Files of sequence n can be committed only while the ledger is at n - 1. Once it is at n or above,
what lies here and is not in the table is garbage.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import takewhile
from typing import TYPE_CHECKING

from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from lossless.errors import PromiseBroken
from lossless.pipeline.outcomes import (
    DEAD_LETTER,
    IS_DEAD,
    PROVENANCE,
    opened,
    row_schema,
)
from lossless.pipeline.sinks.delta_log import AddedFile, DeltaLog, Scratch, Snapshot

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

STAGE = "lossless_stage"


class StagingArea:
    """The directory of one pipeline and one sequence."""

    def __init__(self, delta: DeltaLog, pipeline: str, sequence: int) -> None:
        self._delta = delta
        self.sequence = sequence
        # Digits, dots and letters: an address leaves them as they are.
        self._rows_end = f".{sequence}.rows"
        self._rows = f"{pipeline}{self._rows_end}"
        self._dead = f"{pipeline}.{sequence}.dead"
        self._rows_directory = delta.partition_directory(STAGE, self._rows)
        self._dead_directory = delta.partition_directory(STAGE, self._dead)

    def write(self, outcomes: DataFrame) -> Scratch:
        """Rows and dead letters in one job: one evaluation, two directories."""
        directory = F.when(F.col(IS_DEAD), self._dead).otherwise(self._rows)
        staged = outcomes.withColumn(STAGE, directory).drop(IS_DEAD)
        rows = row_schema(outcomes.schema)
        return self._delta.stage(staged, STAGE, rows=rows, counted=_before_provenance(rows))

    def is_letter(self) -> Column:
        return F.col(STAGE) == self._dead

    def letters(self, scratch: Scratch) -> DataFrame:
        """The dead letters as their table has them."""
        letter = opened(F.col(DEAD_LETTER)).alias(DEAD_LETTER)
        found = scratch.read_back.where(self.is_letter()).select(PROVENANCE, letter)
        return found.select(PROVENANCE, f"{DEAD_LETTER}.*")

    def row_files(self, files: Iterable[AddedFile]) -> list[AddedFile]:
        return [file for file in files if file.partition_values[STAGE] == self._rows]

    def letter_files(self, files: Iterable[AddedFile]) -> list[AddedFile]:
        return [file for file in files if file.partition_values[STAGE] == self._dead]

    def missing(self, files: Iterable[AddedFile]) -> list[str]:
        """The row files that are no longer there."""
        there = set(self._delta.files_below(self._rows_directory))
        return [file.path for file in files if file.path not in there]

    def in_table(self, snapshot: Snapshot) -> set[str]:
        """The files of this directory that the table has, or had and keeps for time travel."""
        if not self._delta.files_below(self._rows_directory):
            return set()
        found = snapshot.file_paths(f"{self._rows_end}/")
        return {path for path in found if path.startswith(f"{self._rows_directory}/")}

    def remove_all_but(self, kept: set[str]) -> None:
        """Only once the ledger is at this sequence or above: nobody can commit the others."""
        for path in self._delta.files_below(self._rows_directory):
            if path not in kept:
                self._delta.remove(path)
        if not kept:
            self._delta.remove(self._rows_directory)
        self._delta.remove(self._dead_directory)


def _before_provenance(rows: StructType) -> StructType:
    """Minimum and maximum of the provenance are in the files' footers; in the table's log too they
    would cost every row."""
    return StructType(list(takewhile(lambda field: field.name != PROVENANCE, rows.fields)))


def table_file(file: AddedFile) -> AddedFile:
    """A staged file as the table will have it. Delta does not look at columns that are not in the
    table's schema, so the dead letter column of the rows, all null, can stay in the file."""
    return file.without(partition_column=STAGE, column=DEAD_LETTER)


def require_as_written(files: Sequence[AddedFile], counted: int, what: str) -> None:
    """The writers' statistics, where they keep any, against what was read back."""
    statistics = [file.statistics for file in files]
    if all("numRecords" in each for each in statistics):
        written = sum(int(each["numRecords"]) for each in statistics)
        if written != counted:
            raise PromiseBroken(f"{written} {what} were written, but {counted} can be read back")
