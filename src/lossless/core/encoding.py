"""Kafka's primitive types in bytes: what the records of coordinators are made of.

Each type comes twice. The older form has lengths of fixed size; the flexible form (KIP-482) writes
them as variable-length numbers, one too large so that 0 can mean null, and ends every structure
with fields that have numbers, which a reader that does not know them skips.
"""

from __future__ import annotations

import struct

_INT8 = struct.Struct(">b")
_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")
_INT64 = struct.Struct(">q")
_UUID_BYTES = 16


class Malformed(ValueError):
    """These bytes are not what was to be read."""


class Writer:
    """Of one structure: flexible or not, all of it."""

    def __init__(self, flexible: bool) -> None:
        self._flexible = flexible
        self.data = bytearray()

    def int8(self, value: int) -> None:
        self.data += _INT8.pack(value)

    def int16(self, value: int) -> None:
        self.data += _INT16.pack(value)

    def int32(self, value: int) -> None:
        self.data += _INT32.pack(value)

    def int64(self, value: int) -> None:
        self.data += _INT64.pack(value)

    def uuid(self, value: int) -> None:
        self.data += value.to_bytes(_UUID_BYTES, "big")

    def unsigned_varint(self, value: int) -> None:
        while value > 0x7F:
            self.data.append(value & 0x7F | 0x80)
            value >>= 7
        self.data.append(value)

    def count(self, value: int) -> None:
        """Of the elements of an array; -1: there is none."""
        if self._flexible:
            self.unsigned_varint(value + 1)
        else:
            self.int32(value)

    def string(self, value: str | None) -> None:
        encoded = None if value is None else value.encode()
        if self._flexible:
            self.unsigned_varint(0 if encoded is None else len(encoded) + 1)
        else:
            self.int16(-1 if encoded is None else len(encoded))
        self.data += encoded or b""

    def blob(self, value: bytes) -> None:
        self.count(len(value))
        self.data += value

    def tagged(self, fields: tuple[tuple[int, bytes], ...] = ()) -> None:
        """The end of a structure, with the fields that have numbers, in their order."""
        if not self._flexible:
            return
        self.unsigned_varint(len(fields))
        for tag, value in fields:
            self.unsigned_varint(tag)
            self.unsigned_varint(len(value))
            self.data += value


class Reader:
    """Raises Malformed where the bytes end too early."""

    def __init__(self, data: bytes, flexible: bool, at: int = 0) -> None:
        self._flexible = flexible
        self._data = data
        self._at = at

    def _take(self, size: int) -> bytes:
        end = self._at + size
        if size < 0 or end > len(self._data):
            raise Malformed(f"{size} bytes at {self._at} of {len(self._data)}")
        taken = self._data[self._at : end]
        self._at = end
        return taken

    def int8(self) -> int:
        return int(_INT8.unpack(self._take(_INT8.size))[0])

    def int16(self) -> int:
        return int(_INT16.unpack(self._take(_INT16.size))[0])

    def int32(self) -> int:
        return int(_INT32.unpack(self._take(_INT32.size))[0])

    def int64(self) -> int:
        return int(_INT64.unpack(self._take(_INT64.size))[0])

    def uuid(self) -> int:
        return int.from_bytes(self._take(_UUID_BYTES), "big")

    def unsigned_varint(self) -> int:
        value = shift = 0
        while True:
            byte = self._take(1)[0]
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
            shift += 7

    def count(self) -> int:
        count = self.unsigned_varint() - 1 if self._flexible else self.int32()
        if count > len(self._data):
            raise Malformed(f"{count} elements in {len(self._data)} bytes")
        return max(count, 0)

    def nullable_string(self) -> str | None:
        size = self.unsigned_varint() - 1 if self._flexible else self.int16()
        if size < 0:
            return None
        try:
            return self._take(size).decode()
        except UnicodeDecodeError as error:
            raise Malformed(str(error)) from error

    def string(self) -> str:
        value = self.nullable_string()
        if value is None:
            raise Malformed("null where a string has to be")
        return value

    def blob(self) -> bytes:
        return self._take(self.count())

    def tagged(self) -> dict[int, bytes]:
        if not self._flexible:
            return {}
        fields = {}
        for _ in range(self.unsigned_varint()):
            tag = self.unsigned_varint()
            fields[tag] = self._take(self.unsigned_varint())
        return fields
