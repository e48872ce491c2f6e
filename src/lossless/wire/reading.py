"""Reading by hand what makes up nearly all of the traffic: Produce, Fetch, a leader's answer to it.

kio reads every other request, after a walk that makes sure of its counts (bounds.py). Reading these
straight into what is needed takes less time than the walk alone. A count that lies runs into the
end of the message, and nothing is set aside for it before.

The functions are for what comes with every batch, a Reader for everything else: a call of one of
its methods takes longer than what it does.
"""

from __future__ import annotations

import struct

from lossless.log.batch import Data
from lossless.wire.bounds import ELEMENTS_MAX, TAGS_MAX, BadMessage

INT16 = struct.Struct(">h")
INT32 = struct.Struct(">i")


def varint_at(data: Data, at: int) -> tuple[int, int]:
    """A number of variable length, and where it ends. IndexError if it does not."""
    value = data[at]
    at += 1
    if value < 0x80:  # nearly every count is
        return value, at
    value &= 0x7F
    for shift in (7, 14, 21, 28):
        byte = data[at]
        at += 1
        if byte < 0x80:
            return value | byte << shift, at
        value |= (byte & 0x7F) << shift
    raise BadMessage("a number does not end")


def array_at(data: Data, at: int) -> tuple[int, int]:
    """How many there are, and where the first begins."""
    count, at = varint_at(data, at)
    if not 0 < count <= ELEMENTS_MAX + 1:
        raise BadMessage(f"an array of {count - 1}")
    return count - 1, at


def after_tags(data: Data, at: int) -> int:
    """Where tagged fields end that are of no interest. IndexError if they do not."""
    if data[at] == 0:
        return at + 1
    reader = Reader(bytes(data), at, is_flexible=True)
    reader.tags()
    return reader.at


def text(data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise BadMessage("a text that is no UTF-8") from error


class Reader:
    __slots__ = ("at", "data", "elements", "is_flexible")

    def __init__(self, data: bytes, at: int, *, is_flexible: bool) -> None:
        self.data = data
        self.at = at
        self.elements = 0  # of all arrays so far
        self.is_flexible = is_flexible

    def fixed(self, layout: struct.Struct) -> tuple[int, ...]:
        start = self.at
        self.at = start + layout.size
        try:
            return layout.unpack_from(self.data, start)
        except struct.error as error:
            raise BadMessage("the message ends too early") from error

    def varint(self) -> int:
        try:
            value, self.at = varint_at(self.data, self.at)
        except IndexError as error:
            raise BadMessage("the message ends too early") from error
        return value

    def size(self, layout: struct.Struct) -> int:
        """Of a text, of bytes or of an array; -1: there is none."""
        return self.varint() - 1 if self.is_flexible else self.fixed(layout)[0]

    def count(self) -> int:
        count = self.varint() - 1 if self.is_flexible else self.fixed(INT32)[0]
        if count < 0:
            raise BadMessage(f"an array of {count}")
        self.elements += count
        if self.elements > ELEMENTS_MAX:
            raise BadMessage(f"more than {ELEMENTS_MAX} elements")
        return count

    def raw(self, size: int) -> bytes:
        start = self.at
        self.at = end = start + size
        if size < 0 or end > len(self.data):
            raise BadMessage("the message ends too early")
        return self.data[start:end]

    def text(self) -> str | None:
        size = self.size(INT16)
        if size < 0:
            return None
        return text(self.raw(size))

    def name(self) -> str:
        name = self.text()
        if name is None:
            raise BadMessage("a text is missing")
        return name

    def tags(self) -> dict[int, bytes]:
        """Tagged fields; most often there are none."""
        if not self.is_flexible:
            return {}
        if self.at < len(self.data) and self.data[self.at] == 0:
            self.at += 1
            return _NO_TAGS
        found = {}
        count = self.varint()
        if count > TAGS_MAX:
            raise BadMessage(f"{count} tagged fields")
        for _ in range(count):
            tag = self.varint()
            found[tag] = self.raw(self.varint())
        return found


_NO_TAGS: dict[int, bytes] = {}
