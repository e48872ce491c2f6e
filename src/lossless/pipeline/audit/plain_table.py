"""A table that nobody keeps a ledger for, audited against the whole log of its topics."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from pyspark.sql import types as T

from lossless.pipeline.contents import Uncoverings, content_hashes, doubtful_rows
from lossless.pipeline.ledger import Ledger
from lossless.pipeline.outcomes import PROVENANCE, PROVENANCE_TYPE

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from lossless.pipeline.sinks.unreadable_files import UnreadableFile


class PlainTable:
    """Rows with PROVENANCE, written by whatever job: every record of the log must be there once."""

    def __init__(self, spark: SparkSession, name: str, rows: DataFrame) -> None:
        self._spark = spark
        self._name = name
        self._rows = rows

    def describe(self) -> str:
        return self._name

    def ledger(self) -> None:
        return None

    def history(self) -> tuple[()]:
        return ()

    def other_ledgers(self) -> Mapping[str, Ledger]:
        return {}

    def rows(self) -> DataFrame:
        return self._rows

    def unreadable_files(self, *, read: bool) -> tuple[()]:  # noqa: ARG002
        return ()

    def leave_out(self, files: Sequence[UnreadableFile]) -> None:
        """There are no files to leave out."""

    def contents(self, covered: Sequence[str], uncovered: Uncoverings) -> DataFrame:
        return doubtful_rows(self._rows, covered, uncovered)

    def content_hashes(self) -> DataFrame:
        return content_hashes(self._rows)

    def dead_letters(self) -> DataFrame:
        schema = T.StructType([T.StructField(PROVENANCE, PROVENANCE_TYPE)])
        return self._spark.createDataFrame([], schema)
