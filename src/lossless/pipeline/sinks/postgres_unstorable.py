"""Values that PostgreSQL cannot store."""

from __future__ import annotations

import re

import pyarrow as pa
import pyarrow.compute as pc

from lossless.pipeline.sinks.postgres_types import Kind, StagedColumn

_DAY_US = 86_400_000_000
_POSTGRES_MIN_US = -2_440_588 * _DAY_US  # 4714-11-24 BC, the first day of the Julian calendar
TOO_EARLY = "is before 4714 BC, where PostgreSQL's calendar begins"
# A NUL as to_json spells it, and not a backslash followed by "u0000".
_JSON_NUL = re.compile(r"(?<!\\)((?:\\\\)*)\\u0000")


def unstorable(column: StagedColumn, values: pa.Array) -> list[tuple[pa.Array, str]]:
    """Which values cannot be stored, and why: a mask for each reason; mostly none."""
    found = []
    if column.not_null and values.null_count:
        found.append((pc.is_null(values), "is null, and the table's column is NOT NULL"))
    if column.kind is Kind.TEXT:
        found += _unstorable_text(column, values)
    elif column.kind is Kind.JSON and _contains(values, b"\\u0000"):
        mask = [value is not None and bool(_JSON_NUL.search(value)) for value in values.to_pylist()]
        found.append((pa.array(mask), "holds a NUL character (U+0000), which jsonb cannot"))
    elif column.kind is Kind.TIME:
        found.append((too_early(values), TOO_EARLY))
    return [(mask, reason) for mask, reason in found if _any(mask)]


def too_early(moments: pa.Array) -> pa.Array:
    """Which timestamps or dates PostgreSQL's calendar does not have."""
    return pc.less(_micros(moments), _POSTGRES_MIN_US)


def _unstorable_text(column: StagedColumn, values: pa.Array) -> list[tuple[pa.Array, str]]:
    found = []
    try:
        values.validate(full=True)
    except pa.ArrowInvalid:
        broken = pa.array([text_or_none(value) is None for value in _raw(values)])
        broken = pc.and_(broken, pc.is_valid(values))
        found.append((broken, "is not valid UTF-8"))
        values = pc.if_else(broken, pa.scalar(None, values.type), values)
    if _contains(values, b"\0"):
        mask = pc.match_substring(values, "\0")
        found.append((mask, "holds a NUL character (U+0000), which text cannot"))
    if column.characters_max is not None:
        mask = pc.greater(pc.utf8_length(values), column.characters_max)
        found.append((mask, f"has more than the {column.characters_max} characters it may have"))
    return found


def without_nul(document: str) -> str:
    """JSON in which NUL became the replacement character, so that jsonb takes it."""
    return _JSON_NUL.sub(r"\1\\ufffd", document) if "\\u0000" in document else document


def text_or_none(value: bytes | None) -> str | None:
    try:
        return None if value is None else value.decode()
    except UnicodeDecodeError:
        return None


def _raw(values: pa.Array) -> list[bytes | None]:
    large = pa.types.is_large_string(values.type)
    raw: list[bytes | None] = values.cast(pa.large_binary() if large else pa.binary()).to_pylist()
    return raw


def _contains(values: pa.Array, part: bytes) -> bool:
    """Whether the bytes occur anywhere in the column; looks at the buffer, not at each value."""
    data = values.buffers()[2]
    return data is not None and part in data.to_pybytes()


def _micros(values: pa.Array) -> pa.Array:
    if pa.types.is_date(values.type):
        return pc.multiply(values.cast(pa.int32()).cast(pa.int64()), _DAY_US)
    return values.cast(pa.int64())


def _any(mask: pa.Array) -> bool:
    return bool(pc.any(mask).as_py())
