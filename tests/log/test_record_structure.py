"""Whether records are those that a header announces: the fast ways agree with a plain reading."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lossless.log import record_structure
from lossless.log.batch import HEADER_SIZE, Record, build
from lossless.log.record_structure import InvalidRecords, TooManyElements, require_records


def body_of(records: list[Record]) -> bytes:
    return bytes(build(records).data[HEADER_SIZE:])


def varint(value: int) -> bytes:
    rest = value << 1 if value >= 0 else (-value << 1) - 1
    parts = bytearray()
    while rest > 0x7F:
        parts.append(rest & 0x7F | 0x80)
        rest >>= 7
    return bytes((*parts, rest))


class _Plain:
    """Reads one number and one record after the other, in the plainest way."""

    def __init__(self, body: bytes) -> None:
        self.body = body
        self.at = 0

    def number(self) -> int:
        start = self.at
        while self.body[self.at] > 0x7F:
            self.at += 1
        self.at += 1
        taken = self.body[start : self.at]
        rest = sum((byte & 0x7F) << 7 * place for place, byte in enumerate(taken))
        assert rest < 1 << 64
        value = -(rest + 1 >> 1) if rest & 1 else rest >> 1
        assert varint(value) == taken
        return value

    def content(self, least: int) -> bytes | None:
        size = self.number()
        assert size >= least
        start, self.at = self.at, self.at + max(size, 0)
        assert self.at <= len(self.body)
        return self.body[start : self.at] if size >= 0 else None

    def keyless(self, count: int) -> list[int]:
        found = []
        for place in range(count):
            size = self.number()
            end = self.at + size
            self.at += 1
            self.number()
            assert self.number() == place
            if self.content(-1) is None:
                found.append(place)
            self.content(-1)
            headers = self.number()
            assert headers >= 0
            for _ in range(headers):
                self.content(0)
                self.content(-1)
            assert self.at == end
        assert self.at == len(self.body)
        return found


def plainly(body: bytes, count: int) -> list[int] | None:
    """The places of records without a key; None if the records are not right."""
    try:
        return _Plain(body).keyless(count)
    except (AssertionError, IndexError):
        return None


def checked(body: bytes, count: int) -> list[int] | None:
    try:
        found = require_records(body, count, with_keys=True)
    except InvalidRecords:
        with pytest.raises(InvalidRecords):
            require_records(body, count)
        return None
    assert require_records(body, count) == []
    return found


_texts = st.none() | st.binary(max_size=6) | st.sampled_from([bytes(63), bytes(64), bytes(70)])
_headers = st.lists(st.tuples(st.sampled_from(["", "h", "h" * 64]), _texts), max_size=3)
_times = st.integers(-100, 100) | st.integers(-(1 << 62), 1 << 62)


@st.composite
def _records(draw: st.DrawFn) -> list[Record]:
    """Stretches of records that are equal in their lengths, and others."""
    records: list[Record] = []
    for _ in range(draw(st.integers(1, 4))):
        key, value, headers = draw(_texts), draw(_texts), tuple(draw(_headers))
        times = draw(_times)
        step = draw(st.sampled_from([0, 1, 5, 1000]))
        for number in range(draw(st.sampled_from([1, 2, 7, 8, 9, 40]))):
            place = len(records)
            records.append(Record(place, times + number * step, key, value, headers))
    return records


@settings(max_examples=100, deadline=None)
@given(_records())
def test_records_that_are_right_are_accepted(records: list[Record]) -> None:
    keyless = [record.offset for record in records if record.key is None]
    body = body_of(records)
    assert checked(body, len(records)) == plainly(body, len(records)) == keyless


@settings(max_examples=300, deadline=None)
@given(_records(), st.data())
def test_records_are_accepted_if_a_plain_reading_accepts_them(
    records: list[Record], data: st.DataObject
) -> None:
    body = bytearray(body_of(records))
    # Most bytes are content: the framing of some record is met more often than by chance.
    near = len(body) // len(records) * data.draw(st.integers(0, len(records)))
    for _ in range(data.draw(st.integers(1, 3))):
        at = min(len(body) - 1, near + data.draw(st.integers(0, 12)))
        match data.draw(st.sampled_from(["change", "cut", "insert", "drop"])):
            case "change":
                body[at] = data.draw(st.sampled_from([0, 1, 2, 0x7F, 0x80, 0xFF]))
            case "cut" if at:
                del body[at:]
            case "insert":
                body.insert(at, data.draw(st.sampled_from([0, 1, 2, 0x80])))
            case _ if len(body) > 1:
                del body[at]
    count = len(records) + data.draw(st.sampled_from([0, 0, 0, 0, -1, 1]))
    assert checked(bytes(body), count) == plainly(bytes(body), count)


@pytest.mark.parametrize("place", [0, 1, 20, 99])
@pytest.mark.parametrize("is_regular", [True, False])
def test_a_record_of_another_length_than_its_parts_is_found(is_regular: bool, place: int) -> None:
    records = [Record(n, n, b"key", bytes(100 if is_regular else 90 + n % 7)) for n in range(100)]
    body = body_of(records)
    start = len(body_of(records[:place])) if place else 0
    for change in (-2, 2):
        wrong = bytearray(body)
        wrong[start] += change
        with pytest.raises(InvalidRecords):
            require_records(bytes(wrong), len(records))


def a_record(place: int = 0, *, parts: bytes, time: bytes = b"\0") -> bytes:
    content = b"\0" + time + varint(place) + parts
    return varint(len(content)) + content


@pytest.mark.parametrize("is_regular", [True, False])
def test_offset_deltas_of_every_width_are_compared(is_regular: bool) -> None:
    keys = [b"\2k", b"\4kk"]
    parts = [keys[0 if is_regular else place * place % 7 % 2] + b"\1\0" for place in range(17_000)]
    records = [a_record(place, parts=part) for place, part in enumerate(parts)]
    require_records(b"".join(records), len(records))
    for place in (3, 63, 64, 100, 8191, 8192, 9000, 16_383, 16_384, 16_999):
        for wrong in (place ^ 1, place ^ 64, place + 8192):
            moved = [*records]
            moved[place] = a_record(wrong, parts=parts[place])
            with pytest.raises(InvalidRecords, match=f"record {place} has the offset delta"):
                require_records(b"".join(moved), len(moved))


NULL, EMPTY, NO_HEADERS = b"\1", b"\0", b"\0"
REFUSED = {
    "nothing": b"",
    "a length below zero": b"\1" + a_record(parts=NULL + NULL + NO_HEADERS)[1:],
    "a key below null": a_record(parts=b"\3" + NULL + NO_HEADERS),
    "a value below null": a_record(parts=NULL + b"\3" + NO_HEADERS),
    "a value of a long length that is odd": a_record(parts=NULL + b"\x81\1" + NO_HEADERS),
    "headers below zero": a_record(parts=NULL + NULL + b"\1"),
    "a header without a name": a_record(parts=NULL + NULL + b"\2" + NULL + NULL),
    "a header's value below null": a_record(parts=NULL + NULL + b"\2" + EMPTY + b"\3"),
    "headers that are not there": a_record(parts=NULL + NULL + b"\x7e"),
    "a key that does not end": a_record(parts=b"\x7e"),
    "a value that does not end": a_record(parts=NULL + b"\xfe\x7f" + NO_HEADERS),
    "a number longer than it is": a_record(parts=b"\x80\0" + NULL + NO_HEADERS),
    "a length longer than it is": b"\x8c\0" + a_record(parts=NULL + NULL + NO_HEADERS)[1:],
    "a time longer than it is": a_record(parts=NULL + NULL + NO_HEADERS, time=b"\x80\0"),
    "a time of 65 bits": a_record(parts=NULL + NULL + NO_HEADERS, time=b"\xff" * 9 + b"\2"),
    "a time of eleven bytes": a_record(parts=NULL + NULL + NO_HEADERS, time=b"\xff" * 10 + b"\1"),
    "bytes behind it": a_record(parts=NULL + NULL + NO_HEADERS) + b"\0",
}  # fmt: skip


@pytest.mark.parametrize("body", REFUSED.values(), ids=REFUSED)
def test_a_record_that_is_not_right_is_refused(body: bytes) -> None:
    assert plainly(body, 1) is None
    with pytest.raises(InvalidRecords):
        require_records(body, 1)


@pytest.mark.parametrize("time", [b"\xff" * 9 + b"\1", b"\xff" * 8 + b"\1"])
@pytest.mark.parametrize("count", [1, 20])
def test_times_may_take_up_to_64_bits(time: bytes, count: int) -> None:
    parts = NULL + NULL + NO_HEADERS
    body = b"".join(a_record(place, parts=parts, time=time) for place in range(count))
    assert plainly(body, count) == [*range(count)]
    require_records(body, count)


def test_a_run_ends_where_a_time_takes_another_number_of_bytes() -> None:
    """The key is as much longer as the time is shorter, so that all records have one length."""
    usual, short = (b"\xff\1", b"\2k"), (b"\1", b"\4kk")
    for first, second in ((usual, short), (short, usual)):
        parts = [first] * 20 + [second] * 20
        body = b"".join(
            a_record(place, parts=key + NULL + NO_HEADERS, time=time)
            for place, (time, key) in enumerate(parts)
        )
        require_records(body, 40)


@pytest.mark.parametrize(
    ("time", "odd"), [(b"\xff\1", b"\0\1\x28\x28\2k\1\0"), (b"\1", b"\0\x81\x28\2k\1\0")]
)
def test_a_time_of_another_length_in_the_middle_of_a_run_is_found(time: bytes, odd: bytes) -> None:
    """All other bytes of the framing are where they are in the records around it."""
    records = [a_record(n, parts=b"\2k" + NULL + NO_HEADERS, time=time) for n in range(40)]
    assert len(records[20]) == 1 + len(odd)
    records[20] = records[20][:1] + odd
    with pytest.raises(InvalidRecords, match="record 20"):
        require_records(b"".join(records), 40)


def test_a_run_ends_where_a_time_could_be_written_shorter() -> None:
    times = [b"\xff\1"] * 20 + [b"\x80\0"] + [b"\xff\1"] * 20
    bodies = [
        a_record(place, parts=NULL + NULL + NO_HEADERS, time=time)
        for place, time in enumerate(times)
    ]
    require_records(b"".join(bodies[:20]), 20)
    with pytest.raises(InvalidRecords, match="record 20"):
        require_records(b"".join(bodies), len(bodies))


def test_records_and_headers_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record_structure, "ELEMENTS_MAX", 50)
    records = [Record(place, 0, None, b"v") for place in range(51)]
    require_records(body_of(records[:50]), 50)
    with pytest.raises(TooManyElements):
        require_records(body_of(records), 51)
    for headers in (1, 30, 100):
        many = [Record(n, 0, None, b"v", (("h", bytes(n)),) * headers) for n in range(49)]
        allowed = 50 // headers // 2  # those of a first record are counted twice
        if allowed:
            require_records(body_of(many[:allowed]), allowed)
        with pytest.raises(TooManyElements):
            require_records(body_of(many) * 3, 50)


def test_a_record_with_many_headers_is_no_run() -> None:
    records = [Record(n, 0, None, b"v", (("h", b"1"),) * 100) for n in range(40)]
    require_records(body_of(records), len(records))


def test_keys_values_and_headers_may_be_long() -> None:
    sizes = (0, 1, 63, 64, 8191, 8192, 20_000)
    records = [Record(n, n, bytes(size), bytes(size)) for n, size in enumerate(sizes)]
    records += [
        Record(len(sizes) + n, n, None, None, (("h" * size, bytes(size)),))
        for n, size in enumerate(sizes)
    ]
    body = body_of(records)
    assert checked(body, len(records)) == plainly(body, len(records)) == [*range(7, 14)]
    assert checked(body[:-1], len(records)) is None


@pytest.mark.parametrize("value_size", [0, 64, 8191, 8192])
def test_every_byte_of_the_framing_is_checked(value_size: int) -> None:
    headers = (("h", b"1"), ("h" * 64, None))
    records = [
        Record(0, 5, b"key", bytes(value_size), headers),
        Record(1, 300, None, None),
        Record(2, 5, bytes(70), b"v", headers),
    ]
    body = body_of(records)
    contents = range(20, 20 + value_size)
    for at in set(range(len(body))) - set(contents[40:-40]):
        for byte in (0, 1, 2, 0x7F, 0x80, 0xFF):
            changed = body[:at] + bytes([byte]) + body[at + 1 :]
            assert checked(changed, 3) == plainly(changed, 3), (at, byte)


def test_a_run_of_records_without_keys_is_named_as_a_whole() -> None:
    records = [Record(place, 5, None, b"value") for place in range(100)]
    assert require_records(body_of(records), 100, with_keys=True) == list(range(100))
