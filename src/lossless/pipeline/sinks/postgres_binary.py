"""Arrow columns as the binary form that COPY reads, whole columns at a time.

    row     how many fields it has, then the fields: length (-1 for NULL) and bytes, big-endian

For the server it is half the work of a text, which it would have to take apart and to convert.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

HEADER = b"PGCOPY\n\xff\r\n\0" + bytes(8)  # no flags, no extension
TRAILER = b"\xff\xff"

_NULL = pa.scalar(b"\xff\xff\xff\xff", pa.large_binary())
_NOTHING = pa.scalar(b"", pa.large_binary())
# Between 1970 and 2000, where PostgreSQL counts from.
_EPOCH_DAYS = 10_957
_EPOCH_US = _EPOCH_DAYS * 86_400_000_000
# Before PostgreSQL's calendar begins. What is earlier still is refused like this, and must not wrap
# around to a date that would be stored.
_TOO_EARLY_DAYS = -2_440_589
_TOO_EARLY_US = _TOO_EARLY_DAYS * 86_400_000_000

# How numpy writes the values of a column of fixed width.
_FORMS = (
    (pa.types.is_boolean, "u1"),
    (pa.types.is_int8, ">i2"),  # smallint: PostgreSQL has nothing smaller
    (pa.types.is_int16, ">i2"),
    (pa.types.is_int32, ">i4"),
    (pa.types.is_int64, ">i8"),
    (pa.types.is_float32, ">f4"),
    (pa.types.is_float64, ">f8"),
    (pa.types.is_date32, ">i4"),
    (pa.types.is_timestamp, ">i8"),
)

_Part = tuple[str, Any]  # a form of numpy's, and the values or the one value to write in it


def binary_rows(columns: Sequence[pa.Array]) -> memoryview:
    """The rows of a COPY, without HEADER and TRAILER. Decimals come out as text."""
    rows = len(columns[0])
    pieces: list[pa.Array] = []
    # What has the same width in every row waits here, to be written at once.
    fixed: list[_Part] = [(">i2", len(columns))]
    for column in columns:
        form = _form(column.type)
        if form is None:
            values = _bytes(column)
            pieces.append(_packed([*fixed, (">i4", _lengths(values))], rows))
            pieces.append(values.fill_null(_NOTHING) if values.null_count else values)
            fixed = []
        elif column.null_count:
            field = _packed([(">i4", np.dtype(form).itemsize), (form, _numbers(column))], rows)
            if fixed:
                pieces.append(_packed(fixed, rows))
            pieces.append(pc.if_else(column.is_valid(), field, _NULL))
            fixed = []
        else:
            fixed += [(">i4", np.dtype(form).itemsize), (form, _numbers(column))]
    if fixed:
        pieces.append(_packed(fixed, rows))
    joined = pc.binary_join_element_wise(*pieces, _NOTHING)
    _, offsets, data = joined.buffers()
    return memoryview(data)[: int(np.frombuffer(offsets, np.int64, rows + 1)[-1])]


def jsonb(documents: pa.Array) -> pa.Array:
    """JSON texts as a column of type jsonb takes them: after the number of the form's version."""
    texts = _bytes(documents)
    return pc.binary_join_element_wise(pa.scalar(b"\x01", texts.type), texts, _NOTHING)


def _form(kind: pa.DataType) -> str | None:
    return next((form for is_kind, form in _FORMS if is_kind(kind)), None)


def _bytes(column: pa.Array) -> pa.Array:
    if pa.types.is_decimal(column.type):
        column = column.cast(pa.string())
    return column.cast(pa.large_binary())


def _lengths(values: pa.Array) -> Any:
    return pc.binary_length(values).fill_null(-1).to_numpy()


def _numbers(column: pa.Array) -> Any:
    """The values as numpy has them, with anything where there is none."""
    if pa.types.is_timestamp(column.type):
        micros = column.cast(pa.int64()).fill_null(0).to_numpy()
        return np.maximum(micros, _TOO_EARLY_US) - _EPOCH_US
    if pa.types.is_date32(column.type):
        days = column.cast(pa.int32()).fill_null(0).to_numpy()
        return np.maximum(days, _TOO_EARLY_DAYS) - _EPOCH_DAYS
    if pa.types.is_boolean(column.type):
        column = column.cast(pa.uint8())
    return column.fill_null(0).to_numpy()


def _packed(parts: Sequence[_Part], rows: int) -> pa.Array:
    """A binary value for every row: the parts one after the other, without gaps."""
    form = np.dtype([(str(number), form) for number, (form, _) in enumerate(parts)])
    packed = np.empty(rows, form)
    for number, (_, values) in enumerate(parts):
        packed[str(number)] = values
    offsets = np.arange(rows + 1, dtype=np.int64) * form.itemsize
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(packed)]
    return pa.Array.from_buffers(pa.large_binary(), rows, buffers)
