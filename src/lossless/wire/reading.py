"""Reading the hot requests by hand: Produce and Fetch, which make up nearly all of the traffic.

kio reads every other request, after a walk that makes sure of its counts (bounds.py). Reading these
two straight into what is needed takes less time than the walk alone. A count that lies runs into
the end of the message, and nothing is set aside for it before.
"""

from __future__ import annotations

import struct

from lossless.wire.bounds import ELEMENTS_MAX, BadMessage

INT16 = struct.Struct(">h")
INT32 = struct.Struct(">i")


class Reader:
    __slots__ = ("at", "data", "is_flexible")

    def __init__(self, data: bytes, at: int, *, is_flexible: bool) -> None:
        self.data = data
        self.at = at
        self.is_flexible = is_flexible

    def fixed(self, layout: struct.Struct) -> tuple[int, ...]:
        start, self.at = self.at, self.at + layout.size
        try:
            return layout.unpack_from(self.data, start)
        except struct.error as error:
            raise BadMessage("the message ends too early") from error

    def varint(self) -> int:
        data, at = self.data, self.at
        value = shift = 0
        try:
            while True:
                byte = data[at]
                at += 1
                value |= (byte & 0x7F) << shift
                if byte < 0x80:
                    self.at = at
                    return value
                shift += 7
                if shift > 28:
                    raise BadMessage("a number does not end")
        except IndexError as error:
            raise BadMessage("the message ends too early") from error

    def size(self, layout: struct.Struct) -> int:
        """Of a text, of bytes or of an array; -1: there is none."""
        return self.varint() - 1 if self.is_flexible else self.fixed(layout)[0]

    def count(self) -> int:
        count = self.size(INT32)
        if not 0 <= count <= ELEMENTS_MAX:
            raise BadMessage(f"an array of {count}")
        return count

    def raw(self, size: int) -> bytes:
        start, self.at = self.at, self.at + size
        if size < 0 or self.at > len(self.data):
            raise BadMessage("the message ends too early")
        return self.data[start : self.at]

    def text(self) -> str | None:
        size = self.size(INT16)
        if size < 0:
            return None
        try:
            return self.raw(size).decode()
        except UnicodeDecodeError as error:
            raise BadMessage("a text that is no UTF-8") from error

    def name(self) -> str:
        text = self.text()
        if text is None:
            raise BadMessage("a text is missing")
        return text

    def tags(self) -> dict[int, bytes]:
        """Tagged fields; most often there are none."""
        if not self.is_flexible:
            return {}
        if self.at < len(self.data) and self.data[self.at] == 0:
            self.at += 1
            return _NO_TAGS
        found = {}
        for _ in range(self.varint()):
            tag = self.varint()
            found[tag] = self.raw(self.varint())
        return found


_NO_TAGS: dict[int, bytes] = {}
