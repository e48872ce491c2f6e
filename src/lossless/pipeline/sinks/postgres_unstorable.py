"""Values that PostgreSQL cannot store, and how they are shown to people."""

from __future__ import annotations

import datetime
import re

import pyarrow as pa
import pyarrow.compute as pc

from lossless.pipeline.sinks.postgres_types import Kind, StagedColumn

_EPOCH = datetime.datetime(1970, 1, 1)
_DAY_US = 86_400_000_000
# The calendar repeats every 400 years.
_CYCLE_US = 146_097 * _DAY_US
_YEAR_1_US, _YEAR_10000_US = -719_162 * _DAY_US, 2_932_897 * _DAY_US
_POSTGRES_MIN_US = -2_440_588 * _DAY_US  # 4714-11-24 BC, the first day of the Julian calendar
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
        mask = pc.less(_micros(values), _POSTGRES_MIN_US)
        found.append((mask, "is before 4714 BC, where PostgreSQL's calendar begins"))
    return [(mask, reason) for mask, reason in found if _any(mask)]


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


def printable(values: pa.Array) -> list[object]:
    """Values for a JSON document that people read, whatever they hold."""
    if pa.types.is_temporal(values.type):
        return list(_time_text(values).cast(pa.string()).to_pylist())
    if pa.types.is_string(values.type) or pa.types.is_large_string(values.type):
        return [v if v is None else v.decode(errors="backslashreplace") for v in _raw(values)]
    if pa.types.is_binary(values.type) or pa.types.is_large_binary(values.type):
        return [v if v is None else f"\\x{v.hex()}" for v in values.to_pylist()]
    return list(values.to_pylist())


def _time_text(values: pa.Array) -> pa.Array:
    """Dates and timestamps as they are, or as text if years have more or less than four digits.

    Producers that put microseconds where Kafka wants milliseconds give the year 55000.
    """
    if pa.types.is_timestamp(values.type) and values.type.tz is not None:
        # The instant in UTC, without saying so.
        values = values.cast(pa.timestamp("us", "UTC")).cast(pa.int64()).cast(pa.timestamp("us"))
    micros = _micros(values)
    if not _any(_outside(micros, _YEAR_1_US, _YEAR_10000_US)):
        return values
    date_only = pa.types.is_date(values.type)
    texts = [None if us is None else _any_year(us, date_only) for us in micros.to_pylist()]
    return pa.array(texts, pa.string())


def _any_year(micros: int, date_only: bool) -> str:
    cycles, rest = divmod(micros, _CYCLE_US)
    moment = _EPOCH + datetime.timedelta(microseconds=rest)
    year = moment.year + 400 * cycles
    text = f"{year if year > 0 else 1 - year:04d}-{moment:%m-%d}"
    if not date_only:
        text += f" {moment:%H:%M:%S.%f}"
    return text if year > 0 else f"{text} BC"


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


def _outside(micros: pa.Array, start: int, end: int) -> pa.Array:
    return pc.or_(pc.less(micros, start), pc.greater_equal(micros, end))


def _any(mask: pa.Array) -> bool:
    return bool(pc.any(mask).as_py())
