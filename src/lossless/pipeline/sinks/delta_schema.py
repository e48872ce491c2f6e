"""What a table must be like to take rows: its columns, and the Delta features that it uses.

Staged files become part of the table as they are. So their columns must have the table's types
exactly, and a feature that changes or checks rows on the way in, which staging goes around, cannot
be honoured: such a table is refused rather than filled with rows it would not have taken.
"""

from __future__ import annotations

from collections.abc import Iterator

from pyspark.sql import types as T

from lossless.errors import BadInput, PromiseBroken
from lossless.pipeline.outcomes import CONTENT_HASH
from lossless.pipeline.sinks.delta_log import TableMetadata
from lossless.pipeline.sinks.interface import SchemaDifference, allow_columns

# Features of Delta's protocol under which an appended file is just a file.
_HARMLESS_FEATURES = frozenset(
    {
        "appendOnly",
        "changeDataFeed",
        "checkpointProtection",
        "deletionVectors",
        "domainMetadata",
        "inCommitTimestamp",
        "timestampNtz",
        "typeWidening",
        "v2Checkpoint",
        "vacuumProtocolCheck",
        "variantType",
        # A table that lists these may use them; whether it does is seen below.
        "allowColumnDefaults",
        "checkConstraints",
        "columnMapping",
        "generatedColumns",
        "identityColumns",
        "invariants",
    }
)

_FORGETS = "delta.setTransactionRetentionDuration"

_COLUMN_FEATURES = {
    "delta.generationExpression": "a generated column",
    "delta.identity.start": "an identity column",
    "delta.invariants": "an invariant",
    "CURRENT_DEFAULT": "a column default",
    "__CHAR_VARCHAR_TYPE_STRING": "a char or varchar length",
}


def difference(table: T.StructType, rows: T.StructType) -> SchemaDifference:
    """How the schema of rows differs from a table that exists."""
    added: list[str] = []
    incompatible: list[str] = []
    _compare(table, rows, "", added, incompatible)
    return SchemaDifference(exists=True, added=tuple(added), incompatible=tuple(incompatible))


def refuse_unfit(found: SchemaDifference, pipeline: str, where: str, add_columns: bool) -> None:
    """Raises BadInput when rows with this difference cannot be written."""
    if found.incompatible:
        raise BadInput(
            f"the rows do not fit the {where}: " + "; ".join(found.incompatible),
            hint="change the schema or the transform, or write to another table",
        )
    # A table that an earlier release has made has no column for hashes.
    wanting = [one for one in found.added if one.split()[0] != CONTENT_HASH]
    if wanting and not add_columns:
        raise BadInput(
            f"the {where} has no column {', '.join(wanting)}",
            hint=f"{allow_columns(pipeline)}, or add them yourself",
        )


def grown(table: T.StructType, rows: T.StructType) -> T.StructType:
    """The table's schema with the columns of the rows that it lacks, at the end."""
    extra = {field.name.lower(): field for field in rows.fields}
    fields = []
    for field in table.fields:
        other = extra.pop(field.name.lower(), None)
        inner = None if other is None else other.dataType
        if isinstance(field.dataType, T.StructType) and isinstance(inner, T.StructType):
            merged = grown(field.dataType, inner)
            field = T.StructField(field.name, merged, field.nullable, field.metadata)
        fields.append(field)
    return T.StructType([*fields, *extra.values()])


def refuse_forgetting(metadata: TableMetadata, path: str) -> None:
    """Raises PromiseBroken for a table that drops transaction versions after a while."""
    if _FORGETS in metadata.configuration:
        raise PromiseBroken(
            f"the delta table {path} has the property {_FORGETS}: it would forget the ledger, and "
            "every record would be stored again",
            hint=f"ALTER TABLE delta.`{path}` UNSET TBLPROPERTIES ('{_FORGETS}')",
        )


def refuse_unsupported(metadata: TableMetadata, where: str) -> None:
    """Raises BadInput, naming what the table uses that staged files would go around."""
    used = sorted(_unsupported(metadata))
    if used:
        raise BadInput(
            f"{where} uses {', '.join(used)}: rows committed together with the ledger go around it",
            hint="drop it from the table, or let the pipeline write to a table of its own",
        )


def _unsupported(metadata: TableMetadata) -> Iterator[str]:
    for feature in metadata.writer_features - _HARMLESS_FEATURES:
        yield f"the Delta feature {feature}"
    if metadata.configuration.get("delta.columnMapping.mode", "none") != "none":
        yield "column mapping (delta.columnMapping.mode)"
    for name in metadata.configuration:
        if name.startswith("delta.constraints."):
            yield f"the CHECK constraint {name.removeprefix('delta.constraints.')}"
    for field in metadata.schema.fields:
        if not field.nullable:
            yield f"NOT NULL (column {field.name})"
        for key, feature in _COLUMN_FEATURES.items():
            if key in field.metadata:
                yield f"{feature} (column {field.name})"


def _compare(
    table: T.StructType, rows: T.StructType, parent: str, added: list[str], wrong: list[str]
) -> None:
    # Delta finds top-level columns whatever their case; inside a struct we ask for the same
    # spelling, because staged files are renamed to the table's spelling at the top level only.
    known = {_key(field.name, parent): field for field in table.fields}
    for field in rows.fields:
        name = f"{parent}{field.name}"
        stored = known.get(_key(field.name, parent))
        if stored is None:
            if any(other.name.lower() == field.name.lower() for other in table.fields):
                wrong.append(f"column {name} differs from the table's only in upper and lower case")
            elif isinstance(field.dataType, T.NullType):
                wrong.append(f"column {name} has no type: it is always null")
            else:
                added.append(f"{name} {field.dataType.simpleString()}")
        elif isinstance(stored.dataType, T.StructType) and isinstance(field.dataType, T.StructType):
            _compare(stored.dataType, field.dataType, f"{name}.", added, wrong)
        elif stored.dataType.simpleString() != field.dataType.simpleString():
            wrong.append(
                f"column {name} is {stored.dataType.simpleString()} in the table "
                f"and {field.dataType.simpleString()} in the rows"
            )


def _key(name: str, parent: str) -> str:
    return name if parent else name.lower()
