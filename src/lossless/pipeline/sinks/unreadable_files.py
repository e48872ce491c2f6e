"""Data files that a table lists and that cannot be read as they were written.

Looked for when reading a table failed or records are missing. A file counts only when the evidence
is of the file and not of the moment: it is gone, its length is another than the table wrote down,
or its bytes are not a Parquet file any more. A disk or a network that does not answer shows none of
this.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import unquote

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import functions as F

from lossless.pipeline.session import setting

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

IGNORE_CORRUPT_FILES = "spark.sql.files.ignoreCorruptFiles"
# What the classes that read Parquet and check sums say of bytes that are not what was written.
_DAMAGE = (
    "is not a Parquet file",
    "ChecksumException",
    "ParquetDecodingException",
    "MalformedInputException",
    "EOFException",
    "Reached the end of stream",
    "corrupt",
    "could not decompress",
    "can not read class org.apache.parquet",
    "CANNOT_READ_FILE_FOOTER",
    "FAILED_READ_FILE.PARQUET",
)


@dataclass(frozen=True, slots=True)
class UnreadableFile:
    """A data file, and what is wrong with it."""

    path: str
    reason: str

    def __str__(self) -> str:
        return f"{self.path} {self.reason}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedFile:
    """What a table has written down about one of its data files."""

    path: str  # as people and `leave_out` know it
    uri: str  # as Spark reads it
    size: int
    rows: int | None  # None: not written down


def find_unreadable(
    spark: SparkSession,
    files: Sequence[ListedFile],
    size_of: Callable[[ListedFile], int | None],
    read: Callable[[Sequence[ListedFile]], DataFrame] | None,
) -> list[UnreadableFile]:
    """`size_of` gives the length of a file, None if it is gone; `read` the rows of some files.

    Without `read` only names and lengths are compared.
    """
    found: list[UnreadableFile] = []
    whole: list[ListedFile] = []
    for file in files:
        size = size_of(file)
        if size is None:
            found.append(UnreadableFile(file.path, "is gone"))
        elif size != file.size:
            found.append(
                UnreadableFile(file.path, f"is damaged: {size:,} of {file.size:,} bytes are left")
            )
        else:
            whole.append(file)
    if whole and read is not None:
        counted = _rows_by_file(spark, read(whole))
        for file in whole:
            if file.rows is None or counted.get(_name(file.uri), 0) != file.rows:
                reason = _damage(spark, file)
                if reason is not None:
                    found.append(UnreadableFile(file.path, reason))
    return sorted(found, key=lambda file: file.path)


def _rows_by_file(spark: SparkSession, rows: DataFrame) -> Mapping[str, int]:
    """How many rows each file gives until it fails; every column is decoded."""
    with setting(spark, IGNORE_CORRUPT_FILES, "true"):
        counted = (
            rows.select(F.input_file_name().alias("file"), _all_columns(rows))
            .groupBy("file")
            .agg(F.count(F.lit(1)).alias("rows"), F.max("digest"))
            .collect()
        )
    totals: dict[str, int] = {}
    for row in counted:
        totals[_name(row["file"])] = totals.get(_name(row["file"]), 0) + row["rows"]
    return totals


def _damage(spark: SparkSession, file: ListedFile) -> str | None:
    """Reads one file by itself; None if it can be read, or if what failed is not the file."""
    try:
        rows = spark.read.option("ignoreCorruptFiles", "false").parquet(file.uri)
        rows.select(_all_columns(rows)).agg(F.max("digest")).collect()
    except (PySparkException, Py4JError) as error:
        text = str(error)
        known = next((words for words in _DAMAGE if words.lower() in text.lower()), None)
        return None if known is None else f"is damaged: reading it fails ({known})"
    return None


def _all_columns(rows: DataFrame) -> Column:
    # As text, because a hash takes no maps and no variants.
    return F.xxhash64(F.to_json(F.struct(*(F.col(f"`{name}`") for name in rows.columns)))).alias(
        "digest"
    )


def _name(uri: str) -> str:
    return unquote(uri.rpartition("/")[2])
