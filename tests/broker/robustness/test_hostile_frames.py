"""Bytes that are no requests: on either listener they end the connection, and nothing else.

`LOSSLESS_SEED=n` repeats a run; every test prints its seed.
"""

from __future__ import annotations

import os
import random
import socket
import struct
import uuid
from collections.abc import Callable, Iterator

import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st
from victim import TOPIC, Client, Victim, framed

from kafka_messages import every_version, fields_of
from lossless.wire import frames
from lossless.wire.codec import make, read, request_class, response_class, write
from lossless.wire.encoding import varint
from lossless.wire.versions import APIS, BROKER, CONTROLLER, Listener

SEED = int(os.environ.get("LOSSLESS_SEED", random.randrange(1 << 32)))
MAX_BYTES = 1_000_000  # socket.request.max.bytes of the victim
API_VERSIONS, METADATA, PRODUCE, FETCH, ENVELOPE = 18, 3, 0, 1, 58
QUORUM = {1, 52, 53, 54}  # a node of the cluster that speaks for a voter is believed
ASKED = framed(API_VERSIONS, 0, {})

Connect = Callable[[Victim], Client]
EITHER_LISTENER = pytest.mark.parametrize(
    "connect", [Victim.client, Victim.controller_client], ids=["broker", "controller"]
)


def _frame(body: bytes) -> bytes:
    return struct.pack(">i", len(body)) + body


def _header(key: int, version: int, client_id: bytes = b"\0\0") -> bytes:
    return struct.pack(">hhi", key, version, 7) + client_id


def _answered(client: Client) -> bool:
    """Whether one more request is answered on this connection."""
    client.send(ASKED)
    frame = client.frame()
    if frame is None:
        return False
    assert frame[:4] == struct.pack(">i", 7)
    return True


# Lengths and headers

BAD_STARTS = {
    "a length below zero": struct.pack(">i", -1) + b"\0" * 20,
    "the lowest length": struct.pack(">i", -0x80000000),
    "no length": struct.pack(">i", 0) + ASKED,
    "more than may be": struct.pack(">i", MAX_BYTES + 1),
    "the highest length": struct.pack(">i", 0x7FFFFFFF) + ASKED,
    "less than a header": _frame(b"\0\3\0"),
    "no client id": _frame(_header(API_VERSIONS, 0, b"")),
    "half of a client id's length": _frame(_header(API_VERSIONS, 0, b"\0")),
    "a client id that is cut off": _frame(_header(API_VERSIONS, 0, b"\x7f\xffabc")),
    "tags without end": _frame(_header(API_VERSIONS, 3) + varint(0xFFFFFFFF) + b"\0" * 8),
    "a tag of two billion bytes": _frame(_header(API_VERSIONS, 3) + b"\1\0" + varint(0x7FFFFFFF)),
    "a number that does not end": _frame(_header(API_VERSIONS, 3) + b"\xff" * 30),
    "no tags": _frame(_header(API_VERSIONS, 3)),
    "an API that is none": _frame(_header(0x7FFF, 0)),
    "an API below zero": _frame(_header(-1, 0)),
    "an API that Kafka has no more": _frame(_header(4, 0)),
    "HTTP": b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "TLS": bytes.fromhex("16030100f8010000f40303") + b"\0" * 250,
    "nothing but zeroes": b"\0" * 1000,
    "nothing but ones": b"\xff" * 1000,
}


@EITHER_LISTENER
@pytest.mark.parametrize("start", BAD_STARTS.values(), ids=BAD_STARTS)
def test_what_is_no_request_ends_the_connection(
    victim: Victim, connect: Connect, start: bytes
) -> None:
    with connect(victim) as client:
        client.send(start)
        assert client.end() == b""


@EITHER_LISTENER
@pytest.mark.parametrize("client_id", [b"\xff\xff", b"\x80\0", b"\xff\xf9", b"\0\2\xff\xfe"])
def test_a_client_id_may_be_missing_or_be_no_text(
    victim: Victim, connect: Connect, client_id: bytes
) -> None:
    with connect(victim) as client:
        client.send(_frame(_header(API_VERSIONS, 0, client_id)))
        assert client.answer(API_VERSIONS, 0).error_code.value == 0


@pytest.mark.parametrize("version", [-1, -0x8000, 5, 0x7FFF])
@EITHER_LISTENER
def test_any_version_of_api_versions_is_answered_with_what_is_spoken(
    victim: Victim, connect: Connect, version: int
) -> None:
    with connect(victim) as client:
        client.send(_frame(_header(API_VERSIONS, version)))
        answer = client.answer(API_VERSIONS, 0)
        assert answer.error_code.value == 35
        assert API_VERSIONS in {api.api_key for api in answer.api_keys}
        assert _answered(client)


def _not_spoken(listener: Listener) -> Iterator[tuple[int, int]]:
    for api in APIS.values():
        if not api.listeners & listener:
            yield api.key, api.highest
        elif api.key != API_VERSIONS:
            yield from ((api.key, version) for version in (api.lowest - 1, api.highest + 1, -9))


@pytest.mark.parametrize("listener", [BROKER, CONTROLLER])
def test_what_was_not_offered_ends_the_connection(victim: Victim, listener: Listener) -> None:
    connect = victim.client if listener is BROKER else victim.controller_client
    for key, version in _not_spoken(listener):
        with connect() as client:
            client.send(_frame(_header(key, version, b"\0\0\0") + b"\0" * 50))
            assert client.end() == b"", (key, version)


# Bodies

BAD_METADATA = {
    "cut off": b"",
    "two billion topics": varint(0x80000000),
    "four billion topics": varint(0xFFFFFFFF) + b"\0" * 100,
    "a hundred thousand topics that are not there": varint(100_000) + b"\0" * 100,
    "a name of two billion bytes": varint(2) + b"\0" * 16 + varint(0x7FFFFFFF),
    "a name of a million bytes": (
        varint(2) + b"\0" * 16 + varint(900_001) + b"x" * 900_000 + b"\0" * 5
    ),
    "a name that is no text": varint(2) + b"\0" * 16 + b"\3\xff\xfe\0\0\0\0",
    "two billion tags": varint(1) + b"\0\0" + varint(0x7FFFFFFF),
    "a tag that is cut off": varint(1) + b"\0\0" + b"\1\5\x70abc",
    "too many topics": varint(200_001) + (b"\0" * 16 + b"\0\0")[:4] * 200_000,
}


@pytest.mark.parametrize("body", BAD_METADATA.values(), ids=BAD_METADATA)
def test_a_body_that_lies_ends_the_connection_and_takes_no_memory(
    victim: Victim, body: bytes
) -> None:
    before = victim.process.memory_info().vms
    with victim.client() as client:
        client.send(_frame(_header(METADATA, 12, b"\0\0\0") + body))
        assert client.end() == b""
    assert victim.process.memory_info().vms - before < 256 << 20


@pytest.mark.parametrize(
    ("key", "version", "body"),
    [
        (METADATA, 0, struct.pack(">i", 0x7FFFFFFF)),
        (METADATA, 1, struct.pack(">i", -2)),
        (1, 4, struct.pack(">iiiibi", -1, 0, 0, 0, 0, 0x7FFFFFFF)),
        (PRODUCE, 3, struct.pack(">hhii", -1, -1, 0, 0x7FFFFFFF)),
        (PRODUCE, 9, struct.pack(">bhi", 0, -1, 0) + varint(0xFFFFFFFF)),
        (20, 1, struct.pack(">i", -1)),  # a list of topics that may not be missing
    ],
)
def test_counts_that_lie_end_the_connection(
    victim: Victim, key: int, version: int, body: bytes
) -> None:
    tags = b"\0" if request_class(key, version).__flexible__ else b""
    with victim.client() as client:
        client.send(_frame(_header(key, version) + tags + body))
        assert client.end() == b""


def test_tagged_fields_that_nobody_knows_are_ignored(victim: Victim) -> None:
    unknown = varint(2) + varint(5) + b"\3abc" + varint(10_000) + b"\0"
    body = b"\1" + b"\0\0" + unknown
    with victim.client() as client:
        client.send(_frame(_header(METADATA, 12) + unknown + body))
        assert client.answer(METADATA, 12).brokers
        assert _answered(client)


def test_bytes_behind_a_message_are_ignored(victim: Victim) -> None:
    with victim.client() as client:
        client.send(_frame(ASKED[4:] + b"\xff" * 1000))
        assert client.answer(API_VERSIONS, 0).error_code.value == 0
        assert _answered(client)


# Every message of every version, with anything in it, and then some bytes changed


@st.composite
def _mutations(draw: st.DrawFn, frame: bytes) -> bytes:
    """The same request with some of its message's bytes changed, cut out, or put in."""
    changed = bytearray(frame[4:])
    for _ in range(draw(st.integers(0, 3))):
        at = draw(st.integers(8, max(8, len(changed))))
        match draw(st.integers(0, 3)):
            case 0:
                changed[at : at + 1] = bytes([draw(st.sampled_from([0, 1, 0x7F, 0x80, 0xFF]))])
            case 1:
                changed[at : at + 1] = draw(st.binary(min_size=1, max_size=1))
            case 2:
                del changed[at : at + draw(st.integers(1, 6))]
            case _:
                changed[at:at] = draw(st.binary(max_size=6) | st.just(b"\xff" * 5))
    return _frame(bytes(changed))


Send = Callable[[int, bytes], None]


def _assault(examples: int, send: Send) -> None:
    """The empty message of every version of every API, mutated; then fuller ones of any."""
    print(f"LOSSLESS_SEED={SEED}")
    versions = [(api.key, version) for api, version in every_version()]

    def untold(count: int) -> settings:
        quick = [HealthCheck.too_slow, HealthCheck.data_too_large]
        return settings(
            max_examples=count,
            database=None,
            phases=[Phase.generate],
            suppress_health_check=quick,
            deadline=None,
        )

    @seed(SEED)
    @untold(1)
    @given(st.data())
    def assault_each(data: st.DataObject) -> None:
        for key, version in versions:
            empty = framed(key, version, {})
            send(key, empty)
            send(key, data.draw(_mutations(empty)))

    @seed(SEED)
    @untold(examples)
    @given(st.data())
    def assault_any(data: st.DataObject) -> None:
        key, version = data.draw(st.sampled_from(versions))
        fields = data.draw(fields_of(request_class(key, version)))
        send(key, data.draw(_mutations(framed(key, version, fields))))

    assault_each()
    assault_any()


def test_mutated_requests_leave_a_broker_as_it_was(victim: Victim) -> None:
    def send(_key: int, frame: bytes) -> None:
        with victim.client() as client:
            client.send(frame)
            client.end()

    _assault(150, send)


def test_mutated_requests_leave_a_controller_as_it_was(victim: Victim) -> None:
    def send(key: int, frame: bytes) -> None:
        if key not in QUORUM:
            with victim.controller_client() as client:
                client.send(frame)
                client.end()

    _assault(150, send)


def test_mutated_requests_within_envelopes_leave_a_controller_as_it_was(victim: Victim) -> None:
    with victim.controller_client() as client:

        def send(_key: int, frame: bytes) -> None:
            envelope = {"request_data": frame[4:], "client_host_address": b"\x7f\0\0\1"}
            assert client.ask(ENVELOPE, envelope) is not None  # the link carries others' requests

        _assault(150, send)


@pytest.mark.parametrize(
    "inner",
    [
        b"",
        b"\0",
        _header(0x7FFF, 0),
        _header(ENVELOPE, 0, b"\0\0\0"),
        _header(METADATA, 12, b"\0\0\0"),
        _header(19, 99),
        _header(19, 7, b"\x7f\xff"),
        _header(19, 7, b"\0\0\0") + varint(0xFFFFFFFF),
        framed(19, 7, {})[4:-3],
    ],
)
def test_an_envelope_with_nothing_good_in_it_is_an_invalid_request(
    victim: Victim, inner: bytes
) -> None:
    with victim.controller_client() as client:
        answer = client.ask(ENVELOPE, {"request_data": inner, "client_host_address": b"?"})
        assert answer.error_code.value == 42
        assert _answered(client)


@pytest.mark.parametrize("key", sorted(QUORUM))
def test_what_is_not_about_the_metadata_log_ends_the_connection_to_a_controller(
    victim: Victim, key: int
) -> None:
    for version in range(APIS[key].lowest, APIS[key].highest + 1):
        with victim.controller_client() as client:
            client.send(framed(key, version, {}))
            assert client.end() == b""


@pytest.mark.parametrize("version", range(APIS[FETCH].lowest, APIS[FETCH].highest + 1))
def test_every_version_of_fetch_is_answered_by_a_controller(victim: Victim, version: int) -> None:
    name = {"topic_id": uuid.UUID(int=1)} if version >= 13 else {"topic": "__cluster_metadata"}
    partition = {"partition": 0, "fetch_offset": 1 << 40, "current_leader_epoch": 1 << 30}
    topics = [{**name, "partitions": [partition]}]
    with victim.controller_client() as client:
        assert client.ask(FETCH, {"max_wait": 0, "topics": topics}, version) is not None


# How bytes arrive


def test_a_frame_may_come_one_byte_at_a_time(victim: Victim) -> None:
    with victim.client() as client:
        for byte in framed(METADATA, 12, {"topics": [{"name": TOPIC}]}):
            client.send(bytes([byte]))
        assert client.answer(METADATA, 12).topics[0].error_code.value == 0


@pytest.mark.parametrize("cut", [1, 3, 5, 20_000, 70_000, 200_000])
def test_a_large_frame_may_come_in_pieces(victim: Victim, cut: int) -> None:
    group = {"group_id": "in-pieces", "member_id": "x" * 1000, "generation_id": 1}
    assignments = [{"member_id": "m", "assignment": b"\7" * 300_000}]
    frame = framed(14, 3, {**group, "assignments": assignments})
    with victim.client() as client:
        client.send(frame[:cut])
        for start in range(cut, len(frame), 100_000):
            client.send(frame[start : start + 100_000])
        assert client.answer(14, 3).error_code.value == 25  # nobody knows this member
        assert _answered(client)


def test_many_frames_may_come_at_once_and_are_answered_in_order(victim: Victim) -> None:
    count = 1000
    requests = [framed(API_VERSIONS, 0, {}, correlation_id=number) for number in range(count)]
    with victim.client() as client:
        client.send(b"".join(requests))
        for number in range(count):
            frame = client.frame()
            assert frame is not None
            assert frame[:4] == struct.pack(">i", number)


def test_a_good_frame_before_a_bad_one_is_served_and_one_after_it_is_not(victim: Victim) -> None:
    topics = {"topics": [{"name": "never-made", "num_partitions": 1, "replication_factor": 1}]}
    with victim.client() as client:
        client.send(ASKED + _frame(b"\xff" * 20) + framed(19, 7, {**topics, "timeout": 1000}))
        client.end()
    with victim.client() as client:
        asked = {"topics": [{"name": "never-made"}], "allow_auto_topic_creation": False}
        assert client.ask(METADATA, asked, 12).topics[0].error_code.value == 3


def test_a_connection_that_is_half_closed_is_closed(victim: Victim) -> None:
    with victim.client() as client:
        client.send(ASKED[:7])
        assert client.end() == b""
    with victim.client() as client:
        client.send(framed(1, 12, {"max_wait": 600_000, "min_bytes": 1, "topics": _waiting()}))
        assert client.end() == b""


def _waiting() -> list[dict[str, object]]:
    partition = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 0}
    return [{"topic": TOPIC, "partitions": [partition]}]


def test_a_connection_may_break_in_the_middle_of_a_large_produce(victim: Victim) -> None:
    entity = request_class(PRODUCE, 9)
    fields = {
        "acks": -1,
        "timeout": 1000,
        "topic_data": [
            {"name": TOPIC, "partition_data": [{"index": 0, "records": b"\0" * 900_000}]}
        ],
    }
    message = write(make(entity, fields))
    frame = frames.request(PRODUCE, 9, 1, "hostile", message, tagged=True)
    with victim.client() as client:
        before = victim.end_offset(client, TOPIC)
    for _ in range(10):
        client = victim.client()
        client.send(frame[: len(frame) // 2])
        # Reset rather than closed: nothing lingers.
        client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        client.socket.close()
    with victim.client() as client:
        assert victim.end_offset(client, TOPIC) == before


def test_the_answer_to_a_version_that_is_too_new_can_be_read_by_every_client(
    victim: Victim,
) -> None:
    with victim.client() as client:
        client.send(_frame(_header(API_VERSIONS, 99, b"\0\0\0") + b"\0" * 10))
        frame = client.frame()
        assert frame is not None
        assert read(response_class(API_VERSIONS, 0), frame, 4).error_code.value == 35
