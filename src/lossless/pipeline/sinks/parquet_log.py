"""What the commits of a parquet table say: their directories, and the record in each of them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

from pyspark.sql import types as T

from lossless.errors import BadInput, PromiseBroken
from lossless.pipeline.ledger import Ledger, LedgerEntry
from lossless.pipeline.outcomes import CONTENT_HASH, IS_DEAD
from lossless.pipeline.sinks.folder import Folder, is_visible
from lossless.pipeline.sinks.interface import SchemaDifference, allow_columns

FORMAT = 1
COMMIT_COLUMN = "lossless_commit"
RESERVED_COLUMNS = (COMMIT_COLUMN, IS_DEAD, CONTENT_HASH)
LEDGER_FILE = "_ledger.json"


@dataclass(frozen=True, slots=True)
class DataFile:
    name: str  # below the commit's directory
    size: int
    rows: int  # as its footer says


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitRecord:
    """The content of `_ledger.json`."""

    pipeline: str
    attempt: str  # tells our commit from another driver's of the same sequence number
    ledger: Ledger
    entry: LedgerEntry
    schema: T.StructType | None  # None: the table has no columns yet
    files: Sequence[DataFile]

    def to_json(self) -> str:
        return json.dumps(
            {
                "format": FORMAT,
                "pipeline": self.pipeline,
                "attempt": self.attempt,
                "ledger": json.loads(self.ledger.to_json()),
                "entry": json.loads(self.entry.to_json()),
                "schema": self.schema.jsonValue() if self.schema else None,
                "files": [
                    {"name": file.name, "bytes": file.size, "rows": file.rows}
                    for file in self.files
                ],
            },
            separators=(",", ":"),
        )

    @classmethod
    def from_json(cls, text: str) -> CommitRecord:
        document = json.loads(text)
        if document["format"] != FORMAT:
            raise ValueError(f"format {document['format']!r} is not known here")
        return cls(
            pipeline=document["pipeline"],
            attempt=document["attempt"],
            ledger=Ledger.from_json(json.dumps(document["ledger"])),
            entry=LedgerEntry.from_json(json.dumps(document["entry"])),
            schema=T.StructType.fromJson(document["schema"]) if document["schema"] else None,
            files=[DataFile(f["name"], f["bytes"], f["rows"]) for f in document["files"]],
        )


class CommitLog:
    """The published commits at one path, for the one pipeline that may own it."""

    def __init__(self, folder: Folder, pipeline: str) -> None:
        self._folder = folder
        self._pipeline = pipeline

    def sequences(self) -> list[int]:
        """The commits, oldest first; PromiseBroken when one is missing."""
        found_here = (_sequence(name) for name in self._folder.names())
        sequences = sorted(sequence for sequence in found_here if sequence is not None)
        for expected, found in enumerate(sequences, start=1):
            if found != expected:
                raise PromiseBroken(
                    f"{self._folder.uri(commit_name(expected))} is missing, though later commits "
                    "are there: its rows are gone",
                    hint="bring the directory back from a backup, or start a new table elsewhere",
                )
        return sequences

    def newest(self) -> CommitRecord | None:
        """The last commit; BadInput when it is another pipeline's."""
        sequences = self.sequences()
        if not sequences:
            return None
        record = self.read(sequences[-1])
        if record.pipeline != self._pipeline:
            raise BadInput(
                f"{self._folder.uri()} belongs to pipeline {record.pipeline!r}, "
                f"not {self._pipeline!r}",
                hint="to continue from its ledger: lossless rename "
                f"{record.pipeline} {self._pipeline}; otherwise give every pipeline a path of its "
                "own",
            )
        return record

    def read(self, sequence: int) -> CommitRecord:
        name = f"{commit_name(sequence)}/{LEDGER_FILE}"
        try:
            record = CommitRecord.from_json(self._folder.read(name))
            if not record.ledger.sequence == record.entry.sequence == sequence:
                raise ValueError(f"it is the ledger of commit {record.ledger.sequence}")
        except FileNotFoundError as error:
            raise self._distrust(name, "it is missing") from error
        except (ValueError, KeyError, TypeError) as error:
            raise self._distrust(name, f"{type(error).__name__}: {error}") from error
        return record

    def _distrust(self, name: str, why: str) -> PromiseBroken:
        return PromiseBroken(
            f"{self._folder.uri(name)} cannot be read as a ledger: {why}",
            hint="bring the file back from a backup, or start a new table elsewhere",
        )

    def refuse_foreign_entries(self) -> None:
        foreign = sorted(
            name for name in self._folder.names() if is_visible(name) and _sequence(name) is None
        )
        if foreign:
            raise BadInput(
                f"{self._folder.uri()} has files that are not commits of a pipeline, which readers "
                f"would take for rows: {', '.join(foreign[:5])}{' …' if len(foreign) > 5 else ''}",
                hint="move them away, or choose another path",
            )


def commit_name(sequence: int) -> str:
    return f"{COMMIT_COLUMN}={sequence:010d}"


def _sequence(name: str) -> int | None:
    """The sequence number of a commit's directory; None when the name is not one."""
    _, _, number = name.partition("=")
    if not (number.isdecimal() and name == commit_name(int(number))):
        return None
    return int(number)


def compare_schemas(table: T.StructType | None, rows: T.StructType) -> SchemaDifference:
    """Nullability and comments do not count: every column of a parquet table may be null."""
    incompatible = [
        f"the column name {name} is taken by the sink"
        for name in rows.names
        if name.lower() in RESERVED_COLUMNS
    ]
    added = []
    columns = {field.name.lower(): field for field in table.fields} if table else {}
    for field in rows.fields:
        there = columns.get(field.name.lower())
        if there is None:
            added.append(f"{field.name} {field.dataType.simpleString()}")
        elif there.name != field.name:
            incompatible.append(f"{field.name} is spelled {there.name} in the table")
        elif there.dataType.simpleString() != field.dataType.simpleString():
            incompatible.append(
                f"{field.name} is {field.dataType.simpleString()} in the rows and "
                f"{there.dataType.simpleString()} in the table"
            )
    return SchemaDifference(
        exists=table is not None, added=added if table else (), incompatible=incompatible
    )


def refuse_unfit(found: SchemaDifference, pipeline: str, where: str, add_columns: bool) -> None:
    """Raises BadInput when rows with this difference cannot be written."""
    if found.incompatible:
        raise BadInput(
            f"the rows do not fit the {where}: " + "; ".join(found.incompatible),
            hint="change the schema or the transform, or choose another path",
        )
    if found.exists and found.added and not add_columns:
        raise BadInput(
            f"the {where} have no column {', '.join(found.added)}",
            hint=f"{allow_columns(pipeline)}, or drop them in the transform",
        )


def merge_schemas(table: T.StructType | None, rows: T.StructType) -> T.StructType:
    """The table's columns, then those that only the rows have. A table never loses a column."""
    columns = table.fields if table else []
    names = {field.name for field in columns}
    return T.StructType([*columns, *(f for f in rows.fields if f.name not in names)]).toNullable()
