from __future__ import annotations

import collections
import itertools
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kio.schema.index import schema_name_map
from scripted_broker import answer_of, request_of

from lossless.proxy.address import Address
from lossless.proxy.apis import version_max
from lossless.proxy.rewriting import Role
from lossless.proxy.streams import Answers, BadStream, Expected, Request, Requests, SpeaksTls


def relocate(_role: Role, node_id: int, _address: Address) -> Address:
    return Address("proxy.example", 1000 + node_id)


class Following:
    """Both directions of one connection, and what was told of them."""

    def __init__(self, dropped: int | None = None) -> None:
        self.told: list[Request] = []
        self.rewritten: list[str] = []
        self._dropped = dropped
        self.requests = Requests(self._on_request)
        self.answers = Answers(
            self.requests.expected,
            relocate,
            on_answer=lambda _: None,
            on_rewritten=self.rewritten.append,
        )

    def _on_request(self, request: Request) -> bool:
        self.told.append(request)
        return request.correlation_id == self._dropped


def fed(stream: Any, data: bytes, cuts: list[int]) -> bytes:
    points = [0, *sorted(cut % len(data) for cut in cuts), len(data)]
    out = b""
    for start, end in itertools.pairwise(points):
        out += b"".join(stream.feed(data[start:end]))
    return out


def metadata_request(number: int) -> bytes:
    return request_of(3, 12, number, {"topics": []}, client_id="client-" + "x" * number)


def metadata_answer(number: int, host: str, port: int) -> bytes:
    broker = {"node_id": 7, "host": host, "port": port}
    return answer_of(3, 12, number, {"brokers": [broker], "cluster_id": "c"})


def produce_request(number: int, acks: int = -1, version: int = 9, size: int = 0) -> bytes:
    partition = {"index": 0, "records": bytes(size)}
    named = {"topic_id": None} if version >= 13 else {"name": "t"}
    topics = [{**named, "partition_data": [partition]}]
    return request_of(0, version, number, {"acks": acks, "topic_data": topics})


def produce_answer(number: int) -> bytes:
    return answer_of(0, 9, number, {"responses": [{"name": "t"}]})


@given(cuts=st.lists(st.integers(0, 10_000), max_size=40), order=st.permutations(range(6)))
def test_however_the_bytes_come_the_same_bytes_go_out(cuts: list[int], order: list[int]) -> None:
    requests, answers, expected = [], [], []
    for number in order:
        if number == 0:
            requests.append(produce_request(number, acks=0))
        elif number % 2:
            requests.append(metadata_request(number))
            answers.append(metadata_answer(number, "kafka.example", 9092))
            expected.append(metadata_answer(number, "proxy.example", 1007))
        else:
            requests.append(produce_request(number))
            answers.append(produce_answer(number))
            expected.append(produce_answer(number))
    following = Following()
    assert fed(following.requests, b"".join(requests), cuts) == b"".join(requests)
    assert [request.correlation_id for request in following.told] == list(order)
    assert fed(following.answers, b"".join(answers), cuts) == b"".join(expected)
    assert following.rewritten == ["metadata"] * 3
    assert not following.requests.expected


@pytest.mark.parametrize("version", sorted(schema_name_map["produce"]))
@pytest.mark.parametrize("acks", [0, 1, -1])
def test_a_produce_request_is_answered_unless_it_asks_for_no_acknowledgement(
    version: int, acks: int
) -> None:
    following = Following()
    following.requests.feed(produce_request(1, acks, version))
    assert [request.is_answered for request in following.told] == [acks != 0]
    assert len(following.requests.expected) == (acks != 0)


def test_a_large_request_passes_before_it_is_complete() -> None:
    frame = produce_request(1, size=1_000_000)
    following = Following()
    assert b"".join(following.requests.feed(frame[:500_000])) == frame[:500_000]
    assert b"".join(following.requests.feed(frame[500_000:])) == frame[500_000:]


def test_a_large_answer_that_names_nobody_passes_before_it_is_complete() -> None:
    following = Following()
    following.requests.feed(request_of(1, 12, 5, {}))
    partition = {"partition_index": 0, "records": bytes(1_000_000)}
    frame = answer_of(1, 12, 5, {"responses": [{"topic": "t", "partitions": [partition]}]})
    assert b"".join(following.answers.feed(frame[:500_000])) == frame[:500_000]


def test_what_is_not_known_passes_as_it_is() -> None:
    header = (999).to_bytes(2, "big") + bytes(2) + (4).to_bytes(4, "big") + b"\xff\xff"
    frame = (len(header) + 6).to_bytes(4, "big") + header + b"abcdef"
    answer = b"\0\0\0\x0a\0\0\0\4uvwxyz"
    following = Following()
    assert b"".join(following.requests.feed(frame)) == frame
    assert following.told == [Request(999, 0, 4, None, True)]
    assert b"".join(following.answers.feed(answer)) == answer


def test_api_versions_newer_than_can_be_read_are_asked_for_as_one_that_nobody_knows() -> None:
    frame = bytearray(request_of(18, 4, 1, {}))
    frame[6:8] = (version_max(18) + 1).to_bytes(2, "big")
    asked = b"".join(Following().requests.feed(bytes(frame)))
    assert asked[6:8] == b"\x7f\xff"
    assert asked[:6] + asked[8:] == frame[:6] + frame[8:]


def test_an_answer_passes_over_requests_that_the_broker_left_unanswered() -> None:
    following = Following()
    for number in (1, 2, 3):
        following.requests.feed(produce_request(number))
    following.answers.feed(produce_answer(2))
    assert [expected.correlation_id for expected in following.requests.expected] == [3]


def test_an_answer_that_nobody_asked_for_is_refused() -> None:
    with pytest.raises(BadStream, match="request 9"):
        Following().answers.feed(produce_answer(9))


def test_the_answers_stop_before_the_one_that_is_dropped() -> None:
    following = Following(dropped=2)
    for number in (1, 2, 3):
        following.requests.feed(produce_request(number))
    data = b"".join(map(produce_answer, (1, 2, 3)))
    assert b"".join(following.answers.feed(data)) == produce_answer(1)
    assert following.answers.is_stopped
    assert following.answers.feed(produce_answer(3)) == []


def test_a_dropped_request_without_an_answer_goes_out_whole_and_is_the_last() -> None:
    following = Following(dropped=1)
    frame = produce_request(1, acks=0, size=10_000)
    assert following.requests.feed(frame[:5000]) == []
    assert b"".join(following.requests.feed(frame[5000:] + produce_request(2))) == frame
    assert following.requests.is_stopped


def test_what_does_not_reach_the_broker_is_not_waited_for() -> None:
    following = Following()
    following.requests.follows = False
    following.requests.feed(produce_request(1))
    assert not following.requests.expected


@pytest.mark.parametrize(
    ("data", "what"), [(b"\x15\x03\x03\0\2\2\x46", "alert"), (b"\x16\x03\x01\2\0\1", "handshake")]
)
def test_tls_is_told_from_kafka(data: bytes, what: str) -> None:
    expected = collections.deque([Expected(3, 12, 1, False)])
    answers = Answers(expected, relocate, on_answer=print, on_rewritten=print)
    for stream in (Following().requests, answers):
        with pytest.raises(SpeaksTls, match=what):
            stream.feed(data)


@pytest.mark.parametrize("data", [b"GET / HTTP/1.1\r\n\r\n", b"\0\0\0\2ab", b"\xff\xff\xff\xff"])
def test_what_is_not_kafka_is_refused(data: bytes) -> None:
    with pytest.raises(BadStream, match="not Kafka"):
        Following().requests.feed(data)


def test_a_request_that_ends_within_its_header_is_refused() -> None:
    with pytest.raises(BadStream, match="ends too early"):
        Following().requests.feed(b"\0\0\0\x0a" + b"\0\3\0\1\0\0\0\1\0\x40")


def test_sasl_by_raw_tokens_cannot_be_followed_and_is_refused() -> None:
    frame = request_of(17, 0, 1, {"mechanism": "PLAIN"})
    with pytest.raises(BadStream, match="SaslHandshake version 0"):
        Following().requests.feed(frame)
    following = Following()
    frame = request_of(17, 1, 1, {"mechanism": "PLAIN"})
    assert b"".join(following.requests.feed(frame)) == frame
